"""Products of two computed matrices, in the form that an array multiplies."""

from __future__ import annotations

import math

import numpy as np

from ..graph import Array, Constant, Expr, Span, call
from .host import host_call
from .integer_form import Affine, Integers, Mapped

_LARGEST_BYTE = 255


def computed_product(a: Integers, b: Integers, block: int, span: Span) -> Mapped:
    """(..., M, K) times (..., K, N) as ``product``: images with K channels, of which ``block`` are taken at a time.

    Zero points take channels of their own: the sum of ``(a - za) * (b - zb)`` is that of ``a * b``, of ``a * -zb`` and
    of ``-za * b``, and a constant. What is beside the operands, and zeros up to whole blocks, the host puts there.
    """
    *lead, rows, depth = a.shape
    columns, images = b.shape[-1], math.prod(lead)
    rank, inner = len(a.shape), Span(span.nodes)
    turn = (*range(rank - 2), rank - 1, rank - 2)
    x: Expr = call("reshape", call("transpose", a.q, perm=turn, span=inner), shape=(images, depth, rows, 1), span=inner)
    w = _filled(call("reshape", b.q, shape=(images, depth, columns, 1), span=inner), 2, block, inner)
    left: list[Expr] = [x]
    right: list[Expr] = [w]
    for piece in _pieces(-b.zero_point):
        left.append(x)
        right.append(_constant(w, piece))
    for piece in _pieces(-a.zero_point):
        left.append(_constant(x, piece))
        right.append(w)
    x, w = (_filled(_beside(parts, inner), 1, block, inner) for parts in (left, right))
    accumulator = call("product", x, w, depth=depth, outputs=columns, span=span)
    result = Affine(
        accumulator, np.full(columns, depth * a.zero_point * b.zero_point, np.int64),
        np.full(columns, a.scale * b.scale), np.zeros(columns), np.full(columns, float(_LARGEST_BYTE**2 * depth)),
        accumulator.shape, span=a.span.merged(b.span),
    )  # fmt: skip
    shape = (*lead, columns, rows)

    def apply(q: Expr) -> Expr:
        return call("transpose", call("reshape", q, shape=shape, span=inner), perm=turn, span=span)

    def move(array: Array) -> Array:
        return np.ascontiguousarray(array.reshape(shape).transpose(turn))

    return Mapped(result, apply, (*lead, rows, columns), move=move)


def _pieces(value: int) -> tuple[int, ...]:
    """A number as a sum of int8 ones: none for 0."""
    if value == 0:
        return ()
    return (value,) if value <= 127 else (value // 2, value - value // 2)


def _constant(like: Expr, value: int) -> Constant:
    return Constant(np.full(like.shape, value, np.int8))


def _beside(parts: list[Expr], span: Span) -> Expr:
    if len(parts) == 1:
        return parts[0]
    reason = "puts the zero points of a product beside its operands"
    return host_call("concat", tuple(parts), {"axis": 1}, reason, span)


def _filled(x: Expr, axis: int, block: int, span: Span) -> Expr:
    """``x`` with zeros behind, up to a multiple of ``block`` along an axis."""
    missing = -x.shape[axis] % block
    if not missing:
        return x
    pads = [0] * (2 * len(x.shape))
    pads[len(x.shape) + axis] = missing
    reason = f"fills operands of a product up to {block} channels"
    return host_call("pad", (x,), {"pads": tuple(pads), "value": 0}, reason, span)
