"""Long reductions along which neighbours in memory do not lie, to few results: sums of columns.

A thread for each result would leave a device idle. The depth is cut into parts, as many as keep it busy: a launch has a
thread for each part of a few neighbouring results, and what it finds is reduced like any other stage, by parts again
where they are many.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import prod

from ... import tensor as te
from ...tensor.errors import ScheduleError
from ...tensor.ir import Allocate, Block, Expr, Load, PrimFunc, Var
from ...tensor.tree import drop_allocation, find_block, find_buffer
from ...tensor.visitor import walk_exprs
from ..loops.nests import REGISTER, extent_of, largest_divisor, own_loops, position_of, split_loops
from .devices import GpuDescription
from .elements import bind_elements
from .vector_loops import found_together

LONG = 128
"""Elements of a reduction beyond which several threads share it."""

LEAST_DEPTH = 16
"""Elements of a part: fewer are not worth what it writes and another launch reads."""

GROUPS_WANTED = 4
"""Groups for each multiprocessor: so many loads on their way hide what each takes."""

WARP_RUN = 32
"""Neighbouring results from which on a warp reads one row of them."""

AT_ONCE = 8
"""Elements of the depth whose loads a thread begins before it waits for the first."""


def share_columns(schedule: te.Schedule, stages: Sequence[str], device: GpuDescription) -> list[str]:
    """Parts of the depth for all reductions of ``stages`` that have too few results to keep the device busy; gives
    their names. The launches of the parts are scheduled, the stages themselves then reduce what these found."""
    shared = []
    for name in stages:
        while _share(schedule, name, device):
            if name not in shared:
                shared.append(name)
    return shared


def load_ahead(schedule: te.Schedule, name: str) -> None:
    """Write some iterations of a reduction's innermost loop out, so that their loads are under way together."""
    reduced, _ = split_loops(schedule, name)
    if not reduced:
        return
    each = largest_divisor(extent_of(schedule, reduced[-1]), AT_ONCE)
    if each > 1:
        _, inner = schedule.split(reduced[-1], each)
        schedule.unroll(inner)


def _share(schedule: te.Schedule, name: str, device: GpuDescription) -> bool:
    """One cut of a reduction's depth, if it is worth it; else the schedule is as it was."""
    block = find_block(schedule.func, name)[-1]
    if not isinstance(block, Block) or block.kind != "reduce":
        return False
    depth = prod(extent_of(schedule, loop) for loop in split_loops(schedule, name)[0])
    if depth <= LONG:
        return False
    count = device.neighbours
    while count:
        threads = max(1, find_buffer(schedule.func, name).size // count)
        wanted = min(device.multiprocessors * GROUPS_WANTED * device.threads // threads, depth // LEAST_DEPTH)
        if LONG < wanted < 2 * LONG:  # rather fewer parts than a third launch
            wanted = LONG
        attempt = schedule.copy()
        with suppress(ScheduleError):  # such as a product, of which there are no parts
            if _cut(attempt, name, wanted, count, device):
                schedule.func, schedule.trace = attempt.func, attempt.trace
                return True
        count //= 2
    return False


def _cut(schedule: te.Schedule, name: str, wanted: int, count: int, device: GpuDescription) -> bool:
    """About ``wanted`` parts of the depth, a thread for ``count`` neighbours of each; False where there are none, or
    neighbours do not lie together."""
    if wanted < 2:
        return False
    axis, run = _neighbours(schedule, name)
    part = None
    if run < WARP_RUN:  # the lanes of a warp are several parts: they read neighbouring rows where these are dealt out
        attempt = schedule.copy()
        part = _dealt_out(attempt, name, wanted)
        if part is not None and 2 * extent_of(attempt, part) >= wanted:
            schedule.func, schedule.trace = attempt.func, attempt.trace
        else:
            part = None
    if part is None:
        part = _one_after_the_other(schedule, name, wanted)
    if part is None:
        return False
    parts = schedule.rfactor(name, part, axis)
    _allocate_outermost(schedule, parts)
    written = schedule.cache_write(parts, REGISTER)
    reduced, kept = split_loops(schedule, parts)
    axes = [index for index in _block(schedule, parts).body.indices if isinstance(index, Var)]
    rows = [*(loop for loop in kept if loop not in axes), *axes]  # those that run once go first
    lanes: list[Var] = []
    if count > 1:
        if not axes or extent_of(schedule, rows[-1]) % count:
            return False
        rows[-1], lane = schedule.split(rows[-1], count)
        lanes.append(lane)
    schedule.reorder(*rows, *reduced, *lanes)
    schedule.reverse_compute_at(written, rows[-1])
    schedule.decompose_reduction(parts, reduced[0])
    if lanes:
        together = [(parts, lanes[0]), (written, own_loops(schedule, written)[-1])]
        found = [found_together(_block(schedule, stage).body, lane, count) for stage, lane in together]
        if None in found or not any(found):
            return False
        for _, lane in together:
            schedule.vectorize(lane)
    load_ahead(schedule, parts)
    bind_elements(schedule, rows, device)
    return True


def _allocate_outermost(schedule: te.Schedule, name: str) -> None:
    """Let a stage's buffer be there everywhere, so that who reads it can be moved to its own reader."""
    func, buffer = schedule.func, find_buffer(schedule.func, name)
    body = drop_allocation(func.body, buffer)
    assert body is not None  # it is written and read
    schedule.func = PrimFunc(func.name, func.params, Allocate(buffer, body))


def _block(schedule: te.Schedule, name: str) -> Block:
    block = find_block(schedule.func, name)[-1]
    assert isinstance(block, Block)
    return block


def _neighbours(schedule: te.Schedule, name: str) -> tuple[int, int]:
    """The first axis of the result along which, and along all behind it, memory is read inside of each step of the
    depth; and how many results lie together there."""
    block = _block(schedule, name)
    reduced, kept = split_loops(schedule, name)
    sizes: dict[Expr, int] = {loop: extent_of(schedule, loop) for loop in kept}
    indices = block.body.indices
    for node in walk_exprs(block.body.value):
        if not isinstance(node, Load) or node.buffer == block.body.buffer:
            continue
        steps = position_of(node.buffer, node.indices).terms
        least = min((steps.get(loop, 0) for loop in reduced), default=0)
        axis = len(indices)
        while axis and (sizes.get(indices[axis - 1], 1) == 1 or 0 < steps.get(indices[axis - 1], 0) < least):
            axis -= 1
        if axis < len(indices):
            return axis, prod(sizes.get(index, 1) for index in indices[axis:])
    return max(0, len(indices) - 1), 1


def _dealt_out(schedule: te.Schedule, name: str, most: int) -> Var | None:
    """A loop over at most ``most`` parts of which each has every so many-th element of the depth: None without any."""
    reduced, kept = split_loops(schedule, name)
    chosen: list[Var] = []
    rest = list(reduced)
    while rest:
        loop = rest.pop()
        extent = extent_of(schedule, loop)
        size = largest_divisor(extent, most)
        most //= size
        if size == extent:
            chosen.insert(0, loop)
            continue
        if size > 1:
            outer, inner = schedule.split(loop, size)
            rest.append(outer)
            chosen.insert(0, inner)
        else:
            rest.append(loop)
        break
    return _fused(schedule, kept, chosen, rest)


def _one_after_the_other(schedule: te.Schedule, name: str, most: int) -> Var | None:
    """A loop over at most ``most`` parts of the depth which each lie together; None without any."""
    reduced, kept = split_loops(schedule, name)
    chosen: list[Var] = []
    rest = list(reduced)
    while rest and most > 1:
        loop = rest.pop(0)
        extent = extent_of(schedule, loop)
        if extent <= most:
            chosen.append(loop)
            most //= max(1, extent)
            continue
        equal = largest_divisor(extent, most)
        outer, inner = schedule.split(loop, extent // equal if 2 * equal > most else -(-extent // most))
        chosen.append(outer)
        rest.insert(0, inner)
        break
    return _fused(schedule, kept, chosen, rest)


def _fused(schedule: te.Schedule, kept: Sequence[Var], chosen: Sequence[Var], rest: Sequence[Var]) -> Var | None:
    """The ``chosen`` loops as one, which has others inside."""
    if not chosen or not rest:
        return None
    schedule.reorder(*kept, *chosen, *rest)
    part = chosen[0]
    for loop in chosen[1:]:
        part = schedule.fuse(part, loop)
    return part
