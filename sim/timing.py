"""The timing model: predicts the cycles of a program without running the RTL, in the RTL's own cycle classes.

It repeats the control of the core (queues, tokens, bursts, micro-ops, ports, the DRAM model) and leaves out all data;
``docs/timing.md`` says how, and how far it can be trusted. The work is done in ``timing.cpp``; everything that it knows
of the core is derived here from ``hw/``.
"""

from __future__ import annotations

import ctypes
import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..hw import bursts, engine, fetch, gemm, load, store, vector_fetch, vector_lanes, vector_results, write_dma
from ..hw.config import CoreConfig
from ..hw.fetch import PROGRAM_ALIGNMENT
from ..hw.interfaces import CycleClass
from ..hw.isa import HEADER, Engine, Opcode, disassemble, instruction_fields
from ..hw.load_writer import LoadKind, LoadTargets
from ..hw.mac_array import array_latency
from .dram import DramModel
from .errors import SimulationError
from .result import ACTIVITY, EVENT, RunResult, Trace
from .timing_library import CLASSES, OPCODES, timing_library

PLANNER_CYCLES = 7
"""From the start of a LOAD or STORE until its transfer is planned (``hw.transfer_plan.TransferPlanner``)."""

RESULT_QUEUE_CYCLES = 1
"""From a vector result's arrival in the queue before the write port until it can leave it (``hw.vector_results``)."""

CYCLE_LIMIT = 10_000_000_000

PREDICTIONS_KEPT = 64
"""Programs that a :class:`Predictor` remembers: those of one network."""

FIELDS: dict[Opcode, tuple[str, ...]] = {
    Opcode.LOOP: ("level", "extent", "dst_stride", "a_stride", "b_stride"),
    Opcode.LOAD: (
        *("index", "offset", "rows", "columns", "stride", "scratchpad"),
        *("pad_top", "pad_bottom", "pad_left", "pad_right"),
    ),
    Opcode.STORE: ("index", "offset", "rows", "columns", "stride"),
    Opcode.GEMM: ("levels", "zero", "dst", "src", "wgt"),
    Opcode.VECTOR: ("levels", "zero", "dst", "a", "b", "op", "to_out", "b_immediate"),
}
"""What the model reads of each instruction, in the order in which ``decode`` in ``timing.cpp`` numbers the fields."""

_FIELD = ctypes.c_int32 * 3
_MOST_FIELDS = 16


class _Core(ctypes.Structure):
    _fields_ = [
        *(
            (name, ctypes.c_int64)
            for name in (
                *("bus_bytes", "instruction_bytes", "queue_depth", "token_depth"),
                *("read_outstanding", "write_outstanding", "acc_depth", "acc_banks", "out_bytes"),
            )
        ),
        ("load_bytes", (ctypes.c_int64 * len(LoadKind)) * 2),
        *(
            (name, ctypes.c_int64)
            for name in (
                *("granule_bytes", "ledger_entries", "planner_cycles", "loads_in_flight", "stores_in_flight"),
                *("entries_ahead", "load_buffer_words", "fetch_buffer_words", "burst_beats", "fetch_burst_beats"),
                *("write_buffer_beats", "gemm_read", "gemm_write", "gemm_forwards"),
                *("vector_slots", "vector_parameters", "vector_result"),
                *("latency", "bytes_per_cycle", "jitter", "seed", "outstanding", "reorder"),
            )
        ),
        ("header", (ctypes.c_int32 * 2) * len(HEADER)),
        ("fields", (_FIELD * _MOST_FIELDS) * OPCODES),
    ]


class _Result(ctypes.Structure):
    _fields_ = [
        ("cycles", ctypes.c_int64),
        ("read_beats", ctypes.c_int64),
        ("write_beats", ctypes.c_int64),
        ("counters", (ctypes.c_int64 * CLASSES) * len(Engine)),
        ("evaluated", ctypes.c_int64),
    ]


_EVENT = np.dtype([("start", "u8"), ("retire", "u8"), ("engine", "u4"), ("number", "u4")])
_ACTIVITY = np.dtype([("start", "u8"), ("cycles", "u8"), ("engine", "u4"), ("kind", "u4")])


@dataclass(frozen=True)
class Prediction:
    """What a program will do: ``result`` as a run reports it, and the cycles that had to be looked at one by one."""

    result: RunResult
    evaluated: int


def predict(
    config: CoreConfig,
    program: npt.NDArray[np.uint8],
    dram: DramModel | None = None,
    *,
    offset: int = 0,
    trace: bool = False,
) -> RunResult:
    """Predict a run of ``program`` (instruction bytes, as :func:`weft.hw.isa.assemble` makes them).

    The program must be legal: run it on the functional simulator first if that is not known. Indices and addresses are
    not checked; errors of the bus (``dram.errors``) are left out. ``offset`` is the program's place in the window.
    :class:`SimulationError` says that the program does not end; :class:`InstructionError` names an instruction that
    exists in no form.
    """
    return predict_details(config, program, dram, offset=offset, trace=trace).result


def predict_details(
    config: CoreConfig,
    program: npt.NDArray[np.uint8],
    dram: DramModel | None = None,
    *,
    offset: int = 0,
    trace: bool = False,
    every_cycle: bool = False,
) -> Prediction:
    """:func:`predict`; ``every_cycle`` looks at every part in every cycle (slow; to test that nothing is missed)."""
    code = np.ascontiguousarray(program, np.uint8)
    size = config.instruction_bytes
    count = len(code) // size
    _check_program(config, code, offset)
    library = timing_library()
    core, result = _describe_core(config, dram or DramModel()), _Result()
    machine = library.weft_timing_predict(
        ctypes.byref(core), code.ctypes.data, count, offset, CYCLE_LIMIT, trace, every_cycle, ctypes.byref(result)
    )
    if not machine:
        disassemble(config, code)  # raises, and says why
    try:
        if result.cycles < 0:
            raise SimulationError(
                "the program does not end: its engines wait for each other",
                hint="run it on the functional simulator, which names them",
            )
        recorded = _trace(library, machine) if trace else None
    finally:
        library.weft_timing_delete(machine)
    counters = {
        which: {kind: total for kind in CycleClass.__members__.values() if (total := int(row[kind.value]))}
        for which, row in zip(Engine, result.counters, strict=True)
    }
    return Prediction(
        RunResult(
            cycles=int(result.cycles),
            fault=None,
            bytes_read=int(result.read_beats) * config.bus_bytes,
            bytes_written=int(result.write_beats) * config.bus_bytes,
            counters=counters,
            trace=recorded,
        ),
        int(result.evaluated),
    )


class Predictor:
    """:func:`predict` for one core and memory; a program that comes again is not worked out again."""

    def __init__(self, config: CoreConfig, dram: DramModel) -> None:
        self.config = config
        self.dram = dram
        self._known: dict[tuple[bytes, int, bool], RunResult] = {}

    def predict(self, program: npt.NDArray[np.uint8], *, offset: int = 0, trace: bool = False) -> RunResult:
        """As :func:`predict`."""
        key = (hashlib.sha256(program.tobytes()).digest(), offset, trace)
        if key not in self._known:
            if len(self._known) == PREDICTIONS_KEPT:
                self._known.pop(next(iter(self._known)))
            self._known[key] = predict(self.config, program, self.dram, offset=offset, trace=trace)
        return self._known[key]


def _check_program(config: CoreConfig, code: npt.NDArray[np.uint8], offset: int) -> None:
    """Only what would make the model read or count nonsense."""
    if offset % PROGRAM_ALIGNMENT:
        raise SimulationError(f"program offset {offset:#x} is not a multiple of {PROGRAM_ALIGNMENT}")
    size = config.instruction_bytes
    if len(code) % size:
        disassemble(config, code)  # raises, and says why
    words = code.reshape(-1, size)
    opcodes, engines = words[:, 0] & 7, words[:, 0] >> 3 & 7
    if np.any(opcodes == 0) or np.any(engines >= len(Engine)):
        disassemble(config, code)
    if not np.any(opcodes == Opcode.FINISH):
        raise SimulationError("the program has no FINISH")


def _describe_core(config: CoreConfig, dram: DramModel) -> _Core:
    core = _Core()
    issue_to_sum = gemm.ARRAY_STAGE + array_latency(config)
    values = {
        "bus_bytes": config.bus_bytes,
        "instruction_bytes": config.instruction_bytes,
        "queue_depth": config.queue_depth,
        "token_depth": config.token_depth,
        "read_outstanding": config.read_outstanding,
        "write_outstanding": config.write_outstanding,
        "acc_depth": config.acc_depth,
        "acc_banks": config.acc_banks,
        "out_bytes": config.out_bytes,
        "granule_bytes": config.granule_bytes,
        "ledger_entries": engine.IN_FLIGHT,
        "planner_cycles": PLANNER_CYCLES,
        "loads_in_flight": load.LOADS_IN_FLIGHT,
        "stores_in_flight": store.STORES_IN_FLIGHT,
        "entries_ahead": store.ENTRIES_AHEAD,
        "load_buffer_words": load.BUFFER_WORDS,
        "fetch_buffer_words": fetch.BUFFER_WORDS,
        "burst_beats": bursts.MAX_BURST_BEATS,
        "fetch_burst_beats": fetch.BURST_BEATS,
        "write_buffer_beats": write_dma.BUFFER_BEATS,
        "gemm_read": issue_to_sum - 3,
        "gemm_write": issue_to_sum + 1,
        "gemm_forwards": gemm.FORWARDS,
        "vector_slots": vector_results.SLOTS,
        "vector_parameters": vector_fetch.PARAMETERS,
        "vector_result": vector_lanes.RESULT_STAGE + RESULT_QUEUE_CYCLES,
        "latency": dram.latency,
        "bytes_per_cycle": dram.bytes_per_cycle,
        "jitter": dram.jitter,
        "seed": dram.seed,
        "outstanding": dram.outstanding,
        "reorder": dram.reorder,
    }
    for name, value in values.items():
        setattr(core, name, int(value))
    for which in (Engine.LOAD, Engine.LOADW):
        for number, kind in enumerate(LoadTargets.of(which).kinds(config)):
            core.load_bytes[which][number] = kind.entry_bytes
    position = 0
    for number, (_, width, _) in enumerate(HEADER):
        core.header[number][0], core.header[number][1] = position, width
        position += width
    for opcode, names in FIELDS.items():
        places = {}
        position = sum(width for _, width, _ in HEADER)
        for name, width, sign in instruction_fields(config, opcode):
            places[name] = (position, width, int(sign))
            position += width
        for number, name in enumerate(names):
            core.fields[opcode][number] = _FIELD(*places[name])
    return core


def _trace(library: ctypes.CDLL, machine: int) -> Trace:
    """The recorded trace, in the order in which the RTL's is: events as they retire, activity by engine."""
    raw_events = _records(library, machine, "events", _EVENT)
    raw_activity = _records(library, machine, "activity", _ACTIVITY)
    events, activity = np.zeros(len(raw_events), EVENT), np.zeros(len(raw_activity), ACTIVITY)
    for name in EVENT.names or ():
        events[name] = raw_events[name]
    for name in ACTIVITY.names or ():
        activity[name] = raw_activity[name]
    events = events[np.lexsort((events["engine"], events["retire"]))]
    return Trace(events, activity[np.lexsort((activity["start"], activity["engine"]))])


def _records(library: ctypes.CDLL, machine: int, name: str, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
    first = ctypes.c_void_p()
    count = getattr(library, f"weft_timing_{name}")(machine, ctypes.byref(first))
    if not count:
        return np.zeros(0, dtype)
    raw = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(first.value or 0)
    return np.frombuffer(raw, dtype).copy()
