"""Default schedules of kernels for GPUs: nothing needs tuning to run.

Each stage becomes a launch of its own unless the result's threads can compute what they need of it. A thread makes one
element of a result, or a few that it loads and stores at once; neighbours in memory by neighbours in a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

from ... import tensor as te
from ...tensor.errors import ScheduleError
from ...tensor.ir import Block, Var
from ...tensor.tree import find_block, find_buffer
from ..loops.nests import REGISTER, extent_of, split_loops, tidy
from .attempts import scheduled_by_one_of
from .columns import load_ahead, share_columns
from .devices import GpuDescription
from .elements import bind_elements
from .rows import by_groups
from .transposed import by_turned_tiles
from .vector_loops import found_together, store_of
from .warp_rows import ways_by_warps


def schedule_plain(schedule: te.Schedule, device: GpuDescription) -> None:
    """Any kernel: a warp or a group for each row that is reduced, tiles of what is turned, parts of long columns, or a
    thread for some neighbours of each stage."""
    ways = (partial(way, device=device) for way in (by_groups, by_turned_tiles, _by_columns))
    if scheduled_by_one_of([*ways_by_warps(device), *ways], schedule, device):
        return
    tidy(schedule)
    schedule_elements(schedule, device, device.neighbours, schedule.blocks()[:-1])


def _by_columns(schedule: te.Schedule, device: GpuDescription) -> bool:
    """For a kernel of which some long reductions have too few results: by parts of their depth, then by elements."""
    tidy(schedule)
    stages = schedule.blocks()[:-1]
    shared = share_columns(schedule, stages, device)
    if not shared:
        return False
    # Few results are rather spread over the device than made some at a time.
    few = find_buffer(schedule.func, schedule.blocks()[-1]).size < device.threads * device.multiprocessors
    schedule_elements(schedule, device, 1 if few else device.neighbours, stages)
    for name in shared:
        load_ahead(schedule, name)
    return True


def schedule_elements(schedule: te.Schedule, device: GpuDescription, count: int, stages: Sequence[str]) -> None:
    """A thread for up to ``count`` neighbours of each result, as many as there can be. ``stages``: those before the
    result that it takes care of."""
    while count:
        attempt = schedule.copy()
        if _by_elements(attempt, device, count, stages):
            schedule.func, schedule.trace = attempt.func, attempt.trace
            return
        count //= 2


def _by_elements(schedule: te.Schedule, device: GpuDescription, count: int, stages: Sequence[str]) -> bool:
    """A thread for ``count`` neighbours of each result; False where these do not lie together, or what they are made
    of does not."""
    output = schedule.blocks()[-1]
    rows = schedule.get_loops(output)
    together = []
    if count > 1:
        if not rows or extent_of(schedule, rows[-1]) % count:
            return False
        rows[-1], each = schedule.split(rows[-1], count)
        together.append((output, each))
    inside = _move_into_elements(schedule, stages, rows, count)
    for name in stages:
        if name in inside:
            lane = _reduce_in_register(schedule, name, count)
            if lane is not None:
                together.append((name, lane))
        elif _is_reduction(schedule, name):
            _reduce_by_element(schedule, name, device)
        else:
            bind_elements(schedule, schedule.get_loops(name), device)
    if count > 1:
        found = [found_together(store_of(schedule, name), lane, count) for name, lane in together]
        if None in found or not any(found):
            return False
        for _, lane in together:
            schedule.vectorize(lane)
    bind_elements(schedule, rows, device)
    return True


def _is_reduction(schedule: te.Schedule, name: str) -> bool:
    block = find_block(schedule.func, name)[-1]
    return isinstance(block, Block) and block.kind == "reduce"


def _move_into_elements(schedule: te.Schedule, stages: Sequence[str], loops: Sequence[Var], count: int) -> set[str]:
    """Let each ``count`` elements of the result, inside of ``loops``, compute their own elements of the stages before
    it, where nobody else needs those; gives their names."""
    moved: set[str] = set()
    if not loops:
        return moved
    elements = count * prod(extent_of(schedule, loop) for loop in loops)
    for name in reversed(stages):
        attempt, size = schedule.copy(), find_buffer(schedule.func, name).size
        try:
            attempt.set_scope(name, REGISTER)
            attempt.compute_at(name, loops[-1])
        except ScheduleError:
            break
        if find_buffer(attempt.func, name).size != count or size != elements or not _is_reduction(schedule, name):
            break
        schedule.set_scope(name, REGISTER)
        schedule.compute_at(name, loops[-1])
        moved.add(name)
    return moved


def _reduce_in_register(schedule: te.Schedule, name: str, count: int = 1) -> Var | None:
    """A reduction to ``count`` elements, inside of the loops of who reads them; gives the loop over these, innermost,
    where there is one."""
    reduced, kept = split_loops(schedule, name)
    lanes = [loop for loop in kept if extent_of(schedule, loop) == count] if count > 1 else []
    schedule.reorder(*(loop for loop in kept if loop not in lanes), *reduced, *lanes)
    schedule.decompose_reduction(name, reduced[0])
    return lanes[0] if lanes else None


def _reduce_by_element(schedule: te.Schedule, name: str, device: GpuDescription) -> None:
    """A thread for each element of the result of a reduction."""
    reduced, kept = split_loops(schedule, name)
    if not kept:
        schedule.decompose_reduction(name, reduced[0])
        return
    written = schedule.cache_write(name, REGISTER)
    rows = schedule.get_loops(written)
    schedule.compute_at(name, rows[-1])
    _reduce_in_register(schedule, name)
    bind_elements(schedule, rows, device)
