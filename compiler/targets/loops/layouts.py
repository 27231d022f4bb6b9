"""How a tensor of the graph lies in memory.

Plain is row-major. Blocked splits the channels of (N, C, H, W): ``(N, C/b, H + halo, W + halo, b)``. A volume
(N, C, D, H, W) is blocked as an image of D * H rows. The halo is the padding of the convolutions that read the tensor,
which so need no tests. Blocked int8 tensors are held as uint8, 128 higher, since dot products multiply unsigned by
signed bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ... import tensor as te
from ...tensor import ir as tir
from ...tensor.view import View

NO_HALO = (0, 0, 0, 0)
PREFERRED_BLOCKS = (16, 8, 4)
UINT8_OFFSET = 128
"""What is added to an int8 value that is held as uint8."""

QUAD = 4
"""Bytes that one lane of a dot product multiplies and adds up."""


@dataclass(frozen=True)
class Layout:
    """``block``: channels that lie together; 0 stands for plain. ``halo``: rows and columns (top, left, bottom, right)
    around the image. ``fill``: what they hold, as the graph sees it."""

    block: int = 0
    halo: tuple[int, int, int, int] = NO_HALO
    fill: int = 0

    @property
    def is_plain(self) -> bool:
        return not self.block

    def shape(self, logical: tuple[int, ...]) -> tuple[int, ...]:
        """Shape in memory of a tensor."""
        if self.is_plain:
            return logical
        n, c, h, w = folded(logical)
        top, left, bottom, right = self.halo
        return (n, -(-c // self.block), h + top + bottom, w + left + right, self.block)

    def dtype(self, logical: tir.DType) -> tir.DType:
        """Element type in memory."""
        return "uint8" if self.block and logical == "int8" else logical

    def covers(self, other: Layout) -> bool:
        """Whether a reader that wants ``other`` can read this."""
        if self.is_plain or other.is_plain:
            return self.is_plain and other.is_plain
        wide = all(mine >= wanted for mine, wanted in zip(self.halo, other.halo, strict=True))
        return self.block == other.block and wide and (self.fill == other.fill or other.halo == NO_HALO)

    def merged(self, other: Layout) -> Layout:
        """One layout for both readers: the wider halo. Only where the fills agree, or one has no halo."""
        top, left, bottom, right = (max(a, b) for a, b in zip(self.halo, other.halo, strict=True))
        return Layout(self.block, (top, left, bottom, right), self.fill if self.halo != NO_HALO else other.fill)


PLAIN = Layout()


def folded(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """The image that an image or a volume is blocked as."""
    n, c, *depth, h, w = shape
    return (n, c, prod(depth) * h, w)


def folded_row(index: tuple[tir.Expr, ...], shape: tuple[int, ...]) -> tir.Expr:
    """The row of that image at which an element of an image or a volume stands."""
    return index[2] if len(shape) == 4 else index[2] * shape[3] + index[3]


def unfolded_row(row: tir.Expr, shape: tuple[int, ...]) -> tuple[tir.Expr, ...]:
    """The indices between channel and column that belong to a row of that image."""
    return (row,) if len(shape) == 4 else (row // shape[3], row % shape[3])


def channel_block(channels: int, multiple: int = 1) -> int:
    """Channels that should lie together: 16, 8 or 4 if that divides them, else their largest divisor up to 16.

    It is rounded up to a ``multiple``: the last block then has channels that nobody uses.
    """
    for block in PREFERRED_BLOCKS:
        if channels % block == 0:
            return block
    block = max(size for size in range(1, 17) if channels % size == 0)
    if block % multiple == 0:
        return block
    return multiple * min(4, -(-channels // multiple))


def view_of(tensor: te.Tensor, shape: tuple[int, ...], dtype: tir.DType, layout: Layout) -> View:
    """The tensor of the graph that lies in ``tensor``."""
    if layout.is_plain:
        return View(shape, dtype, lambda index: tensor[index])
    block, (top, left, _, _) = layout.block, layout.halo

    def read(index: tuple[tir.Expr, ...]) -> tir.Expr:
        n, c, x = index[0], index[1], index[-1]
        value = tensor[n, c // block, folded_row(index, shape) + top, x + left, c % block]
        return from_memory(value, dtype, layout)

    if len(shape) != 4:  # around one image of a volume lie its neighbours, not a halo
        return View(shape, dtype, read)
    return View(shape, dtype, read, layout.halo, layout.fill)


def from_memory(value: tir.Expr, dtype: tir.DType, layout: Layout) -> tir.Expr:
    """The graph's value for one in memory. In eight bits 128 less and 128 more are the same."""
    if layout.dtype(dtype) == dtype:
        return value
    return value.astype(dtype) + tir.Const(-UINT8_OFFSET, dtype)


def to_memory(value: tir.Expr, layout: Layout) -> tir.Expr:
    """What memory holds for a value of the graph."""
    if layout.dtype(value.dtype) == value.dtype:
        return value
    return (value + tir.Const(-UINT8_OFFSET, value.dtype)).astype(layout.dtype(value.dtype))


def fill_value(layout: Layout, dtype: tir.DType) -> int:
    """What the halo holds in memory."""
    return layout.fill + (UINT8_OFFSET if layout.dtype(dtype) != dtype else 0)


def packed(value: np.ndarray[Any, Any], layout: Layout) -> np.ndarray[Any, Any]:
    """A constant as it lies in memory."""
    if layout.is_plain:
        return np.ascontiguousarray(value)
    n, c, h, w = folded(value.shape)
    blocks = -(-c // layout.block)
    top, left, bottom, right = layout.halo
    wide = np.full((n, blocks * layout.block, h + top + bottom, w + left + right), layout.fill, value.dtype)
    wide[:, :c, top : top + h, left : left + w] = value.reshape(n, c, h, w)
    moved = wide.reshape(n, blocks, layout.block, *wide.shape[2:]).transpose(0, 1, 3, 4, 2)
    if value.dtype == np.int8:
        return np.ascontiguousarray((moved.astype(np.int16) + UINT8_OFFSET).astype(np.uint8))
    return np.ascontiguousarray(moved)
