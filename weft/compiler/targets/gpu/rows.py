"""Long reductions: a group makes a row of the result, and its threads combine what they added up each for itself."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ... import tensor as te
from ...tensor.evaluate import ITEM_BYTES
from ...tensor.ir import Block, Var
from ...tensor.tree import find_block, find_buffer
from ..loops.nests import extent_of, largest_divisor, own_loops, reduces_neighbours, split_loops, tidy
from .devices import GpuDescription
from .digits import BLOCK_AXES, SHARED, THREAD
from .elements import bind_elements

LONG = 16
"""Elements of a reduction from which on threads share it."""

LEAST_LANES = 16
"""Threads below which a loop is rather cut into unequal parts than into equal ones."""

GROUPS_WANTED = 64
"""Groups that share a reduction to one element."""

LAST_SUMS = 16
"""Partial results that one thread combines, at most."""


def by_groups(schedule: te.Schedule, device: GpuDescription) -> bool:
    """For a kernel of which all reductions are over the rest of the same rows, and long. Stages between them stay in
    the group's shared memory."""
    tidy(schedule)
    *stages, output = schedule.blocks()
    reductions = [name for name in stages if is_long_reduction(schedule, name)]
    rows = rows_of(schedule, output, reductions)
    if stages == reductions and len(stages) == 1 and find_buffer(schedule.func, stages[0]).size == 1:
        _reduce_together(schedule, stages[0], device.threads * GROUPS_WANTED, device)
        return True
    if not reductions or not rows:
        return False
    for name in reversed(stages):
        schedule.set_scope(name, SHARED)
        schedule.compute_at(name, rows[-1])
    tidy(schedule)
    buffers = [find_buffer(schedule.func, name) for name in stages]
    if sum(buffer.size * ITEM_BYTES[buffer.dtype] for buffer in buffers) > device.shared_bytes // 2:
        return False
    for name in stages:
        if name in reductions:
            _reduce_together(schedule, name, device.threads, device)
        elif own := own_loops(schedule, name):
            _share_out(schedule, own[-1], device)
    inner = [loop for loop in schedule.get_loops(output) if loop not in rows]
    if inner:
        _share_out(schedule, inner[-1], device)
    for loop in rows:
        schedule.bind(loop, BLOCK_AXES[0])
    return True


def is_long_reduction(schedule: te.Schedule, name: str) -> bool:
    """Whether a stage reduces neighbours in memory, and so many that threads should share them."""
    block = find_block(schedule.func, name)[-1]
    if not isinstance(block, Block) or block.kind != "reduce":
        return False
    reduced, _ = split_loops(schedule, name)
    length = prod(extent_of(schedule, loop) for loop in reduced)
    return length >= LONG and reduces_neighbours(block, reduced[-1])


def rows_of(schedule: te.Schedule, output: str, reductions: Sequence[str]) -> list[Var]:
    """The outermost loops of the result that have as many iterations as each reduction has results."""
    loops = schedule.get_loops(output)
    counts = {find_buffer(schedule.func, name).size for name in reductions}
    for place in range(1, len(loops) + 1):
        if counts == {prod(extent_of(schedule, loop) for loop in loops[:place])}:
            return loops[:place]
    return []


def _lanes(schedule: te.Schedule, loop: Var, most: int) -> tuple[Var, Var, bool]:
    """A loop as (threads, what each of them does, whether the first is inside of the second): neighbours for
    neighbours where the parts are equal."""
    extent = extent_of(schedule, loop)
    lanes = largest_divisor(extent, most)
    if lanes >= min(LEAST_LANES, extent):
        each, lane = schedule.split(loop, lanes)
        return lane, each, True
    lane, each = schedule.split(loop, -(-extent // most))
    return lane, each, False


def _reduce_together(schedule: te.Schedule, name: str, most: int, device: GpuDescription) -> None:
    """Each of ``most`` threads a part of a reduction, then fewer and fewer the results of all."""
    alone = most > device.threads  # no group is around: loops that run once are bound, too
    reduced, kept = split_loops(schedule, name)
    schedule.reorder(*kept, *reduced)
    while len(reduced) > 1:
        reduced[-2:] = [schedule.fuse(*reduced[-2:])]
    while extent_of(schedule, reduced[0]) > LAST_SUMS:
        lane, each, inside = _lanes(schedule, reduced[-1], most)
        if inside:
            schedule.reorder(lane, each)
        part = schedule.rfactor(name, lane)
        reduced, kept = split_loops(schedule, part)
        schedule.reorder(*kept, *reduced)
        if reduced:
            schedule.decompose_reduction(part, reduced[0])
        bind_elements(schedule, kept if alone else kept[-1:], device)
        most = device.threads if most > device.threads else LAST_SUMS // 2
        reduced, _ = split_loops(schedule, name)
    schedule.decompose_reduction(name, reduced[0])


def _share_out(schedule: te.Schedule, loop: Var, device: GpuDescription) -> None:
    """Threads for a loop that has no other in it."""
    if extent_of(schedule, loop) <= device.threads:
        schedule.bind(loop, THREAD)
        return
    lane, each, inside = _lanes(schedule, loop, device.threads)
    schedule.bind(lane, THREAD)
    if inside:  # while they are in order it is seen that no two threads meet
        schedule.reorder(lane, each)
