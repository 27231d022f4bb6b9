"""The CPU's schedule of products of matrices: a tile of rows times columns in registers, an outer product a step.

Blocks that are no multiple of the tile are covered by tiles that overlap (``split_shifted``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import gcd, prod

from ... import tensor as te
from ...tensor.ir import TensorIntrinsic, Var
from ..loops.byte_product import COLUMN_SUMS, ROW_SUMS
from ..loops.kernels import Tile
from ..loops.layouts import QUAD
from ..loops.nests import REGISTER, extent_of, own_loops, split_loops, tensorize_innermost, tidy, unroll_lanes
from ..loops.product import ACC, LEFT, PANEL, Blocking, Step
from .intrinsics import dot_product, element_product, outer_product, pair_product, word_product
from .processor import FLOAT_BYTES, Processor
from .schedules import interleave_rows, reduce_rows, transpose_pairs, transpose_squares
from .tiles import ALONE, ALONE_BYTES, LARGEST_TILE_LANES, PRODUCT_CHAINS, pieces

BLOCK_SHARE = 2
"""Rows of the first operand that are used for one panel after the other should stay in this part of the second-level
cache."""

BLOCK_ROWS = 96
"""Rows of a block, at least: each of them pays for its part of copying a panel."""

COLUMN_SHARE, COLUMN_ROWS = 2, 48
"""Of a block of rows that is gathered when it is used: as large as this part of the second-level cache, which also
holds panels; but fewer rows would copy panels of the second operand too often, where there are any."""

IN_PLACE_SHARE = 0.75
"""A second operand up to this part of the first-level cache stays there: it is read where it lies."""

BLOCKS_WANTED = 16
"""Blocks that a product is cut into, if it is large enough: threads find work, and none is left alone with the last."""

PANEL_COPY_FACTOR, PANEL_COPY_ROWS = 1.1, 8
"""By how much copying panels makes a product slower, about, where many rows use them; and how many rows of products
take as long as the copy, which few rows feel."""

FAR_LOADS = 2
"""By how much loads of the second operand take longer where the rows of a tile's columns leave the first-level cache
before the next tile needs them."""

NEARLY = 1.005
"""Tiles are as good as each other if they take so many cycles by the estimate."""

MULTIPLY: dict[Step, Callable[[int, int, int], TensorIntrinsic]] = {
    "floats": outer_product, "bytes": dot_product, "pairs": pair_product, "words": word_product,
    "elements": element_product,
}  # fmt: skip


@dataclass(frozen=True)
class CpuProducts:
    """For one processor."""

    target: Processor

    @property
    def pairs(self) -> bool:
        return self.target.pairs

    def blocking(self, shape: tuple[int, ...], depth: int, plain: tuple[bool, bool], constant: bool) -> Blocking:
        return choose_blocking(shape, depth, plain, constant, self.target)

    def by_blocks(self, blocking: Blocking, shape: tuple[int, ...], depth: int, run: int) -> Blocking:
        *_, rows, columns = shape
        fewest = COLUMN_ROWS if blocking.packed or columns > blocking.tile.lanes else 0
        height = max(blocking.tile.rows, fewest, self.target.second.nbytes // COLUMN_SHARE // (4 * depth))
        return replace(blocking, rows=block_size(rows, blocking.tile.rows, rows // height), columns=columns,
                       copied=True, run=run)  # fmt: skip

    def arrange(self, schedule: te.Schedule, blocking: Blocking, depth: int, step: Step = "floats") -> None:
        tidy(schedule)
        tile = blocking.tile
        *outer, m, n = schedule.get_loops(schedule.blocks()[-1])
        for loop in outer:
            schedule.parallel(loop)
        m_block, m, row = split_blocks(schedule, m, blocking.rows, tile.rows)
        n_block, n, lane = split_blocks(schedule, n, blocking.columns, tile.lanes)
        schedule.reorder(*outer, m_block, n_block, n, m, row, lane)
        stages = schedule.blocks()
        for stage, loop in ((ACC, m), (COLUMN_SUMS, n), (PANEL, n)):
            if stage in stages:
                schedule.compute_at(stage, loop)
        if blocking.run:
            schedule.compute_at(LEFT, m_block)
        multiply = MULTIPLY[step]
        sum_in_registers(schedule, ACC, multiply(tile.rows, tile.lanes, depth))
        if COLUMN_SUMS in stages:
            sum_in_registers(schedule, COLUMN_SUMS, multiply(1, tile.lanes, QUAD))
        unroll_lanes(schedule, [row, lane])
        if PANEL in stages:
            _copy_panel(schedule, step)
        if ROW_SUMS in stages:
            reduce_rows(schedule, ROW_SUMS)
        if LEFT in stages and blocking.run:
            _gather_rows(schedule, blocking.run)
        elif LEFT in stages:
            *rows, last = schedule.get_loops(LEFT)
            for loop in rows:
                schedule.parallel(loop)
            schedule.vectorize(last)


def _gather_rows(schedule: te.Schedule, run: int) -> None:
    """Copy rows as stretches of so many neighbours."""
    last = own_loops(schedule, LEFT)[-1]
    if run < extent_of(schedule, last):
        _, last = schedule.split(last, run)
    schedule.vectorize(last)


def _copy_panel(schedule: te.Schedule, step: Step) -> None:
    """Copy by registers: squares where columns are rows in memory, rows between each other where several are multiplied
    at a time; else by elements."""
    if step == "floats":
        copied = transpose_squares(schedule, PANEL, own_loops(schedule, PANEL), parallel=False)
    else:
        copied = interleave_rows(schedule, PANEL) or (step == "pairs" and transpose_pairs(schedule, PANEL))
    if not copied:
        schedule.vectorize(schedule.get_loops(PANEL)[-1])


def sum_in_registers(schedule: te.Schedule, stage: str, step: TensorIntrinsic) -> None:
    """A stage that adds up products of one tile."""
    schedule.set_scope(stage, REGISTER)
    reduced, kept = split_loops(schedule, stage)
    schedule.reorder(*reduced, *kept)
    initial = schedule.decompose_reduction(stage, reduced[0])
    unroll_lanes(schedule, own_loops(schedule, initial))
    if kept:  # else the tile is one value: the loops of the reduction are all there is
        tensorize_innermost(schedule, reduced, kept, step)


def product_tile(rows: int, columns: int, depth: int, constant: bool, target: Processor) -> Tile:
    """The tile with the fewest cycles for the whole result. It may use all registers except one row of the second
    operand and one value of the first; of equal tiles the one with fewer loads wins. One that covers the result without
    overlap wins over slightly fewer cycles: the result may then lie where an operand did.

    ``constant``: the second operand need not be copied if it consists of whole tiles.
    """
    rated = rated_product_tiles(rows, columns, depth, constant, target)
    if not rated:
        return Tile(1, min(columns, target.float_lanes))
    bound = NEARLY * min(cycles for cycles, _ in rated)
    good = [each for each in rated if each[0] <= bound]
    return min(good, key=lambda each: (rows % each[1].rows != 0 or columns % each[1].lanes != 0, each[0]))[1]


def rated_product_tiles(
    rows: int, columns: int, depth: int, constant: bool, target: Processor
) -> list[tuple[float, Tile]]:
    """All tiles for which there are registers, with the cycles of the whole result; narrow ones first."""
    cache = target.nearest  # rows of a tile that meet in one set of lines are no more than its ways
    highest = min(rows, target.registers, cache.ways * cache.way_bytes // gcd(cache.way_bytes, depth * 4))
    most = min(columns, LARGEST_TILE_LANES)
    widths = {*range(target.float_lanes, most + 1, target.float_lanes)}
    if constant:
        widths |= {lanes for lanes in range(target.float_lanes, most + 1) if columns % lanes == 0}
    found = []
    for lanes in sorted(widths) or [columns]:
        parts = len(pieces(lanes, target.float_lanes))
        for height in range(1, highest + 1):
            operands = parts if height > 1 else 1  # a row alone needs each register of the second operand once
            if height * parts + operands + 1 > target.registers:
                break
            far = FAR_LOADS if lanes * depth * FLOAT_BYTES > cache.nbytes else 1
            loads = height / target.loads_a_product + far * parts
            step = max(height * parts, loads, PRODUCT_CHAINS) + (height + parts) / 16
            cycles = -(-rows // height) * -(-columns // lanes) * step
            if parts == 1 and height > 1 and target.vector_bytes == ALONE_BYTES:
                cycles *= ALONE
            if constant and columns % lanes:
                cycles *= max(PANEL_COPY_FACTOR, 1 + PANEL_COPY_ROWS / rows)
            found.append((cycles, Tile(height, lanes)))
    return found


def block_size(extent: int, tile: int, wanted: int) -> int:
    """Rows (columns) of a block, so that there are at most ``wanted`` and none is smaller than a tile."""
    for blocks in range(min(wanted, extent // tile), 1, -1):
        size = -(-extent // blocks // tile) * tile
        rest = extent % size
        if size < extent and (rest == 0 or rest >= tile):
            return size
    return extent


def choose_blocking(
    shape: tuple[int, ...], depth: int, plain: tuple[bool, bool], constant: bool, target: Processor
) -> Blocking:
    """How to compute a product of this shape. ``plain``: whether each operand is in row-major order, so that the step
    could read it where it is. ``constant``: whether the second is a constant, which may lie in any order."""
    *_, rows, columns = shape
    return blocking_of(product_tile(rows, columns, depth, constant, target), shape, depth, plain, constant, target)


def blocking_of(
    tile: Tile, shape: tuple[int, ...], depth: int, plain: tuple[bool, bool], constant: bool, target: Processor
) -> Blocking:
    """The blocks that go with a tile."""
    *outer, rows, columns = shape
    blocks = min(-(-rows * depth * 4 // (target.second.nbytes // BLOCK_SHARE)), rows // BLOCK_ROWS)
    height = block_size(rows, tile.rows, blocks)
    others = prod(outer) * -(-rows // height)
    width = block_size(columns, tile.lanes, -(-BLOCKS_WANTED // others))
    small = tile.lanes == columns or tile.rows == rows or depth * columns * 4 <= IN_PLACE_SHARE * target.nearest.nbytes
    packed = not (plain[1] and small) and not (constant and columns % tile.lanes == 0)
    return Blocking(tile, height, width, not plain[0], packed)


def split_blocks(schedule: te.Schedule, loop: Var, block: int, tile: int) -> tuple[Var, Var, Var]:
    """Split a loop into blocks, which may run at once, the tiles of a block, and the elements of a tile."""
    if extent_of(schedule, loop) % tile == 0:
        blocks, tiles, elements = schedule.split(loop, factors=[None, block // tile, tile])
        schedule.parallel(blocks)
        return blocks, tiles, elements
    blocks, rest = schedule.split(loop, block)
    schedule.parallel(blocks)
    return blocks, *schedule.split_shifted(rest, tile)
