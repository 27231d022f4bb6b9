"""The CPU's schedule of depthwise convolutions of bytes: a tile of pixels of one register of channels."""

from __future__ import annotations

from dataclasses import dataclass

from ... import tensor as te
from ..loops.convolution_sums import REST
from ..loops.depthwise import DepthwiseTask
from ..loops.layouts import PAIR
from ..loops.nests import (
    REGISTER,
    extent_of,
    own_loops,
    split_loops,
    sum_together,
    tensorize_innermost,
    tidy,
    unroll_lanes,
)
from .intrinsics import window_product
from .llvm.byte_products import has_word_products
from .processor import Processor
from .tiles import channels_together

KEPT = 3
"""Registers for data, and for products that are not added up yet."""

FEWEST = 4
"""Pixels of a tile, at least, for which there must be registers beside the weights of a row."""


@dataclass(frozen=True)
class CpuDepthwise:
    """For one processor."""

    target: Processor

    def takes(self, taps: int) -> bool:
        return has_word_products(self.target, self.target.float_lanes) and self._most(taps) >= FEWEST

    def block(self, channels: int) -> int:
        return channels_together(channels, self.target)

    def _most(self, taps: int) -> int:
        return self.target.registers - KEPT - taps

    def pixels(self, width: int, taps: int) -> int:
        """Pixels of a tile: those with the fewest for a row, with one more for the weights and columns of each tile."""
        most = min(width, self._most(taps))
        return min(range(1, most + 1), key=lambda rows: (-(-width // rows) * (rows + 1), -rows))

    def arrange(self, schedule: te.Schedule, task: DepthwiseTask) -> None:
        tidy(schedule)
        stages = schedule.blocks()
        n, cb, y, x, lane = schedule.get_loops(stages[-1])
        lanes = min(task.block, self.target.float_lanes)
        rows = self.pixels(task.width, task.taps)
        outer, row = schedule.split_shifted(x, rows)
        part, inner = schedule.split(lane, lanes)
        schedule.reorder(n, cb, y, outer, part, row, inner)
        for stage in (REST, "acc"):
            if stage in stages:
                schedule.set_scope(stage, REGISTER)
                schedule.compute_at(stage, part)
        for loop in (n, cb, y):
            schedule.parallel(loop)
        schedule.unroll(row)
        schedule.vectorize(inner)
        for stage, depth in (("acc", PAIR if task.pairs else 1), (REST, 1)):
            if stage not in stages:
                continue
            reduced, kept = split_loops(schedule, stage)
            schedule.reorder(*reduced, *kept)
            initial = schedule.decompose_reduction(stage, reduced[0])
            unroll_lanes(schedule, own_loops(schedule, initial))
            step = window_product(
                rows, lanes, task.taps, depth, task.row_stride, task.tap_stride, task.pair_stride, task.block * depth
            )
            sums, tile = ([loop for loop in loops if extent_of(schedule, loop) > 1] for loops in (reduced, kept))
            tensorize_innermost(schedule, sums, tile, step)
        if REST in stages:
            sum_together(schedule, REST, "acc")
