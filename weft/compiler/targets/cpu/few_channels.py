"""The CPU's schedule of convolutions that make one channel or two: pixels of a row, each in the lanes of its own
registers, which are added up across at the end."""

from __future__ import annotations

from dataclasses import dataclass

from ... import tensor as te
from ..loops.few_channels import PARTS, SUMS, FewChannelsTask
from ..loops.nests import ANY_ORDER, REGISTER, split_loops, tidy
from .intrinsics import lane_product
from .processor import Processor
from .products import sum_in_registers
from .schedules import PIXELS_AT_ONCE, reduce_in_registers
from .tiles import pieces

KEPT = 3
"""Registers for a value and for what a step of bytes prepares."""


@dataclass(frozen=True)
class CpuFewChannels:
    """For one processor."""

    target: Processor

    def pixels(self, width: int, lanes: int) -> int:
        """Pixels of a tile: those with the fewest for a row, with one more for the weights of each tile."""
        parts = len(pieces(lanes, self.target.float_lanes))
        most = max(1, min(width, PIXELS_AT_ONCE, (self.target.registers - KEPT - parts) // parts))
        return min(range(1, most + 1), key=lambda rows: (-(-width // rows) * (rows + 1), -rows))

    def arrange(self, schedule: te.Schedule, task: FewChannelsTask) -> None:
        tidy(schedule)
        *outside, x = schedule.get_loops(schedule.blocks()[-1])
        rows = self.pixels(task.width, task.lanes)
        outer, row = schedule.split_shifted(x, rows)
        for stage in (SUMS, PARTS):
            schedule.set_scope(stage, REGISTER)
            schedule.compute_at(stage, outer)
        if task.quads:
            sum_in_registers(schedule, PARTS, lane_product(rows, task.lanes, task.row_stride))
        else:
            reduce_in_registers(schedule, PARTS)
        (lane,), kept = split_loops(schedule, SUMS)
        schedule.reorder(*kept, lane)
        schedule.decompose_reduction(SUMS, lane)
        schedule.annotate(lane, *ANY_ORDER)
        for loop in kept:
            schedule.unroll(loop)
        for loop in outside:
            schedule.parallel(loop)
        schedule.vectorize(row)
