"""Devices: one small interface to whatever runs a program.

``null`` keeps the bytes and runs nothing (host overhead, plumbing tests), ``fsim`` is the functional simulator, ``rtl``
the core's Verilog in Verilator; ``pynq://NAME`` is a board (:mod:`weft.boards.device`). A device from outside
implements `Device` and is made known by `register_device`, or by its package through the entry point group
``weft.devices``:

    [project.entry-points."weft.devices"]
    emulator = "my_package.my_module:EmulatorDevice"

A kind of which there may be several has a place in its name, ``emulator://PLACE``: it implements :meth:`Device.at`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from ..compiler.model import CompiledModel, HostCode, HostProgram
from ..hw.config import CoreConfig
from ..hw.dram_rate import DramRate
from ..hw.errors import ConfigError
from ..imports import IMPORTS
from ..plugins import load_plugin, plugins
from ..sim.dram import DramModel
from .errors import CoreFaultError, DeviceError
from .run_lock import RunLock, stays_here

if TYPE_CHECKING:  # a simulator is imported when a device of its kind is made
    from pathlib import Path

    from ..hw.cycle_class import CycleClass
    from ..hw.isa import Engine
    from ..hw.system_config import SystemConfig
    from ..sim.result import RunResult
    from ..sim.rtl import RtlSimulator
    from ..sim.states import StateRecording
    from ..sim.waves import WaveRequest
    from .system_device import SystemDevice

Bytes = npt.NDArray[np.uint8]
Progress = Callable[[str], None]

GROUP = "weft.devices"


HostCodes = Callable[[HostProgram, str], HostCode]
"""Machine code of a host program for a processor by its name; CompileError if there is none."""


@dataclass(frozen=True)
class WholeRun:
    """What a device made of a batch by itself. ``outputs`` by name, one item behind the other; ``results``: the
    programs of the last item; ``cycles``: of the core, all items; ``seconds``: on the device."""

    outputs: dict[str, npt.NDArray[Any]]
    results: tuple[RunResult, ...]
    cycles: int
    seconds: float


class WholeModel(Protocol):
    """A model that a device runs by itself, its steps on a processor as well."""

    def run(self, inputs: Mapping[str, npt.NDArray[Any]], count: int) -> WholeRun:
        """A batch of ``count`` items; each input has one more axis, in front, of that size.

        :class:`CoreFaultError` for the first program that ends in a fault, InputError for an index outside of its axis.
        """


def no_systems(device: str) -> DeviceError:
    """The error for a device of one core that is to run a system."""
    return DeviceError(f"device {device!r} runs no systems", hint="those that do: fsim, rtl, pynq://NAME")


class Device(ABC):
    """A core with a window of memory, near or far. Offsets are bytes from the window's base.

    ``name`` is what users call it.
    """

    name: ClassVar[str]

    __reduce__ = stays_here("open another one")

    def __init__(self, config: CoreConfig, *, progress: Progress | None = None) -> None:
        if not isinstance(config, CoreConfig):
            raise DeviceError(f"device {self.name!r}: config is {config!r:.80}, but must be a CoreConfig",
                              hint='weft.named_config("pynq") is one')  # fmt: skip
        self.config = config
        self.progress: Progress = progress or (lambda _: None)
        self._counters: Mapping[Engine, Mapping[CycleClass, int]] = {}
        self.lock = RunLock()
        """Held by whoever uses the window."""
        self.tenant: object = None
        """Whoever allocated the window; what others had there is gone."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of core {self.config.name!r}>"

    @property
    def has_time(self) -> bool:
        """Whether the results of runs carry cycles."""
        return False

    @property
    def dram(self) -> DramRate | None:
        """The memory that it models; None where the memory is a real one, or no time is modelled."""
        return None

    @property
    def has_trace(self) -> bool:
        """Whether they also carry a trace on request."""
        return self.has_time

    @classmethod
    def at(cls, place: str, config: CoreConfig, *, progress: Progress | None = None) -> Device:
        """The device that is called ``name://place``; :class:`DeviceError` if there is no such place."""
        raise DeviceError(f"device {cls.name!r} has no places", hint=f"call it {cls.name!r}")

    @classmethod
    def system_at(
        cls, place: str, config: SystemConfig, window_bytes: int, *, shared: range, dram: DramModel | None,
        progress: Progress | None, windows: int | None,
    ) -> SystemDevice:  # fmt: skip
        """All cores of a system that is at ``name://place``; :class:`DeviceError` if such places have one core."""
        raise no_systems(f"{cls.name}://{place}")

    @abstractmethod
    def allocate(self, window_bytes: int) -> None:
        """Make a zeroed DMA window of this size; what was in an earlier one is gone."""

    @abstractmethod
    def write(self, offset: int, data: npt.NDArray[np.generic]) -> None:
        """Copy an array into the window; :class:`DeviceError` if it does not fit."""

    @abstractmethod
    def read(self, offset: int, size: int) -> Bytes:
        """Copy ``size`` bytes out of the window; :class:`DeviceError` if they are not in it."""

    @abstractmethod
    def execute(self, offset: int, count: int, trace: bool) -> RunResult:
        """Run ``count`` instructions at ``offset`` and wait for the end, good or bad."""

    def launch(self, offset: int, count: int, *, trace: bool = False) -> RunResult:
        """Run a program; :class:`CoreFaultError` if the core stops with a fault, after which it can be used again."""
        result = self.execute(offset, count, trace)
        self._counters = result.counters
        if result.fault is not None:
            raise CoreFaultError(f"device {self.name!r}: {result.fault}", result)
        return result

    def whole_model(self, model: CompiledModel, code: HostCodes) -> WholeModel | None:
        """``model`` on this device alone, the host's part on the device's own processor; None: the host does its part.

        It is asked once the window holds the model's constants and programs.
        """
        return None

    def counters(self) -> Mapping[Engine, Mapping[CycleClass, int]]:
        """Cycles of each engine in each class in the last run; empty where the device does not model time."""
        return self._counters


class LocalDevice(Device):
    """A device whose window is memory of this process."""

    @abstractmethod
    def memory(self) -> Bytes:
        """The window's bytes; writing to the array writes to the device."""

    def write(self, offset: int, data: npt.NDArray[np.generic]) -> None:
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self._check(offset, raw.size)
        self.memory()[offset : offset + raw.size] = raw

    def read(self, offset: int, size: int) -> Bytes:
        self._check(offset, size)
        return self.memory()[offset : offset + size].copy()

    def _check(self, offset: int, size: int) -> None:
        window = self.memory().size
        if offset < 0 or offset + size > window:
            raise DeviceError(f"bytes {offset}..{offset + size} are outside the window of {window} bytes")


class NullDevice(LocalDevice):
    """Memory without a core: programs end at once and change nothing."""

    name = "null"

    def __init__(self, config: CoreConfig, *, progress: Progress | None = None) -> None:
        super().__init__(config, progress=progress)
        self._memory = np.zeros(0, np.uint8)

    def allocate(self, window_bytes: int) -> None:
        self._memory = np.zeros(window_bytes, np.uint8)

    def memory(self) -> Bytes:
        return self._memory

    def execute(self, offset: int, count: int, trace: bool) -> RunResult:
        with IMPORTS:
            from ..sim.result import RunResult

        self._check(offset, count * self.config.instruction_bytes)
        return RunResult(cycles=None, fault=None, bytes_read=0, bytes_written=0)


class FsimDevice(LocalDevice):
    """The functional simulator, and the timing model beside it: exact integers, predicted cycles.

    A run that ends in a fault has no cycles. ``timing=False`` leaves the timing model out, which needs a C++ compiler.
    """

    name = "fsim"

    def __init__(
        self, config: CoreConfig, *, progress: Progress | None = None, check_races: bool = False,
        dram: DramModel | None = None, timing: bool = True,
    ) -> None:  # fmt: skip
        with IMPORTS:
            from ..sim.fsim import FunctionalSimulator
            from ..sim.timing import Predictor

        super().__init__(config, progress=progress)
        self._check_races = check_races
        self._simulator = FunctionalSimulator(config, 0)
        self._dram = (dram or DramModel.of(config)) if timing else None
        self._predictor = None if self._dram is None else Predictor(config, self._dram)

    @property
    def dram(self) -> DramRate | None:
        return self._dram

    @property
    def has_time(self) -> bool:
        return self._predictor is not None

    def allocate(self, window_bytes: int) -> None:
        with IMPORTS:
            from ..sim.fsim import FunctionalSimulator

        self._simulator = FunctionalSimulator(self.config, window_bytes, check_races=self._check_races)

    def memory(self) -> Bytes:
        return self._simulator.dram

    def execute(self, offset: int, count: int, trace: bool) -> RunResult:
        code = self._simulator.dram[offset : offset + count * self.config.instruction_bytes].copy()
        result = self._simulator.run(offset, count)
        if result.fault is not None or self._predictor is None:
            return result
        predicted = self._predictor.predict(code, offset=offset, trace=trace)
        return replace(predicted, tokens_left=result.tokens_left)


class RtlDevice(LocalDevice):
    """The core's own Verilog in Verilator, with an AXI DRAM model: exact integers, exact cycles.

    ``waves``: the waveform that was asked for, of the programs on the first window that is allocated.
    """

    name = "rtl"

    def __init__(self, config: CoreConfig, *, progress: Progress | None = None, dram: DramModel | None = None) -> None:
        super().__init__(config, progress=progress)
        self._dram = dram or DramModel.of(config)
        self._simulator: RtlSimulator | None = None
        self.waves: WaveRequest | None = None
        self._states: StateRecording | None = None
        self._shown = False  # is what runs now in the waveform?
        self._programs: list[Bytes] = []

    @property
    def dram(self) -> DramRate:
        return self._dram

    @property
    def has_time(self) -> bool:
        return True

    def allocate(self, window_bytes: int) -> None:
        with IMPORTS:
            from ..sim.rtl import RtlSimulator

        self._end_waves()
        self._simulator = None
        if not window_bytes:  # given back: a waveform was of another build, and nobody wants the usual one for nothing
            return
        waves, states = None if self._programs else self.waves, self._states
        self._simulator = RtlSimulator(
            self.config, window_bytes, dram=self._dram, progress=self.progress, waves=waves, states=states
        )
        self._states, self._shown = None, waves is not None

    def _end_waves(self) -> None:
        if self._simulator is not None and self._shown:
            self._simulator.close_waves()
        self._shown = False

    def record_states(self, recording: StateRecording) -> None:
        """Let what will run on the next window fill it."""
        self._states = recording

    def write_waves(self, request: WaveRequest) -> None:
        """Write a waveform of what will run on the next window; :meth:`finish_waves` ends it."""
        self.waves, self._programs = request, []

    def finish_waves(self) -> tuple[Path, Path | None]:
        """End the waveform; its path, and that of GTKWave's view of it (:func:`~weft.sim.waves.explain`), if it is one
        to look at.

        :class:`DeviceError` if none was asked for, or nothing ran.
        """
        with IMPORTS:
            from ..sim.waves import CoreInWaves, explain

        if self.waves is None or not self._programs:
            raise DeviceError("there is no waveform", hint="ask for one before the window, and run a program")
        self._end_waves()
        view = None if self.waves.counts else explain(self.waves, [CoreInWaves(self.config, self._programs)])
        return self.waves.path, view

    def _running(self) -> RtlSimulator:
        if self._simulator is None:
            raise DeviceError("device 'rtl' has no window yet", hint="call allocate first")
        return self._simulator

    def memory(self) -> Bytes:
        return self._running().dram

    def execute(self, offset: int, count: int, trace: bool) -> RunResult:
        if self._shown:
            self._programs.append(self.read(offset, count * self.config.instruction_bytes))
        return self._running().run(offset, count, trace=trace)


OWN_PLACES = {"pynq": "weft.boards.device", "serial": "weft.boards.standalone.device"}
"""This package's kinds that are opened at a place, and the module that registers each, which is imported when it is
asked for."""

_devices: dict[str, type[Device]] = {kind.name: kind for kind in (NullDevice, FsimDevice, RtlDevice)}


_places: dict[str, type[Device]] = {}
"""Kinds that can be opened at a place alone; they are no names by themselves."""


def register_device(kind: type[Device], *, at_places: bool = False) -> type[Device]:
    """Make a kind of device known by its name (a decorator, too); :class:`DeviceError` if the name is another's.

    ``at_places``: only as ``name://place``.
    """
    own = OWN_PLACES.get(kind.name) == kind.__module__
    if kind.name in device_names() or kind.name in _places or (kind.name in OWN_PLACES and not own):
        raise DeviceError(f"there is a device {kind.name!r} already")
    (_places if at_places else _devices)[kind.name] = kind
    return kind


def device_names() -> tuple[str, ...]:
    """The names of all devices that need no place; nothing is imported for that."""
    return (*_devices, *(name for name in plugins(GROUP) if name not in _devices))


def device_forms() -> tuple[str, ...]:
    """What users can write: all names, and forms such as ``pynq://NAME``."""
    return (*device_names(), *(f"{name}://NAME" for name in dict.fromkeys((*OWN_PLACES, *_places))))


def device_kind(name: str) -> type[Device]:
    """The device called ``name``, which may have a place; :class:`DeviceError` lists the known ones."""
    if not isinstance(name, str):
        raise DeviceError(f"a device is named {name!r:.80}, but must have a text for a name",
                          hint=f"known: {', '.join(device_names())}")  # fmt: skip
    name, separator, _ = name.partition("://")
    if separator and name in OWN_PLACES and name not in _places:
        with IMPORTS:
            import_module(OWN_PLACES[name])
    if separator and name in _places:
        return _places[name]
    if name not in _devices:
        point = plugins(GROUP).get(name)
        if point is None:
            raise DeviceError(f"unknown device {name!r}", hint=f"known: {', '.join(device_forms())}")
        _devices[name] = load_plugin(point, "device", DeviceError)
    return _devices[name]


SIMULATORS: tuple[type[FsimDevice | RtlDevice], ...] = (FsimDevice, RtlDevice)
"""Kinds whose memory can be chosen."""


def open_device(
    name: str, config: CoreConfig, *, dram: DramModel | None = None, progress: Progress | None = None
) -> Device:
    """A device by its name, for a core. ``kind://place`` is the one at that place. ``dram``: the memory of a simulator,
    by default as fast as the core's bus; other devices have their own."""
    kind = device_kind(name)
    _, separator, place = name.partition("://")
    if separator:
        return kind.at(place, config, progress=progress)
    if issubclass(kind, SIMULATORS):
        return kind(config, progress=progress, dram=dram)
    return kind(config, progress=progress)


def memory_of(model: CompiledModel) -> DramModel:
    """The memory that a model's schedules were chosen for, which simulators have unless another is asked for.

    Artifacts of before do not say; it is then as fast as the core's bus.
    """
    try:
        latency, rate = (model.statistics[name] for name in ("dram_latency", "dram_bytes_per_cycle"))
        return DramModel(latency=latency, bytes_per_cycle=rate)
    except (KeyError, ConfigError):
        return DramModel.of(model.on_core.config)
