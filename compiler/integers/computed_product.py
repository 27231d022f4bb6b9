"""Products of two computed matrices, in the form that an array multiplies."""

from __future__ import annotations

import math

import numpy as np

from ..graph import Array, Expr, Span, call
from ..graph.dtypes import LARGEST_BYTE
from ..graph.host import host_call
from .form import Affine, Integers, Mapped


def computed_product(a: Integers, b: Integers, block: int, span: Span) -> Mapped:
    """(..., M, K) times (..., K, N) as ``product``: images with K channels, of which ``block`` are taken at a time.

    Channels beyond K hold the zero points, so that they add nothing. They are filled up before anything is moved, so
    that the moves meet those behind them.
    """
    *lead, rows, depth = a.shape
    columns, images = b.shape[-1], math.prod(lead)
    rank, inner = len(a.shape), Span(span.nodes)
    turn = (*range(rank - 2), rank - 1, rank - 2)
    rows_of_a = _filled(a.q, rank - 1, block, a.zero_point, inner)
    columns_of_b = _filled(_filled(b.q, rank - 2, block, b.zero_point, inner), rank - 1, block, b.zero_point, inner)
    filled, wide = rows_of_a.shape[-1], columns_of_b.shape[-1]
    turned = call("transpose", rows_of_a, perm=turn, span=inner)
    x = call("reshape", turned, shape=(images, filled, rows, 1), span=inner)
    w = call("reshape", columns_of_b, shape=(images, filled, wide, 1), span=inner)
    zero_points = (a.zero_point, b.zero_point)
    accumulator = call("product", x, w, depth=depth, outputs=columns, zero_points=zero_points, span=span)
    result = Affine(
        accumulator, np.zeros(columns, np.int64), np.full(columns, a.scale * b.scale), np.zeros(columns),
        np.full(columns, float(LARGEST_BYTE**2 * depth)), accumulator.shape, span=a.span.merged(b.span),
    )  # fmt: skip
    shape = (*lead, columns, rows)

    def apply(q: Expr) -> Expr:
        return call("transpose", call("reshape", q, shape=shape, span=inner), perm=turn, span=span)

    def move(array: Array) -> Array:
        return np.ascontiguousarray(array.reshape(shape).transpose(turn))

    def undo(q: Expr) -> Expr:
        return call("reshape", call("transpose", q, perm=turn, span=inner), shape=result.shape, span=inner)

    return Mapped(result, apply, (*lead, rows, columns), move=move, undo=undo)


def _filled(x: Expr, axis: int, block: int, value: int, span: Span) -> Expr:
    """``x`` with a value behind, up to a multiple of ``block`` along an axis."""
    missing = -x.shape[axis] % block
    if not missing:
        return x
    pads = [0] * (2 * len(x.shape))
    pads[len(x.shape) + axis] = missing
    reason = f"fills operands of a product up to {block} channels"
    return host_call("pad", (x,), {"pads": tuple(pads), "value": value}, reason, span)
