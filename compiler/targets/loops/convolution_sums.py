"""What a convolution adds up, as tensor expressions over packed data and packed weights.

Each takes the data as it lies there and the weights (O, C / groups, H, W), or (O, C / groups, D * H, W) of a volume,
and gives the sums as the graph sees them, from a stage ``acc`` of shape (N, tiles, H, W, lanes).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ... import tensor as te
from ...graph.ir import Call
from ...tensor import ir as tir
from ...tensor.view import View
from .kernels import Array, Operands, Tile
from .layouts import QUAD, UINT8_OFFSET, Layout, folded, folded_row


def float_sums(call: Call, operands: Operands, data: te.Tensor, layout: Layout, weights: Array, tile: Tile) -> View:
    """Products of float32."""
    block = layout.block
    out, channels, kernel_h, kernel_w = weights.shape
    blocks = -(-channels // block)
    wide = np.zeros((out, blocks * block, kernel_h, kernel_w), np.float32)
    wide[:, :channels] = weights
    packed = wide.reshape(out // tile.lanes, tile.lanes, blocks, block, kernel_h, kernel_w)
    w = operands.array(packed.transpose(0, 2, 4, 5, 3, 1))
    kc, kh, kw = te.reduce_axis(blocks, "kc"), te.reduce_axis(kernel_h, "kh"), te.reduce_axis(kernel_w, "kw")
    kb = te.reduce_axis(block, "kb")
    at, first = _reader(call, layout), _first_block(call, tile, blocks)

    def value(n: tir.Expr, o: tir.Expr, y: tir.Expr, x: tir.Expr, lane: tir.Expr) -> te.Reduction:
        row, column = at(y, x, kh, kw)
        return te.sum(data[n, first(o) + kc, row, column, kb] * w[o, kc, kh, kw, kb, lane], [kc, kh, kw, kb])

    return _accumulator(call, tile, value)


def byte_sums(call: Call, operands: Operands, data: te.Tensor, layout: Layout, weights: Array, tile: Tile) -> View:
    """Products of bytes."""
    block = layout.block
    out, channels, kernel_h, kernel_w = weights.shape
    blocks = -(-channels // block)
    wide = np.zeros((out, blocks * block, kernel_h, kernel_w), np.int8)
    wide[:, :channels] = weights
    packed = wide.reshape(out // tile.lanes, tile.lanes, blocks, block // QUAD, QUAD, kernel_h, kernel_w)
    w = operands.array(packed.transpose(0, 2, 5, 6, 3, 1, 4))
    kc, kh, kw = te.reduce_axis(blocks, "kc"), te.reduce_axis(kernel_h, "kh"), te.reduce_axis(kernel_w, "kw")
    kb, q = te.reduce_axis(block // QUAD, "kb"), te.reduce_axis(QUAD, "q")
    at, first = _reader(call, layout), _first_block(call, tile, blocks)

    def value(n: tir.Expr, o: tir.Expr, y: tir.Expr, x: tir.Expr, lane: tir.Expr) -> te.Reduction:
        row, column = at(y, x, kh, kw)
        byte = data[n, first(o) + kc, row, column, kb * QUAD + q].astype("int32")
        return te.sum(byte * w[o, kc, kh, kw, kb, lane, q].astype("int32"), [kc, kh, kw, kb, q])

    return _without_excess(_accumulator(call, tile, value), operands, weights)


def grouped_sums(call: Call, operands: Operands, data: te.Tensor, layout: Layout, weights: Array, tile: Tile) -> View:
    """Where a block holds several groups that each make as many channels as they take."""
    block, group = layout.block, weights.shape[1]
    out, _, kernel_h, kernel_w = weights.shape
    kh, kw = te.reduce_axis(kernel_h, "kh"), te.reduce_axis(kernel_w, "kw")
    at = _reader(call, layout)
    integer = data.dtype == "uint8"
    quad = QUAD if integer else 1
    packed = weights.reshape(out // block, block, group // quad, quad, kernel_h, kernel_w).transpose(0, 4, 5, 2, 1, 3)
    w = operands.array(packed if integer else packed[..., 0])
    k, q = te.reduce_axis(group // quad, "k"), te.reduce_axis(quad, "q")

    def floats(n: tir.Expr, o: tir.Expr, y: tir.Expr, x: tir.Expr, lane: tir.Expr) -> te.Reduction:
        row, column = at(y, x, kh, kw)
        return te.sum(data[n, o, row, column, lane // group * group + k] * w[o, kh, kw, k, lane], [kh, kw, k])

    def bytes_(n: tir.Expr, o: tir.Expr, y: tir.Expr, x: tir.Expr, lane: tir.Expr) -> te.Reduction:
        row, column = at(y, x, kh, kw)
        byte = data[n, o, row, column, lane // group * group + k * QUAD + q].astype("int32")
        return te.sum(byte * w[o, kh, kw, k, lane, q].astype("int32"), [kh, kw, k, q])

    if not integer:
        return _accumulator(call, tile, floats)
    return _without_excess(_accumulator(call, tile, bytes_), operands, weights)


def _without_excess(view: View, operands: Operands, weights: Array) -> View:
    """The sums of data that is held ``UINT8_OFFSET`` too high, less that offset times the sum of the weights."""
    excess = operands.array((weights.astype(np.int64).sum((1, 2, 3)) * UINT8_OFFSET).astype(np.int32))
    return View(view.shape, view.dtype, lambda index: view[index] - excess[index[1]])


def _reader(call: Call, layout: Layout) -> Callable[..., tuple[tir.Expr, tir.Expr]]:
    """The row and column of the data for those of the result and of the window, volumes as images of all their rows."""
    strides: tuple[int, ...] = call.attr("strides")
    dilations: tuple[int, ...] = call.attr("dilations")
    pads: tuple[int, ...] = call.attr("pads")
    left = layout.halo[1] - pads[len(strides) - 1]
    top = layout.halo[0] - (pads[0] if len(strides) == 2 else 0)

    def row(y: tir.Expr, kh: tir.Expr) -> tir.Expr:
        if len(strides) == 2:
            return y * strides[0] + kh * dilations[0]
        kernel, height = call.args[1].shape[3], call.args[0].shape[3]
        image = y // call.shape[3] * strides[0] + kh // kernel * dilations[0]
        return image * height + y % call.shape[3] * strides[1] + kh % kernel * dilations[1]

    def at(y: tir.Expr, x: tir.Expr, kh: tir.Expr, kw: tir.Expr) -> tuple[tir.Expr, tir.Expr]:
        return row(y, kh) + top, x * strides[-1] + kw * dilations[-1] + left

    return at


def _first_block(call: Call, tile: Tile, blocks: int) -> Callable[[tir.Expr], tir.Expr]:
    """The block of the data with which the group of a tile begins; a group takes ``blocks`` of them."""
    groups = call.attr("groups")
    tiles = call.shape[1] // groups // tile.lanes
    return lambda o: o // tiles * blocks if groups > 1 else tir.Const(0)


def _accumulator(call: Call, tile: Tile, value: Callable[..., te.Reduction]) -> View:
    """The stage that adds up, seen as the convolution's result."""
    batch, channels, height, width = folded(call.shape)
    acc = te.compute((batch, channels // tile.lanes, height, width, tile.lanes), value, "acc")

    def read(index: tuple[tir.Expr, ...]) -> tir.Expr:
        n, c, x = index[0], index[1], index[-1]
        return acc[n, c // tile.lanes, folded_row(index, call.shape), x, c % tile.lanes]

    return View(call.shape, acc.dtype, read)
