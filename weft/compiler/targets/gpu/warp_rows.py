"""Reductions of rows that a warp holds: in registers, combined by exchanges between lanes, without shared memory and
without barriers."""

from __future__ import annotations

from functools import partial
from math import prod

from ... import tensor as te
from ...tensor.ir import BinOp, Block, DType, Var
from ...tensor.tree import find_block, find_buffer
from ..loops.nests import REGISTER, extent_of, largest_divisor, own_loops, split_loops, tidy
from .attempts import Way
from .devices import GpuDescription
from .digits import BLOCK_AXES, THREAD, WARP
from .intrinsics import LANES, REDUCED, REDUCTIONS, Reduction, warp_reduce
from .rows import is_long_reduction, rows_of
from .vector_loops import found_together, store_of
from .whole_warps import in_whole_warps

MOST_EACH = 32
"""Elements of a row for a lane, at most, of all stages that it holds together: more would not be in registers."""

WARPS = 4
"""Rows of a group, at most: groups of one warp do not fill a device."""


def ways_by_warps(device: GpuDescription) -> list[Way]:
    """For a kernel of which all reductions are over the rest of the same rows, and a warp holds a row. Rows are of
    whole warps, so that no lane has less to do than another; or, the last way, made so first."""
    if device.warp != LANES:
        return []
    return [partial(_by_warps, together=together, longer=longer)
            for together, longer in ((device.neighbours, False), (1, False), (1, True))]  # fmt: skip


def _by_warps(schedule: te.Schedule, together: int, *, longer: bool) -> bool:
    """By lanes that load and store so many neighbours ``together``. ``longer``: rows that are no whole warps are made
    so first."""
    tidy(schedule)
    *stages, output = schedule.blocks()
    reductions = [name for name in stages if is_long_reduction(schedule, name)]
    rows = rows_of(schedule, output, reductions)
    if longer and rows:
        in_whole_warps(schedule, reductions, len(rows), LANES)
    exchanged = {name: exchanged_in(schedule, name) for name in reductions}
    if not reductions or not rows:
        return False
    inner = [loop for loop in schedule.get_loops(output) if loop not in rows and extent_of(schedule, loop) != 1]
    if len(inner) > 1 or any(extent_of(schedule, loop) % (together * LANES) for loop in inner):
        return False
    group, row = schedule.split(rows[-1], largest_divisor(extent_of(schedule, rows[-1]), WARPS) if inner else 1)
    for name in reversed(stages):
        schedule.set_scope(name, REGISTER)
        schedule.compute_at(name, group)
    held = sum(find_buffer(schedule.func, name).size for name in stages if name not in reductions)
    if held > MOST_EACH * LANES * extent_of(schedule, row):
        return False
    for name in stages:
        loops = own_loops(schedule, name)
        if name in reductions:
            how = exchanged[name]
            if how is None:
                return False
            if not reduce_by_lanes(schedule, name, *how, together):
                return False
        elif loops and extent_of(schedule, loops[-1]) % (together * LANES) == 0:
            if not spread_by_lanes(schedule, name, loops, together):
                return False
        else:
            return False
    if inner and not spread_by_lanes(schedule, output, [row, *inner], together):
        return False
    for loop in (*rows[:-1], group):
        schedule.bind(loop, BLOCK_AXES[0])
    return True


def exchanged_in(schedule: te.Schedule, name: str) -> tuple[Reduction, DType] | None:
    """How and of what type lanes combine their parts of a reduction; None where those are not equal, or no instruction
    exchanges them."""
    block = find_block(schedule.func, name)[-1]
    reduced, _ = split_loops(schedule, name)
    length = prod(extent_of(schedule, loop) for loop in reduced)
    if length % LANES or length > MOST_EACH * LANES or not isinstance(block, Block):
        return None
    value, dtype = block.body.value, block.body.buffer.dtype
    op = next((each for each in REDUCTIONS if isinstance(value, BinOp) and value.op == each), None)
    return (op, dtype) if op is not None and dtype in REDUCED else None


def reduce_by_lanes(schedule: te.Schedule, name: str, op: Reduction, dtype: DType, together: int) -> bool:
    """Each lane a part of the row, neighbours for neighbours; then all lanes together. False where so many neighbours
    do not lie together."""
    reduced, kept = split_loops(schedule, name)
    schedule.reorder(*kept, *reduced)
    while len(reduced) > 1:
        reduced[-2:] = [schedule.fuse(*reduced[-2:])]
    if extent_of(schedule, reduced[0]) % (together * LANES):
        return False
    each, lane = schedule.split(reduced[0], together * LANES)
    lane, neighbour = schedule.split(lane, together)
    schedule.reorder(lane, neighbour, each)
    part = schedule.rfactor(name, lane, axis=find_buffer(schedule.func, name).ndim)
    schedule.set_scope(part, REGISTER)
    parts = [part]
    if together > 1:
        (neighbour, _), _ = split_loops(schedule, part)
        parts = [schedule.rfactor(part, neighbour, axis=find_buffer(schedule.func, part).ndim), part]
        schedule.set_scope(parts[0], REGISTER)
    for stage in parts:
        reduced, kept = split_loops(schedule, stage)
        rows = [loop for loop in kept if stage == part or loop != kept[-1]]
        neighbours = [loop for loop in kept if loop not in rows]
        schedule.reorder(*rows, *reduced, *neighbours)
        for loop in neighbours:
            if found_together(store_of(schedule, stage), loop, together) is None:
                return False
            schedule.vectorize(loop)
        schedule.decompose_reduction(stage, reduced[0])
        for loop in reduced:
            schedule.unroll(loop)
        for loop in rows:
            schedule.bind(loop, THREAD)
    reduced, kept = split_loops(schedule, name)
    for loop in kept:
        schedule.bind(loop, WARP)
    schedule.tensorize(reduced[0], warp_reduce(op, dtype))
    return True


def spread_by_lanes(schedule: te.Schedule, name: str, loops: list[Var], together: int) -> bool:
    """The elements of rows to lanes, neighbours to neighbours; False where so many do not lie together."""
    *rows, column = loops
    each, lane = schedule.split(column, together * LANES)
    lane, neighbour = schedule.split(lane, together)
    for loop in (*rows, lane):
        schedule.bind(loop, THREAD)
    schedule.reorder(*rows, lane, each, neighbour)
    schedule.unroll(each)
    if together > 1:
        if found_together(store_of(schedule, name), neighbour, together) is None:
            return False
        schedule.vectorize(neighbour)
    return True
