"""The CPU's schedule of convolutions: one outer product, or dot product of bytes or pairs, a step; accumulators in
registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ... import tensor as te
from ...tensor.ir import TensorIntrinsic
from ..loops.convolution import ConvolutionTask
from ..loops.convolution_sums import REST, WORDS
from ..loops.kernels import Tile
from ..loops.nests import (
    REGISTER,
    extent_of,
    largest_divisor,
    own_loops,
    split_loops,
    sum_together,
    tensorize_innermost,
    tidy,
    unroll_lanes,
)
from .intrinsics import grouped_dot, grouped_product, paired_dot_product
from .llvm.byte_products import byte_form
from .processor import Processor
from .products import MULTIPLY
from .tiles import convolution_tile, grouped_tile

STEPS_WRITTEN_OUT = 2
"""Steps of words in an iteration, at most."""

SMALL_FILE = 16
"""Registers of processors whose tiles are so small that two steps of elements have to be written out. Of larger tiles
LLVM loads the data of both at once, and has no registers left for sums."""

PRODUCTS_KEPT = 1
"""Registers of a tile for products that are not added up yet."""

WEIGHTS_SHARE = 2
"""Weights up to this part of the second-level cache are read again for each row of the result."""

REST_COST, REST_STEP = 8.0, 5.0
"""Operations for each row and register of weights that a second loop over few weights adds, about; and those of one of
its steps, which finds its data by indices, for all rows."""


@dataclass(frozen=True)
class CpuConvolutions:
    """For one processor."""

    target: Processor

    @property
    def pairs(self) -> bool:
        return self.target.pairs

    def tile(self, width: int, channels: int, block: int, *, words: bool = False) -> Tile:
        return convolution_tile(width, channels, block, self.target, self.kept(words))

    def kept(self, words: bool) -> int:
        """Registers of a tile beside those for sums, weights and a value."""
        return PRODUCTS_KEPT if words and self.words == "words" else 0

    def grouped_tile(self, width: int, block: int) -> Tile:
        return grouped_tile(width, block, self.target)

    @property
    def words(self) -> Literal["", "words", "elements"]:
        return byte_form(self.target, self.target.float_lanes).words

    def by_pairs(self, tile: Tile, quads: int, rest: int) -> bool:
        lanes = min(tile.lanes, self.target.float_lanes)
        every, paired = (byte_form(self.target, lanes, paired=each) for each in (False, True))
        again = rest * (paired.cost + REST_STEP / tile.rows) + REST_COST if rest else 0
        return quads * paired.cost + again < quads * every.cost

    def together(self, tile: Tile) -> int:
        width = self.target.float_lanes
        return width if tile.lanes % width == 0 else tile.lanes

    def arrange(self, schedule: te.Schedule, task: ConvolutionTask) -> None:
        tidy(schedule)
        *loops, x, lane = schedule.get_loops(schedule.blocks()[-1])
        *before, g = loops[: 1 - task.axes]
        before += loops[1 - task.axes :]
        words = WORDS in schedule.blocks()
        by_rows = 0 < task.weights_a_row <= self.target.second.nbytes // WEIGHTS_SHARE
        if by_rows:
            places = before[1 - task.axes :]
            before = [before[0], *places, *before[1 : 1 - task.axes]]
        outer, row = schedule.split_shifted(x, task.tile.rows)
        schedule.reorder(*before, outer, row, g, lane)
        if REST in schedule.blocks():
            schedule.compute_at(REST, outer)
            _sum_rest(schedule, task, self.together(task.tile))
        schedule.set_scope("acc", REGISTER)
        schedule.compute_at("acc", outer)
        if by_rows:
            schedule.compute_at(WORDS, before[task.axes - 1])
        if words:
            _widen(schedule)
        reduced, kept = split_loops(schedule, "acc")  # loops that run once are gone by now
        schedule.reorder(*reduced, *kept)
        initial = schedule.decompose_reduction("acc", reduced[0])
        for loop in before:
            schedule.parallel(loop)
        for loop in (row, g):
            schedule.unroll(loop)
        schedule.vectorize(lane)
        unroll_lanes(schedule, own_loops(schedule, initial))
        if task.group:
            lanes = schedule.split(kept[-1], task.group)
            kept = [*kept[:-1], *lanes]
        elif not kept:  # a tile of one value: the loops of the reduction are all there is
            return
        tensorize_innermost(schedule, reduced, kept, _step(task))
        if words and not (task.step == "elements" and self.target.registers > SMALL_FILE):
            _write_out(schedule)
        if REST in schedule.blocks():
            sum_together(schedule, REST, "acc")


def _widen(schedule: te.Schedule) -> None:
    """Data as words, whole rows at a time."""
    *outer, lane = own_loops(schedule, WORDS)
    for loop in outer:
        schedule.parallel(loop)
    schedule.vectorize(lane)


def _write_out(schedule: te.Schedule) -> None:
    """Some steps, so that a loop is not over after a few of them."""
    steps = schedule.get_loops("acc")[-1]
    count = largest_divisor(extent_of(schedule, steps), STEPS_WRITTEN_OUT)
    schedule.unroll(schedule.split(steps, count)[1])


def _sum_rest(schedule: te.Schedule, task: ConvolutionTask, together: int) -> None:
    """Weights that are multiplied twice, by parts of the lanes."""
    schedule.set_scope(REST, REGISTER)
    reduced, kept = split_loops(schedule, REST)
    part, lane = schedule.split(kept[-1], together)
    kept = [*kept[:-1], lane]
    schedule.reorder(part, *reduced, *kept)
    initial = schedule.decompose_reduction(REST, reduced[0])
    unroll_lanes(schedule, own_loops(schedule, initial))
    schedule.unroll(part)
    step = paired_dot_product(task.tile.rows, together, task.row_stride, task.tile.lanes)
    tensorize_innermost(schedule, reduced, kept, step)


def _step(task: ConvolutionTask) -> TensorIntrinsic:
    rows, lanes = task.tile.rows, task.tile.lanes
    if task.group:
        return (grouped_dot if task.step == "bytes" else grouped_product)(rows, lanes, task.group, task.row_stride)
    if task.paired:
        return paired_dot_product(rows, lanes, task.row_stride, lanes)
    return MULTIPLY[task.step](rows, lanes, task.row_stride)
