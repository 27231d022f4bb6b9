"""How many accumulators a convolution keeps in registers: a tile of pixels times output channels."""

from __future__ import annotations

from dataclasses import dataclass

from .intrinsics import pieces
from .processor import CpuTarget

LATENCY = 8
"""Independent multiply-adds that keep the units of all common processors busy."""

LOAD = 1.25
"""Cycles for a register of weights, some of which come from a second-level cache."""

LARGEST_TILE_LANES = 256


@dataclass(frozen=True)
class Tile:
    """``rows`` pixels of a row times ``lanes`` output channels are accumulated in registers."""

    rows: int
    lanes: int


def choose_tile(width: int, channels: int, block: int, target: CpuTarget) -> Tile:
    """The tile with the fewest cycles for a row of the image: all registers but those for weights and a value. Where
    tiles do not divide the row, the last two overlap."""
    best: tuple[float, int, Tile] | None = None
    for lanes in range(block, min(channels, LARGEST_TILE_LANES) + 1, block):
        if channels % lanes:
            continue
        parts = len(pieces(lanes, target.float_lanes))
        for rows in range(1, min(width, target.registers) + 1):
            if rows * parts + min(parts, 2) + 1 > target.registers:
                break
            cycles = max(rows * parts, rows / 2 + parts * LOAD, LATENCY) + 0.5
            rated = (-(-width // rows) * cycles / lanes, -rows, Tile(rows, lanes))
            if best is None or rated[:2] < best[:2]:
                best = rated
    return best[2] if best is not None else Tile(1, block)


def choose_grouped_tile(width: int, block: int, target: CpuTarget) -> Tile:
    """The same for groups within a block: registers also hold a block of the data for each row."""
    parts = len(pieces(block, target.float_lanes))
    most = max(1, min(width, (target.registers - 2) // (parts + 1)))
    rows = min(range(1, most + 1), key=lambda rows: (-(-width // rows) * max(rows, LATENCY), rows))
    return Tile(rows, block)
