"""The CPU's schedule of attention: the rows of a register tile of queries, with the scores of those and all keys."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ... import tensor as te
from ...tensor.ir import Block
from ...tensor.tree import find_block, find_buffer
from ..loops.attention import KEYS, QUERIES, RAW, SCORES, SUM, VALUES, AttentionTiles
from ..loops.nests import ANY_ORDER, extent_of, own_loops, tidy, unroll_lanes
from .intrinsics import outer_product
from .processor import FLOAT_BYTES, Processor
from .products import BLOCKS_WANTED, block_size, split_blocks, sum_in_registers
from .tiles import FMA_CHAINS

KEYS_SHARE = 4
"""Keys up to this part of the second-level cache are read where they lie; of more, panels are copied."""

REGISTERS_WIDE = 2
"""Of both tiles, where there are rows enough: measured to be the best, or near it, for 49 to 1,024 keys."""


@dataclass(frozen=True)
class CpuAttention:
    """For one processor."""

    target: Processor

    def tiles(self, shape: tuple[int, ...], depth: int, keys: int, plain: bool) -> AttentionTiles:
        *outer, queries, width = shape
        rows = min(queries, FMA_CHAINS, (self.target.registers - 3) // REGISTERS_WIDE)
        # Scores of a block, unless one tile has more, stay in the second-level cache.
        wanted = max(-(-BLOCKS_WANTED // prod(outer)), -(-queries * keys * 4 // self.target.second.nbytes))
        block = block_size(queries, rows, wanted)
        packed = not plain or depth * keys * 4 > self.target.second.nbytes // KEYS_SHARE
        return AttentionTiles(rows, self._lanes(keys, rows), self._lanes(width, rows), block, packed)

    def _lanes(self, columns: int, rows: int) -> int:
        """Whole registers, more of them where there are few rows; all columns where they do not fill one."""
        lanes = self.target.float_lanes
        wide = max(REGISTERS_WIDE, FMA_CHAINS // rows)
        return min(wide, columns // lanes) * lanes or columns

    def arrange(self, schedule: te.Schedule, tiles: AttentionTiles, apart: int, rows: list[str]) -> None:
        tidy(schedule)
        *outer, m, d = schedule.get_loops(schedule.blocks()[-1])
        for loop in outer:
            schedule.parallel(loop)
        block, m, row = split_blocks(schedule, m, tiles.block, tiles.rows)
        d, lane = schedule.split_shifted(d, tiles.values)
        schedule.reorder(*outer, block, m, d, row, lane)
        schedule.compute_at(SUM, d)
        for stage in reversed(rows):
            schedule.compute_at(stage, m)
        schedule.compute_at(RAW, block)
        *_, query, key = own_loops(schedule, RAW)
        part, query = schedule.split_shifted(query, tiles.rows)
        panel, key = schedule.split_shifted(key, tiles.keys)
        schedule.reorder(panel, part, query, key)
        schedule.compute_at(SCORES, part)
        if tiles.packed:
            schedule.compute_at(KEYS, panel)
            schedule.vectorize(schedule.get_loops(KEYS)[-1])
        rank = find_buffer(schedule.func, RAW).ndim
        # Rows of scores are an odd number of cache lines apart: so neither do their places in a first-level cache meet,
        # nor do registers cross lines.
        line = self.target.nearest.line // FLOAT_BYTES
        for stage in (RAW, *rows):
            if find_buffer(schedule.func, stage).ndim == rank:
                schedule.storage_align(stage, rank - 2, 2 * line, line)
        sum_in_registers(schedule, SCORES, outer_product(tiles.rows, tiles.keys, apart))
        aligned = find_buffer(schedule.func, RAW).strides[-2]  # as all rows of scores, also those of weights
        sum_in_registers(schedule, SUM, outer_product(tiles.rows, tiles.values, aligned))
        unroll_lanes(schedule, [query, key])
        unroll_lanes(schedule, [row, lane])
        for stage in rows:
            _along_row(schedule, stage, self.target.float_lanes)
        for stage in (QUERIES, VALUES):
            if stage in schedule.blocks():
                *others, last = schedule.get_loops(stage)
                for loop in others:
                    schedule.parallel(loop)
                schedule.vectorize(last)


def _along_row(schedule: te.Schedule, stage: str, lanes: int) -> None:
    """Lanes along each row of scores."""
    block = find_block(schedule.func, stage)[-1]
    loops = own_loops(schedule, stage)
    if isinstance(block, Block) and block.kind == "reduce":
        schedule.decompose_reduction(stage, loops[-1])
        schedule.annotate(loops[-1], *ANY_ORDER)
    else:
        if extent_of(schedule, loops[-1]) > lanes and extent_of(schedule, loops[-1]) % lanes:
            loops[-1:] = schedule.split_shifted(loops[-1], lanes)  # whole registers only: rests take as long
        schedule.vectorize(loops[-1])
