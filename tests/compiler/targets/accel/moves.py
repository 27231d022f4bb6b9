"""Moves of data, of every kind, and layers of every kind that read what was moved, as quantisers write them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from weft.compiler.graph import Constant, Expr, call
from weft.hw.config import TINY

from .quantised_layers import layer, quantised

BLOCK = TINY.block_in

Draw = Callable[[int], int]
"""A number below another."""


def part(x: Expr, axis: int, first: int, count: int, step: int = 1) -> Expr:
    starts, sizes, steps = [0] * len(x.shape), list(x.shape), [1] * len(x.shape)
    starts[axis], sizes[axis], steps[axis] = first, count, step
    return call("slice", x, starts=tuple(starts), sizes=tuple(sizes), steps=tuple(steps))


def rolled(x: Expr, draw: Draw) -> Expr:
    axis = 2 + draw(2)
    size = x.shape[axis]
    shift = draw(size - 1) + 1 if size > 1 else 0
    return call("concat", part(x, axis, shift, size - shift), part(x, axis, 0, shift), axis=axis) if shift else x


def windows(x: Expr, draw: Draw) -> Expr:
    n, c, h, w = x.shape
    high, wide = (side // 2 if side % 2 == 0 and draw(2) else side for side in (h, w))
    split = call("reshape", x, shape=(n, c, h // high, high, w // wide, wide))
    turned = call("transpose", split, perm=(0, 2, 4, 1, 3, 5))
    return call("reshape", turned, shape=(n * (h // high) * (w // wide), c, high, wide))


def turned(x: Expr, draw: Draw) -> Expr:
    return call("transpose", x, perm=((0, 1, 3, 2), (2, 1, 0, 3), (3, 1, 2, 0))[draw(3)])


def heads_as_images(x: Expr, draw: Draw) -> Expr:
    n, c, h, w = x.shape
    heads = c // BLOCK if c % BLOCK == 0 else 1
    split = call("reshape", x, shape=(n, heads, c // heads, h, w))
    return call("reshape", call("transpose", split, perm=(1, 0, 2, 3, 4)), shape=(heads * n, c // heads, h, w))


def images_as_channels(x: Expr, draw: Draw) -> Expr:
    n, c, h, w = x.shape
    return call("reshape", x, shape=(1, n * c, h, w)) if c % BLOCK == 0 and n * c < 65 else x


def padded(x: Expr, draw: Draw) -> Expr:
    return call("pad", x, pads=(0, 0, draw(2), draw(3), 0, 0, draw(3), 1), value=0.5)


def every_other(x: Expr, draw: Draw) -> Expr:
    axis, first = 2 + draw(2), draw(2)
    return part(x, axis, first, (x.shape[axis] - first + 1) // 2, 2) if x.shape[axis] > 2 else x


def joined(x: Expr, draw: Draw) -> Expr:
    shape = list(x.shape)
    axis = (0, 2, 3)[draw(3)]
    shape[axis] = 1
    numbers = Constant(np.full(shape, draw(20), np.int8))
    same = call("dequantise", numbers, Constant(np.float32(0.05)), Constant(np.int8(-3)))
    return quantised(call("concat", x, *([same] if draw(2) else []), x, axis=axis))


STEPS = (rolled, windows, turned, heads_as_images, images_as_channels, padded, every_other, joined)


def convolved(x: Expr, draw: Draw) -> Expr:
    return layer(x, 1 + draw(2 * BLOCK), kernel=1 + 2 * draw(2), pads=1)


def by_channel(x: Expr, draw: Draw) -> Expr:
    return layer(x, x.shape[1], kernel=3, groups=x.shape[1], pads=1)


def grouped(x: Expr, draw: Draw) -> Expr:
    groups = 2 if x.shape[1] % 2 == 0 else 1
    return layer(x, 2 * groups * (1 + draw(BLOCK)), groups=groups)


def bent(x: Expr, draw: Draw) -> Expr:
    return quantised(call("nn.clip", x, low=0.0, high=1.0 + draw(3)), 0.04)


def added(x: Expr, draw: Draw) -> Expr:
    """To what a layer makes of it, or to itself in other places."""
    if draw(2):
        return quantised(call("nn.add", layer(x, x.shape[1]), x))
    other = rolled(x, draw)
    return quantised(call("nn.add", other, x))


def scaled(x: Expr, draw: Draw) -> Expr:
    """By a gate for each channel."""
    gate = layer(quantised(call("nn.average_pool", x, kernel=x.shape[2:])), x.shape[1])
    return quantised(call("nn.multiply", x, quantised(call("nn.clip", gate, low=0.0, high=1.0), 0.01)))


def largest(x: Expr, draw: Draw) -> Expr:
    return call("nn.max_pool", x, kernel=(2, 2), strides=(1 + draw(2),) * 2, pads=(1, 0, 0, 1))


def averaged(x: Expr, draw: Draw) -> Expr:
    return quantised(call("nn.average_pool", x, kernel=(1 + draw(x.shape[2]), 1 + draw(x.shape[3]))))


def mean(x: Expr, draw: Draw) -> Expr:
    return quantised(call("nn.reduce_mean", x, axes=(2, 3), keepdims=True), 0.04)


def beside(x: Expr, draw: Draw) -> Expr:
    parts = x, layer(x, BLOCK * (1 + draw(2)))
    return call("concat", *(parts if draw(2) else parts[::-1]), axis=1)


def flattened(x: Expr, draw: Draw) -> Expr:
    """A dense layer of all that an image has."""
    rows = call("reshape", x, shape=(x.shape[0], int(np.prod(x.shape[1:]))))
    numbers = np.random.default_rng(rows.shape[1]).integers(-99, 99, (2 * BLOCK, rows.shape[1])).astype(np.int8)
    weights = call("dequantise", Constant(numbers), Constant(np.float32(0.01)), Constant(np.int8(0)))
    made = quantised(call("nn.dense", rows, weights), 0.2)
    return call("reshape", made, shape=(*made.shape, 1, 1))


def multiplied(x: Expr, draw: Draw) -> Expr:
    """By its own transpose: a product of two computed tensors."""
    return quantised(call("nn.matmul", x, call("transpose", x, perm=(0, 1, 3, 2))), 0.2)


def attended(x: Expr, draw: Draw) -> Expr:
    """The products of attention, of heads, between which nothing but moves stands."""
    (n, _, h, w), heads, depth = x.shape, 1 + draw(2), BLOCK * (1 + draw(2)) - draw(2)

    def of_heads(y: Expr) -> Expr:
        return call("transpose", call("reshape", y, shape=(n, heads, depth, h * w)), perm=(0, 1, 3, 2))

    query, value = (of_heads(layer(x, heads * depth, kernel=size, pads=size // 2)) for size in (1, 3))
    key = of_heads(bent(layer(x, heads * depth), draw))
    scores = quantised(call("nn.matmul", query, call("transpose", key, perm=(0, 1, 3, 2))), 0.4)
    mixed = quantised(call("nn.matmul", scores, value), 0.8)
    return call("reshape", call("transpose", mixed, perm=(0, 1, 3, 2)), shape=(n, heads * depth, h, w))


def chained(x: Expr, draw: Draw) -> Expr:
    """Layers in a row, which may become a chain."""
    return convolved(by_channel(layer(x, 2 * BLOCK), draw), draw)


READERS = (
    convolved, by_channel, grouped, bent, added, scaled, largest, averaged, mean, beside, flattened,
    multiplied, attended, chained,
)  # fmt: skip
