"""A system of cores as devices: each core has a window of one memory, and all run their programs together."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from ..hw.bus import PAGE_BYTES
from ..hw.config import REACH_BITS
from ..hw.system_config import SystemConfig
from ..imports import IMPORTS
from ..sim.dram import DramModel
from ..sim.result import RunResult
from ..sim.system_run import NOTHING, CoreProgram, SystemResult
from .device import Bytes, LocalDevice, Progress
from .errors import DeviceError

if TYPE_CHECKING:
    from ..hw.relay_plan import RelayPlan
    from ..sim.relay_run import Host, RelayResult
    from ..sim.system_fsim import FunctionalSystem
    from ..sim.system_rtl import RtlSystem
    from ..sim.timing_ports import TimedProgram

SYSTEM_DEVICES = ("fsim", "rtl")
"""What can run a system: the functional simulator with the timing model, or the Verilog of the system in Verilator."""


def window_pitch(window_bytes: int) -> int:
    """Bytes from one window of so many bytes to the next: whole pages."""
    return -(-window_bytes // PAGE_BYTES) * PAGE_BYTES


class SystemDevice:
    """The cores of a system, each with a part of ``window_bytes`` of the memory, its window; ``kind`` is one of
    :data:`SYSTEM_DEVICES`."""

    def __init__(
        self, config: SystemConfig, kind: str, window_bytes: int, *, shared: range = NOTHING,
        dram: DramModel | None = None, progress: Progress | None = None, windows: int | None = None,
    ) -> None:  # fmt: skip
        """``windows``: as many as cores, if nothing is said."""
        if kind not in SYSTEM_DEVICES:
            raise DeviceError(f"device {kind!r} runs no systems", hint=f"those that do: {', '.join(SYSTEM_DEVICES)}")
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
        self._simulator = self._make(self._memory_bytes, progress)
        self.cores = tuple(CoreOfSystem(self, core) for core in range(len(config.cores)))
        self.results: list[SystemResult] = []
        """Of each run since :meth:`begin`."""
        self._programs: list[CoreProgram | None] = []
        self._barrier = threading.Barrier(1)

    def _make(self, memory_bytes: int, progress: Progress | None) -> FunctionalSystem | RtlSystem:
        if self.kind == "rtl":
            with IMPORTS:
                from ..sim.system_rtl import RtlSystem

            return RtlSystem(self.config, memory_bytes, dram=self.dram, progress=progress)
        with IMPORTS:
            from ..sim.system_fsim import FunctionalSystem

        return FunctionalSystem(self.config, memory_bytes, check_races=False)

    def window(self, number: int) -> Bytes:
        """A window, of a core the one of its number; writing to the array writes to the memory."""
        return self._simulator.dram[number * self.pitch :][: self.window_bytes]

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

    def run(self, programs: Sequence[CoreProgram | None]) -> SystemResult:
        """A program on each core that has one, all at once."""
        done = self._simulator.run(programs, shared=self.shared)
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
        code = self._simulator.dram[first : first + size].copy()
        return TimedProgram(code=code, offset=program.offset, window_start=program.window_start)

    def relay(
        self, plan: RelayPlan, programs: Sequence[Sequence[CoreProgram]], runs: int, host: Host | None = None
    ) -> RelayResult:
        """``runs`` runs of each core, in turn of its programs, which start each other; ``host`` is called once all have
        ended a run. Where time is the timing model's, the host takes none."""
        if self.kind == "rtl":
            return cast("RtlSystem", self._simulator).relay(plan, programs, runs, host=host, shared=self.shared)
        with IMPORTS:
            from ..sim.relay_fsim import run_relay
            from ..sim.relay_timing import predict_relay

        timed = [[self._timed_program(core, program) for program in own] for core, own in enumerate(programs)]
        done = run_relay(cast("FunctionalSystem", self._simulator), plan, programs, runs, host)
        return done if done.faults else predict_relay(self.config, plan, timed, runs, self.dram, shared=self.shared)


class CoreOfSystem(LocalDevice):
    """One core of a :class:`SystemDevice`."""

    name = "core of a system"

    def __init__(self, system: SystemDevice, core: int) -> None:
        super().__init__(system.config.cores[core])
        self._system = system
        self._core = core

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
        self.memory()[:] = np.uint8(0)

    def memory(self) -> Bytes:
        return self._system.window(self._core)

    def execute(self, offset: int, count: int, trace: bool) -> RunResult:
        return self._system.execute(self._core, offset, count)
