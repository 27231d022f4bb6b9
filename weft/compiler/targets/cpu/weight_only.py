"""The CPU's schedule of products of few rows with weights of 8 bits or fewer: all rows, and a panel of a few registers,
are accumulated in registers, twice: of a block, and of all blocks with their scales."""

from __future__ import annotations

from dataclasses import dataclass

from ... import tensor as te
from ...tensor.ir import Var
from ..loops.block_product import ROW_SUMS
from ..loops.kernels import Tile
from ..loops.nests import REGISTER, own_loops, split_loops, tidy, unroll_lanes
from ..loops.product import ACC, LEFT, PANEL
from ..loops.weight_only import PART
from .intrinsics import dot_product
from .processor import Processor
from .products import sum_in_registers
from .schedules import reduce_rows

WIDEST = 4
"""Registers of a panel, at most: as many sums hide the latency of an addition behind the widening of weights."""

MOST_ROWS = 8
"""Rows that use the weights of a panel that were unpacked once, at most."""

OTHER_REGISTERS = 4
"""For a weight, its byte, its zero and its scale."""


@dataclass(frozen=True)
class CpuWeightOnly:
    """For one processor."""

    target: Processor

    def lanes(self, rows: int, columns: int) -> int:
        lanes = self.target.float_lanes
        most = min(WIDEST, (self.target.registers - OTHER_REGISTERS) // (2 * rows))
        return next((width * lanes for width in range(most, 0, -1) if columns % (width * lanes) == 0), 0)

    def arrange(self, schedule: te.Schedule, lanes: int) -> None:
        tidy(schedule)
        *outer, row, column = schedule.get_loops(schedule.blocks()[-1])
        panel, lane = schedule.split(column, lanes)
        schedule.reorder(*outer, panel, row, lane)
        for loop in (*outer, panel):
            schedule.parallel(loop)
        schedule.compute_at(ACC, panel)
        block = _sum_in_registers(schedule, ACC)
        schedule.compute_at(PART, block)
        _sum_in_registers(schedule, PART)
        unroll_lanes(schedule, [row, lane])
        if LEFT in schedule.blocks():
            *rows, last = schedule.get_loops(LEFT)
            for loop in rows:
                schedule.parallel(loop)
            schedule.vectorize(last)


@dataclass(frozen=True)
class CpuBlockProducts:
    """For one processor."""

    target: Processor

    def tile(self, rows: int, columns: int) -> Tile | None:
        lanes, room = self.target.float_lanes, self.target.registers - OTHER_REGISTERS
        height = min(rows, MOST_ROWS, room // 2)
        widths = range(min(WIDEST, room // (2 * height)), 0, -1)
        return next((Tile(height, width * lanes) for width in widths if columns % (width * lanes) == 0), None)

    def arrange(self, schedule: te.Schedule, tile: Tile, depth: int) -> None:
        tidy(schedule)
        row, column = schedule.get_loops(schedule.blocks()[-1])
        panel, lane = schedule.split(column, tile.lanes)
        part, row = schedule.split_shifted(row, tile.rows)
        schedule.reorder(panel, part, row, lane)
        schedule.parallel(panel)
        schedule.compute_at(ACC, part)
        block = _sum_in_registers(schedule, ACC)
        for stage in (PART, PANEL):
            schedule.compute_at(stage, block)
        sum_in_registers(schedule, PART, dot_product(tile.rows, tile.lanes, depth))
        *_, two, half, byte = own_loops(schedule, PANEL)
        unroll_lanes(schedule, [two, half, byte])
        unroll_lanes(schedule, [row, lane])
        if ROW_SUMS in schedule.blocks():
            reduce_rows(schedule, ROW_SUMS)
        schedule.vectorize(schedule.get_loops(LEFT)[-1])


def _sum_in_registers(schedule: te.Schedule, stage: str) -> Var:
    """Let a stage add up in registers, the outermost loop of its reduction around all others; gives that loop."""
    schedule.set_scope(stage, REGISTER)
    (outermost, *inner), kept = split_loops(schedule, stage)
    schedule.reorder(outermost, *inner, *kept)
    initial = schedule.decompose_reduction(stage, outermost)
    unroll_lanes(schedule, own_loops(schedule, initial))
    for loop in inner:
        schedule.unroll(loop)
    unroll_lanes(schedule, kept)
    return outermost
