"""How a tensor of the graph lies in memory.

Plain is row-major. Blocked splits the channels of an image (N, C, H, W): ``(N, C/b, H + halo, W + halo, b)``, and of a
volume in the same way. The halo is the padding of the convolutions that read the tensor, which so need no tests.
Blocked int8 tensors are held as uint8, 128 higher, where dot products multiply unsigned by signed bytes. With all
channels in one block they stand last: `channels_last`, for GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ... import tensor as te
from ...graph.ir import Expr
from ...tensor import ir as tir
from ...tensor.view import View
from .narrow_requantise import held_higher

Halo = tuple[int, ...]
NO_HALO: Halo = ()
BLOCKED_RANKS = (4, 5)
"""Axes of the tensors that may be blocked: images and volumes."""

BLOCKED = ("float32", "int8", "bfloat16")
"""Types of tensors that are brought into blocks for what is elementwise."""

PREFERRED_BLOCKS = (16, 8, 4)
MOST_UNUSED, MOST_UNUSED_OF_FEW = 8, 3
"""One unused channel for so many others is worth it, to fill a block; the second where they are less than one block."""

UINT8_OFFSET = 128
"""What is added to an int8 value that is held as uint8."""

QUAD = 4
"""Bytes that one lane of a dot product multiplies and adds up."""

PAIR = 2
"""Values of bfloat16 that it does so with."""


@dataclass(frozen=True)
class Layout:
    """``block``: channels that lie together; 0 stands for plain. ``halo``: elements before each axis of an image or a
    volume, then behind each, as convolutions count their padding; `NO_HALO` if there are none. ``fill``: what they
    hold, as the graph sees it. ``signed``: whether bytes are held as they are."""

    block: int = 0
    halo: Halo = NO_HALO
    fill: int = 0
    signed: bool = False

    @property
    def is_plain(self) -> bool:
        return not self.block

    def shape(self, logical: tuple[int, ...]) -> tuple[int, ...]:
        """Shape in memory of a tensor."""
        if self.is_plain:
            return logical
        n, c, *sizes = logical
        before, after = self.around(len(sizes))
        wide = (first + size + last for first, size, last in zip(before, sizes, after, strict=True))
        return (n, -(-c // self.block), *wide, self.block)

    def around(self, axes: int) -> tuple[Halo, Halo]:
        """The halo before and behind each of so many axes."""
        halo = self.halo or (0,) * (2 * axes)
        return halo[:axes], halo[axes:]

    def dtype(self, logical: tir.DType) -> tir.DType:
        """Element type in memory."""
        return "uint8" if self.block and logical == "int8" and not self.signed else logical

    def is_like(self, other: Layout) -> bool:
        """Whether they are the same but for halo and fill."""
        return (self.block, self.signed) == (other.block, other.signed)

    def covers(self, other: Layout) -> bool:
        """Whether a reader that wants ``other`` can read this."""
        if self.is_plain or other.is_plain:
            return self.is_plain and other.is_plain
        wide = other.halo == NO_HALO or (self.fill == other.fill and _wider(self.halo, other.halo) == self.halo)
        return self.is_like(other) and wide

    def merged(self, other: Layout) -> Layout:
        """One layout for both readers: the wider halo. Only where the fills agree, or one has no halo."""
        fill = self.fill if self.halo != NO_HALO else other.fill
        return replace(self, halo=_wider(self.halo, other.halo), fill=fill)


PLAIN = Layout()


def channels_last(value: Expr) -> Layout:
    """Of images as (N, H, W, C), with bytes as they are. Those of a pixel are a multiple of four: there may be channels
    that nobody uses."""
    together = QUAD if value.dtype == "int8" else 1
    return Layout(-(-value.shape[1] // together) * together, signed=True)


def brought_into_blocks(value: Expr, result: Expr, layout: Layout) -> bool:
    """Whether a kernel whose ``result`` has this layout gets a value that is plain in such blocks, too: lanes that run
    over channels would read it element by element."""
    blocked = layout.block in PREFERRED_BLOCKS and not layout.signed
    return blocked and value.shape == result.shape and value.dtype in BLOCKED


def halo_of(pads: tuple[int, ...]) -> Halo:
    """The halo that holds such a padding."""
    return pads if any(pads) else NO_HALO


def _wider(a: Halo, b: Halo) -> Halo:
    if NO_HALO in (a, b):
        return a or b
    return tuple(map(max, a, b))


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


def filled_block(channels: int) -> int:
    """Channels that should lie together where the last block may have some that nobody uses: 16, 8 or 4, unless too
    many would be unused."""
    block = channel_block(channels)
    if block in PREFERRED_BLOCKS:
        return block
    if channels < PREFERRED_BLOCKS[0]:
        whole = min(each for each in PREFERRED_BLOCKS if each >= channels)
        return whole if MOST_UNUSED_OF_FEW * (whole - channels) <= channels else block
    few = (each for each in PREFERRED_BLOCKS if MOST_UNUSED * (-channels % each) <= channels)
    return next(few, PREFERRED_BLOCKS[-1])


def unused(view: View, n: tir.Expr, *places: tir.Expr) -> tir.Expr:
    """What channels that nobody uses hold at a place: floats repeat the last one, so that what is computed of them
    holds nothing that is not there anyway, such as the infinity of a quotient by 0. Integers are 0."""
    if view.dtype in ("float32", "bfloat16"):
        return view[(n, tir.Const(view.shape[1] - 1), *places)]
    return tir.Const(0, view.dtype)


def view_of(tensor: te.Tensor, shape: tuple[int, ...], dtype: tir.DType, layout: Layout) -> View:
    """The tensor of the graph that lies in ``tensor``."""
    if layout.is_plain:
        return View(shape, dtype, lambda index: tensor[index])
    block, (before, _) = layout.block, layout.around(len(shape) - 2)

    def read(index: tuple[tir.Expr, ...]) -> tir.Expr:
        n, c, *places = index
        inside = (place + first for place, first in zip(places, before, strict=True))
        outer, lane = (tir.Const(0), c) if shape[1] <= block else (c // block, c % block)
        return from_memory(tensor[(n, outer, *inside, lane)], dtype, layout)

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
    higher = held_higher(value, UINT8_OFFSET)
    if higher is not None:
        return higher
    return (value + tir.Const(-UINT8_OFFSET, value.dtype)).astype(layout.dtype(value.dtype))


def fill_value(layout: Layout, dtype: tir.DType) -> int:
    """What the halo holds in memory."""
    return layout.fill + (UINT8_OFFSET if layout.dtype(dtype) != dtype else 0)


def packed(value: np.ndarray[Any, Any], layout: Layout) -> np.ndarray[Any, Any]:
    """A constant as it lies in memory."""
    if layout.is_plain:
        return np.ascontiguousarray(value)
    n, c, *sizes = value.shape
    _, blocks, *around, block = layout.shape(value.shape)
    wide = np.full((n, blocks * block, *around), layout.fill, value.dtype)
    before, _ = layout.around(len(sizes))
    inside = (slice(first, first + size) for first, size in zip(before, sizes, strict=True))
    wide[(slice(None), slice(c), *inside)] = value
    moved = np.moveaxis(wide.reshape(n, blocks, block, *around), 2, -1)
    if value.dtype == np.int8 and not layout.signed:
        return np.ascontiguousarray((moved.astype(np.int16) + UINT8_OFFSET).astype(np.uint8))
    return np.ascontiguousarray(moved)
