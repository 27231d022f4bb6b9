"""The coverage points of the core: what a program can say, what it can meet, and where it can go wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from ..hw.config import INP_BANKS, LOOP_LEVELS, CoreConfig
from ..hw.cycle_class import CycleClass
from ..hw.isa import (
    ENGINE_NAMES,
    FETCH,
    LEGAL_SCRATCHPADS,
    MEMORY_USERS,
    TAP_COLUMNS,
    Engine,
    Fault,
    Finish,
    Gemm,
    Instruction,
    Load,
    Loop,
    Store,
    Sync,
    Vector,
    VectorOp,
    VectorTarget,
    vector_targets,
)
from ..hw.load_counts import takes_records
from ..hw.memories import Memory
from ..roundings import HALF_UP
from ..sim.dma import transfer_of
from ..sim.fuzz import level_of, touched
from ..sim.loops import LoopLevel, LoopNest
from .coverage import Points, Unreachable

RELATIONS = ("same", "neighbour", "far")
STALLS = ("none", "token", "conflict", "memory", "instruction", "send")
"""What an engine did in the cycle before an instruction started."""

COPY_SHAPES = ("dense", "strided", "overlapping rows", "one row", "nothing")
RECORDS = "LOAD loadw WGT of 4 bits"
PADS = ("pad_top", "pad_bottom", "pad_left", "pad_right")
DISTANCES = (1, 2, 3, 4, 5)
"""Micro-ops between two that share an entry; the last stands for all beyond."""

FAULTING: dict[Fault, tuple[int, ...]] = {
    Fault.ILLEGAL: (*Engine, FETCH),
    Fault.INDEX: tuple(Engine),
    Fault.WINDOW: (Engine.LOAD, Engine.LOADW, Engine.STORE, FETCH),
    Fault.ALIGNMENT: (Engine.LOAD, Engine.LOADW, Engine.STORE, FETCH),
    Fault.BUS_READ: (Engine.LOAD, Engine.LOADW, FETCH),
    Fault.BUS_WRITE: (Engine.STORE,),
    Fault.WATCHDOG: (*Engine, FETCH),
    Fault.NO_FINISH: (FETCH,),
}
"""Who can find which fault. A cause that is not here is found by fetch."""


def memory_ports(config: CoreConfig) -> list[tuple[Memory, str, Engine]]:
    """Which engine reads and writes which scratchpad."""
    return [
        (memory, what, engine)
        for memory in config.scratchpads
        for what, engines in (("written", MEMORY_USERS[memory].writers), ("read", MEMORY_USERS[memory].readers))
        for engine in engines
    ]


PORT_OF_INP = "inp: load waits for vector"

DEPTHWISE_POINTS = (
    *(f"{count} columns further along a row" for count in range(1, TAP_COLUMNS + 1)),
    "other taps along a row", "no row", "another row", "the same columns again", "rows side by side",
    *(f"last column of taps in bank {bank}" for bank in range(INP_BANKS)),
    *("product after it", "product before it"),
)  # fmt: skip
"""How the micro-ops of a depthwise GEMM follow one another, and what else the array does."""

BUFFERS = ("load read buffer", "loadw read buffer", "fetch read buffer", "write buffer")


def core_points(config: CoreConfig) -> Points:
    """All points of a core."""
    return {
        "instruction x flags": list(dict.fromkeys(_flag_points(config))),
        **({"depthwise": list(DEPTHWISE_POINTS)} if config.depthwise else {}),
        "fault": [
            f"{cause.name} by {ENGINE_NAMES[engine]}"
            for cause in Fault
            if cause is not Fault.NONE
            for engine in FAULTING.get(cause, (FETCH,))
        ],
        "tokens": [
            f"{ENGINE_NAMES[sender]} to {ENGINE_NAMES[receiver]}: {what}"
            for sender, receiver in product(Engine, Engine)
            if sender != receiver
            for what in ("sent", "taken", "counter full")
        ],
        "queue": [
            f"{name}: {what}"
            for name in (*(f"{ENGINE_NAMES[engine]} queue" for engine in Engine), *BUFFERS)
            for what in ("full", "empty again")
        ],
        "ends of scratchpads": [
            f"{memory} {what} by {ENGINE_NAMES[engine]}: {end}"
            for memory, what, engine in memory_ports(config)
            for end in ("first", "last")
        ],
        "shared ports": [PORT_OF_INP] if config.inp_takes_results else [],
        "operand x distance": [
            f"{operand}: {distance}{' or more' if distance == DISTANCES[-1] else ''}"
            for operand in ("gemm dst after dst", "vector a after dst", "vector b after dst", "vector dst after dst")
            for distance in DISTANCES
        ],
        "relation x stall": [
            f"{ENGINE_NAMES[engine]}: {relation}, {stall}"
            for engine, relation, stall in product(Engine, RELATIONS, STALLS)
        ],
    }


def unreachable(config: CoreConfig) -> tuple[Unreachable, ...]:
    """Points of a core that no program hits, and why."""
    points = [
        Unreachable("fault", "ILLEGAL by store", "every STORE that passes fetch's check of the header has a meaning"),
        *(
            Unreachable("relation x stall", f"{engine}: {relation}, memory", f"{engine} does not access the DRAM")
            for engine in ("gemm", "vector")
            for relation in RELATIONS
        ),
    ]
    if not config.inp_takes_results:
        why = "an entry of results is not an entry of inp"
        ends = (f"{Memory.INP} written by vector: {end}" for end in ("first", "last"))
        points += [Unreachable("ends of scratchpads", end, why) for end in ends]
    if min(config.out_bytes, config.bus_bytes) <= config.granule_bytes:
        points.append(Unreachable("fault", "ALIGNMENT by store", "any offset is the start of an entry of out"))
    return tuple(points)


def fault_point(cause: Fault, engine: int) -> str:
    return f"{cause.name} by {ENGINE_NAMES[engine]}"


def stall_name(kind: int) -> str:
    """The entry of :data:`STALLS` for the class that an engine reported in the cycle before a start."""
    name: str = CycleClass(kind).name
    if name.startswith("TOKEN"):
        return "token"
    return {"BUSY": "none", "IDLE": "instruction"}.get(name, name.lower())


# Flags


def _flag_points(config: CoreConfig) -> Iterator[str]:
    for engine in (Engine.GEMM, Engine.VECTOR):
        for level in range(LOOP_LEVELS):
            yield from flags_of(config, Loop(engine=engine, level=level, extent=1))
    for engine, scratchpads in LEGAL_SCRATCHPADS.items():
        for scratchpad in scratchpads:
            name = f"LOAD {ENGINE_NAMES[engine]} {scratchpad.name}"
            yield from (f"{name} {what}" for what in (*COPY_SHAPES, *PADS))
    if config.weight_group:
        yield from (f"{RECORDS} {what}" for what in COPY_SHAPES)
    yield from (f"STORE {shape}" for shape in COPY_SHAPES)
    for zero, levels, depthwise in product((0, 1), range(LOOP_LEVELS + 1), range(config.depthwise + 1)):
        yield from flags_of(config, Gemm(zero=zero, levels=levels, dst=0, src=0, wgt=0, depthwise=depthwise))
    for op, zero, immediate in product(VectorOp, (0, 1), (0, 1)):
        if op is VectorOp.REQUANTISE and immediate:
            continue
        vector = Vector(op=op, zero=zero, b_immediate=immediate, dst=0, a=0, left_shift=1)
        for target in vector_targets(config, op):
            yield from flags_of(config, replace(vector, target=target))
            if config.rounding != HALF_UP and op is VectorOp.REQUANTISE:
                yield from flags_of(config, replace(vector, target=target, rounding=1))
            if config.tables and not op.accumulates and target is not VectorTarget.TAB:
                yield from flags_of(config, replace(vector, target=target, table=1))
    for op, levels in product(VectorOp, range(LOOP_LEVELS + 1)):
        yield from flags_of(config, Vector(op=op, levels=levels, dst=0, a=0))
    for engine in Engine:
        yield from flags_of(config, Sync(engine=engine))
    yield from flags_of(config, Finish())


def flags_of(config: CoreConfig, instruction: Instruction) -> Iterator[str]:
    """Points of an instruction's fields."""
    name = instruction.opcode.name
    match instruction:
        case Loop():
            yield f"{name} {ENGINE_NAMES[instruction.engine]} level {instruction.level}"
        case Load() if takes_records(config, instruction):
            yield f"{RECORDS} {_copy_shape(instruction)}"
        case Load():
            name = f"{name} {ENGINE_NAMES[instruction.engine]} {instruction.scratchpad.name}"
            yield f"{name} {_copy_shape(instruction)}"
            yield from (f"{name} {pad}" for pad in PADS if getattr(instruction, pad))
        case Store():
            yield f"{name} {_copy_shape(instruction)}"
        case Gemm():
            name = f"{name} depthwise" if instruction.depthwise else name
            yield f"{name} zero={instruction.zero} levels={instruction.levels}"
        case Vector():
            name = f"{name} {instruction.op.name}"
            yield f"{name} zero={instruction.zero} {instruction.target.name} b_immediate={instruction.b_immediate}"
            yield f"{name} levels={instruction.levels}"
            if instruction.table:
                yield f"{name} {instruction.target.name} by a table"
            if instruction.op is VectorOp.REQUANTISE and instruction.left_shift:
                yield f"{name} left_shift"
            if instruction.op is VectorOp.REQUANTISE and instruction.rounding:
                yield f"{name} rounded in the core's mode"
        case Sync():
            yield f"{name} {ENGINE_NAMES[instruction.engine]}"
        case _:
            yield name


def _copy_shape(copy: Load | Store) -> str:
    if not copy.rows or not copy.columns:
        return "nothing"
    if copy.rows == 1:
        return "one row"
    if copy.stride < copy.columns:
        return "overlapping rows"
    return "dense" if copy.stride == copy.columns else "strided"


# Operands


def scratchpad_ends(config: CoreConfig, program: Sequence[Instruction]) -> list[list[str]]:
    """For each instruction, the ends of scratchpads that it reaches."""
    result, ports = [], memory_ports(config)
    for instruction, entries in zip(program, touched(config, program), strict=True):
        engine = ENGINE_NAMES[instruction.engine]
        result.append(
            [
                f"{memory} {what} by {engine}: {end}"
                for memory, what, owner in ports
                if owner is instruction.engine
                for end, index in (("first", 0), ("last", config.depth(memory) - 1))
                if index in entries[memory][what == "written"]
            ]
        )
    return result


def micro_ops(program: Sequence[Instruction]) -> list[tuple[list[int], list[int], list[int]]]:
    """Indices (dst, a, b) of each instruction's micro-ops; empty for those without."""
    loops = {engine: [LoopLevel() for _ in range(LOOP_LEVELS)] for engine in (Engine.GEMM, Engine.VECTOR)}
    result: list[tuple[list[int], list[int], list[int]]] = []
    for instruction in program:
        indices: tuple[list[int], list[int], list[int]] = ([], [], [])
        match instruction:
            case Loop():
                loops[instruction.engine][instruction.level] = level_of(instruction)
            case Gemm() | Vector():
                nest = LoopNest(tuple(reversed(loops[instruction.engine][: instruction.levels])))
                dst, a, b, _ = nest.part(0, nest.count)
                first, second = (
                    (instruction.src, instruction.wgt)
                    if isinstance(instruction, Gemm)
                    else (instruction.a, instruction.b)
                )
                moved = (dst + instruction.dst, a + first, b + second)
                indices = (moved[0].tolist(), moved[1].tolist(), moved[2].tolist())
        result.append(indices)
    return result


def depthwise_points(program: Sequence[Instruction]) -> list[set[str]]:
    """For each instruction its entries of :data:`DEPTHWISE_POINTS`."""
    inner, before = LoopLevel(), None
    result = []
    for instruction, (_, a, _) in zip(program, micro_ops(program), strict=True):
        points = set()
        match instruction:
            case Loop(engine=Engine.GEMM, level=0):
                inner = level_of(instruction)
            case Gemm(depthwise=1):
                along = inner.extent > 1 and instruction.levels > 0
                if not along:
                    points.add("no row")
                elif inner.b_stride:
                    points.add("other taps along a row")
                elif inner.a_stride == 0:
                    points.add("the same columns again")
                else:
                    further, rest = divmod(inner.a_stride, instruction.column_pitch or 1)
                    points.add(f"{TAP_COLUMNS if rest else min(further, TAP_COLUMNS)} columns further along a row")
                if along and len(a) > inner.extent:
                    points.add("another row")
                if instruction.row_pitch == 1:
                    points.add("rows side by side")
                reach = 2 * (instruction.row_pitch + instruction.column_pitch)
                points |= {f"last column of taps in bank {(src + reach) % INP_BANKS}" for src in a}
        if isinstance(instruction, Gemm):
            if isinstance(before, Gemm) and instruction.depthwise != before.depthwise:
                points.add("product before it" if instruction.depthwise else "product after it")
            before = instruction
        result.append(points)
    return result


def operand_distances(program: Sequence[Instruction]) -> list[set[str]]:
    """For each instruction, how many micro-ops before one of its own the entry was written that this one uses."""
    result = []
    for instruction, (dst, a, b) in zip(program, micro_ops(program), strict=True):
        operands = {}
        match instruction:
            case Gemm():
                operands = {"gemm dst after dst": dst}
            case Vector(target=VectorTarget.ACC):
                operands = {"vector a after dst": a}
                if not instruction.b_immediate:
                    operands["vector b after dst"] = b
                if instruction.op.accumulates:
                    operands["vector dst after dst"] = dst
        distances = set()
        written = np.array(dst)
        for name, used in operands.items():
            indices = np.array(used)
            for distance in DISTANCES[:-1]:
                if len(written) > distance and (indices[distance:] == written[:-distance]).any():
                    distances.add(f"{name}: {distance}")
            last = DISTANCES[-1]
            if any(index in dst[: max(0, place - last + 1)] for place, index in enumerate(used)):
                distances.add(f"{name}: {last} or more")
        result.append(distances)
    return result


def order_relations(config: CoreConfig, program: Sequence[Instruction]) -> list[str | None]:
    """For each instruction, where it begins, seen from where its engine's one before ended; ``None`` if nowhere."""
    ended: dict[Engine, tuple[str, int]] = {}
    result: list[str | None] = []
    for instruction, (dst, a, _) in zip(program, micro_ops(program), strict=True):
        relation = None
        begins: tuple[str, int] | None = None
        ends: tuple[str, int] | None = None
        match instruction:
            case Load() | Store():
                transfer = transfer_of(config, instruction)
                if transfer.entries:
                    begins = (transfer.memory, transfer.index)
                    ends = (transfer.memory, transfer.index + transfer.entries - 1)
            case Gemm():
                begins, ends = (Memory.ACC, dst[0]), (Memory.ACC, dst[-1])
            case Vector():
                begins, ends = (Memory.ACC, a[0]), (instruction.target.memory, dst[-1])
        before = ended.get(instruction.engine)
        if begins is not None and before is not None and before[0] == begins[0]:
            distance = abs(begins[1] - before[1])
            relation = RELATIONS[min(distance, 2)]
        if ends is not None:
            ended[instruction.engine] = ends
        result.append(relation)
    return result
