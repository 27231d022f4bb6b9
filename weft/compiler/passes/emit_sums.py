"""Sums of real values (`integer_form.Sum`) as one accumulator of the integer contract, for one requantise behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..graph import Call, Constant, Expr, Fusion, Span, call, operator_of
from ..integers.form import INT32_SAFE, SUM_SAFE, Affine, Float64, Integers, Refusal, Sum, channels_in, image_shape
from ..operators.numerics import INT9, MULTIPLIER_BITS, SHIFT_RANGE, quantise_multiplier

LARGEST_WEIGHT = 1 << 24
_MAX_RESIDUAL_SHIFT = 20
_NEGLIGIBLE = 1 / 8  # of the result's last digit: what rounded weights and biases may cost beside an accumulator
_WIDEST_DIGIT = 2.0  # of the result's: half of it, and half of the result's own, are less than one and a half


@dataclass(frozen=True, eq=False)
class Total:
    """``(accumulator + bias) * factor``, factor in digits of the result; ``bias``, (C,): whole numbers."""

    accumulator: Expr
    bias: Float64
    factor: float


@dataclass(frozen=True, eq=False)
class _Term:
    """``(accumulator + bias) * scale``, |accumulator + bias| at most ``peak``. ``rank``: what makes it the reference,
    whose producer can apply its weight."""

    accumulator: Expr
    bias: Float64
    scale: float
    peak: float
    rank: tuple[bool, ...] = (False,)


def total_of(x: Sum, scale: float, limits: tuple[float, float], span: Span) -> Total | Refusal:
    """The terms of ``x`` under one integer weight each; that of the reference is a power of two.

    ``scale``: of the result, whose values are used between ``limits``. The sum is as exact as its weights where the
    terms are 8-bit values and accumulators of one scale. Else the one accumulator, of a scale a channel, is rounded to
    9 bits of the range in which it matters, so that the result is off by 1 at most.
    """
    wide = [term for term in x.terms if isinstance(term, Affine)]
    narrow = [term for term in x.terms if isinstance(term, Integers)]
    if sum(_anchors(term.accumulator) for term in wide) > 1:
        return Refusal("two products are added that the model does not quantise; quantise one of them")
    shape = wide[0].accumulator.shape if wide else image_shape(x.shape)
    channels = channels_in(shape)
    offset = np.broadcast_to(x.offset, (channels,))
    others = [_of_integers(term, shape) for term in narrow]
    joined = [_of_accumulator(term) for term in wide]
    uniform = [term for term in joined if term is not None]
    if len(uniform) == len(joined):
        total = _weighted([*uniform, *others], offset, scale, span)
        if not wide or (isinstance(total, Total) and _cost(total, uniform, others) < _NEGLIGIBLE):
            return total
    if len(wide) != 1:
        return Refusal("the scales of the added products are too far apart for 32 bits")
    rounded = _in_nine_bits(wide[0], offset, narrow, scale, limits, span)
    return rounded if isinstance(rounded, Refusal) else _weighted([rounded, *others], offset * 0, scale, span)


def _anchors(accumulator: Expr) -> int:
    """How many products and poolings an accumulator is made of."""
    found, waiting, seen = 0, [accumulator], set[int]()
    while waiting:
        node = waiting.pop()
        entry = operator_of(node)
        if id(node) in seen or not isinstance(node, Call) or node.dtype != "int32" or entry is None:
            continue
        seen.add(id(node))
        found += entry.fusion is Fusion.ANCHOR
        waiting += node.args
    return found


def _of_integers(x: Integers, shape: tuple[int, ...]) -> _Term:
    match x.q:
        case Call(op="requantise", args=(Call(op="conv2d" | "conv3d"), *_)):
            made_by_convolution = True
        case _:
            made_by_convolution = False
    rank = (False, not isinstance(x.q, Constant), x.exclusive, made_by_convolution)
    q = x.q if x.q.shape == shape else call("reshape", x.q, shape=shape, span=Span(x.q.span.nodes))
    return _Term(q, np.full(channels_in(shape), -float(x.zero_point)), x.scale, 256.0, rank)


def _of_accumulator(x: Affine) -> _Term | None:
    """None where its channels have different scales."""
    first = float(x.scale[0])
    if first == 0 or np.any(x.scale != first):
        return None
    bias = x.correction + x.offset / first
    return _Term(x.accumulator, bias, first, float(np.max(x.peak + np.abs(x.offset / first))), (True,))


def _weighted(terms: Sequence[_Term], offset: Float64, scale: float, span: Span) -> Total | Refusal:
    base = _reference(terms)
    ratios = [term.scale / base.scale for term in terms]
    scales, peaks = [term.scale for term in terms], [term.peak for term in terms]
    rounded = not _are_whole(np.array(ratios) * 2**_MAX_RESIDUAL_SHIFT)
    whole = in_whole_parts(scales, peaks, offset, scale) if rounded else None
    if whole is not None:
        weights, bits = whole
        bias = np.rint(_bias(terms, weights, offset / scale * 2.0**bits))
        return Total(_accumulated(terms, weights, base, span), bias, 2.0**-bits)
    extent = sum(term.peak * abs(ratio) for term, ratio in zip(terms, ratios, strict=True))
    extent += float(np.max(np.abs(offset), initial=0)) / abs(base.scale)
    least = 0 if base.rank[0] else 1  # accumulators are fine enough as they are
    bits = _MAX_RESIDUAL_SHIFT
    while bits >= least and (extent * 2**bits >= SUM_SAFE or max(map(abs, ratios)) * 2**bits >= LARGEST_WEIGHT):
        bits -= 1
    if bits < least:
        return Refusal("the scales of the added tensors, or the added constant, are too far apart for 32 bits")
    weights = [round(ratio * 2**bits) for ratio in ratios]
    bias = np.rint(_bias(terms, weights, offset / base.scale * 2**bits))
    return Total(_accumulated(terms, weights, base, span), bias, base.scale / (scale * 2**bits))


def in_whole_parts(
    scales: Sequence[float], peaks: Sequence[float], offset: Float64, scale: float
) -> tuple[list[int], int] | None:
    """Weights of values of ``scales``, and bits: the sum of the weighted values and ``offset`` is whole in a part
    ``2**-bits`` of ``scale``, so that nothing but the result is rounded. None for other sums."""
    parts = np.array([*scales, *offset.reshape(-1)]) / scale
    bits = 0
    while bits < SHIFT_RANGE[1] - MULTIPLIER_BITS and not _are_whole(parts * 2.0**bits):
        bits += 1
    parts *= 2.0**bits
    weights, most = parts[: len(scales)], float(np.max(np.abs(parts[len(scales) :]), initial=0))
    largest = float(np.max(np.abs(weights)))
    fits = float(np.abs(weights) @ np.array(peaks)) + most < INT32_SAFE and largest < LARGEST_WEIGHT
    return ([int(weight) for weight in weights], bits) if fits and _are_whole(parts) else None


def _are_whole(values: Float64) -> bool:
    return bool(np.all(values == np.rint(values)))


def _bias(terms: Sequence[_Term], weights: Sequence[int], offset: Float64) -> Float64:
    return sum((weight * term.bias for term, weight in zip(terms, weights, strict=True)), offset)


def _accumulated(terms: Sequence[_Term], weights: Sequence[int], base: _Term, span: Span) -> Expr:
    """The sum of the terms by their weights. It begins with ``base``, whose producer can apply a power of two."""
    total = base.accumulator
    weight = next(weight for term, weight in zip(terms, weights, strict=True) if term is base)
    if weight != 1 or total.dtype == "int8":
        total = call("multiply_immediate", total, weight=weight, span=span)
    for term, weight in zip(terms, weights, strict=True):
        if term is base:
            continue
        if term.accumulator.dtype == "int8":
            total = call("multiply_accumulate", total, term.accumulator, weight=weight, span=span)
        else:
            other = call("multiply_immediate", term.accumulator, weight=weight, span=span)
            total = call("add", total, other, span=span)
    return total


def _cost(total: Total, wide: Sequence[_Term], others: Sequence[_Term]) -> float:
    """What rounding weights and biases can change, in digits of the result."""
    bases = [term.peak for term in [*wide, *others] if term is not _reference([*wide, *others])]
    return (sum(bases) + 1) / 2 * abs(total.factor)


def _reference(terms: Sequence[_Term]) -> _Term:
    """The term that sets the scale: an accumulator, or a value that only this sum uses and that a convolution makes (so
    that the addition joins its kernel), unless it is much finer than another one."""
    computed = [term for term in terms if not isinstance(term.accumulator, Constant)]
    best = max(computed, key=lambda term: term.rank)
    largest = max(computed, key=lambda term: abs(term.scale))
    return best if best.rank[0] or abs(best.scale) * 1024 >= abs(largest.scale) else largest


def _in_nine_bits(
    x: Affine, offset: Float64, others: Sequence[Integers], scale: float, limits: tuple[float, float], span: Span
) -> _Term | Refusal:
    """``x + offset``, clamped to where the sum with ``others`` can be within ``limits``."""
    low, high = limits
    for term in others:
        ends = sorted((end - term.zero_point) * term.scale for end in (-128, 127))
        low, high = low - ends[1], high - ends[0]
    low, high = min(low, 0.0), max(high, 0.0)
    step = (high - low) / (INT9[1] - INT9[0] - 1)
    if not 0 < step < _WIDEST_DIGIT * scale:
        return Refusal("a product with a scale a channel is added to much larger values; quantise it")
    zero = min(max(round(INT9[0] - low / step), INT9[0]), INT9[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        bias = np.where(x.offset + offset == 0, 0.0, (x.offset + offset) / x.scale)
    coarse = np.any((bias != np.rint(bias)) & (np.abs(x.scale) > 2 * _NEGLIGIBLE * step))
    bias = np.rint(bias) + x.correction
    if coarse or not np.all(np.abs(bias) + x.peak < INT32_SAFE):
        return Refusal("the offset of an added product does not fit its accumulator")
    try:
        multiplier, shift = quantise_multiplier(x.scale / step)
    except ValueError as error:
        return Refusal(str(error))
    parameters = (Constant(each.astype(np.int32)) for each in (bias, multiplier, shift))
    attrs = {"zero_point": zero, "low": INT9[0], "high": INT9[1], "out": "int32"}
    narrow = call("requantise", x.accumulator, *parameters, span=x.span, **attrs)
    return _Term(narrow, np.full(len(x.scale), -float(zero)), step, float(INT9[1] - INT9[0]) + 1, (True,))
