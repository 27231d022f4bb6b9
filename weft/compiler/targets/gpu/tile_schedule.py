"""The schedule of tiled products: stages ``left`` and ``right`` in shared memory, ``acc`` in registers, the result."""

from __future__ import annotations

from dataclasses import dataclass

from ... import tensor as te
from ..loops.nests import REGISTER, extent_of, largest_divisor, own_loops, split_loops, tidy
from .devices import GpuDescription
from .digits import BLOCK_AXES, SHARED, THREAD


@dataclass(frozen=True)
class Tile:
    """``rows`` x ``columns`` of the result for a group, ``thread_rows`` x ``thread_columns`` for each of its threads;
    ``depth`` of the operands is in shared memory at a time."""

    rows: int
    columns: int
    depth: int
    thread_rows: int
    thread_columns: int

    @property
    def threads(self) -> int:
        return self.rows // self.thread_rows * (self.columns // self.thread_columns)


TILES = (
    Tile(64, 64, 16, 4, 4), Tile(64, 32, 16, 4, 4), Tile(32, 64, 16, 4, 4), Tile(32, 32, 16, 4, 4),
    Tile(16, 64, 16, 2, 4), Tile(64, 16, 16, 4, 2), Tile(16, 32, 16, 2, 4), Tile(16, 16, 16, 2, 2),
)  # fmt: skip
"""Larger ones read less memory for each product, smaller ones waste less at edges and keep more groups busy."""

GROUPS_WANTED = 64
"""Groups that keep a device busy."""

LEAST_DEPTH, LEAST_ROWS, LEAST_COLUMNS = 8, 8, 8
"""Below these a tile is mostly edge."""


def choose_tile(batch: int, rows: int, columns: int, depth: int, device: GpuDescription) -> Tile | None:
    """The tile for ``batch`` products (rows, depth) x (depth, columns); None where none is worth it."""
    if depth < LEAST_DEPTH or rows < LEAST_ROWS or columns < LEAST_COLUMNS:
        return None

    def cost(tile: Tile) -> float:
        down, across = -(-rows // tile.rows), -(-columns // tile.columns)
        groups = batch * down * across
        computed = groups * tile.rows * tile.columns  # what lies beyond the edges is paid for, too
        loads = 1 / tile.thread_rows + 1 / tile.thread_columns + 8 / tile.rows + 8 / tile.columns
        return computed * (1 + loads) / min(1.0, groups / GROUPS_WANTED)

    return min((tile for tile in TILES if tile.threads <= device.group_threads), key=cost)


def schedule_tiled(schedule: te.Schedule, tile: Tile) -> None:
    """Tiles for groups, the depth in steps; both operands of a step are loaded by all threads together."""
    tidy(schedule)
    *outer, m, n = schedule.get_loops(schedule.blocks()[-1])
    down, m = schedule.split(m, tile.rows)
    across, n = schedule.split(n, tile.columns)
    (ty, mi), (tx, ni) = schedule.split(m, tile.thread_rows), schedule.split(n, tile.thread_columns)
    schedule.reorder(*outer, down, across, ty, tx, mi, ni)
    schedule.set_scope("acc", REGISTER)
    schedule.compute_at("acc", across)
    reduced, kept = split_loops(schedule, "acc")
    step, k = schedule.split(reduced[0], tile.depth)
    rows, columns = kept[-2:]
    (sy, mj), (sx, nj) = schedule.split(rows, tile.thread_rows), schedule.split(columns, tile.thread_columns)
    schedule.reorder(*kept[:-2], step, sy, sx, k, mj, nj)
    initial = schedule.decompose_reduction("acc", step)
    for name in ("left", "right"):
        schedule.set_scope(name, SHARED)
        schedule.compute_at(name, step)
        _load_together(schedule, name, tile)
    for axis, loops in zip(reversed(BLOCK_AXES), (outer, [down], [across]), strict=True):
        for loop in loops:
            schedule.bind(loop, axis)
    iy, ix = own_loops(schedule, initial)[-4:-2]
    for loop in (ty, tx, sy, sx, iy, ix):
        schedule.bind(loop, THREAD)
    for loop in (mj, nj):
        if extent_of(schedule, loop) > 1:
            schedule.unroll(loop)


def _load_together(schedule: te.Schedule, name: str, tile: Tile) -> None:
    """All threads of a group for a copy: neighbours in memory by neighbours, some rows one after the other."""
    rows, columns = own_loops(schedule, name)[-2:]
    wide, high = (tile.depth, tile.rows) if name == "left" else (tile.columns, tile.depth)
    across = largest_divisor(wide, tile.threads)
    each = max(1, high // max(1, tile.threads // across))
    if each > 1:
        outer, inner = schedule.split(rows, each)
        schedule.reorder(outer, columns, inner)
    else:
        outer = rows
    for loop in (outer, columns):
        schedule.bind(loop, THREAD)
