"""What ``timing.cpp`` knows of a core and of the DRAM: structs, enumerations and constants, all from ``hw/``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from ..hw import bus, pipelines, system_config
from ..hw.config import LOOP_LEVELS, PYNQ, CoreConfig
from ..hw.cycle_class import CycleClass
from ..hw.isa import (
    HEADER,
    OPCODE_BITS,
    TAP_COLUMNS,
    Engine,
    Opcode,
    Scratchpad,
    VectorOp,
    VectorTarget,
    instruction_fields,
)
from ..hw.transfer_kinds import LoadKind, LoadTargets, RecordShape
from ..hw.weight_form import FOUR_BITS
from ..roundings import FLOAT32
from .c_interface import ACTIVITY, BUS_USE, EVENT, CField, CStruct, enumeration, fields, header
from .dram import DramModel
from .dram_interface import interface_lines

INTERFACE = "timing_interface.h"
"""The header that :func:`interface_header` is written to."""

CLASSES = 1 << max(kind.value for kind in CycleClass).bit_length()
"""Numbers that a cycle class may have."""

OPCODES = 1 << OPCODE_BITS
"""Numbers that an opcode may have."""

_ALL_MODES = replace(PYNQ, depthwise=1, tables=1, rounding=FLOAT32)
FIELDS = tuple(
    dict.fromkeys(name for opcode in Opcode for name, _, _ in HEADER + instruction_fields(_ALL_MODES, opcode))
)
"""Names of all fields of all instructions; a field's number in C++ is its place here."""


def _numbers(config: CoreConfig, dram: DramModel) -> dict[str, int]:
    """The scalars of the struct, in their order."""
    compute = pipelines.GemmStages.of(config)
    records = RecordShape.of(config) if config.weight_group else None
    return {
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
        "ledger_entries": pipelines.IN_FLIGHT,
        "planner_cycles": pipelines.PLANNER_CYCLES,
        "loads_in_flight": pipelines.LOADS_IN_FLIGHT,
        "stores_in_flight": pipelines.STORES_IN_FLIGHT,
        "entries_ahead": pipelines.ENTRIES_AHEAD,
        "buffer_beats": bus.buffer_beats(config),  # of each load, and of the writes
        "fetch_buffer_words": bus.FETCH_BUFFER_WORDS,
        "burst_beats": bus.longest_burst(config),
        "fetch_burst_beats": bus.fetch_burst_beats(config),
        "gemm_read": compute.read,  # from a micro-op's issue
        "gemm_write": compute.write,
        "gemm_forwards": pipelines.FORWARDS,
        "vector_slots": pipelines.slots_of(config),
        "vector_result": pipelines.VectorStages.of(config).result + pipelines.QUEUE_CYCLES,
        "latency": dram.latency,
        "bytes_per_cycle": dram.bytes_per_cycle,
        "jitter": dram.jitter,
        "seed": dram.seed,
        "record_entries": config.weight_record_entries if config.weight_group else 0,  # of 4-bit weights
        "record_head_words": records.head_words if records else 0,
        "record_entry_words": records.entry_words if records else 0,
        "unpack_cycles": pipelines.UNPACK_CYCLES if records else 0,  # of what loadw writes
        "outstanding": dram.outstanding,
        "reorder": dram.reorder,
    }


_CORE = CStruct(
    "WeftTimingCore",
    (
        *fields("int64_t", *_numbers(PYNQ, DramModel())),
        CField("load_bytes", "int64_t", (2, len(LoadKind))),  # of an entry (or record), for engines load and loadw
        CField("fields", "int32_t", (OPCODES, len(FIELDS), 3)),  # position, width, and whether it is signed
    ),
)

_RESULT = CStruct(
    "WeftTimingResult",
    (
        *fields("int64_t", "cycles", "read_beats", "write_beats"),
        CField("counters", "int64_t", (len(Engine), CLASSES)),
        CField("evaluated", "int64_t"),  # cycles in which anything was worked out
    ),
)

_PROGRAM = CStruct(
    "WeftTimingProgram",
    (
        CField("core", "const WeftTimingCore*"),
        CField("code", "const uint8_t*"),
        *fields("uint64_t", "count", "offset", "window_start"),
        *fields("uint64_t", "port", "arbiter"),  # which port the core is on, and whether others could be on it
        CField("weight", "uint64_t"),  # bursts of its turn at the arbiter
        CField("start", "int64_t"),  # cycle of the system in which the core starts
    ),
)

_SHARED_READS = CStruct(
    "WeftTimingSharedReads",
    (
        CField("present", "int64_t"),  # whether the arbiter has what it takes
        *fields("uint64_t", "start", "stop"),  # bytes of the memory that cores read together
    ),
)

_PORT_USE = CStruct(
    "WeftTimingPortUse",
    fields("int64_t", "bursts_read", "bursts_written", "read_wait", "write_wait", "bursts_shared"),
)

_RELAY = CStruct(
    "WeftTimingRelay",
    (
        *fields(
            "int64_t", "runs", "handover", "slots", "turns"
        ),  # runs of each core; cycles from an end to the begin that waits; windows; programs of each core
        CField("pitch", "uint64_t"),  # bytes from one window to the next
        CField("after", "uint32_t", (system_config.MOST_CORES,)),  # a mask of programs, for each of them
        CField("room", "uint32_t", (system_config.MOST_CORES,)),
    ),
)

_SPAN = CStruct("WeftTimingSpan", fields("int64_t", "start", "cycles"))

Core, Result, Program, SharedReads, PortUse, Relay, Span = (
    each.python() for each in (_CORE, _RESULT, _PROGRAM, _SHARED_READS, _PORT_USE, _RELAY, _SPAN)
)


def describe_core(config: CoreConfig, dram: DramModel) -> Any:
    """The struct for a core and its memory."""
    core = Core(**_numbers(config, dram))
    for which in (Engine.LOAD, Engine.LOADW):
        for number, kind in enumerate(LoadTargets.of(which).kinds(config)):
            core.load_bytes[which][number] = kind.entry_bytes
    for opcode, name, place in instruction_places(config):
        core.fields[opcode][FIELDS.index(name)][:] = place
    return core


def instruction_places(config: CoreConfig) -> Iterator[tuple[int, str, tuple[int, int, int]]]:
    """Where fields lie: opcode (those that do not exist have a header), name, and position, width, whether signed."""
    for number in range(OPCODES):
        layout = HEADER + (instruction_fields(config, Opcode(number)) if number in list(Opcode) else ())
        position = 0
        for name, width, signed in layout:
            yield number, name, (position, width, int(signed))
            position += width


@cache
def interface_header() -> str:
    """C++ for all that is shared."""
    ops = 1 << max(VectorOp).bit_length()
    by_number = [next((op for op in VectorOp if op == number), None) for number in range(ops)]
    b_entries = ", ".join(str(op.b_entries if op is not None else 0) for op in by_number)
    accumulates = ", ".join(str(op is not None and op.accumulates).lower() for op in by_number)
    return header(
        [
            "namespace weft {",
            enumeration("Engine", "unsigned", "k", Engine.__members__),
            enumeration("ReadId", "unsigned", "kClient", bus.ReadClient.__members__),
            enumeration("Opcode", "uint8_t", "kOp", Opcode.__members__),
            enumeration("Field", "unsigned", "kField", {name: number for number, name in enumerate(FIELDS)}),
            enumeration("VectorOp", "uint8_t", "kOp", VectorOp.__members__),
            enumeration("VectorTarget", "uint8_t", "kTarget", VectorTarget.__members__),
            enumeration("Scratchpad", "uint32_t", "kPad", Scratchpad.__members__),
            enumeration("LoadKind", "unsigned", "kWrite", LoadKind.__members__),
            enumeration("Class", "uint8_t", "k", {name: each.value for name, each in CycleClass.__members__.items()}),
            f"constexpr unsigned kEngines = {len(Engine)};",
            f"constexpr unsigned kReadClients = {len(bus.ReadClient)};",
            f"constexpr unsigned kClasses = {CLASSES};",
            f"constexpr unsigned kLevels = {LOOP_LEVELS};",
            f"constexpr unsigned kTapColumns = {TAP_COLUMNS};",
            f"constexpr uint32_t kFourBits = {FOUR_BITS};",
            f"constexpr uint32_t kBEntries[] = {{ {b_entries} }};  // by VectorOp",
            f"constexpr bool kAccumulates[] = {{ {accumulates} }};  // by VectorOp",
            f"constexpr size_t kWritesOrdered = {bus.WRITES_ORDERED};  // by an arbiter",
            f"constexpr size_t kWaitingReads = {bus.READS_WAITING};  // of a core, for the same reads of the others",
            f"constexpr unsigned kMostCores = {system_config.MOST_CORES};",
            "}  // namespace weft",
            *interface_lines(),
            *(struct.text for struct in (_CORE, _RESULT, _PROGRAM, _SHARED_READS, _PORT_USE, _RELAY, _SPAN)),
            *(struct.text for struct in (EVENT, ACTIVITY, BUS_USE)),
        ]
    )
