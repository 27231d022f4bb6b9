"""What rewrites for the core cost and save, in its cycles: the coins in which passes compare."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..operators.packed_layout import Blocks


@dataclass(frozen=True)
class Rate:
    """How fast things go: the array's shape, and the bytes that DRAM moves in a cycle."""

    blocks: Blocks
    bytes_per_cycle: int


def entries_of(shape: Sequence[int], blocks: Blocks) -> int:
    """Entries of the accumulator that a tensor (N, C) or (N, C, H, W) takes: cycles of a step of the vector engine."""
    return math.prod(blocks.accumulator_shape(shape)) // (blocks.batch * blocks.block_out)


def product_cycles(rows: int, inputs: int, taps: int, outputs: int, rate: Rate) -> float:
    """The bound of a product of ``rows`` images of one pixel, ``inputs`` channels at each of ``taps`` places."""
    blocks = rate.blocks
    channels = -(-inputs // blocks.dram_block) * blocks.dram_block
    made = -(-outputs // blocks.dram_block) * blocks.dram_block
    waves = -(-rows // blocks.batch) * (channels // blocks.block_in) * taps * (made // blocks.block_out)
    return max(waves, channels * taps * made / rate.bytes_per_cycle)
