"""How many accumulators a convolution keeps in registers: a tile of pixels times output channels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import inf

from ..loops.kernels import Tile
from ..loops.layouts import MOST_UNUSED, PREFERRED_BLOCKS, filled_block
from .processor import Processor

FMA_CHAINS = 8
"""Independent sums that keep the units of all common processors busy."""

PRODUCT_CHAINS = 10
"""The same of products of matrices, of any type."""

SURE_CHAINS, LATE = 12, 0.28
"""Independent sums of floats with which two units that need four cycles for a multiply-add always find work, and the
part of a cycle that each sum less costs: with eight, which would be just enough, a late load is felt."""

WEIGHT_LOAD_CYCLES = 1.25
"""Cycles to load a register of weights: some loads miss the first-level cache."""

SPLIT_LOAD = 2
"""By how much loads take longer where rows of weights are no whole registers, so that most loads meet two lines."""

LOADS_FELT = 0.5
"""Part of the cycles of loads that add to those of the units: weights of a tile come from the second-level cache, and a
processor with two units is done with their work in half the cycles."""

ALONE, ALONE_BYTES = 1.8, 32
"""By how much tiles take longer of which each row has one register, where registers have so many bytes: each
multiply-add then waits for a load of its own, and there are two units. As measured on a Zen 3."""

LARGEST_TILE_LANES = 256

USUAL_WIDTH = 28
"""Pixels of a row by which blocks of channels are compared, so that all images of as many channels have the same."""

WORTH_FILLING = 0.92
"""Other blocks than the usual ones are worth it where tiles take this part of their cycles, or less."""


@dataclass(frozen=True)
class Held:
    """What a step keeps in registers beside its sums: the values of all rows (``values``) and one register of weights
    at a time, or the first ``weights`` of the registers of weights and one value at a time. Other weights are operands
    in memory then, read again for each row. ``again``: such loads beyond the first of each."""

    weights: int
    values: bool = False
    again: int = 0


def held_registers(rows: int, parts: int, target: Processor, kept: int = 0) -> Held | None:
    """What a step of floats keeps beside ``rows x parts`` sums and ``kept`` other registers: all weights, if there are
    registers for them. On processors that multiply by operands in memory else all values, else what weights there is
    room for. None where that is too little."""
    free = target.registers - rows * parts - kept
    if free > parts:
        return Held(parts)
    if not target.multiplies_by_memory or free < 2:
        return None
    return Held(0, values=True) if free > rows else Held(free - 1, again=(rows - 1) * (parts - free + 1))


def convolution_tile(
    width: int, channels: int, block: int, target: Processor, kept: int = 0, floats: bool = False
) -> Tile:
    """The tile with the fewest cycles for a row of the image: all registers but those for a step's weights and a value,
    which LLVM holds beside the sums; with more, sums would go to the stack and back in each step. Where tiles do not
    divide the row, the last two overlap. ``kept``: further registers that a step takes. ``floats``: whether
    these are multiplied, so that a step may hold less than all weights (`held_registers`)."""
    rated = rated_tiles(width, channels, block, target, kept, floats)
    return min(rated, key=lambda each: (each[0], -each[1].rows))[1] if rated else Tile(1, block)


def rated_tiles(
    width: int, channels: int, block: int, target: Processor, kept: int = 0, floats: bool = False
) -> list[tuple[float, Tile]]:
    """All tiles for which there are registers, with the cycles of a row of the image for one channel."""
    found = []
    for lanes in range(block, min(channels, LARGEST_TILE_LANES) + 1, block):
        if channels % lanes:
            continue
        parts = len(pieces(lanes, target.float_lanes))
        load = WEIGHT_LOAD_CYCLES * (SPLIT_LOAD if lanes > block and lanes % target.float_lanes else 1)
        for rows in range(1, min(width, target.registers) + 1):
            held = Held(parts) if rows * parts + parts + 1 + kept <= target.registers else None
            if floats:
                held = held_registers(rows, parts, target, kept)
            if held is None:
                break
            loads = (rows + held.again) / target.core.loads + parts * load
            busy = rows + parts + held.again if held.again else loads  # two units meet as many loads
            waiting = max(0, SURE_CHAINS - rows * parts) * LATE if floats else 0
            cycles = max(rows * parts + waiting, busy, FMA_CHAINS) + LOADS_FELT * loads
            alone = ALONE if parts == 1 and target.vector_bytes == ALONE_BYTES else 1.0
            found.append((-(-width // rows) * cycles * alone / lanes, Tile(rows, lanes)))
    return found


@lru_cache(maxsize=4096)
def channels_together(channels: int, target: Processor) -> int:
    """Channels in a block of an image: those of `filled_block`, unless tiles of other blocks are much faster though
    the last block has more channels that nobody uses. (In blocks of four, 116 channels have tiles of half a register of
    eight.)"""
    usual = filled_block(channels)

    def cycles(block: int) -> float:
        whole = -(-channels // block) * block
        return whole * min((cost for cost, _ in rated_tiles(USUAL_WIDTH, whole, block, target)), default=inf)

    full = channels % usual == 0 and usual >= target.float_lanes
    few = [block for block in PREFERRED_BLOCKS if not full or -channels % block <= channels // MOST_UNUSED]
    best = min(few, key=lambda block: (cycles(block), -block), default=usual)
    return best if cycles(best) < WORTH_FILLING * cycles(usual) else usual


def grouped_tile(width: int, block: int, target: Processor) -> Tile:
    """The same for groups within a block: registers also hold a block of the data for each row."""
    return min(rated_grouped_tiles(width, block, target), key=lambda each: (each[0], each[1].rows))[1]


def rated_grouped_tiles(width: int, block: int, target: Processor) -> list[tuple[float, Tile]]:
    """As `rated_tiles`, for groups within a block."""
    parts = len(pieces(block, target.float_lanes))
    most = max(1, min(width, (target.registers - 2) // (parts + 1)))
    return [(-(-width // rows) * max(rows, FMA_CHAINS), Tile(rows, block)) for rows in range(1, most + 1)]


def pieces(lanes: int, width: int) -> list[tuple[int, int]]:
    """(first lane, count) of the registers that hold ``lanes``: whole ones, then smaller powers of two."""
    registers: list[tuple[int, int]] = []
    done = 0
    while done < lanes:
        count = min(width, 1 << ((lanes - done).bit_length() - 1))
        registers.append((done, count))
        done += count
    return registers
