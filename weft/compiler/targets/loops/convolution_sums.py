"""What a convolution adds up, as tensor expressions over packed data and packed weights.

Each takes the data as it lies there and the weights (O, C / groups, H, W), and gives the sums as the graph sees them,
from a stage ``acc`` of shape (N, tiles, H, W, lanes); of volumes all of these have an axis of depth before H. Bytes of
data are taken as they are held, which is `UINT8_OFFSET` too high.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ... import tensor as te
from ...graph.ir import Call
from ...tensor import ir as tir
from ...tensor.view import View
from .byte_pairs import PairedWeights
from .kernels import Array, Operands, Tile
from .layouts import PAIR, QUAD, Layout

WORDS = "words"
"""The stage that holds the data as words."""

REST = "rest"
"""The stage that adds up products of weights that do not bear sums of pairs."""


Data = te.Tensor | View
"""Data as it lies in memory, or as a view of that shape."""


def float_sums(call: Call, operands: Operands, data: Data, layout: Layout, weights: Array, tile: Tile) -> View:
    """Products of float32."""
    block = layout.block
    out, channels, *kernel = weights.shape
    blocks = -(-channels // block)
    wide = whole_blocks(weights.astype(np.float32, copy=False), blocks * block)
    packed = wide.reshape(out // tile.lanes, tile.lanes, blocks, block, *kernel)
    w = operands.array(np.moveaxis(packed, (1, 3), (-1, -2)))
    kc, kb, window = te.reduce_axis(blocks, "kc"), te.reduce_axis(block, "kb"), window_axes(kernel)
    at, first = reader(call, layout), first_block(call, tile, blocks)

    def value(n: tir.Expr, o: tir.Expr, *rest: tir.Expr) -> te.Reduction:
        *places, lane = rest
        product = data[(n, first(o) + kc, *at(places, window), kb)] * w[(o, kc, *window, kb, lane)]
        return te.sum(product, [kc, *window, kb])

    return _accumulator(call, tile, value)


def whole_blocks(weights: Array, wanted: int) -> Array:
    """Weights (out, channels, *kernel) of as many channels as ``wanted``. Those that meet bytes which nobody uses are
    0. Floats repeat the last channel there (`unused`), which may be an infinity, and 0 times that is nan: so all of
    these share the weight of the last one. The parts are powers of two that add up to 1, so no bit is lost."""
    out, channels, *kernel = weights.shape
    if channels == wanted:
        return weights
    wide = np.zeros((out, wanted, *kernel), weights.dtype)
    wide[:, :channels] = weights
    if weights.dtype.kind not in "iu":
        sharing = wanted - channels + 1
        whole = 1 << (sharing - 1).bit_length()
        parts = np.where(np.arange(sharing) < whole - sharing, 2, 1).astype(np.float32) / np.float32(whole)
        last = weights[:, -1:].astype(np.float32) * parts.reshape(-1, *[1] * len(kernel))
        wide[:, channels - 1 :] = last.astype(weights.dtype)
    return wide


def packed_weights(weights: Array, layout: Layout, tile: Tile, together: int) -> Array:
    """Weights (out, channels, *kernel) as (out / lanes, blocks, *kernel, block / together, lanes, together): so many
    channels are multiplied by one step. The last block is filled up (`whole_blocks`)."""
    block = layout.block
    out, channels, *kernel = weights.shape
    blocks = -(-channels // block)
    wide = whole_blocks(weights, blocks * block)
    packed = wide.reshape(out // tile.lanes, tile.lanes, blocks, block // together, together, *kernel)
    return np.moveaxis(packed, (3, 1, 4), (-3, -2, -1))


def pair_sums(call: Call, operands: Operands, data: Data, layout: Layout, weights: Array, tile: Tile) -> View:
    """Products of bfloat16 by twos, added up in float32."""
    packed = packed_weights(weights, layout, tile, PAIR)
    _, blocks, *kernel, steps, _, _ = packed.shape
    w = operands.array(packed)
    kc, kb, window = te.reduce_axis(blocks, "kc"), te.reduce_axis(steps, "kb"), window_axes(kernel)
    q = te.reduce_axis(PAIR, "q")
    at, first = reader(call, layout), first_block(call, tile, blocks)

    def value(n: tir.Expr, o: tir.Expr, *rest: tir.Expr) -> te.Reduction:
        *places, lane = rest
        number = data[(n, first(o) + kc, *at(places, window), kb * PAIR + q)].astype("float32")
        return te.sum(number * w[(o, kc, *window, kb, lane, q)].astype("float32"), [kc, *window, kb, q])

    sums = _accumulator(call, tile, value)
    return View(sums.shape, "bfloat16", lambda index: sums[index].astype("bfloat16"))


def packed_bytes(weights: Array, layout: Layout, tile: Tile) -> Array:
    """Weights as `byte_sums` has them: (tiles, blocks, *kernel, fours of a block, lanes, 4)."""
    return packed_weights(weights.astype(np.int8, copy=False), layout, tile, QUAD)


def word_sums(
    call: Call, operands: Operands, data: Data, layout: Layout, weights: Array, tile: Tile, together: int
) -> View:
    """Products of bytes that are widened to words first: data by a stage `WORDS` if it is not words, weights as they
    are packed. By twos these lie side by side; by fours lanes do."""
    packed = packed_weights(weights.astype(np.int16), layout, tile, together)
    _, blocks, *kernel, steps, _, _ = packed.shape
    lanes_last = together == QUAD
    w = operands.array(packed.swapaxes(-1, -2) if lanes_last else packed)
    wide = data
    if data.dtype != "int16":
        wide = te.compute(data.shape, lambda *index: data[index].astype("int16"), WORDS)
    kc, kb, window = te.reduce_axis(blocks, "kc"), te.reduce_axis(steps, "kb"), window_axes(kernel)
    q = te.reduce_axis(together, "q")
    at, first = reader(call, layout), first_block(call, tile, blocks)

    def value(n: tir.Expr, o: tir.Expr, *rest: tir.Expr) -> te.Reduction:
        *places, lane = rest
        word = wide[(n, first(o) + kc, *at(places, window), kb * together + q)].astype("int32")
        weight = w[(o, kc, *window, kb, *((q, lane) if lanes_last else (lane, q)))].astype("int32")
        return te.sum(word * weight, [kc, *window, kb, q])

    return _accumulator(call, tile, value)


def byte_sums(
    call: Call, operands: Operands, data: Data, layout: Layout, weights: Array, tile: Tile,
    paired: PairedWeights | None = None,
) -> View:  # fmt: skip
    """Products of bytes. ``paired``: the packed weights in two parts, of which the second makes a stage `REST`."""
    packed = packed_bytes(weights, layout, tile) if paired is None else paired.most
    _, blocks, *kernel, steps, _, _ = packed.shape
    w = operands.array(packed)
    kc, kb, window = te.reduce_axis(blocks, "kc"), te.reduce_axis(steps, "kb"), window_axes(kernel)
    q = te.reduce_axis(QUAD, "q")
    at, first = reader(call, layout), first_block(call, tile, blocks)

    def value(n: tir.Expr, o: tir.Expr, *rest: tir.Expr) -> te.Reduction:
        *places, lane = rest
        byte = data[(n, first(o) + kc, *at(places, window), kb * QUAD + q)].astype("int32")
        return te.sum(byte * w[(o, kc, *window, kb, lane, q)].astype("int32"), [kc, *window, kb, q])

    sums = _accumulator(call, tile, value)
    if paired is not None and paired.rest.size:
        rest_w, at_step = operands.array(paired.rest), operands.array(paired.places)
        _, _, count, together, _ = paired.rest.shape
        j, p = te.reduce_axis(count, "j"), te.reduce_axis(QUAD, "p")

        def other(n: tir.Expr, o: tir.Expr, *rest: tir.Expr) -> te.Reduction:
            *places, lane = rest
            part, inner = lane // together, lane % together
            block, *taps, quad = (
                at_step[o, part, j, axis].astype("int64") if size > 1 else tir.Const(0)
                for axis, size in enumerate((blocks, *kernel, steps))
            )
            byte = data[(n, first(o) + block, *at(places, taps), quad * QUAD + p)].astype("int32")
            return te.sum(byte * rest_w[o, part, j, inner, p].astype("int32"), [j, p])

        others, known = _accumulator(call, tile, other, REST), sums
        sums = View(known.shape, known.dtype, lambda index: known[index] + others[index])
    return sums


def grouped_sums(call: Call, operands: Operands, data: Data, layout: Layout, weights: Array, tile: Tile) -> View:
    """Where a block holds several groups that each make as many channels as they take."""
    block, group = layout.block, weights.shape[1]
    out, _, *kernel = weights.shape
    window, at = window_axes(kernel), reader(call, layout)
    integer = data.dtype == "uint8"
    quad = QUAD if integer else 1
    split = weights.reshape(out // block, block, group // quad, quad, *kernel)
    packed = np.moveaxis(split, (2, 1, 3), (-3, -2, -1))
    w = operands.array(packed if integer else packed[..., 0])
    k, q = te.reduce_axis(group // quad, "k"), te.reduce_axis(quad, "q")

    def floats(n: tir.Expr, o: tir.Expr, *rest: tir.Expr) -> te.Reduction:
        *places, lane = rest
        value = data[(n, o, *at(places, window), lane // group * group + k)]
        return te.sum(value * w[(o, *window, k, lane)], [*window, k])

    def bytes_(n: tir.Expr, o: tir.Expr, *rest: tir.Expr) -> te.Reduction:
        *places, lane = rest
        byte = data[(n, o, *at(places, window), lane // group * group + k * QUAD + q)].astype("int32")
        return te.sum(byte * w[(o, *window, k, lane, q)].astype("int32"), [*window, k, q])

    return _accumulator(call, tile, bytes_ if integer else floats)


def window_axes(kernel: Sequence[int]) -> list[te.ReduceAxis]:
    """The loops over a window."""
    return [te.reduce_axis(size, name) for size, name in zip(kernel, ("kd", "kh", "kw")[-len(kernel) :], strict=True)]


def reader(call: Call, layout: Layout) -> Callable[[Sequence[tir.Expr], Sequence[tir.Expr]], list[tir.Expr]]:
    """The places in the data for those of the result and of the window."""
    strides: tuple[int, ...] = call.attr("strides")
    before, _ = layout.around(len(strides))
    left = [first - pad for first, pad in zip(before, call.attr("pads")[: len(strides)], strict=True)]

    def at(places: Sequence[tir.Expr], window: Sequence[tir.Expr]) -> list[tir.Expr]:
        axes = zip(places, window, strides, call.attr("dilations"), left, strict=True)
        return [place * stride + tap * dilation + first for place, tap, stride, dilation, first in axes]

    return at


def first_block(call: Call, tile: Tile, blocks: int) -> Callable[[tir.Expr], tir.Expr]:
    """The block of the data with which the group of a tile begins; a group takes ``blocks`` of them."""
    groups = call.attr("groups")
    tiles = call.shape[1] // groups // tile.lanes
    return lambda o: o // tiles * blocks if groups > 1 else tir.Const(0)


def _accumulator(call: Call, tile: Tile, value: Callable[..., te.Reduction], stage: str = "acc") -> View:
    """The stage that adds up, seen as the convolution's result."""
    batch, channels, *sizes = call.shape
    acc = te.compute((batch, -(-channels // tile.lanes), *sizes, tile.lanes), value, stage)

    def read(index: tuple[tir.Expr, ...]) -> tir.Expr:
        n, c, *places = index
        return acc[(n, c // tile.lanes, *places, c % tile.lanes)]

    return View(call.shape, acc.dtype, read)
