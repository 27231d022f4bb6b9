"""How packed tensors lie in memory (the layouts that ``docs/graph.md`` states), written down a second time.

Inside the verifier a packed tensor is (N, C, H, W) with its padded images and channels; only what is compared with a
program's memory is brought into the order of its bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import NotProvedError

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Blocks:
    """The array: one product is [batch x block_in] times [block_in x block_out]."""

    batch: int
    block_in: int
    block_out: int

    @property
    def lanes(self) -> int:
        """Channels of one entry of ``inp`` and ``out``."""
        return min(self.block_in, self.block_out)

    @property
    def channels(self) -> int:
        """To a multiple of which channels are filled up."""
        return max(self.block_in, self.block_out)


def as_images(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """(N, C, H, W) of a plain shape (N, C) or (N, C, H, W)."""
    return (*shape, 1, 1) if len(shape) == 2 else shape  # type: ignore[return-value]


def filled(x: Array, blocks: Blocks) -> Array:
    """A plain tensor with zeros behind its images and channels, to whole blocks."""
    x = x.reshape(as_images(x.shape))
    images, channels = -x.shape[0] % blocks.batch, -x.shape[1] % blocks.channels
    return np.pad(x, ((0, images), (0, channels), (0, 0), (0, 0)))


def plain_of(x: Array) -> Array:
    """Packed (groups of images, groups of channels, H, W, rows, images, lanes) -> (N, C, H, W) with padding."""
    outer, groups, height, width, rows, images, lanes = x.shape
    return x.transpose(0, 5, 1, 4, 6, 2, 3).reshape(outer * images, groups * rows * lanes, height, width)


def in_memory_order(x: Array, shape: tuple[int, ...]) -> Array:
    """(N, C, H, W) with padding -> the packed ``shape``."""
    outer, groups, height, width, rows, images, lanes = shape
    split = x.reshape(outer, images, groups, rows, lanes, height, width)
    return np.ascontiguousarray(split.transpose(0, 2, 5, 6, 3, 1, 4))


def packed_place(index: int, shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """(image, channel, row, column) of an element of a packed tensor, by its number in memory."""
    outer, group, row, column, part, image, lane = (int(each) for each in np.unravel_index(index, shape))
    return outer * shape[5] + image, (group * shape[4] + part) * shape[6] + lane, row, column


def plain_shape(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """(N, C, H, W) with padding, of a packed shape."""
    outer, groups, height, width, rows, images, lanes = shape
    return outer * images, groups * rows * lanes, height, width


# Constants of packed operators


def dense_weights(w: Array) -> Array:
    """(Ko, Kc, KH, KW, block_out, block_in) -> (O, C, KH, KW)."""
    outs, ins, height, width, block_out, block_in = w.shape
    return w.transpose(0, 4, 1, 5, 2, 3).reshape(outs * block_out, ins * block_in, height, width)


def block_weights(w: Array) -> Array:
    """One matrix a block, (Ko, KH, KW, block_out, block_in) -> (O, block_in, KH, KW), of as many groups as blocks."""
    groups, height, width, block_out, block_in = w.shape
    return w.transpose(0, 3, 4, 1, 2).reshape(groups * block_out, block_in, height, width)


def depthwise_weights(w: Array) -> Array:
    """(Ko, KH, KW, rows, images, lanes), the same for all images -> (C, 1, KH, KW)."""
    outs, height, width, rows, _, lanes = w.shape
    if (w != w[..., :1, :]).any():
        raise NotProvedError("depthwise weights that differ between images")
    return w[..., 0, :].transpose(0, 3, 4, 1, 2).reshape(outs * rows * lanes, 1, height, width)


def tapped_weights(w: Array) -> Array:
    """Matrices whose row 4 * kh + kw is tap (kh, kw) of three by three, (Ko, TH, TW, block_out, block_in) ->
    (C, 1, 3 * TH, 3 * TW)."""
    groups, rows, columns, _, channels = w.shape
    taps = np.stack([w[:, :, :, 4 * kh : 4 * kh + 3] for kh in range(3)], axis=3)  # (Ko, TH, TW, kh, kw, C)
    return taps.transpose(0, 5, 1, 3, 2, 4).reshape(groups * channels, 1, 3 * rows, 3 * columns)


def channel_parameters(parameters: Array, channels: int) -> list[Array]:
    """(Ko, 3, rows, images, lanes), the same for all images, or (1, 3, ...) for all groups of so many ``channels`` ->
    bias, multiplier and shift (C,)."""
    if (parameters != parameters[..., :1, :]).any():
        raise NotProvedError("parameters that differ between images")
    groups = channels // (parameters.shape[2] * parameters.shape[4])
    if len(parameters) not in (1, groups):
        raise NotProvedError(f"parameters of {len(parameters)} channel groups for {groups}")
    return [np.resize(parameters[:, number, :, 0].reshape(-1), channels) for number in range(3)]


def plain_table(table: Array) -> Array:
    """(256, rows, images, lanes), the same in every lane and from 0 on -> (256,), from -128 on."""
    lanes = table.reshape(len(table), -1)
    if (lanes != lanes[:, :1]).any():
        raise NotProvedError("a table that differs between lanes")
    return np.roll(lanes[:, 0], len(table) // 2)
