"""A system of cores as devices: each core has a window of one memory, and all run their programs together."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
import numpy.typing as npt

from ..hw.bus import PAGE_BYTES
from ..hw.config import REACH_BITS
from ..hw.system_config import SystemConfig
from ..imports import IMPORTS
from ..sim.dram import DramModel
from ..sim.result import RunResult
from ..sim.system_run import NOTHING, CoreProgram, SystemResult
from .device import Bytes, Device, Progress, device_kind, no_systems
from .errors import DeviceError

if TYPE_CHECKING:
    from ..hw.relay_plan import RelayPlan
    from ..sim.relay_run import Host, RelayResult
    from ..sim.system_fsim import FunctionalSystem
    from ..sim.system_rtl import RtlSystem
    from ..sim.timing_ports import TimedProgram
    from ..sim.waves import WaveRequest

SYSTEM_DEVICES = ("fsim", "rtl")
"""What simulates a system: the functional simulator with the timing model, or the system's Verilog in Verilator."""


def window_pitch(window_bytes: int) -> int:
    """Bytes from one window of so many bytes to the next: whole pages."""
    return -(-window_bytes // PAGE_BYTES) * PAGE_BYTES


class Window:
    """A part of a system's memory, of a core or of an item. Offsets are bytes from its begin."""

    def __init__(self, system: SystemDevice, start: int, size: int) -> None:
        self._system, self._start, self.size = system, start, size

    def write(self, offset: int, data: npt.NDArray[np.generic]) -> None:
        """Copy an array in; :class:`DeviceError` if it does not fit."""
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self._check(offset, raw.size)
        self._system.write(self._start + offset, raw)

    def read(self, offset: int, size: int) -> Bytes:
        """Copy bytes out; :class:`DeviceError` if they are not in it."""
        self._check(offset, size)
        return self._system.read(self._start + offset, size)

    def _check(self, offset: int, size: int) -> None:
        if offset < 0 or offset + size > self.size:
            raise DeviceError(f"bytes {offset}..{offset + size} are outside the window of {self.size} bytes")


class SystemDevice(ABC):
    """The cores of a system, each with a part of ``window_bytes`` of the memory, its window; ``kind`` is what users
    call the device."""

    serves: ClassVar[bool] = True
    """Whether the host can use one window while cores are at work on others."""

    def __init__(
        self, config: SystemConfig, kind: str, window_bytes: int, *, shared: range = NOTHING,
        dram: DramModel | None = None, windows: int | None = None,
    ) -> None:  # fmt: skip
        """``windows``: as many as cores, if nothing is said. ``dram``: the memory that is simulated, or of a real one
        that which cycles are compared with."""
        self.config = config
        self.kind = kind
        self.dram = dram or DramModel.of(config.cores[0])
        self.window_bytes = window_bytes
        self.pitch = window_pitch(window_bytes)
        """Bytes from one core's part of the memory to the next one's."""
        self.shared = shared
        """Bytes of core 0's part that all cores read. Where there are any, all have one window, the whole memory."""
        self._memory_bytes = self.pitch * (len(config.cores) if windows is None else windows)
        if shared and self._memory_bytes > 1 << REACH_BITS:
            raise DeviceError(f"{len(config.cores)} cores that share reads need one window of {self._memory_bytes:,} "
                              f"bytes, but loads and stores reach no further than {1 << REACH_BITS:,}",
                              hint="use fewer cores, or a system without shared_reads")  # fmt: skip
        self.cores = tuple(CoreOfSystem(self, core) for core in range(len(config.cores)))
        self.results: list[SystemResult] = []
        """Of each run since :meth:`begin`."""
        self._programs: list[CoreProgram | None] = []
        self._barrier = threading.Barrier(1)

    def window(self, number: int) -> Window:
        """A window, of a core the one of its number."""
        return Window(self, number * self.pitch, self.window_bytes)

    @abstractmethod
    def write(self, offset: int, raw: Bytes) -> None:
        """Copy bytes to a place in the memory."""

    @abstractmethod
    def read(self, offset: int, size: int) -> Bytes:
        """Copy bytes of the memory out."""

    @abstractmethod
    def run(self, programs: Sequence[CoreProgram | None]) -> SystemResult:
        """A program on each core that has one, all at once."""

    @abstractmethod
    def relay(
        self, plan: RelayPlan, programs: Sequence[Sequence[CoreProgram]], runs: int, host: Host | None = None
    ) -> RelayResult:
        """``runs`` runs of each core, in turn of its programs, which start each other; ``host``, only where the device
        :attr:`serves`, is called once all have ended a run."""

    @abstractmethod
    def close(self) -> None:
        """Give back what the device holds; it is of no more use."""

    def begin(self, count: int) -> None:
        """The first ``count`` cores will run, a thread each, and wait for each other at each program."""
        self.results = []
        self._programs = [None] * len(self.config.cores)
        self._barrier = threading.Barrier(count, self._run)

    def abandon(self) -> None:
        """A thread has failed: the others need not wait for it."""
        self._barrier.abort()

    def execute(self, core: int, offset: int, count: int) -> RunResult:
        """A program of one core; it begins when all cores have theirs."""
        start, size = core * self.pitch, self.window_bytes
        if self.shared:
            offset, start, size = start + offset, 0, self._memory_bytes
        self._programs[core] = CoreProgram(offset=offset, count=count, window_start=start, window_bytes=size)
        self._barrier.wait()
        result = self.results[-1].cores[core]
        assert result is not None
        return result

    def _run(self) -> None:
        """Called in one of the threads, while all others wait."""
        self.results.append(self.run(self._programs))


class SimulatedSystem(SystemDevice):
    """A system in this process; ``kind`` is one of :data:`SYSTEM_DEVICES`. Where time is the timing model's, the host
    of a relay takes none."""

    def __init__(
        self, config: SystemConfig, kind: str, window_bytes: int, *, shared: range = NOTHING,
        dram: DramModel | None = None, progress: Progress | None = None, windows: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(config, kind, window_bytes, shared=shared, dram=dram, windows=windows)
        self._progress = progress
        self.waves: WaveRequest | None = None
        """The waveform that was asked for and is not finished."""
        self._shown: list[list[Bytes]] = []
        """Of each core, the programs that ran in the waveform."""
        self._memory: Bytes = np.zeros(self._memory_bytes, np.uint8)
        """The simulator's, once there is one."""
        self._simulator: FunctionalSystem | RtlSystem | None = None

    def _running(self) -> FunctionalSystem | RtlSystem:
        """The simulator, which is made by the first run: until then it may be asked for a waveform."""
        if self._simulator is None:
            simulator = self._make()
            simulator.dram[:] = self._memory
            self._simulator, self._memory = simulator, simulator.dram
        return self._simulator

    def _make(self) -> FunctionalSystem | RtlSystem:
        if self.kind == "rtl":
            with IMPORTS:
                from ..sim.system_rtl import RtlSystem

            return RtlSystem(self.config, self._memory_bytes, dram=self.dram, progress=self._progress,
                             waves=self.waves)  # fmt: skip
        with IMPORTS:
            from ..sim.system_fsim import FunctionalSystem

        return FunctionalSystem(self.config, self._memory_bytes, check_races=False)

    def write(self, offset: int, raw: Bytes) -> None:
        self._memory[offset : offset + raw.size] = raw

    def read(self, offset: int, size: int) -> Bytes:
        return self._memory[offset : offset + size].copy()

    def close(self) -> None:
        self._end_waves()  # the memory goes with this object

    def write_waves(self, request: WaveRequest) -> None:
        """Write a waveform of what will run from now on; :meth:`finish_waves` ends it. :class:`DeviceError` for a
        device that has none."""
        if self.kind != "rtl":
            raise DeviceError(f"device {self.kind!r} has no waveform", hint="load the model with device='rtl'")
        self._end_waves()
        self._memory, self._simulator = self._memory.copy(), None
        self.waves, self._shown = request, [[] for _ in self.config.cores]

    def finish_waves(self) -> tuple[Path, Path | None]:
        """End the waveform; its path, and that of GTKWave's view of it, if it is one to look at. :class:`DeviceError`
        if none was asked for, or nothing ran."""
        with IMPORTS:
            from ..sim.waves import core_of_system, explain

        request = self.waves
        if request is None or not any(self._shown):
            raise DeviceError("there is no waveform", hint="ask for one by write_waves, and run a program")
        self._end_waves()
        shown = enumerate(zip(self.config.cores, self._shown, strict=True))
        cores = [core_of_system(number, core, programs) for number, (core, programs) in shown]
        return request.path, None if request.counts else explain(request, cores)

    def _end_waves(self) -> None:
        if self.waves is not None and self._simulator is not None:
            cast("RtlSystem", self._simulator).close_waves()
        self.waves = None

    def _show(self, programs: Sequence[Sequence[CoreProgram | None]]) -> None:
        """These programs of each core will run."""
        if self.waves is not None:
            for core, own in enumerate(programs):
                self._shown[core] += [self._timed_program(core, each).code for each in own if each is not None]

    def run(self, programs: Sequence[CoreProgram | None]) -> SystemResult:
        self._show([[each] for each in programs])
        done = self._running().run(programs, shared=self.shared)
        return self._timed(done, programs) if self.kind == "fsim" and not done.faults else done

    def _timed(self, done: SystemResult, programs: Sequence[CoreProgram | None]) -> SystemResult:
        with IMPORTS:
            from ..sim.system_timing import predict_system

        timed_programs = [
            None if program is None else self._timed_program(core, program) for core, program in enumerate(programs)
        ]
        timed = predict_system(self.config, timed_programs, self.dram, shared=self.shared)
        cores = tuple(
            when and what and replace(when, tokens_left=what.tokens_left)
            for when, what in zip(timed.cores, done.cores, strict=True)
        )
        return replace(timed, cores=cores)

    def _timed_program(self, core: int, program: CoreProgram) -> TimedProgram:
        with IMPORTS:
            from ..sim.timing_ports import TimedProgram

        first = program.window_start + program.offset
        size = program.count * self.config.cores[core].instruction_bytes
        code = self._memory[first : first + size].copy()
        return TimedProgram(code=code, offset=program.offset, window_start=program.window_start)

    def relay(
        self, plan: RelayPlan, programs: Sequence[Sequence[CoreProgram]], runs: int, host: Host | None = None
    ) -> RelayResult:
        if self.kind == "rtl":
            self._show(programs)
            return cast("RtlSystem", self._running()).relay(plan, programs, runs, host=host, shared=self.shared)
        with IMPORTS:
            from ..sim.relay_fsim import run_relay
            from ..sim.relay_timing import predict_relay

        timed = [[self._timed_program(core, program) for program in own] for core, own in enumerate(programs)]
        done = run_relay(cast("FunctionalSystem", self._running()), plan, programs, runs, host)
        return done if done.faults else predict_relay(self.config, plan, timed, runs, self.dram, shared=self.shared)


def open_system(
    name: str, config: SystemConfig, window_bytes: int, *, shared: range = NOTHING, dram: DramModel | None = None,
    progress: Progress | None = None, windows: int | None = None,
) -> SystemDevice:  # fmt: skip
    """A system by the name of its device, as of :func:`~.device.open_device`. ``dram``: the memory of a simulator, and
    what a real one is compared with."""
    if name in SYSTEM_DEVICES:
        return SimulatedSystem(config, name, window_bytes, shared=shared, dram=dram, progress=progress, windows=windows)
    kind, (_, separator, place) = device_kind(name), name.partition("://")
    if not separator:
        raise no_systems(name)
    return kind.system_at(place, config, window_bytes, shared=shared, dram=dram, progress=progress, windows=windows)


class CoreOfSystem(Device):
    """One core of a :class:`SystemDevice`."""

    name = "core of a system"

    def __init__(self, system: SystemDevice, core: int) -> None:
        super().__init__(system.config.cores[core])
        self._system = system
        self._core = core
        self._window = system.window(core)

    @property
    def has_time(self) -> bool:
        return True

    @property
    def dram(self) -> DramModel:
        return self._system.dram

    @property
    def has_trace(self) -> bool:
        return False

    def allocate(self, window_bytes: int) -> None:
        if window_bytes > self._system.window_bytes:
            raise DeviceError(f"a window of {window_bytes} bytes, but each core of the system has one of "
                              f"{self._system.window_bytes}")  # fmt: skip
        if window_bytes:
            self._window.write(0, np.zeros(self._window.size, np.uint8))

    def write(self, offset: int, data: npt.NDArray[np.generic]) -> None:
        self._window.write(offset, data)

    def read(self, offset: int, size: int) -> Bytes:
        return self._window.read(offset, size)

    def execute(self, offset: int, count: int, trace: bool) -> RunResult:
        return self._system.execute(self._core, offset, count)
