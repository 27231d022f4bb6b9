"""The default schedule of each kind of kernel: nothing needs tuning to run."""

from __future__ import annotations

from collections.abc import Sequence

from ... import tensor as te
from ...tensor.ir import Block, Const, PrimFunc, Var
from ...tensor.tree import find_block, find_loop, simplify_tree
from .intrinsics import REGISTER

LONGEST_UNROLL = 32
"""Steps of a reduction that are written out."""


def tidy(schedule: te.Schedule) -> None:
    """Simplify the function's indices, so that later steps see which are the same."""
    func = schedule.func
    schedule.func = PrimFunc(func.name, func.params, simplify_tree(func.body))


def extent_of(schedule: te.Schedule, loop: Var) -> int:
    """How often a loop with a constant extent runs."""
    node = find_loop(schedule.func, loop)[-1]
    extent = getattr(node, "extent", None)
    return int(extent.value) if isinstance(extent, Const) else 0


def largest_divisor(size: int, limit: int) -> int:
    """The largest divisor of ``size`` up to ``limit``."""
    return max(each for each in range(1, max(1, min(size, limit)) + 1) if size % each == 0)


def schedule_plain(schedule: te.Schedule) -> None:
    """Every stage a nest of its own: outer loops in parallel, the innermost over lanes. A reduction runs outside of the
    innermost loop of its result, where that is long enough to be worth it."""
    tidy(schedule)
    for name in schedule.blocks():
        block = find_block(schedule.func, name)[-1]
        if isinstance(block, Block) and block.kind == "reduce":
            _plain_reduction(schedule, name, block)
        else:
            _plain_loops(schedule, schedule.get_loops(name))


def _plain_loops(schedule: te.Schedule, loops: Sequence[Var]) -> None:
    for loop in loops[:-1]:
        schedule.parallel(loop)
    if loops:
        inner = loops[-1]
        if len(loops) == 1 and extent_of(schedule, inner) >= 4096:
            outer, inner = schedule.split(inner, largest_divisor(extent_of(schedule, inner), 1024))
            schedule.parallel(outer)
        schedule.vectorize(inner)


def _plain_reduction(schedule: te.Schedule, name: str, block: Block) -> None:
    loops = schedule.get_loops(name)
    reduced = [loop for loop in loops if loop in block.reduce_vars]
    kept = [loop for loop in loops if loop not in block.reduce_vars]
    wide = bool(kept) and extent_of(schedule, kept[-1]) >= 4
    if wide:
        schedule.reorder(*kept[:-1], *reduced, kept[-1])
    initial = schedule.decompose_reduction(name, reduced[0])
    for loop in kept[: -1 if wide else None]:
        schedule.parallel(loop)
    if wide:
        schedule.vectorize(kept[-1])
        schedule.vectorize(schedule.get_loops(initial)[-1])


def schedule_blocked(schedule: te.Schedule, reductions: Sequence[str], registers: int) -> None:
    """The result is (N, C/b, H, W, b): lanes are channels of a block, ``registers`` pixels of a row at a time are
    reduced in registers."""
    tidy(schedule)
    output = schedule.blocks()[-1]
    n, cb, y, x, lane = schedule.get_loops(output)
    if reductions:
        outer, inner = schedule.split(x, largest_divisor(extent_of(schedule, x), registers))
        for name in reversed(reductions):
            schedule.set_scope(name, REGISTER)
            schedule.compute_at(name, outer)
        for name in reductions:
            _reduce_in_registers(schedule, name)
        schedule.unroll(inner)
    for loop in (n, cb, y):
        schedule.parallel(loop)
    schedule.vectorize(lane)


def _reduce_in_registers(schedule: te.Schedule, name: str) -> None:
    reduced, kept = split_loops(schedule, name)
    schedule.reorder(*reduced, *kept)
    initial = schedule.decompose_reduction(name, reduced[0])
    steps = 1
    for loop in reversed(reduced):
        steps *= max(1, extent_of(schedule, loop))
        if steps <= LONGEST_UNROLL:
            schedule.unroll(loop)
    for stage in (initial, name):
        unroll_lanes(schedule, [loop for loop in own_loops(schedule, stage) if loop not in reduced])


def unroll_lanes(schedule: te.Schedule, loops: Sequence[Var]) -> None:
    """Lanes over the innermost of ``loops``, the others written out. A tile of one value has none."""
    for loop in loops[:-1]:
        schedule.unroll(loop)
    for loop in loops[-1:]:
        schedule.vectorize(loop)


def split_loops(schedule: te.Schedule, name: str) -> tuple[list[Var], list[Var]]:
    """The loops of a block alone: those that reduce, and the others."""
    block = find_block(schedule.func, name)[-1]
    reducing = block.reduce_vars if isinstance(block, Block) else ()
    loops = own_loops(schedule, name)
    return [loop for loop in loops if loop in reducing], [loop for loop in loops if loop not in reducing]


def own_loops(schedule: te.Schedule, name: str) -> list[Var]:
    """Loops around a block that are not around any other."""
    loops = schedule.get_loops(name)
    others = [set(schedule.get_loops(other)) for other in schedule.blocks() if other != name]
    return [loop for loop in loops if not any(loop in other for other in others)]


