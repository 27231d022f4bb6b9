"""Tiles of products: what a group makes, and in how many parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ...tensor.evaluate import ITEM_BYTES
from .devices import GpuDescription
from .intrinsics import MATRIX_BYTES
from .mma_shapes import MmaShape
from .thread_products import ThreadShape

FRAGMENT_BYTES = 2 * MATRIX_BYTES
"""Of a row that a warp loads at a time."""


Shape: TypeAlias = MmaShape | ThreadShape
"""What multiplies: an instruction of tensor cores, or threads."""


@dataclass(frozen=True)
class TensorTile:
    """``rows`` x ``columns`` of the result for a group of ``warps[0]`` x ``warps[1]`` warps; ``depth`` (elements) of
    the operands is in shared memory at a time, ``ring`` times where copies run by themselves."""

    rows: int
    columns: int
    depth: int
    warps: tuple[int, int]
    ring: int = 3

    @property
    def warp_rows(self) -> int:
        return self.rows // self.warps[0]

    @property
    def warp_columns(self) -> int:
        return self.columns // self.warps[1]

    def threads(self, device: GpuDescription) -> int:
        return self.warps[0] * self.warps[1] * device.warp

    def copies(self, device: GpuDescription) -> int:
        """Steps of the depth that are in shared memory at a time: two where threads copy themselves."""
        return self.ring if device.asynchronous else 2

    def shared_bytes(self, size: int, device: GpuDescription) -> int:
        """Of a group, for operands of ``size`` bytes an element: the ring of these, then the sums in its place."""
        row = self.depth * size + ROW_PADDING
        return max(
            self.copies(device) * (self.rows + self.columns) * row, self.rows * (self.columns + SUMS_PADDING) * 4
        )


SMALL = 32 * 64
"""Sums of a tile that is done sooner than the next step is there: its steps are twice as deep."""


def tensor_tiles(size: int) -> tuple[TensorTile, ...]:
    """Tiles for operands of ``size`` bytes an element."""
    depth = 2 * FRAGMENT_BYTES // size
    return tuple(
        TensorTile(rows, columns, depth * (2 if rows * columns <= SMALL else 1), warps, 4)
        for rows, columns, warps in (
            (128, 128, (2, 2)), (256, 128, (4, 2)), (128, 256, (2, 4)), (128, 64, (2, 2)), (64, 128, (2, 2)),
            (64, 64, (2, 2)), (64, 32, (2, 2)), (32, 64, (2, 2)), (32, 32, (2, 2)), (64, 16, (4, 1)), (16, 64, (1, 4)),
            (32, 16, (2, 1)), (16, 32, (1, 2)), (16, 16, (1, 1)),
        )
    )  # fmt: skip


ROW_PADDING, SUMS_PADDING = MATRIX_BYTES, 8
"""Bytes that a row of operands is longer than its elements, and sums that a row of these is: neighbours in a column
then lie in different banks."""


@dataclass(frozen=True)
class Plan:
    """``tile``, and in how many ``parts`` the depth is added up, each by groups of its own; another launch adds those
    up. A part is a whole number of steps."""

    tile: TensorTile
    parts: int = 1


def tiles_of(shape: Shape) -> tuple[TensorTile, ...]:
    """All tiles for what multiplies."""
    return tensor_tiles(ITEM_BYTES[shape.dtype]) if isinstance(shape, MmaShape) else THREAD_TILES


THREAD_TILES = tuple(
    TensorTile(rows, columns, 16, warps)
    for rows, columns, warps in (
        (128, 128, (4, 2)), (64, 64, (2, 2)), (64, 32, (4, 1)), (32, 64, (2, 2)), (32, 32, (2, 2)), (16, 64, (1, 4)),
        (64, 16, (4, 1)), (16, 32, (1, 2)), (32, 16, (2, 1)), (16, 16, (2, 1)),
    )
)  # fmt: skip
"""Threads have 8 x 8 sums at most, which registers have room for."""
