"""Convolutions of bytes by Winograd's F(2, 3), in whole numbers: fewer products, and the same sums to the bit.

Two neighbours of a result that takes windows of three are six products, or four of sums of the data with sums of the
weights (A. Lavin and S. Gray, "Fast algorithms for convolutional neural networks", 2016). Along two axes they are 16 in
place of 36. The halves that the method has of weights are left out, so all numbers are whole: the result is 2 or 4
times as large, and shifted back. Data of 8 bits then has 10 and weights have 11, and both are words; sums wrap as all
do, and come out exactly where four times the largest sum has 32 bits (`bears`).

With windows dilated by d, the results that are d apart are neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ... import tensor as te
from ...graph.ir import Call
from ...tensor import ir as tir
from ...tensor.view import View
from .convolution_sums import Data, first_block, packed_weights, window_axes
from .kernels import Array, Operands, Tile
from .layouts import QUAD, Layout

WINDOW, MADE, TERMS = 3, 2, 4
"""Of an axis: taps of a window, results of a tile, and products that these take."""

DATA, COLUMNS, PRODUCTS, ROWS, SUMS = "transformed", "columns", "products", "rows", "acc"
"""The stages: data as it is multiplied, which is made by columns first; sums of products; results, made by rows
first. `COLUMNS` and `ROWS` are there along two axes alone."""

OF_WEIGHTS = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]], np.int32)
"""Twice what the method multiplies by data that is `_of_data`."""

BYTES_LIMIT, SUM_LIMIT = 255, 1 << 31


@dataclass(frozen=True)
class TiledAxis:
    """An axis of a result of ``size`` that is computed by twos. ``positions``: of tiles."""

    size: int
    dilation: int

    @property
    def positions(self) -> int:
        return -(-self.size // (MADE * self.dilation)) * self.dilation

    @property
    def whole(self) -> int:
        """Results of all tiles, of which the last ones may not be wanted."""
        return MADE * self.positions

    def first(self, position: tir.Expr) -> tir.Expr:
        """The first result of a tile."""
        return position // self.dilation * (MADE * self.dilation) + position % self.dilation

    def position(self, place: tir.Expr) -> tir.Expr:
        """The tile of a result."""
        return place // (MADE * self.dilation) * self.dilation + place % self.dilation

    def which(self, place: tir.Expr) -> tir.Expr:
        """Which of its tile's results it is."""
        return place % (MADE * self.dilation) // self.dilation


@dataclass(frozen=True)
class Winograd:
    """The last axes of a convolution that are computed by twos, one or two of them. ``rows``: positions of the first of
    them that make a block: its tiles are multiplied together."""

    axes: tuple[TiledAxis, ...]
    rows: int = 0

    @property
    def blocks(self) -> int:
        return self.axes[0].positions // self.rows

    @property
    def positions(self) -> int:
        """Of a block."""
        return self.rows * prod(axis.positions for axis in self.axes[1:])


def winograd_form(plan: Winograd) -> str:
    """What it is called, as in `Layer.form`."""
    count = len(plan.axes)
    return f"words in Winograd's form; {TERMS**count} products for {(MADE * WINDOW) ** count}"


def tiled_axes(call: Call, weights: Array) -> tuple[TiledAxis, ...]:
    """The axes of a convolution of bytes that can be computed so; none where no sums would be exact."""
    sizes, strides, dilations = call.shape[2:], call.attr("strides"), call.attr("dilations")
    found: tuple[TiledAxis, ...] = ()
    for size, kernel, stride, dilation in list(zip(sizes, weights.shape[2:], strides, dilations, strict=True))[:-3:-1]:
        if (kernel, stride) != (WINDOW, 1) or size < MADE * dilation:
            break
        found = (TiledAxis(size, dilation), *found)
    return found if bears(weights, len(found)) else ()


def bears(weights: Array, axes: int) -> bool:
    """Whether sums that are ``2 ** axes`` times as large have 32 bits, whatever the data is."""
    largest = int(np.abs(weights.astype(np.int64)).sum(tuple(range(1, weights.ndim))).max(initial=0))
    return largest * BYTES_LIMIT << axes < SUM_LIMIT


def transformed_weights(weights: Array, axes: int) -> Array:
    """Weights (O, C, *kernel), int8, as they are multiplied, int16: (O, C, *kernel) with `TERMS` along the last
    axes."""
    wide = weights.astype(np.int32)
    for axis in range(weights.ndim - axes, weights.ndim):
        wide = np.moveaxis(np.tensordot(OF_WEIGHTS, wide, (1, axis)), 0, axis)
    return wide.astype(np.int16)


def winograd_sums(
    call: Call, operands: Operands, data: Data, layout: Layout, weights: Array, tile: Tile, together: int,
    plan: Winograd,
) -> View:  # fmt: skip
    """The sums of a convolution as the graph sees them, from stages `DATA` to `SUMS`. ``together``: channels that are
    multiplied by one step."""
    count = len(plan.axes)
    packed = packed_weights(transformed_weights(weights, count), layout, tile, together)
    _, blocks, *kernel, steps, _, _ = packed.shape
    direct = len(kernel) - count
    packed = np.moveaxis(packed, range(2 + direct, 2 + len(kernel)), range(1, 1 + count))
    lanes_last = together == QUAD
    w = operands.array(packed.swapaxes(-1, -2) if lanes_last else packed)
    made = _data(call, data, layout, plan)
    kc, kb, window = te.reduce_axis(blocks, "kc"), te.reduce_axis(steps, "kb"), window_axes(kernel)[:direct]
    q = te.reduce_axis(together, "q")
    ahead = list(zip(call.attr("strides"), call.attr("dilations"), _left(call, layout), strict=True))[:direct]
    first = first_block(call, tile, blocks)
    batch, channels, *sizes = call.shape
    tiles, outer = -(-channels // tile.lanes), sizes[:direct]

    def product(n: tir.Expr, o: tir.Expr, *rest: tir.Expr) -> te.Reduction:
        places, (block, *terms, p, lane) = rest[:direct], rest[direct:]
        at = [place * stride + tap * dilation + left
              for place, tap, (stride, dilation, left) in zip(places, window, ahead, strict=True)]  # fmt: skip
        word = made[(n, *at, block, *terms, first(o) + kc, p, kb * together + q)].astype("int32")
        weight = w[(o, *terms, kc, *window, kb, *((q, lane) if lanes_last else (lane, q)))].astype("int32")
        return te.sum(word * weight, [kc, *window, kb, q])

    shape = (batch, tiles, *outer, plan.blocks, *(TERMS,) * count, plan.positions, tile.lanes)
    products = te.compute(shape, product, PRODUCTS)
    sums = _results(products, (batch, tiles, *outer), tile.lanes, plan)

    def read(index: tuple[tir.Expr, ...]) -> tir.Expr:
        n, c, *places = index
        return sums[(n, c // tile.lanes, *places, c % tile.lanes)]

    return View(call.shape, "int32", read)


def _left(call: Call, layout: Layout) -> list[int]:
    """Where the window of the first result begins in the data, along each axis."""
    count = len(call.attr("strides"))
    return [first - pad for first, pad in zip(layout.around(count)[0], call.attr("pads")[:count], strict=True)]


def _data(call: Call, data: Data, layout: Layout, plan: Winograd) -> te.Tensor:
    """The data as it is multiplied: (N, *axes before, blocks of positions, *terms, blocks of channels, positions, b).
    Along axes that are not computed by twos it has all that there is."""
    count = len(plan.axes)
    batch, channel_blocks, *sizes, lanes = data.shape
    outer = sizes[:-count]
    starts = _left(call, layout)[-count:]

    def place(number: int, position: tir.Expr, term: tir.Expr | int) -> tir.Expr:
        axis = plan.axes[number]
        index = axis.first(position) + term * axis.dilation + starts[number]
        return index if axis.whole == axis.size else te.minimum(index, sizes[number - count] - 1)

    columns = None
    if count > 1:

        def column(n: tir.Expr, cb: tir.Expr, *rest: tir.Expr) -> tir.Expr:
            before, (y, term, x, k, lane) = rest[:-5], rest[-5:]
            parts = [data[(n, cb, *before, place(0, y, tap), place(1, x, k), lane)].astype("int16")
                     for tap in range(TERMS)]  # fmt: skip
            return _of_data(term, parts)

        down, across = (axis.positions for axis in plan.axes)
        columns = te.compute((batch, channel_blocks, *outer, down, TERMS, across, TERMS, lanes), column, COLUMNS)

    def value(n: tir.Expr, *rest: tir.Expr) -> tir.Expr:
        before, (block, *terms, cb, p, lane) = rest[: len(outer)], rest[len(outer) :]
        if columns is None:
            position = block * plan.rows + p
            parts = [data[(n, cb, *before, place(0, position, tap), lane)].astype("int16") for tap in range(TERMS)]
        else:
            width = plan.axes[1].positions
            y, x = block * plan.rows + p // width, p % width
            parts = [columns[(n, cb, *before, y, terms[0], x, tap, lane)] for tap in range(TERMS)]
        return _of_data(terms[-1], parts)

    shape = (batch, *outer, plan.blocks, *(TERMS,) * count, channel_blocks, plan.positions, lanes)
    return te.compute(shape, value, DATA)


def _results(products: te.Tensor, before: Sequence[int], lanes: int, plan: Winograd) -> te.Tensor:
    """(*before, *whole axes, lanes): sums of products as sums of the convolution."""
    count = len(plan.axes)

    def at(outer: Sequence[tir.Expr], positions: Sequence[tir.Expr], terms: Sequence[tir.Expr | int],
           lane: tir.Expr) -> tir.Expr:  # fmt: skip
        first, *others = positions
        p = first % plan.rows
        for axis, position in zip(plan.axes[1:], others, strict=True):
            p = p * axis.positions + position
        return products[(*outer, first // plan.rows, *terms, p, lane)]

    rows = None
    if count > 1:

        def row(*index: tir.Expr) -> tir.Expr:
            outer, (y, term, x, which, lane) = index[:-5], index[-5:]
            return _of_products(which, [at(outer, (y, x), (term, each), lane) for each in range(TERMS)])

        down, across = (axis.positions for axis in plan.axes)
        rows = te.compute((*before, down, TERMS, across, MADE, lanes), row, ROWS)

    def value(*index: tir.Expr) -> tir.Expr:
        outer, places, lane = index[: -count - 1], index[-count - 1 : -1], index[-1]
        y, *_ = plan.axes
        if rows is None:
            parts = [at(outer, (y.position(places[0]),), (each,), lane) for each in range(TERMS)]
        else:
            x = plan.axes[1]
            parts = [
                rows[(*outer, y.position(places[0]), each, x.position(places[1]), x.which(places[1]), lane)]
                for each in range(TERMS)
            ]
        return _of_products(y.which(places[0]), parts) >> count

    return te.compute((*before, *(axis.whole for axis in plan.axes), lanes), value, SUMS)


def _of_data(term: tir.Expr, parts: Sequence[tir.Expr]) -> tir.Expr:
    """What is multiplied for a term of four neighbours."""
    a, b, c, d = parts
    return _chosen(term, (a - c, b + c, c - b, b - d))


def _of_products(which: tir.Expr, parts: Sequence[tir.Expr]) -> tir.Expr:
    """A result of a tile, of its four products."""
    a, b, c, d = parts
    return _chosen(which, (a + b + c, b - c - d))


def _chosen(number: tir.Expr, values: Sequence[tir.Expr]) -> tir.Expr:
    *others, value = values
    for place in reversed(range(len(others))):
        value = tir.select(number.eq(place), others[place], value)
    return value
