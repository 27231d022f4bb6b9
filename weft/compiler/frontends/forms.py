"""Graphs that every front end builds: products with weights, biases, moments, paddings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ..graph import Call, Constant, Expr
from ..graph.dtypes import FLOATS


class Site(Protocol):
    """An operator of a user's model, at whose place values are made."""

    def call(self, op: str, *args: Expr, **attrs: Any) -> Call:
        """An operator of weft; it carries the place."""

    def reshape(self, x: Expr, shape: Sequence[int]) -> Expr:
        """``x`` itself where it has that shape."""


def add_bias(site: Site, x: Expr, bias: Expr) -> Expr:
    """x + bias, one value a channel."""
    size = math.prod(bias.shape)
    return site.call("nn.add", x, site.reshape(bias, (1, size, *(1 for _ in x.shape[2:]))))


def integer_bias(site: Site, bias: Expr, scale: np.ndarray) -> Expr:
    """An int32 bias in units of ``scale`` (one, or one a channel), as real numbers."""
    flat = site.reshape(bias, (math.prod(bias.shape),))
    scales = scale.reshape(()) if scale.size == 1 else scale
    zeros = np.zeros(scales.shape, bias.dtype)
    axis = 0 if scales.ndim else 1
    return site.call("dequantise", flat, Constant(scales.astype(np.float32)), Constant(zeros), axis=axis)


def transposed(site: Site, w: Expr) -> Expr:
    """A matrix with its axes swapped; for weights the constant itself is transposed."""
    match w:
        case Constant():
            return Constant(w.value.T, w.name, w.span)
        case Call(op="dequantise", args=(Constant() as q, Constant() as scale, zero_point)) if scale.value.ndim < 2:
            axis = 1 - int(w.attr("axis")) if scale.value.ndim else 1
            return site.call("dequantise", Constant(q.value.T, q.name, q.span), scale, zero_point, axis=axis)
    return site.call("transpose", w, perm=(1, 0))


def _is_weight(value: Expr) -> bool:
    """A matrix that depends on constants alone, such as a float one behind a quantiser."""
    return value.static and len(value.shape) == 2 and value.dtype in FLOATS


def matrix_product(site: Site, a: Expr, b: Expr) -> Expr:
    """a (..., C) times b (..., C, O), as numpy.matmul: an operand of rank 1 is one row, or one column."""
    if len(a.shape) == 1:
        product = matrix_product(site, site.reshape(a, (1, *a.shape)), b)
        axis = len(product.shape) - min(len(b.shape), 2)
        return site.reshape(product, (*product.shape[:axis], *product.shape[axis + 1 :]))
    if len(b.shape) == 1:
        product = matrix_product(site, a, site.reshape(b, (*b.shape, 1)))
        return site.reshape(product, product.shape[:-1])
    if b.static and len(b.shape) > 2 and math.prod(b.shape[:-2]) == 1:  # one matrix for all
        product = matrix_product(site, a, site.reshape(b, b.shape[-2:]))
        return site.reshape(product, (1,) * (len(b.shape) - len(product.shape)) + product.shape)
    if not _is_weight(b):
        return site.call("nn.matmul", a, b)
    rows = a if len(a.shape) == 2 else site.reshape(a, (math.prod(a.shape[:-1]), a.shape[-1]))
    product = site.call("nn.dense", rows, transposed(site, b))
    return product if len(a.shape) == 2 else site.reshape(product, (*a.shape[:-1], b.shape[-1]))


def moments(site: Site, x: Expr, axes: tuple[int, ...], keepdims: bool) -> tuple[Expr, Expr]:
    """Mean and variance along axes."""
    mean = site.call("nn.reduce_mean", x, axes=axes, keepdims=True)
    centred = site.call("nn.subtract", x, mean)
    squares = site.call("nn.multiply", centred, centred)
    variance = site.call("nn.reduce_mean", squares, axes=axes, keepdims=keepdims)
    return mean if keepdims else site.reshape(mean, variance.shape), variance


def crop_or_pad(site: Site, x: Expr, before: list[int], after: list[int], value: float | str) -> Expr:
    """Elements added at each axis; a negative number takes away."""
    starts = [max(-count, 0) for count in before]
    sizes = [
        size - start - max(-count, 0) for size, start, count in zip(x.shape, starts, after, strict=True)
    ]  # fmt: skip
    if tuple(sizes) != x.shape:
        x = site.call("slice", x, starts=starts, sizes=sizes, steps=[1] * len(sizes))
    added = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
    if not any(map(any, added)):
        return x
    padded = [i for i, pair in enumerate(added) if any(pair)]
    first = min(padded[0], max(len(added) - 2, 0))  # rows and columns stay together
    shown = added[first:]
    return site.call("pad", x, pads=[b for b, _ in shown] + [a for _, a in shown], value=value)
