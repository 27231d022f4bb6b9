"""Amaranth's simulator with the design as a model of Verilator's: the same testbenches, many times faster.

    >>> from weft.sim.fast import Simulator
    >>> simulator = Simulator(counter)
    >>> simulator.add_clock(1e-6)
    >>> simulator.add_testbench(testbench)
    >>> simulator.run()

Everything in Python is Amaranth's own (``amaranth.sim``): clocks, processes, testbenches, triggers. The design itself
is no Python: it is translated once, and found again in the cache as long as it is the same. ``docs/fast-simulation.md``
says what differs.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from amaranth.hdl import Shape
from amaranth.hdl._ir import DriverConflict
from amaranth.sim import Simulator as AmaranthSimulator
from amaranth.sim._async import EdgeTrigger, SampleTrigger
from amaranth.sim._base import BaseProcess
from amaranth.sim._pyclock import PyClockProcess
from amaranth.sim.pysim import PySimEngine, _PyEngineState, _PyMemoryState, _PySignalState, _run_wakers

from .build import Progress
from .errors import SimulationError
from .verilated_design import DesignError, Drivers, VerilatedDesign, drivers_of, verilated
from .waves import Waves

WORDS = {1: ctypes.c_uint8, 2: ctypes.c_uint16, 4: ctypes.c_uint32, 8: ctypes.c_uint64}


class Simulator(AmaranthSimulator):  # type: ignore[misc]
    """As ``amaranth.sim.Simulator``, for an elaboratable or a fragment.

    ``checks``: refuse a design with ``Assert``, ``Assume``, ``Cover`` or ``Print`` statements, which are not run here;
    False leaves them out. ``quick``: compile without optimisation, for few cycles. ``progress`` is told of long work.
    :class:`weft.sim.errors.BuildError` where the design cannot be translated, or a tool is missing.
    """

    def __init__(
        self, toplevel: Any, *, checks: bool = True, quick: bool = False, progress: Progress | None = None
    ) -> None:
        class Engine(VerilatedEngine):
            settings = (checks, quick, progress)

        super().__init__(toplevel, engine=Engine)


class _Model(BaseProcess):  # type: ignore[misc]
    """The verilated design as the one process that stands for all of it."""

    def __init__(self, design: VerilatedDesign) -> None:
        self.design = design
        self.handle: int | None = None
        self.inputs: set[_InputState] = set()
        self.watched: list[_DrivenState] = []
        self.written = False
        self.begin()

    def begin(self) -> None:
        """With everything at its initial value. Variables lie elsewhere from now on."""
        self.close()
        self.handle = self.design.library.weft_new()
        self.inputs.clear()
        self.watched.clear()
        self.reset()

    def reset(self) -> None:
        self.runnable = True
        self.critical = False

    def close(self) -> None:
        if self.handle is not None:
            self.design.library.weft_delete(self.handle)
            self.handle = None

    def __del__(self) -> None:
        self.close()

    def address(self, number: int) -> int:
        found: int = self.design.library.weft_address(self.handle, number)
        return found

    def run(self) -> None:
        """What the design does as its inputs have changed."""
        if self.written:
            self.written = False
            self.design.library.weft_settle(self.handle)
        for state in self.inputs:
            state.variable.write(state.curr)
        self.inputs.clear()
        self.design.library.weft_evaluate(self.handle)
        for watched in tuple(self.watched):
            watched.notice()


class _Variable:
    """A number in the model's memory: an item of 1, 2, 4 or 8 bytes, or as many items of 4 as it takes."""

    def __init__(self, address: int, shape: Shape) -> None:
        self.sign = 1 << (shape.width - 1) if shape.signed and shape.width else 0
        self.mask = (1 << shape.width) - 1
        size = bytes_of(shape.width)
        self.item: Any = WORDS[size].from_address(address) if size in WORDS else None
        self.bytes: Any = None if self.item is not None else (ctypes.c_ubyte * size).from_address(address)

    def read(self) -> int:
        value: int = int.from_bytes(self.bytes, "little") if self.item is None else self.item.value
        return value - ((value & self.sign) << 1)

    def write(self, value: int) -> None:
        if self.item is None:
            self.bytes[:] = (value & self.mask).to_bytes(len(self.bytes), "little")
        else:
            self.item.value = value & self.mask


def bytes_of(width: int) -> int:
    """How many bytes Verilator gives a number of so many bits."""
    for size in WORDS:
        if width <= 8 * size:
            return size
    return (width + 31) // 32 * 4


class _InputState(_PySignalState):  # type: ignore[misc]
    """A signal that Python drives, and the design reads."""

    __slots__ = ("model", "number", "variable")

    def __init__(self, signal: Any, pending: set[Any], model: _Model, number: int) -> None:
        self.model, self.number = model, number
        super().__init__(signal, pending)

    def reset(self) -> None:
        super().reset()
        self.variable = _Variable(self.model.address(self.number), self.signal.shape())
        self._tell()

    def _tell(self) -> None:
        self.model.inputs.add(self)
        self.model.runnable = True

    def commit(self) -> bool:
        changed: bool = super().commit()
        if changed:
            self._tell()
        return changed


class _DrivenState(_PySignalState):  # type: ignore[misc]
    """A signal that the design drives: read where it lies, and only looked after as long as somebody waits for it."""

    __slots__ = ("known", "model", "number", "variable", "wanted", "watched")

    def __init__(self, signal: Any, pending: set[Any], model: _Model, number: int, *, is_comb: bool) -> None:
        self.model, self.number = model, number
        super().__init__(signal, pending)
        self.is_comb = is_comb  # type: ignore[misc]

    def reset(self) -> None:
        self.variable = _Variable(self.model.address(self.number), self.signal.shape())
        self.wakers.clear()
        self.watched = False
        self.wanted: int | None = None
        self.known = 0

    @property
    def curr(self) -> int:
        return self.known if self.watched else self.variable.read()

    @property
    def next(self) -> int:
        return self.curr if self.wanted is None else self.wanted

    def add_waker(self, waker: Any) -> None:
        if not self.watched:
            self.known = self.variable.read()
            self.watched = True
            self.model.watched.append(self)
        super().add_waker(waker)

    def notice(self) -> None:
        """After the design has run."""
        if not self.wakers:
            self.watched = False
            self.model.watched.remove(self)
        elif self.variable.read() != self.known:
            self.pending.add(self)

    def update(self, value: int, mask: int = ~0) -> None:
        """A register's value from outside."""
        self.wanted = (self.next & ~mask) | (value & mask)
        self.pending.add(self)

    def commit(self) -> bool:
        written = self.wanted is not None
        if self.wanted is not None:
            self.variable.write(self.wanted)
            self.wanted = None
            self.model.written = self.model.runnable = True
        value, known = self.variable.read(), self.known
        if not self.watched or value == known:
            return written
        _run_wakers(self.wakers, known, value)
        self.known = value
        return True


class _MemoryState(_PyMemoryState):  # type: ignore[misc]
    """A memory of the design, read and written where it lies."""

    __slots__ = ("model", "number", "rows")

    def __init__(self, memory: Any, pending: set[Any], model: _Model, number: int) -> None:
        self.model, self.number = model, number
        super().__init__(memory, pending)

    def reset(self) -> None:
        self.rows: dict[int, _Variable] = {}

    def _row(self, address: int) -> _Variable:
        if address not in self.rows:
            start = self.model.address(self.number) + address * bytes_of(self.shape.width)
            self.rows[address] = _Variable(start, self.shape)
        return self.rows[address]

    def read(self, addr: int) -> int:
        return self._row(addr).read() if addr in range(self.memory.depth) else 0

    def write(self, addr: int, value: int, mask: int | None = None) -> None:
        if addr in range(self.memory.depth):
            row = self._row(addr)
            row.write(value if mask is None else (value & mask) | (row.read() & ~mask))
            self.model.written = self.model.runnable = True


class _State(_PyEngineState):  # type: ignore[misc]
    """Signals and memories by what they are to the design."""

    def __init__(self, drivers: Drivers, model: _Model) -> None:
        super().__init__()
        self.drivers, self.model = drivers, model

    def reset(self) -> None:
        self.model.begin()
        super().reset()

    def get_signal(self, signal: Any) -> int:
        if signal not in self.signals:
            number = self.model.design.signals.get(signal)
            if number is None:
                state = _PySignalState(signal, self.pending)
            elif self.drivers.drive(signal):
                is_comb = signal in self.drivers.combinational
                state = _DrivenState(signal, self.pending, self.model, number, is_comb=is_comb)
            else:
                state = _InputState(signal, self.pending, self.model, number)
            self.signals[signal] = len(self.slots)
            self.slots.append(state)
        index: int = self.signals[signal]
        return index

    def get_memory(self, memory: Any) -> int:
        if memory not in self.memories:
            if memory not in self.model.design.memories:
                raise SimulationError("the memory is in no instance of the design")
            self.memories[memory] = len(self.slots)
            number = self.model.design.memories[memory]
            self.slots.append(_MemoryState(memory, self.pending, self.model, number))
        index: int = self.memories[memory]
        return index


class VerilatedEngine(PySimEngine):  # type: ignore[misc]
    """An engine for ``amaranth.sim.Simulator``. The design is translated when something is first asked of it."""

    settings: tuple[bool, bool, Progress | None] = (True, False, None)

    def __init__(self, design: Any) -> None:
        self._design = design
        self._drivers = drivers_of(design, checks=self.settings[0])
        self._made: _State | None = None
        self._waves = Waves.NONE
        self._writing = False
        self._written = -1  # the last moment in the waveform
        self._processes: set[Any] = set()
        self._testbenches: list[Any] = []
        self._delta_cycles = 0
        self._vcd_writers: list[Any] = []
        self._active_triggers: set[Any] = set()
        self._clocks: list[tuple[Any, int, int]] = []

    @property
    def _state(self) -> _State:
        if self._made is None:
            _, quick, progress = self.settings
            model = _Model(verilated(self._design, self._drivers, progress, self._waves, quick=quick))
            self._made = _State(self._drivers, model)
            for signal in self._drivers.inputs:
                self._made.get_signal(signal)
            self._processes.add(model)
            self._processes |= {
                PyClockProcess(self._made, clock, phase=phase, period=period) for clock, phase, period in self._clocks
            }
        return self._made

    @property
    def now(self) -> int:
        return 0 if self._made is None else self._made.timeline.now

    def add_clock_process(self, clock: Any, *, phase: int, period: int) -> None:
        if self._drivers.drive(clock):
            raise DriverConflict("Clock signal is already driven by the design")
        self._clocks.append((clock, phase, period))

    def add_trigger_combination(self, combination: Any, *, oneshot: bool) -> Any:
        edges = [each.signal for each in combination._triggers if isinstance(each, EdgeTrigger)]
        sampled = [each.value for each in combination._triggers if isinstance(each, SampleTrigger)]
        drive = self._drivers.drive
        if any(map(drive, edges)) and any(drive(signal) for value in sampled for signal in value._rhs_signals()):
            hint = "sample at the clock that drives it, or read the values afterwards with get"
            raise DesignError("values are sampled at the edge of a signal that the design itself drives", hint=hint)
        return super().add_trigger_combination(combination, oneshot=oneshot)

    def advance(self) -> bool:
        model = self._state.model
        now = self.now
        critical: bool = super().advance()
        if self._writing and now > self._written:
            model.design.library.weft_dump(model.handle, now)
            self._written = now
        return critical

    @contextmanager
    def write_vcd(self, *, vcd_file: Any, gtkw_file: Any, traces: Any, fs_per_delta: int) -> Iterator[None]:
        """The whole design's waveform, under the names of the exported Verilog."""
        if not isinstance(vcd_file, (str, os.PathLike)) or gtkw_file is not None:
            raise SimulationError("a waveform is written to a file that is named by its path, without one for GTKWave")
        if self._made is not None:
            raise SimulationError("waveforms begin before anything is read, set or run",
                                  hint="put write_vcd around all of the simulation")  # fmt: skip
        self._waves = Waves.VCD
        model = self._state.model
        library = model.design.library
        library.weft_open(model.handle, os.fsencode(vcd_file))
        self._writing = True
        try:
            yield
        finally:
            self._writing = False
            if self.now > self._written:
                library.weft_dump(model.handle, self.now)
            library.weft_close(model.handle)
