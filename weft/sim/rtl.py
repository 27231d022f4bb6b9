"""The core's own Verilog, run by Verilator, with a DRAM model around it: exact integers and exact cycles."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..cache import loaded_library
from ..hw.bus import PAGE_BYTES, ReadClient
from ..hw.config import CoreConfig
from ..hw.core import memory_parts
from ..hw.cycle_class import CycleClass
from ..hw.isa import Engine, Fault
from ..hw.mac_array_packed import Multipliers
from ..hw.memories import Memory
from ..hw.registers import Control, Register, Status, class_counter
from ..hw.system_config import SystemConfig
from . import harness
from .build import BuildTimes, Progress, build_library
from .dram import BusFault, DramModel
from .dram_interface import DramUse, Use, describe_banks
from .errors import SimulationError
from .harness import Outcome
from .result import ACTIVITY, EVENT, FaultRecord, RunResult, Trace
from .state import Bytes, Int8, Int32, element_type, shape
from .states import StateRecording
from .waves import CYCLE_NS, WaveRequest, Waves

BASE_ADDRESS = 0x1000_0000
"""Bus address of the memory's first byte."""

WATCHDOG_CYCLES = 100_000
CYCLE_LIMIT = 10_000_000_000
CYCLES_BEFORE = 17
"""From the write that starts a program to the first cycle that the core's own counter counts."""

BEATS = (Register.READ_BEATS_LOAD_LO, Register.READ_BEATS_LOADW_LO, Register.READ_BEATS_FETCH_LO)
CYCLE_CLASSES: tuple[CycleClass, ...] = tuple(CycleClass.__members__.values())
COUNTED = tuple((engine, kind) for engine in Engine for kind in CYCLE_CLASSES)


class RtlMachine:
    """Verilated hardware with its DRAM: what one core and a system of cores have in common.

    ``config``: the core whose kind of DRAM is behind the ports if ``dram`` is not given. ``library`` and
    ``build_times``: as `simulator_library` gives them.
    """

    def __init__(
        self,
        config: CoreConfig,
        library: ctypes.CDLL,
        build_times: BuildTimes,
        memory_bytes: int,
        dram: DramModel | None,
    ) -> None:
        self._library, self.build_times = library, build_times
        padded = -(-max(memory_bytes, 1) // PAGE_BYTES) * PAGE_BYTES
        self._bytes: Bytes = np.zeros(padded, np.uint8)
        self.dram: Bytes = self._bytes[:memory_bytes]
        self._model = dram or DramModel.of(config)
        self._settings = memory_settings(self._bytes, self._model)
        self._machine = self._library.weft_new(ctypes.byref(self._settings))
        self._waves: WaveRequest | None = None

    def __del__(self) -> None:
        machine = getattr(self, "_machine", None)
        if machine:
            self._library.weft_delete(machine)

    def _open_waves(self, request: WaveRequest) -> None:
        """Write this waveform of the runs from now on, by a library that can."""
        self._waves = request
        stop = (1 << 64) - 1 if request.stop is None else request.stop
        path = os.fsencode(request.file)
        self._library.weft_open_waves(self._machine, path, request.first, stop, 1000 * CYCLE_NS)

    def close_waves(self) -> None:
        """Finish the waveform or the recording of states: no later cycle is in it."""
        self._library.weft_close_waves(self._machine)
        if self._waves is not None:
            self._waves.finish()
            self._waves = None

    def set_dram(self, dram: DramModel) -> None:
        """Other timing or errors from the next run on; contents stay."""
        self._model, self._settings = dram, memory_settings(self._bytes, dram)
        self._library.weft_configure(self._machine, ctypes.byref(self._settings))

    def dram_use(self) -> DramUse | None:
        """What a DRAM with banks did in the last run; None for another."""
        if self._model.banks is None:
            return None
        use = Use()
        self._library.weft_dram_use(self._machine, ctypes.byref(use))
        return DramUse.of(use)

    def read_register(self, address: int) -> int:
        """A 32-bit register, through AXI4-Lite; in a system the window of core ``i`` begins at ``i * WINDOW_BYTES``."""
        return int(self._library.weft_read(self._machine, address))

    def write_register(self, address: int, value: int) -> None:
        """A 32-bit register, through AXI4-Lite."""
        self._library.weft_write(self._machine, address, value)

    def _records(self, function: str, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
        first = ctypes.c_void_p()
        count = getattr(self._library, function)(self._machine, ctypes.byref(first))
        if not count:
            return np.zeros(0, dtype)
        raw = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(first.value or 0)
        return np.frombuffer(raw, dtype).copy()


class RtlSimulator(RtlMachine):
    """A core with its DRAM; the same use as :class:`weft.sim.fsim.FunctionalSimulator`, plus cycles and traces.

    The simulator is built on first use of a configuration (20 to 60 s on two cores; ``progress`` gets a line for each
    step) and then comes from the user's cache folder. ``build_times`` tells what this object had to build. ``quick``
    builds in a third of the time what then runs at a tenth of the speed: for many cores with few cycles each.
    ``multipliers``: the form of the array, of which the plain one is the fastest here. ``waves``: a waveform of the
    runs, written by another build, which is slower; :meth:`close_waves` finishes it. ``states``: what registers hold,
    by a build of its own, in place of a waveform. ``library``: the file of a build that is not in the cache.
    """

    def __init__(
        self,
        config: CoreConfig,
        memory_bytes: int,
        *,
        dram: DramModel | None = None,
        watchdog: int = WATCHDOG_CYCLES,
        progress: Progress | None = None,
        quick: bool = False,
        multipliers: Multipliers = Multipliers.PLAIN,
        waves: WaveRequest | None = None,
        states: StateRecording | None = None,
        library: Path | None = None,
    ) -> None:
        self.config = config
        self.watchdog = watchdog
        kind = Waves.STATES if states is not None else Waves.NONE if waves is None else waves.format
        if library is None:
            built = simulator_library(config, multipliers, quick, progress, kind)
        else:
            built = opened_library(lambda: library), BuildTimes()
        super().__init__(config, *built, memory_bytes, dram)
        if waves is not None:
            self._open_waves(waves)
        if states is not None:
            self._states = states  # whose memory the library writes to
            states.begin(self._library, self._machine)

    def inject(self, fault: BusFault, *, reader: ReadClient = ReadClient.FETCH, bit: int = 0) -> None:
        """Let the memory do this wrong as soon as it can, once; ``reader`` and ``bit`` are those of FLIPPED_READ.

        :meth:`set_dram` takes back what has not happened yet.
        """
        self._library.weft_inject(self._machine, fault, reader, bit)

    @property
    def injected(self) -> bool:
        """Has what was injected last happened?"""
        return bool(self._library.weft_injected(self._machine))

    def read_scratchpad(self, memory: Memory) -> Int8 | Int32:
        """Copy of a scratchpad: ``(depth, elements)``."""
        content: Int8 | Int32 = np.empty(shape(self.config, memory), element_type(memory))
        for part, values in self._parts(memory):
            content[part] = values
        return content

    def write_scratchpad(self, memory: Memory, values: Int8 | Int32) -> None:
        """Replace a scratchpad's content."""
        for part, place in self._parts(memory):
            place[...] = values[part]

    def run(
        self,
        offset: int,
        count: int,
        *,
        window_start: int = 0,
        window_bytes: int | None = None,
        trace: bool = False,
        cycle_limit: int = CYCLE_LIMIT,
        moments: Sequence[int] = (),
        visit: Callable[[int], None] | None = None,
    ) -> RunResult:
        """Run ``count`` instructions at byte ``offset`` of the window (default: the whole memory).

        A core that has not ended after ``cycle_limit`` cycles, or that breaks the bus protocol, raises
        :class:`SimulationError`; afterwards, as after a fault, it has been reset and can run again (by its ``rst`` pin
        where the memory owes it an answer). ``visit`` is called in the cycles ``moments`` of the run (ascending; of
        about the start, not the core's own counter), unless there is a trace.
        """
        size = len(self.dram) - window_start if window_bytes is None else window_bytes
        check_window(window_start, size, len(self.dram))
        writes = settings_of(offset, count, window_start, size, self.watchdog)
        writes.append((Register.CONTROL, Control.START))
        before = (harness.Access * len(writes))(*(harness.Access(*write) for write in writes))
        reads = (harness.Access * len(READS))(*(harness.Access(address, 0) for address in READS))
        places = (ctypes.c_uint64 * len(moments))(*moments)
        call = harness.Visit(visit or (lambda cycle: None))
        request = harness.Run(
            before=ctypes.addressof(before),
            before_count=len(before),
            reads=ctypes.addressof(reads),
            reads_count=len(reads),
            status_address=Register.STATUS,
            status_busy=Status.BUS_BUSY,
            interrupts=1,
            cycle_limit=cycle_limit,
            trace=trace,
            uncounted=CYCLES_BEFORE,
            moments=ctypes.addressof(places),
            moments_count=len(places) if visit else 0,
            visit=ctypes.cast(call, ctypes.c_void_p),
        )
        outcome = self._library.weft_run(self._machine, ctypes.byref(request))
        values = {access.address: access.value for access in reads}
        status = Status(values[Register.STATUS])
        if outcome != Outcome.FINISHED or Status.FAULT in status:
            self.write_register(Register.CONTROL, Control.RESET)
        if Status.BUS_BUSY in status:
            self._library.weft_reset(self._machine, ctypes.byref(self._settings))
        if outcome == Outcome.PROTOCOL_ERROR:
            problem = self._library.weft_protocol_error(self._machine).decode()
            raise SimulationError(f"the core broke the bus protocol: {problem}")
        if outcome == Outcome.CYCLE_LIMIT:
            raise SimulationError(f"the core has not finished after {cycle_limit} cycles (status {status!r})")
        result = replace(result_of(self.config, values), dram=self.dram_use())
        return replace(result, trace=self._trace(result.cycles or 0)) if trace else result

    def _trace(self, cycles: int) -> Trace:
        """Recorded events, with cycle 0 where the core's own counter starts."""
        events = self._records("weft_events", EVENT)
        activity = self._records("weft_activity", ACTIVITY)
        before = int(activity["cycles"][activity["engine"] == 0].sum()) - cycles
        for name in ("start", "retire"):
            events[name] -= before
        end = activity["start"] + activity["cycles"]
        activity["start"] = np.maximum(activity["start"], before)
        kept = end > activity["start"]
        activity, end = activity[kept], end[kept]
        activity["cycles"] = end - activity["start"]
        activity["start"] -= before
        return Trace(events, activity[np.lexsort((activity["start"], activity["engine"]))])

    def _parts(self, memory: Memory) -> Iterator[tuple[tuple[slice, slice], Int8 | Int32]]:
        """Views of the memories inside the verilated core, each with its place in the whole scratchpad."""
        config = self.config
        number, size, kind = config.scratchpads.index(memory), shape(config, memory), element_type(memory)
        for place, part in enumerate(memory_parts(config, memory)):
            entries, elements = (len(range(whole)[each]) for whole, each in zip(size, part, strict=True))
            address = self._library.weft_memory(self._machine, number, place)
            raw = (ctypes.c_uint8 * (entries * elements * kind.itemsize)).from_address(address)
            yield part, np.frombuffer(memoryview(raw), kind).reshape(entries, elements)


def check_window(start: int, size: int, memory_bytes: int) -> None:
    """:class:`SimulationError` for a DMA window that the memory does not hold, or that a core cannot have."""
    if start % PAGE_BYTES:
        raise SimulationError(f"window start {start:#x} is not a multiple of {PAGE_BYTES}")
    if start < 0 or size < 0 or start + size > memory_bytes:
        raise SimulationError(
            f"window {start:#x} + {size:#x} bytes is not inside the memory of {memory_bytes:#x} bytes"
        )


def settings_of(offset: int, count: int, window_start: int, window_bytes: int, watchdog: int) -> list[tuple[int, int]]:
    """Addresses and values of the registers that a core needs before its start."""
    return [
        (Register.INTERRUPT_ENABLE, 1),
        *_halves(Register.WINDOW_BASE_LO, BASE_ADDRESS + window_start),
        *_halves(Register.WINDOW_SIZE_LO, window_bytes),
        (Register.PROGRAM_OFFSET, offset),
        (Register.PROGRAM_COUNT, count),
        (Register.WATCHDOG, watchdog),
        (Register.CONTROL, Control.CLEAR_INTERRUPT),
    ]


def result_of(config: CoreConfig, values: Mapping[int, int]) -> RunResult:
    """What the registers :data:`READS` of a core say of its run."""

    def wide(address: int) -> int:
        return values[address] | values[address + 4] << 32

    fault = None
    if Status.FAULT in Status(values[Register.STATUS]):
        fault = FaultRecord(
            Fault(values[Register.FAULT_CAUSE]), values[Register.FAULT_ENGINE], values[Register.FAULT_NUMBER]
        )
    counters: dict[Engine, dict[CycleClass, int]] = {engine: {} for engine in Engine}
    for engine, kind in COUNTED:
        if total := wide(class_counter(engine, kind)):
            counters[engine][kind] = total
    return RunResult(
        cycles=wide(Register.CYCLES_LO),
        fault=fault,
        bytes_read=sum(wide(address) for address in BEATS) * config.bus_bytes,
        bytes_written=wide(Register.WRITE_BEATS_LO) * config.bus_bytes,
        counters=counters,
    )


def memory_settings(memory: Bytes, dram: DramModel) -> Any:
    """The harness's struct for a memory with these bytes."""
    errors = dram.errors
    return harness.Dram(
        memory.ctypes.data,
        len(memory),
        BASE_ADDRESS,
        dram.latency,
        dram.bytes_per_cycle,
        dram.jitter,
        dram.seed,
        dram.outstanding,
        dram.reorder,
        *(
            (BASE_ADDRESS + errors.start, BASE_ADDRESS + errors.stop, errors.reads, errors.writes)
            if errors
            else (0, 0, 0, 0)
        ),
        None if (banks := describe_banks(dram)) is None else ctypes.addressof(banks),
    )


def _wide_addresses(low: int) -> tuple[int, int]:
    return low, low + 4


READS: tuple[int, ...] = (
    Register.STATUS,
    Register.FAULT_CAUSE,
    Register.FAULT_ENGINE,
    Register.FAULT_NUMBER,
    *(
        address
        for low in (
            Register.CYCLES_LO,
            *BEATS,
            Register.WRITE_BEATS_LO,
            *(class_counter(engine, kind) for engine, kind in COUNTED),
        )
        for address in _wide_addresses(low)
    ),
)
"""Registers that are read after a run."""


def _halves(low: int, value: int) -> list[tuple[int, int]]:
    return [(low, value & 0xFFFF_FFFF), (low + 4, value >> 32)]


_libraries: dict[tuple[CoreConfig | SystemConfig, Multipliers, bool, Waves], ctypes.CDLL] = {}


def simulator_library(
    config: CoreConfig | SystemConfig, multipliers: Multipliers, quick: bool, progress: Progress | None,
    waves: Waves = Waves.NONE,
) -> tuple[ctypes.CDLL, BuildTimes]:  # fmt: skip
    """The simulator of a core or a system, and what building it took. A process that has it needs neither cache nor
    compiler again."""
    key = (config, multipliers, quick, waves)
    if library := _libraries.get(key):
        return library, BuildTimes()
    times = BuildTimes()

    def find() -> Path:
        nonlocal times
        path, times = build_library(config, multipliers, progress=progress, quick=quick, waves=waves)
        return path

    return _libraries.setdefault(key, opened_library(find)), times


def opened_library(find: Callable[[], Path]) -> ctypes.CDLL:
    """The simulator whose file ``find`` gives, with the types of its functions."""
    library = loaded_library(find)
    library.weft_new.restype = ctypes.c_void_p
    library.weft_memory.restype = ctypes.c_void_p
    library.weft_read.restype = ctypes.c_uint32
    library.weft_run.restype = ctypes.c_int
    library.weft_protocol_error.restype = ctypes.c_char_p
    library.weft_events.restype = ctypes.c_uint64
    library.weft_activity.restype = ctypes.c_uint64
    library.weft_spans.restype = ctypes.c_uint64
    for name, arguments in _ARGUMENTS.items():
        getattr(library, f"weft_{name}").argtypes = arguments
    return library


_ARGUMENTS: dict[str, list[type]] = {
    "delete": [ctypes.c_void_p],
    "run": [ctypes.c_void_p, ctypes.c_void_p],
    "write": [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32],
    "read": [ctypes.c_void_p, ctypes.c_uint32],
    "configure": [ctypes.c_void_p, ctypes.c_void_p],
    "reset": [ctypes.c_void_p, ctypes.c_void_p],
    "inject": [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32],
    "injected": [ctypes.c_void_p],
    "dram_use": [ctypes.c_void_p, ctypes.c_void_p],
    "memory": [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32],
    "protocol_error": [ctypes.c_void_p],
    "events": [ctypes.c_void_p, ctypes.c_void_p],
    "activity": [ctypes.c_void_p, ctypes.c_void_p],
    "spans": [ctypes.c_void_p, ctypes.c_void_p],
    "open_waves": [ctypes.c_void_p, ctypes.c_char_p, *[ctypes.c_uint64] * 3],
    "close_waves": [ctypes.c_void_p],
    "read_states": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64],
}
