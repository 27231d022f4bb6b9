"""Products with weights of several scales in an output channel: those of 4 bits in blocks along the depth, and those
with a scale for each input channel.

Such weights are written as two numbers of 8 bits (`static_weights.two_digits`), and the product as two: that of the
coarse ones is the accumulator, to which that of the fine ones is added as 8-bit values. Those are rounded, to a part of
the result that stands in `_ROUNDING`; where the depth is large they are two digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..graph import Constant, Expr, Span, call
from .form import Affine, Integers
from .static_weights import Weights

_ROUNDING = 1 / 4
"""The most that rounding the fine part may cost, in steps of a result that covers 8 deviations of its values, of inputs
that deviate by 32 steps: the root of the weights' squares, in units of the coarse part, is such a step."""

_ONE = 23
"""Of a multiplier: bits of the number that stands for 1 with as many more of a shift."""

_MOST_PLACES = 23


def product_of_two(
    x: Integers, image: Expr, op: str, weights: tuple[Weights, Weights], attrs: Mapping[str, Any],
    shape: tuple[int, ...], span: Span,
) -> Affine | None:  # fmt: skip
    """The product ``op`` of ``image``, the integers of ``x``, with the sum of two weights, in units of the first; None
    where its sums are too large."""
    coarse, fine = weights
    inner, axes = Span(span.nodes), tuple(range(1, coarse.centred.ndim))
    reach = max(128 + x.zero_point, 127 - x.zero_point)
    total = call(op, image, _constant(coarse, ""), span=span, **attrs)
    rest = call(op, image, _constant(fine, ".fine"), span=inner, **attrs)
    correction = -x.zero_point * fine.centred.sum(axes, dtype=np.int64)
    largest = int(np.abs(fine.centred).sum(axes, dtype=np.int64).max()) * reach
    peak = np.abs(coarse.centred).sum(axes, dtype=np.int64) * float(reach)
    for places in _places(largest, coarse):
        if places > _MOST_PLACES:
            return None
        ones = np.full(len(correction), 1 << _ONE, np.int32), np.full(len(correction), _ONE + places, np.int32)
        digit = call("requantise", rest, *map(Constant, (correction.astype(np.int32), *ones)), span=inner)
        total = call("multiply_accumulate", total, digit, weight=1 << places - 8, span=span)
        rest = call("multiply_accumulate", rest, digit, weight=-(1 << places), span=inner)
        peak = peak + float(128 << places - 8)
    zero = -x.zero_point * coarse.centred.sum(axes, dtype=np.int64)
    return Affine(
        total, zero, x.scale * coarse.scale, np.zeros(len(zero)), peak, shape, span=span.merged(x.span)
    )  # fmt: skip


def _places(largest: int, coarse: Weights) -> list[int]:
    """How far each digit of the fine part's sum, up to ``largest``, stands to the left; the highest first. The coarse
    part's unit is 8 places to the left."""
    if not largest:
        return []
    places = [max(8, (largest // 127).bit_length())]
    squares = np.square(coarse.centred.astype(np.float64)).sum(tuple(range(1, coarse.centred.ndim)))
    step = float(np.sqrt(squares[squares > 0].min(initial=np.inf)))
    while places[-1] > 8 and 2.0 ** (places[-1] - 9) > _ROUNDING * step:
        places.append(max(places[-1] - 7, 8))
    return places


def _constant(w: Weights, suffix: str) -> Constant:
    return Constant(w.centred.astype(np.int8), f"{w.name}{suffix}" if w.name else "")
