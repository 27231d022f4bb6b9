"""Means of values of the core that the model does not quantise (a pooling behind an activation of quantisers that only
round what products read): the values are two digits of 8 bits, whose means the core finds.

A value with one end at most is ``256 * high + low``, in as small a part of its accumulator as 16 bits allow. One with
two ends is ``high + low``, in parts of the distance between these: one is for its upper half, the other for its lower.
The mean of the lower digits is rounded to 8 bits, and so the result to half of a part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..graph import Call, Constant, Expr, Role, Span, call, role_of
from ..integers.describer import Describer
from ..integers.form import INT32_SAFE, Affine, Float64, Int64, IntegerForm, Integers, Mapped, image_shape
from ..operators.numerics import quantise_multiplier
from .emit_integers import quantised
from .hand_over import bounds_of

_STEPS = 255
"""Of a digit, whose zero point is the least 8-bit value."""

_WIDE = 65535
"""Steps of two digits."""

_LEAST = -128


@dataclass(frozen=True, eq=False)
class _Digits:
    """A value as ``((high + 128) * weight + low + 128) * scale + offset``, channel by channel. ``low``: None where one
    digit is all."""

    high: Expr
    low: Expr | None
    weight: int
    scale: Float64
    offset: Float64


def mean_in_digits(node: Expr, describer: Describer) -> IntegerForm | None:
    """The mean ``node`` in integers, of a value that is known as sums; None for anything else."""
    if not isinstance(node, Call) or role_of(node) is not Role.MEAN or node.dtype != "float32":
        return None
    source = node.args[0]
    x = describer.described.get(id(source))
    if not isinstance(x, Affine) or x.host or x.shape != image_shape(x.shape) or not _keeps_channels(node):
        return None
    span = Span(node.span.nodes)
    digits = _of_two_ends(x, span) if _bounded(x) else _of_accumulator(x, span)
    if digits is None:
        return None

    def mean(digit: Expr, weight: int) -> IntegerForm:
        known = {id(source): Integers(digit, weight, _LEAST)}
        return replace(describer, described=known).describe(node)

    high = mean(digits.high, digits.weight)
    below = high.inner if isinstance(high, Mapped) else high
    if not isinstance(below, Affine):
        return None
    rounded: Expr | None = None
    if digits.low is not None:
        low = mean(digits.low, 1)
        found = quantised(low, 1.0, _LEAST, span) if isinstance(low, Affine | Mapped) else None
        if not isinstance(found, Expr):
            return None
        rounded = found
    total = _together(below, rounded, digits, x)
    return replace(high, inner=total) if total is not None and isinstance(high, Mapped) else total


def _keeps_channels(node: Call) -> bool:
    """Whether axes 0 and 1 of its operand are the result's: those of a window do."""
    rank = len(node.args[0].shape)
    axes = node.attrs.get("axes", (2, 3))
    return rank == 4 and isinstance(axes, tuple) and all(int(str(axis)) % rank > 1 for axis in axes)


def _bounded(x: Affine) -> bool:
    return x.low > -np.inf and x.high < np.inf


def _of_two_ends(x: Affine, span: Span) -> _Digits | None:
    step = (x.high - x.low) / (2 * _STEPS)
    if step <= 0:
        return None
    free, halves = replace(x, low=-np.inf, high=np.inf), []
    for start in (x.low + _STEPS * step, x.low):
        digit = quantised(replace(free, offset=x.offset - start), step, _LEAST, span)
        if not isinstance(digit, Expr):
            return None
        halves.append(digit)
    channels = np.ones(len(x.scale))
    return _Digits(halves[0], halves[1], 1, channels * step, channels * x.low)


def _of_accumulator(x: Affine, span: Span) -> _Digits | None:
    """Each digit is the requantise, by a power of two, of what the higher one leaves. Beyond an end they saturate."""
    found = _ends(x)
    if found is None:
        return None
    least, places = found
    start = x.correction - least
    if places < 0:
        return _Digits(_requantise(x.accumulator, start, 0, span), None, 1, x.scale, x.offset + least * x.scale)
    high_unit = 1 << 8 + places
    # A requantise rounds half up: the higher digit is rounded down, after the lower one's rounding.
    high = _requantise(x.accumulator, start + (1 << places >> 1) - high_unit // 2, 8 + places, span)
    rest = call("multiply_accumulate", x.accumulator, high, weight=-high_unit, span=span)
    low = _requantise(rest, start + _LEAST * high_unit, places, span)
    return _Digits(high, low, 256, x.scale * (1 << places), x.offset + least * x.scale)


def _ends(x: Affine) -> tuple[Int64, int] | None:
    """The accumulator with its correction at which digits begin, one a channel, and the lower digit's last place, so
    that all values are between, and an end of the values is one of the digits; -1 where one digit holds all. None where
    there is no such thing."""
    least, largest = bounds_of(x)
    if not x.scale.all():
        return None
    below, above = ((end - x.offset) / x.scale if np.isfinite(end) else None for end in (x.low, x.high))
    end = below if below is not None else above
    at_bottom = (x.scale > 0) == (below is not None)
    if end is not None:
        end = np.clip(np.rint(end), least, largest).astype(np.int64)
        least, largest = np.where(at_bottom, end, least), np.where(at_bottom, largest, end)
    places = -1 if np.all(largest - least <= _STEPS) else 0
    while places >= 0 and np.any(largest - least > _WIDE << places):
        places += 1
    if end is not None:
        least = np.where(at_bottom, least, largest - (_WIDE << places if places >= 0 else _STEPS))
    bound = x.peak + np.abs(least) + (1 << 18 + places)
    return (least, places) if np.all(bound < INT32_SAFE) else None


def _requantise(x: Expr, bias: Int64, places: int, span: Span) -> Call:
    multiplier, shift = quantise_multiplier(np.full(len(bias), 2.0**-places))
    parameters = (Constant(each.astype(np.int32)) for each in (bias, multiplier, shift))
    return call("requantise", x, *parameters, zero_point=_LEAST, span=span)


def _together(high: Affine, low: Expr | None, digits: _Digits, x: Affine) -> Affine | None:
    """The means of the digits, of which the lower one's is rounded, as one accumulator."""
    count = round(digits.weight / float(high.scale[0]))  # in which the higher one's counts
    peak = float(digits.weight * 256 + 256) * count
    if len(high.scale) != len(digits.scale) or peak >= INT32_SAFE:
        return None
    total, span = high.accumulator, high.accumulator.span
    correction = digits.weight * high.correction
    if digits.weight != 1:
        total = call("multiply_immediate", total, weight=digits.weight, span=span)
    if low is not None:
        low = low if low.shape == total.shape else call("reshape", low, shape=total.shape, span=span)
        total = call("multiply_accumulate", total, low, weight=count, span=span)
        correction = correction - _LEAST * count
    return Affine(
        total, correction, digits.scale / count, digits.offset,
        np.full(len(digits.scale), peak), high.shape, span=x.span.merged(high.span),
    )  # fmt: skip
