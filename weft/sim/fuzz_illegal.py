"""Random programs that a core has to stop at, each with one thing wrong: an instruction, a token, the bus, the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..hw.config import LOOP_LEVELS, PROGRAM_ALIGNMENT, CoreConfig
from ..hw.isa import (
    HEADER,
    VECTOR_TARGET_BITS,
    Engine,
    Fault,
    Finish,
    Gemm,
    Instruction,
    Load,
    Loop,
    Opcode,
    Scratchpad,
    Store,
    Sync,
    Vector,
    VectorOp,
    VectorTarget,
    instruction_fields,
    mask_engines,
    vector_targets,
)
from ..hw.weight_form import FOUR_BITS
from .dma import transfer_of, transfer_problem
from .dram import BusErrors
from .fuzz import (
    DATA_BYTES,
    MEMORY_BYTES,
    MICRO_OPS,
    PROGRAM_BYTES,
    Case,
    Draw,
    IllegalPart,
    level_of,
    random_case,
    random_gemm,
    random_load,
    random_store,
    random_vector,
)
from .loops import LoopLevel, LoopNest

ERROR_BYTES = 64
"""Granularity of bus errors: a word of the widest bus, so that every core sees the same words fail."""

MOST_INSTRUCTIONS = 14
"""In a program with something wrong: less than an engine executes behind a token that has no room."""


def illegal_case(config: CoreConfig, draw: Draw) -> Case:
    """A random case with one thing wrong. (Where what is wrong is a token, it may happen to do no harm.)"""
    while True:
        case = random_case(config, draw, most_instructions=MOST_INSTRUCTIONS)
        case = replace(case, plain=_that_fits_the_queues(config, case.plain), serial=bool(draw(0, 1)))
        size = draw(PROGRAM_BYTES + DATA_BYTES, case.window_bytes)
        case = replace(case, window_bytes=size - size % config.granule_bytes)
        spoiled = KINDS[draw(0, len(KINDS) - 1)](case, draw)
        if spoiled is not None:
            return spoiled


def _that_fits_the_queues(config: CoreConfig, plain: Sequence[Instruction]) -> tuple[Instruction, ...]:
    """The longest beginning of which every queue holds its part: how far fetch gets does not depend on time then."""
    held = dict.fromkeys(Engine, 0)
    for number, instruction in enumerate(plain):
        held[instruction.engine] += 1
        if held[instruction.engine] > config.queue_depth:
            return tuple(plain[:number])
    return tuple(plain)


# Instructions that are refused


def _with(case: Case, draw: Draw, instruction: Instruction, place: int | None = None) -> Case:
    """The case with an instruction that an engine refuses, at a random place unless one is given."""
    wrong = IllegalPart(draw(0, len(case.plain)) if place is None else place, instruction, ordered=True)
    return replace(case, wrong=(wrong,))


def _headers(case: Case, draw: Draw) -> Case | None:
    """What fetch calls illegal."""
    config, engine = case.config, Engine(draw(0, len(Engine) - 1))
    gemm = Gemm(dst=0, src=0, wgt=0)
    choices: list[tuple[Instruction, int]] = [
        (Sync(engine=engine), int(Opcode.SYNC)),  # opcode 0
        (Sync(engine=draw(len(Engine), 7)), 0),  # type: ignore[arg-type]
        (Sync(engine=engine, wait=1 << engine), 0),
        (Sync(engine=engine, send=1 << engine), 0),
        (Finish(send=draw(1, 31)), 0),
        (Finish(wait=draw(1, 31)), 0),
        (Finish(engine=Engine(draw(1, 4))), 0),
        (replace(gemm, engine=Engine.VECTOR), 0),
        (Loop(engine=Engine.STORE, level=0, extent=1), 0),
        (Store(engine=Engine.LOAD, index=0, offset=0, rows=0, columns=0), 0),
        *(
            (instruction, _reserved_bit(config, instruction.opcode, draw))
            for instruction in (Sync(engine=engine), gemm)
        ),
    ]
    instruction, flips = choices[draw(0, len(choices) - 1)]
    return replace(case, wrong=(IllegalPart(draw(0, len(case.plain)), instruction, flips),))


def _reserved_bit(config: CoreConfig, opcode: Opcode, draw: Draw) -> int:
    used = sum(width for _, width, _ in HEADER + instruction_fields(config, opcode))
    return 1 << draw(used, config.instruction_bits - config.check_bits - 1)


def _damaged(case: Case, draw: Draw) -> Case | None:
    """One to three flipped bits of an instruction that would do no harm."""
    flips = 0
    while not flips:
        for _ in range(draw(1, 3)):
            flips ^= 1 << draw(0, case.config.instruction_bits - 1)
    wrong = IllegalPart(draw(0, len(case.plain)), Sync(engine=Engine(draw(0, 4))), flips, damaged=True)
    return replace(case, wrong=(wrong,))


def _bodies(case: Case, draw: Draw) -> Case | None:
    """What an engine calls illegal."""
    requantise = Vector(op=VectorOp.REQUANTISE, b_immediate=1, dst=0, a=0)
    nothing = Load(scratchpad=Scratchpad.INP, index=0, offset=0, rows=0, columns=0)
    compute = (Engine.GEMM, Engine.VECTOR)[draw(0, 1)]
    op = list(VectorOp)[draw(0, len(VectorOp) - 1)]
    refused = [target for target in range(1 << VECTOR_TARGET_BITS) if target not in vector_targets(case.config, op)]
    unknown = (7, 12, 13, 14, 15)[draw(0, 4)]
    choices: list[Instruction] = [
        Loop(engine=compute, level=draw(LOOP_LEVELS, 7), extent=1),
        Loop(engine=compute, level=0, extent=0),
        Gemm(levels=7, dst=0, src=0, wgt=0),
        Vector(op=VectorOp.ADD, levels=7, dst=0, a=0),
        Vector(op=unknown, dst=0, a=0),  # type: ignore[arg-type]
        requantise,
        replace(nothing, scratchpad=Scratchpad.WGT),
        replace(nothing, engine=Engine.LOADW),
    ]
    if refused:
        choices.append(Vector(op=op, target=refused[draw(0, len(refused) - 1)], dst=0, a=0))  # type: ignore[arg-type]
    if case.config.tables:
        choices.append(_wrong_table(case.config, draw))
    if case.config.weight_group:
        weights = replace(nothing, engine=Engine.LOADW, scratchpad=Scratchpad.WGT)
        choices += [
            replace(weights, pad_value=(-FOUR_BITS, 1, FOUR_BITS + 1, 127)[draw(0, 3)]),
            replace(weights, pad_value=FOUR_BITS, **{f"pad_{('top', 'bottom', 'left', 'right')[draw(0, 3)]}": 1}),  # type: ignore[arg-type]
        ]
    if case.config.depthwise:
        choices.append(Gemm(dst=0, src=0, wgt=0, depthwise=1, row_pitch=2 * draw(0, 8)))
    return _with(case, draw, choices[draw(0, len(choices) - 1)])


def _wrong_table(config: CoreConfig, draw: Draw) -> Vector:
    """A table that the core does not have, or one for results that pass through none."""
    any_table = draw(1, config.tables)
    none = (1 << config.tables.bit_length()) - 1  # the field's largest value; with one table there is none beyond it
    choices = [
        Vector(op=VectorOp.ADD, target=VectorTarget.TAB, dst=0, a=0, table=any_table),
        *(Vector(op=op, dst=0, a=0, table=any_table) for op in VectorOp if op.accumulates),
        *(Vector(op=VectorOp.ADD, dst=0, a=0, table=none) for _ in range(3) if none > config.tables),
    ]
    return choices[draw(0, len(choices) - 1)]


def _copy(config: CoreConfig, draw: Draw) -> Load | Store:
    return random_load(config, draw) if draw(0, 2) else random_store(config, draw)


def _copy_index(case: Case, draw: Draw) -> Case | None:
    """A copy whose last entry is beyond its scratchpad."""
    config, copy = case.config, _copy(case.config, draw)
    transfer = transfer_of(config, copy)
    first = max(0, config.depth(transfer.memory) - transfer.entries + 1)
    last = (1 << config.index_bits) - 1
    if not transfer.entries or first > last:
        return None
    return _with(case, draw, replace(copy, index=draw(first, min(last, first + 3) if draw(0, 1) else last)))


def _copy_window(case: Case, draw: Draw) -> Case | None:
    """A copy whose last byte is beyond the window."""
    config, copy = case.config, _copy(case.config, draw)
    transfer = transfer_of(config, copy)
    if not transfer.bytes:
        return None
    step = max(1, min(transfer.entry_bytes, config.bus_bytes) // config.granule_bytes)
    span = transfer.end - transfer.start
    first = ((case.window_bytes - span) // config.granule_bytes + 1 + step - 1) // step
    last = ((1 << config.dram_bits) - 1) // step
    return _with(case, draw, replace(copy, offset=step * draw(first, first + 3 if draw(0, 1) else last)))


def _copy_alignment(case: Case, draw: Draw) -> Case | None:
    """A copy whose first byte is between two entries, or bus words."""
    config, copy = case.config, _copy(case.config, draw)
    transfer = transfer_of(config, copy)
    step = min(transfer.entry_bytes, config.bus_bytes) // config.granule_bytes
    if step < 2 or not transfer.bytes:
        return None
    copy = replace(copy, offset=copy.offset + draw(1, step - 1))
    problem = transfer_problem(config, transfer_of(config, copy), case.window_bytes)
    return _with(case, draw, copy) if problem and problem[0] is Fault.ALIGNMENT else None


def _compute_index(case: Case, draw: Draw) -> Case | None:
    """A GEMM or VECTOR that comes to an index beyond its memory, at its start or on the way."""
    config = case.config
    place = draw(0, len(case.plain))
    engine = (Engine.GEMM, Engine.VECTOR)[draw(0, 1)]
    loops = [LoopLevel() for _ in range(LOOP_LEVELS)]
    for instruction in case.plain[:place]:
        if isinstance(instruction, Loop) and instruction.engine is engine:
            loops[instruction.level] = level_of(instruction)
    names: Sequence[tuple[str, str, int]]
    compute: Gemm | Vector
    if engine is Engine.GEMM:
        compute = random_gemm(config, draw, loops)
        inp_depth = config.inp_depth - max(compute.src_offsets)
        names = (("dst", "dst", config.acc_depth), ("src", "a", inp_depth), ("wgt", "b", config.wgt_depth))
    else:
        compute = random_vector(config, draw, loops)
        names = (("dst", "dst", config.depth(compute.target.memory)), ("a", "a", config.acc_depth))
    field, operand, depth = names[draw(0, len(names) - 1)]
    nest = LoopNest(tuple(reversed(loops[: compute.levels])))
    first, last = max(0, depth - nest.largest(0, operand)), (1 << config.index_bits) - 1
    if first > last or nest.count > MICRO_OPS:
        return None
    change: dict[str, Any] = {field: draw(first, min(last, first + 3) if draw(0, 1) else last)}
    compute = replace(compute, **change)
    # What it touched before its fault is ordered only in a serial program.
    return _with(replace(case, serial=True), draw, compute, place)


# The bus


def _bus_error(case: Case, draw: Draw) -> Case | None:
    """A place in memory that answers with an error when an instruction comes to it."""
    copies = [part for part in case.plain if isinstance(part, Load | Store) and transfer_of(case.config, part).bytes]
    if not copies:
        return None
    copy = copies[draw(0, len(copies) - 1)]
    transfer = transfer_of(case.config, copy)
    row = transfer.start + draw(0, transfer.rows - 1) * transfer.stride_bytes
    byte = case.window_start + row + draw(0, transfer.row_bytes - 1)
    start = byte // ERROR_BYTES * ERROR_BYTES
    is_load = isinstance(copy, Load)
    errors = BusErrors(start, start + ERROR_BYTES * draw(1, 2), reads=is_load, writes=not is_load)
    return replace(case, serial=True, dram=replace(case.dram, errors=errors))


def _bus_error_of_fetch(case: Case, draw: Draw) -> Case | None:
    number = draw(0, len(case.plain))
    byte = case.window_start + case.program_offset + number * case.config.instruction_bytes
    start = byte // ERROR_BYTES * ERROR_BYTES
    return replace(case, dram=replace(case.dram, errors=BusErrors(start, start + ERROR_BYTES, writes=False)))


# Tokens


def _missing_token(case: Case, draw: Draw) -> Case | None:
    """One wait too many."""
    engine = Engine(draw(0, len(Engine) - 1))
    mask = draw(1, 31) & ~(1 << engine)
    place = draw(0, len(case.plain))
    if sum(part.engine is engine for part in case.plain) == case.config.queue_depth or not mask:
        return None
    return replace(case, wrong=(IllegalPart(place, Sync(engine=engine, wait=mask)),))


def _missing_room(case: Case, draw: Draw) -> Case | None:
    """One send too many to an engine that takes none, with other instructions behind it."""
    waits = {(source, part.engine) for part in case.instructions for source in mask_engines(part.wait)}
    free = [(a, b) for a in Engine for b in Engine if a != b and (a, b) not in waits]
    if not free:
        return None
    source, target = free[draw(0, len(free) - 1)]
    sends = [Sync(engine=source, send=1 << target)] * (case.config.token_depth + 1)
    behind = [Sync(engine=source)] * draw(0, min(2, case.config.queue_depth))
    place = len(case.plain)
    return replace(case, wrong=tuple(IllegalPart(place, sync) for sync in (*sends, *behind)))


# The program


def _no_finish(case: Case, draw: Draw) -> Case | None:
    return replace(case, finish=False, plain=case.plain if draw(0, 3) else ())


def _program_outside(case: Case, draw: Draw) -> Case | None:
    """A program that ends behind the window."""
    size = len(case.program) * case.config.instruction_bytes
    first = (case.window_bytes - size) // PROGRAM_ALIGNMENT + 1
    offset = PROGRAM_ALIGNMENT * draw(first, first + 2 if draw(0, 1) else MEMORY_BYTES // PROGRAM_ALIGNMENT)
    return replace(case, program_offset=offset)


def _program_alignment(case: Case, draw: Draw) -> Case | None:
    return replace(case, program_offset=case.program_offset + draw(1, PROGRAM_ALIGNMENT - 1))


KINDS: tuple[Callable[[Case, Draw], Case | None], ...] = (
    _headers, _damaged, _bodies, _copy_index, _copy_window, _copy_alignment, _compute_index, _bus_error, _bus_error,
    _bus_error_of_fetch, _missing_token, _missing_room, _no_finish, _program_outside, _program_alignment,
)  # fmt: skip
