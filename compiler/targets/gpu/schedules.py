"""Default schedules of kernels for GPUs: nothing needs tuning to run.

Each stage becomes a launch of its own unless the result's threads can compute what they need of it. A thread makes one
element of a result, neighbours in memory by neighbours in a group.
"""

from __future__ import annotations

from math import prod

from ... import tensor as te
from ...tensor.errors import ScheduleError
from ...tensor.ir import Block
from ...tensor.tree import find_block, find_buffer
from ..loops.nests import REGISTER, extent_of, split_loops, tidy
from .devices import GpuDescription
from .elements import bind_elements
from .rows import schedule_rows
from .warp_rows import schedule_warp_rows


def schedule_plain(schedule: te.Schedule, device: GpuDescription) -> None:
    """Any kernel: a warp or a group for each row that is reduced, or a thread for each element of each stage."""
    if schedule_warp_rows(schedule, device) or schedule_rows(schedule, device):
        return
    tidy(schedule)
    *stages, output = schedule.blocks()
    inside = _move_into_elements(schedule)
    for name in stages:
        if name in inside:
            _reduce_in_register(schedule, name)
        elif _is_reduction(schedule, name):
            _reduce_by_element(schedule, name, device)
        else:
            bind_elements(schedule, schedule.get_loops(name), device)
    bind_elements(schedule, schedule.get_loops(output), device)


def _is_reduction(schedule: te.Schedule, name: str) -> bool:
    block = find_block(schedule.func, name)[-1]
    return isinstance(block, Block) and block.kind == "reduce"


def _move_into_elements(schedule: te.Schedule) -> set[str]:
    """Let each element of the result compute its own element of the stages before it, where nobody else needs that;
    gives their names."""
    *stages, output = schedule.blocks()
    loops = schedule.get_loops(output)
    moved: set[str] = set()
    if not loops:
        return moved
    count = prod(extent_of(schedule, loop) for loop in loops)
    for name in reversed(stages):
        attempt, size = schedule.copy(), find_buffer(schedule.func, name).size
        try:
            attempt.set_scope(name, REGISTER)
            attempt.compute_at(name, loops[-1])
        except ScheduleError:
            break
        if find_buffer(attempt.func, name).size != 1 or size != count or not _is_reduction(schedule, name):
            break
        schedule.set_scope(name, REGISTER)
        schedule.compute_at(name, loops[-1])
        moved.add(name)
    return moved


def _reduce_in_register(schedule: te.Schedule, name: str) -> None:
    """A reduction to one element, inside of the loops of who reads it."""
    reduced, kept = split_loops(schedule, name)
    schedule.reorder(*kept, *reduced)
    schedule.decompose_reduction(name, reduced[0])


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
