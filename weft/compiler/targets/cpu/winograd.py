"""The CPU's schedule of convolutions by Winograd's method: the positions of a block together, term by term."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd, prod

from ... import tensor as te
from ...tensor.ir import Var
from ..loops.convolution import ConvolutionTask
from ..loops.nests import REGISTER, extent_of, own_loops, split_loops, tensorize_innermost, unroll_lanes
from ..loops.winograd import COLUMNS, DATA, MADE, PRODUCTS, ROWS, SUMS, TERMS, WINDOW, Winograd
from .processor import Processor
from .products import MULTIPLY
from .word_steps import write_out_steps

POSITIONS, FEWEST_POSITIONS = 64, 4
"""Of a block, at most: its products stay in the second-level cache. And of a result, at least."""

AROUND = {1: (8, 20), 2: (32, 68)}
"""By the number of axes: what a tile's channel of data and channel of results take beside products, in products, of
which an operation does 8."""

WORTH = 0.95
"""Fewer products are worth it where they take this part of the time of all, or less."""


def chosen_blocks(plan: Winograd, taken: int, made: int) -> Winograd | None:
    """The plan with blocks, for a convolution of so many channels; None where products of all cost less."""
    count, positions = len(plan.axes), prod(axis.positions for axis in plan.axes)
    results = prod(axis.size for axis in plan.axes)
    of_data, of_results = AROUND[count]
    cost = positions * (TERMS**count * taken * made + of_data * taken + of_results * made)
    if positions < FEWEST_POSITIONS or cost >= WORTH * results * WINDOW**count * taken * made:
        return None
    first, *others = plan.axes
    across = prod(axis.positions for axis in others)
    fitting = (
        rows for rows in range(first.positions, 0, -1)
        if first.positions % rows == 0 and FEWEST_POSITIONS <= rows * across <= POSITIONS
    )  # fmt: skip
    apart = first.whole == first.size and first.dilation == 1  # neighbours stand in one block
    return replace(plan, rows=next(fitting, first.positions) if apart else first.positions)


def arrange_winograd(schedule: te.Schedule, task: ConvolutionTask, plan: Winograd, target: Processor) -> None:
    """Schedule a kernel; ``plan`` is the task's. A block's data is made for all channels of the result, then its
    products, sums and results are, for the lanes of a tile at a time."""
    count, stages = len(plan.axes), schedule.blocks()
    n, o, g, *places, lane = schedule.get_loops(stages[-1])
    direct, own = places[:-count], places[-count:]
    terms = own_loops(schedule, DATA)[-3 - count : -3]  # behind them: blocks of channels, positions, channels
    before = [n, *direct]
    if plan.blocks > 1:
        block, own[0] = schedule.split(own[0], MADE * plan.rows)
        before.append(block)
    # Slices of a volume are made again for each that reads them: that costs less than to bring all from far away.
    inside = prod(extent_of(schedule, loop) for loop in before[1:]) > 1
    outer, row = schedule.split_shifted(own[-1], min(extent_of(schedule, own[-1]), task.tile.rows))
    schedule.reorder(*before, o, *own[:-1], outer, row, g, lane)
    schedule.compute_at(SUMS, o, whole=count + 1 - (plan.blocks > 1))  # of whole tiles, whose last result may be none
    for stage, loop in ((ROWS, o), (PRODUCTS, o), *(((DATA, before[-1]), (COLUMNS, before[-1])) if inside else ())):
        if stage in stages:
            schedule.compute_at(stage, loop)
    for loop in before if inside else (*before, o):
        schedule.parallel(loop)
    for loop in (row, g):
        schedule.unroll(loop)
    schedule.vectorize(lane)
    _arrange_sums(schedule, plan, target)
    _arrange_products(schedule, task, target)
    _arrange_data(schedule, plan, terms, inside=inside)


def _arrange_sums(schedule: te.Schedule, plan: Winograd, target: Processor) -> None:
    """Sums, a tile at a time, by registers of channels."""
    count = len(plan.axes)
    *before, lane = own_loops(schedule, SUMS)
    before, places = before[:-count], before[-count:]
    which: list[Var] = []
    for loop, axis in zip(places, plan.axes, strict=True):
        first, each, *apart = schedule.split(loop, factors=[None, MADE, axis.dilation])
        before += [first, *apart]
        which.append(each)
    part, lane = schedule.split(lane, gcd(extent_of(schedule, lane), target.float_lanes))
    schedule.reorder(*before, part, *which, lane)
    _in_registers(schedule, ROWS, part)
    unroll_lanes(schedule, [*which, lane])


def _arrange_products(schedule: te.Schedule, task: ConvolutionTask, target: Processor) -> None:
    """Products, a term at a time."""
    rows, lanes = task.tile.rows, task.tile.lanes
    written = schedule.cache_write(PRODUCTS, REGISTER)
    *terms, position, lane = own_loops(schedule, written)
    outer, row = schedule.split_shifted(position, rows)
    schedule.reorder(*terms, outer, row, lane)
    schedule.compute_at(PRODUCTS, outer)
    unroll_lanes(schedule, [row, lane])
    reduced, kept = split_loops(schedule, PRODUCTS)
    schedule.reorder(*reduced, *kept)
    initial = schedule.decompose_reduction(PRODUCTS, reduced[0])
    unroll_lanes(schedule, own_loops(schedule, initial))
    tensorize_innermost(schedule, reduced, kept, MULTIPLY[task.step](rows, lanes, task.row_stride))
    write_out_steps(schedule, PRODUCTS, task.step, target)


def _arrange_data(schedule: te.Schedule, plan: Winograd, terms: Sequence[Var], *, inside: bool) -> None:
    """Data, a tile at a time. ``inside``: of one block alone, which one thread makes."""
    *loops, position, lane = own_loops(schedule, DATA)
    before = [loop for loop in loops if loop not in terms]
    if len(terms) > 1 and extent_of(schedule, position) > plan.axes[1].positions:
        down, position = schedule.split(position, plan.axes[1].positions)
        before.append(down)
    schedule.reorder(*before, position, *terms, lane)
    if not inside:
        for loop in before:
            schedule.parallel(loop)
    _in_registers(schedule, COLUMNS, position)
    unroll_lanes(schedule, [*terms, lane])


def _in_registers(schedule: te.Schedule, stage: str, loop: Var) -> None:
    """Compute a stage, if there is one, in registers where an iteration needs it."""
    if stage in schedule.blocks():
        schedule.compute_at(stage, loop)
        schedule.set_scope(stage, REGISTER)
        unroll_lanes(schedule, own_loops(schedule, stage))
