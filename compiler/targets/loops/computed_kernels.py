"""Convolutions whose kernel is computed while the model runs, as products of matrices, which run in register tiles.

Tiles for convolutions want kernels that are known, since they are laid out beforehand. In training none is: weights are
inputs, and the gradient of weights is a convolution with another gradient as its kernel. So what each window meets is
put side by side (`gather` at constant places), pixel by pixel with the channels last, and multiplied.
"""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from ...graph.dtypes import numpy_dtype
from ...graph.ir import Call, Constant, Expr, Span
from ...graph.registry import Anchor, call, operator_of

COLUMN_BYTES = 256 << 20
"""Of what all windows meet: where it is more, the convolution stays as it is."""


def as_product_of_columns(node: Call) -> Expr | None:
    """nn.conv2d or nn.conv3d(x, w) with computed w  ->  nn.matmul of what the windows meet and the kernels"""
    entry = operator_of(node)
    if entry is None or entry.anchor is not Anchor.CONVOLUTION or node.dtype != "float32":
        return None
    x, w = node.args
    kernel, places = w.shape[2:], node.shape[2:]
    batch, channels, *size = x.shape
    if isinstance(w, Constant) or node.attr("groups") != 1 or 0 in (*x.shape, *w.shape):
        return None
    depth = prod(kernel) * channels
    if batch * prod(places) * depth * numpy_dtype(node.dtype).itemsize > COLUMN_BYTES:
        return None
    span = Span(node.span.nodes)  # what is inside does not make the user's tensor
    pads = node.attr("pads")
    if any(pads):
        x = call("pad", x, pads=pads, span=span)
        size = list(x.shape[2:])
    last = _channels_last(x, span)
    met = _met(tuple(size), tuple(kernel), tuple(places), node.attr("strides"), node.attr("dilations"))
    pixels = call("reshape", last, shape=(batch, prod(size), channels), span=span)
    columns = call("gather", pixels, Constant(met), axis=1, span=span)
    rows = call("reshape", columns, shape=(batch * prod(places), depth), span=span)
    weights = call("reshape", _channels_last(w, span), shape=(w.shape[0], depth), span=span)
    values = call("nn.matmul", rows, call("transpose", weights, perm=(1, 0), span=span), span=span)
    image = call("reshape", values, shape=(batch, *places, w.shape[0]), span=span)
    rank = len(kernel)
    return call("transpose", image, perm=(0, rank + 1, *range(1, rank + 1)), span=node.span)


def _channels_last(x: Expr, span: Span) -> Expr:
    """(N, C, ...) as (N, ..., C)."""
    return call("transpose", x, perm=(0, *range(2, len(x.shape)), 1), span=span)


def _met(
    size: tuple[int, ...], kernel: tuple[int, ...], places: tuple[int, ...], strides: tuple[int, ...],
    dilations: tuple[int, ...],
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:  # fmt: skip
    """For each window the pixels that it meets, in row-major order: (windows, pixels of the kernel)."""
    flat = np.zeros((prod(places), prod(kernel)), np.int64)
    for axis, (count, step, dilation) in enumerate(zip(size, strides, dilations, strict=True)):
        starts = np.array([place[axis] for place in product(*map(range, places))]) * step
        offsets = np.array([place[axis] for place in product(*map(range, kernel))]) * dilation
        flat = flat * count + starts[:, np.newaxis] + offsets
    return flat
