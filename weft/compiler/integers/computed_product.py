"""Products of two computed matrices, in the form that an array multiplies."""

from __future__ import annotations

import math

import numpy as np

from ..graph import Array, Constant, Expr, Span, call
from ..graph.dtypes import LARGEST_BYTE
from ..graph.host import HOST_STEP, host_call
from .form import Affine, Integers, Mapped

SUMS = 7 * HOST_STEP
"""Cycles of an array for which it is worth to spare the host the sums that zero points need: seven kernels. With all
of attention's zero points on the array, four layers of ViT take 30 % more cycles and are no faster on the host; blocks
of Swin and MobileViT take 2 and 8 % more, for a third of the host's steps."""

_SUMS_ON_HOST = "sums one operand of a product for the other's zero point"


def computed_product(a: Integers, b: Integers, block: int, span: Span) -> Mapped:
    """(..., M, K) times (..., K, N) as ``product``: images with K channels, of which ``block`` are taken at a time.

    Where zero points are not 0, the product has them, if that takes an array few cycles, or the host makes sums.
    """
    *lead, rows, depth = a.shape
    columns, images = b.shape[-1], math.prod(lead)
    inner = Span(span.nodes)
    waves = images * rows * -(-depth // block) * -(-columns // block)
    more = sum(-(-abs(zero) // 127) for zero in (a.zero_point, b.zero_point))  # times the channels, as bytes bring them
    make = _with_zero_points if waves * more <= SUMS else _with_sums
    accumulator, constant = make(a, b, block, span)
    result = Affine(
        accumulator, np.full(columns, constant, np.int64), np.full(columns, a.scale * b.scale), np.zeros(columns),
        np.full(columns, float(LARGEST_BYTE**2 * depth)), accumulator.shape, span=a.span.merged(b.span),
    )  # fmt: skip
    shape = (*lead, columns, rows)

    def apply(q: Expr) -> Expr:
        return _turned(call("reshape", q, shape=shape, span=inner), span)

    def move(array: Array) -> Array:
        return np.ascontiguousarray(array.reshape(shape).swapaxes(-1, -2))

    def undo(q: Expr) -> Expr:
        return call("reshape", _turned(q, inner), shape=result.shape, span=inner)

    return Mapped(result, apply, (*lead, rows, columns), move=move, undo=undo)


def _with_zero_points(a: Integers, b: Integers, block: int, span: Span) -> tuple[Expr, int]:
    """The product that has the zero points itself, and what is to be added.

    Channels beyond K hold the zero points, so that they add nothing. They are filled up before anything is moved, so
    that the moves meet those behind them.
    """
    rank, inner, columns = len(a.shape), Span(span.nodes), b.shape[-1]
    x = _filled(a.q, rank - 1, block, a.zero_point, inner)
    w = _filled(_filled(b.q, rank - 2, block, b.zero_point, inner), rank - 1, block, b.zero_point, inner)
    zero_points = (a.zero_point, b.zero_point)
    operands = _images(_turned(x, inner), inner), _images(w, inner)
    return call("product", *operands, depth=a.shape[-1], outputs=columns, zero_points=zero_points, span=span), 0


def _with_sums(a: Integers, b: Integers, block: int, span: Span) -> tuple[Expr, int]:
    """The product of the bytes as they are with the sums beside it, and what is to be added.

    The sum of ``(a - za) * (b - zb)`` is that of ``a * b``, a constant, and sums over one operand, times the other's
    zero point: these the host computes, and the accumulator takes them as digits of 8 bits, one number a column or row.
    """
    inner, columns, depth = Span(span.nodes), b.shape[-1], a.shape[-1]
    x, w = _images(_turned(a.q, inner), inner), _images(b.q, inner)
    filled_w = _filled(_filled(w, 2, block, 0, inner), 1, block, 0, inner)
    accumulator: Expr = call(
        "product", _filled(x, 1, block, 0, inner), filled_w, depth=depth, outputs=columns, span=span
    )
    images, _, rows, _ = x.shape
    lanes = min(block, columns)
    sums: tuple[tuple[Expr, int, tuple[int, ...]], ...] = (
        (w, a.zero_point, (images, columns, 1, 1)), (x, b.zero_point, (images, 1, rows, 1)),
    )  # fmt: skip
    for operand, other, shape in sums:
        if other:
            accumulator = call("add", accumulator, _scaled_sum(operand, -other, shape, lanes, inner), span=span)
    return accumulator, depth * a.zero_point * b.zero_point


def _turned(x: Expr, span: Span) -> Expr:
    """Matrices with rows for columns."""
    rank = len(x.shape)
    return call("transpose", x, perm=(*range(rank - 2), rank - 1, rank - 2), span=span)


def _images(x: Expr, span: Span) -> Expr:
    """Matrices (..., K, N) as images of K channels, (-1, K, N, 1)."""
    *lead, channels, pixels = x.shape
    return call("reshape", x, shape=(math.prod(lead), channels, pixels, 1), span=span)


def _scaled_sum(x: Expr, factor: int, shape: tuple[int, ...], lanes: int, span: Span) -> Expr:
    """The sums of an int8 image over its channels under another shape, times ``factor``; one number a pixel stands in
    ``lanes`` channels."""
    images = []
    for digit in _digits_of_sum(x, span):
        image: Expr = call("reshape", digit, shape=shape, span=span)
        if shape[1] < lanes:
            image = host_call("expand", (image,), {"shape": (shape[0], lanes, *shape[2:])}, _SUMS_ON_HOST, span)
        images.append(image)
    total = call("multiply_immediate", images[0], weight=factor, span=span)
    for place, image in enumerate(images[1:], 1):
        total = call("multiply_accumulate", total, image, weight=factor << 8 * place, span=span)
    return total


def _digits_of_sum(x: Expr, span: Span) -> list[Expr]:
    """The sums of an int8 image over its channels, (N, 1, H, W), as int8 digits of base 256, the lowest first."""

    def on_host(op: str, *args: Expr, **attrs: object) -> Expr:
        return host_call(op, args, attrs, _SUMS_ON_HOST, span)

    largest = 128 * x.shape[1]
    rest = on_host("nn.reduce_sum", on_host("nn.cast", x, to="int32"), axes=(1,), keepdims=True)
    digits = []
    while True:
        digits.append(on_host("nn.cast", rest, to="int8"))  # integers wrap
        if largest <= 127:
            return digits
        back = on_host("nn.cast", digits[-1], to="int32")
        rest = on_host("nn.divide", on_host("nn.subtract", rest, back), Constant(np.array(256, np.int32)))
        largest = largest // 256 + 1


def _filled(x: Expr, axis: int, block: int, value: int, span: Span) -> Expr:
    """``x`` with a value behind, up to a multiple of ``block`` along an axis."""
    missing = -x.shape[axis] % block
    if not missing:
        return x
    pads = [0] * (2 * len(x.shape))
    pads[len(x.shape) + axis] = missing
    reason = f"fills operands of a product up to {block} channels"
    return host_call("pad", (x,), {"pads": tuple(pads), "value": value}, reason, span)
