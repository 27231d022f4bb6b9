"""The CPU's schedule of convolutions: one outer product, or dot product of bytes or pairs, a step; accumulators in
registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from ... import tensor as te
from ...tensor.ir import TensorIntrinsic, Var
from ..loops.convolution import WIDENED, ConvolutionTask
from ..loops.convolution_sums import REST, WORDS
from ..loops.kernels import Tile
from ..loops.nests import (
    REGISTER,
    extent_of,
    largest_divisor,
    live_together,
    own_loops,
    split_loops,
    sum_together,
    tensorize_innermost,
    tidy,
    unroll_lanes,
)
from ..loops.product import Step
from ..loops.winograd import Winograd
from .intrinsics import grouped_dot, grouped_product, paired_dot_product
from .llvm.byte_products import byte_form
from .processor import Processor
from .products import MULTIPLY
from .single_pixels import gather, loops_of_pixels, pixel_block
from .tiles import channels_together, convolution_tile, grouped_tile, rated_tiles
from .winograd import arrange_winograd, chosen_blocks
from .word_steps import SMALL_FILE, write_out_steps

PRODUCTS_KEPT = 1
"""Registers of a tile for products that are not added up yet."""

WEIGHTS_SHARE = 2
"""Weights up to this part of the second-level cache are read again for each row of the result."""

TILES_A_PASS, FEWEST_TILES = 100, 8
"""Tiles that use the weights of a pass one after the other: about so many. Fewer than the second win nothing."""

PASS_FROM, PASS_OF_PIXELS_FROM, PASS_SHARE = 2.0, 1.0, 0.6
"""Weights of a tile that are as large as this multiple of the first-level cache are used in passes; those of single
pixels, whose data lies together, as large as the second. Those of a pass take the third part of it, at most."""

SHORTEST_COPY = 8
"""Channels that lie together where single pixels are brought together, at least: of fewer, copies take too long."""

MOST_STREAMS = 8
"""Pixels of a tile whose data is brought together, at most: each is read from a place of its own, and caches follow
only so many."""

DEEP, FEWEST_READERS = 256, 32
"""Channels of floats that are worth being copied, at least, and channels that the copy is used for. Bytes are copied in
any case, as words."""

WEIGHT_BYTES: dict[Step, int] = {"floats": 4, "bytes": 1, "pairs": 2, "words": 2, "elements": 2}
"""Of a weight, by what is multiplied."""

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

    def block(self, channels: int) -> int:
        return channels_together(channels, self.target)

    def tile(self, width: int, channels: int, block: int, step: Step) -> Tile:
        return convolution_tile(width, channels, block, self.target, *self.needs(step))

    def rated(self, width: int, channels: int, block: int, step: Step) -> list[tuple[float, Tile]]:
        """All tiles, with the cycles of a row of the image for one channel."""
        return rated_tiles(width, channels, block, self.target, *self.needs(step))

    def needs(self, step: Step) -> tuple[int, bool]:
        """Registers of a tile beside those for sums, weights and a value; whether floats are multiplied."""
        return PRODUCTS_KEPT if step == "words" else 0, step == "floats"

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

    def passes(self, schedule: te.Schedule, task: ConvolutionTask, tiles: int) -> int:
        """Into how many parts the channels of the data are cut, so that weights of a part stay in the first-level cache
        while ``tiles`` take turns. 1 where all weights do, and where tiles are large enough to wait for few of them."""
        if self.target.registers > SMALL_FILE or task.group:
            return 1
        channels, *others = (extent_of(schedule, loop) for loop in split_loops(schedule, "acc")[0])
        part, cache = prod(others) * task.tile.lanes * WEIGHT_BYTES[task.step], self.target.nearest.nbytes
        least = PASS_OF_PIXELS_FROM if task.pixels else PASS_FROM
        if tiles < FEWEST_TILES or channels * part < least * cache:
            return 1
        return channels // largest_divisor(channels, max(1, int(PASS_SHARE * cache) // part))

    def by_twos(self, plan: Winograd, taken: int, made: int) -> Winograd | None:
        return chosen_blocks(plan, taken, made)

    def pixels(self, sizes: Sequence[int], taken: tuple[int, int], channels: int, block: int, step: Step) -> int:
        if taken[1] < SHORTEST_COPY:
            return 0
        widened = step == "bytes" and self.words
        deep = prod(taken) >= DEEP and channels >= FEWEST_READERS
        copied = step == "floats" and self.target.registers <= SMALL_FILE and deep
        if not widened and not copied:
            return 0
        step = widened or step
        if self.tile(prod(sizes), channels, block, step).rows > MOST_STREAMS:
            return 0

        def cost(pixels: int) -> float:
            return min((cycles for cycles, _ in self.rated(pixels, channels, block, step)), default=float(pixels))

        return pixel_block(sizes, prod(taken) * WEIGHT_BYTES[step], cost, self.target)

    def together(self, tile: Tile) -> int:
        width = self.target.float_lanes
        return width if tile.lanes % width == 0 else tile.lanes

    def arrange(self, schedule: te.Schedule, task: ConvolutionTask) -> None:
        tidy(schedule)
        if task.winograd is not None:
            arrange_winograd(schedule, task, task.winograd, self.target)
            return
        *loops, x, lane = schedule.get_loops(schedule.blocks()[-1])
        *before, g = loops[: 1 - task.axes]
        before += loops[1 - task.axes :]
        if task.pixels:
            before, x = loops_of_pixels(schedule, task.pixels)
        words = WORDS in schedule.blocks()
        by_rows = 0 < task.weights_a_row <= self.target.second.nbytes // WEIGHTS_SHARE
        if by_rows:
            places = before[1 - task.axes :]
            before = [before[0], *places, *before[1 : 1 - task.axes]]
        tiles = -(-extent_of(schedule, x) // task.tile.rows)
        rows = 1 if task.pixels else extent_of(schedule, before[-1])
        passes = 1 if by_rows else self.passes(schedule, task, tiles * rows)
        inside: list[Var] = []
        if passes > 1 and not task.pixels:
            before[-1], *inside = _in_blocks(schedule, before[-1], -(-TILES_A_PASS // tiles))
        outer, row = schedule.split_shifted(x, task.tile.rows)
        schedule.reorder(*before, *inside, outer, row, g, lane)
        if REST in schedule.blocks():
            schedule.compute_at(REST, outer)
        stage = "acc"
        if passes > 1:
            stage, outer = _sum_of_passes(schedule, passes, before[-1], outer, task.tile.rows)
        schedule.set_scope(stage, REGISTER)
        schedule.compute_at(stage, outer)
        if by_rows:
            schedule.compute_at(WORDS, before[task.axes - 1])
        if words:
            _widen(schedule)
        if task.pixels:
            task = replace(task, row_stride=gather(schedule, before, self.target))
        if REST in schedule.blocks():
            _sum_rest(schedule, task, self.together(task.tile))
        reduced, kept = split_loops(schedule, stage)  # loops that run once are gone by now
        schedule.reorder(*reduced, *kept)
        initial = schedule.decompose_reduction(stage, reduced[0])
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
        if task.step in WIDENED:
            write_out_steps(schedule, stage, task.step, self.target)
        if REST in schedule.blocks():
            sum_together(schedule, REST, "acc")


def _in_blocks(schedule: te.Schedule, loop: Var, rows: int) -> tuple[Var, Var]:
    """Split a loop over rows of the image into blocks of as few as divide it, but at least ``rows``; or all."""
    extent = extent_of(schedule, loop)
    height = next(size for size in range(min(rows, extent), extent + 1) if extent % size == 0)
    blocks, inside = schedule.split(loop, factors=[None, height])
    return blocks, inside


def _sum_of_passes(schedule: te.Schedule, passes: int, block: Var, outer: Var, rows: int) -> tuple[str, Var]:
    """Let every pass over a block of rows compute sums of its own, of a part of the channels; they are added up when
    all are there. Gives the stage of a tile's sums in a pass, and the loop over tiles. A pass writes over no sums of
    another one, so tiles may overlap."""
    channels = split_loops(schedule, "acc")[0][0]
    over, _ = schedule.split(channels, extent_of(schedule, channels) // passes)
    stage = schedule.rfactor("acc", over)
    live_together(schedule, stage, "acc")
    written = schedule.cache_write(stage, REGISTER)
    schedule.set_scope("acc", REGISTER)
    schedule.compute_at("acc", outer)
    (over,), kept = split_loops(schedule, "acc")
    schedule.reorder(over, *kept)
    initial = schedule.decompose_reduction("acc", over)
    unroll_lanes(schedule, own_loops(schedule, initial))
    unroll_lanes(schedule, kept)
    schedule.compute_at(written, block)
    *loops, x, lane = own_loops(schedule, written)
    outer, row = schedule.split_shifted(x, rows)
    schedule.reorder(*loops, outer, row, lane)
    schedule.unroll(row)
    schedule.vectorize(lane)
    return stage, outer


def _widen(schedule: te.Schedule) -> None:
    """Data as words, whole rows at a time."""
    *outer, lane = own_loops(schedule, WORDS)
    for loop in outer:
        schedule.parallel(loop)
    schedule.vectorize(lane)


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
