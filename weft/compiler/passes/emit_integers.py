"""From the description of a real value (`integer_form`) to operators of the integer contract that quantise it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ...roundings import HALF_UP
from ..graph import Anchor, Array, Call, Constant, Expr, Family, Span, call, operator_of
from ..graph.host import host_call
from ..graph.visit import respan
from ..integers.form import (
    INT32_SAFE,
    SUM_SAFE,
    Affine,
    Concatenated,
    Float64,
    Integers,
    Mapped,
    Real,
    Refusal,
    Sum,
    as_affine,
    concatenated,
)
from ..operators.numerics import quantise_multiplier
from .emit_roundings import rounded_as_asked
from .emit_sums import in_whole_parts, total_of

_FINE_BIAS = 2.0**-14  # a bias is rounded to at most this part of the result's last digit, where 32 bits hold that
_NEGLIGIBLE = 1 / 4096  # a channel that contributes less than this part of a digit is a constant


def quantised(
    x: Real, scale: float, zero_point: int, span: Span, rounding: str = HALF_UP, wide: bool = True
) -> Expr | Refusal:
    """``round(x / scale) + zero_point``, saturated to int8, in integer operators; or why that is not possible.

    ``span`` stands for the quantise node; the result carries it and the nodes behind ``x``. ``rounding``: how sums are
    rounded that only a factor stands behind. ``wide``: whether multipliers may have 31 bits for that.
    """
    span = Span(x.span.merged(span).nodes, span.tensor)
    match x:
        case Integers():
            if (x.scale, x.zero_point) == (scale, zero_point):
                return _named(x.q, span)
            return _quantised_affine(as_affine(x), scale, zero_point, span)
        case Affine():
            return _quantised_affine(x, scale, zero_point, span, rounding, wide)
        case Sum():
            return _quantised_sum(x, scale, zero_point, span)
        case Mapped():
            inner = quantised(x.inner, scale, zero_point, Span(span.nodes), rounding, wide)
            if isinstance(inner, Refusal):
                return inner
            moved = x.apply(inner)
            if isinstance(moved, Call) and moved.op == "reshape" and moved.args == (inner,):
                moved = x.apply(respan(inner, Span(inner.span.nodes, span.tensor)))  # the same elements
            return _named(moved, span)
        case Concatenated():
            parts: list[Expr] = []
            for part in x.parts:
                emitted = quantised(part, scale, zero_point, Span((), part.span.tensor), rounding, wide)
                if isinstance(emitted, Refusal):
                    return emitted
                parts.append(emitted)
            return concatenated(parts, x.axis, x.shape, span)


def _named(q: Expr, span: Span) -> Expr:
    """A move or a pooling as the producer of the quantise node's tensor, whose integers it has."""
    entry = operator_of(q)
    if entry is not None and (entry.family is Family.MOVE or entry.anchor is Anchor.POOL):
        return respan(q, Span(q.span.merged(span).nodes, span.tensor))
    return q


def limits_of(low: float, high: float, scale: float, zero_point: int) -> tuple[int, int]:
    """The clamp of an int8 result: its range, tightened by a clip in real numbers."""
    ends = []
    for value in (low, high):
        digit = value / scale if math.isfinite(value) else math.copysign(1e9, value)
        rounded = int(np.rint(np.float32(digit))) + zero_point
        ends.append(min(max(rounded, -128), 127))
    return ends[0], ends[1]


def _requantise(
    x: Expr, bias: Array, factor: Float64, zero_point: int, limits: tuple[int, int], span: Span, host: str = ""
) -> Expr | Refusal:
    """``host``: why it is on the host, where the accumulator is."""
    try:
        multiplier, shift = quantise_multiplier(factor)
    except ValueError as error:
        return Refusal(str(error))
    args = (x, Constant(bias.astype(np.int32)), Constant(multiplier), Constant(shift))
    attrs = {"zero_point": zero_point, "low": limits[0], "high": limits[1]}
    return host_call("requantise", args, attrs, host, span) if host else call("requantise", *args, span=span, **attrs)


def requantised_within(x: Affine, scale: float, limits: tuple[int, int], span: Span) -> Expr | Refusal:
    """``round(x / scale)`` as int32 within limits of 9 bits, in the accumulator's shape; or why that cannot be."""
    if x.host:
        return Refusal(x.host)
    prepared = _prepared(x, scale)
    if isinstance(prepared, Refusal):
        return prepared
    x, bias = prepared
    low, high = (min(max(round(end / scale) if math.isfinite(end) else math.copysign(1e9, end), limits[0]), limits[1])
                 for end in (x.low, x.high))  # fmt: skip
    try:
        multiplier, shift = quantise_multiplier(x.scale / scale)
    except ValueError as error:
        return Refusal(str(error))
    args = (x.accumulator, Constant(bias.astype(np.int32)), Constant(multiplier), Constant(shift))
    return call("requantise", *args, low=int(low), high=int(high), out="int32", span=span)


def _quantised_affine(
    x: Affine, scale: float, zero_point: int, span: Span, rounding: str = HALF_UP, wide: bool = True
) -> Expr | Refusal:
    limits = limits_of(x.low, x.high, scale, zero_point)
    asked = rounded_as_asked(x, scale, zero_point, limits, span, rounding, wide)
    result = asked or _rounded_once(x, scale, zero_point, limits, span)
    if isinstance(result, Refusal) or result.shape == x.shape:
        return result
    return call("reshape", result, shape=x.shape, span=span)


def _rounded_once(x: Affine, scale: float, zero_point: int, limits: tuple[int, int], span: Span) -> Expr | Refusal:
    prepared = _prepared(x, scale)
    if isinstance(prepared, Refusal):
        return prepared
    x, bias = prepared
    return _requantise(x.accumulator, bias, x.scale / scale, zero_point, limits, span, x.host)


def _prepared(x: Affine, scale: float) -> tuple[Affine, Array] | Refusal:
    """``x`` as it can be requantised to ``scale``, and the bias beside its accumulator."""
    x = _with_constant_channels(x, scale)
    x = _with_whole_bias(x, scale)
    x = _with_fine_bias(x, scale)
    with np.errstate(divide="ignore", invalid="ignore"):
        bias = x.correction + np.rint(np.where(x.offset == 0, 0.0, x.offset / x.scale))
    if not np.all(np.abs(bias) + x.peak < INT32_SAFE):
        channel = int(np.argmax(~(np.abs(bias) + x.peak < INT32_SAFE)))
        return Refusal(f"the bias of channel {channel} does not fit 32 bits beside the accumulator")
    return x, bias


def _with_constant_channels(x: Affine, scale: float) -> Affine:
    """Channels whose input makes no difference (their scale vanishes) become constants: their offset is kept, and
    weights are 0 where a convolution has some."""
    with np.errstate(divide="ignore", invalid="ignore"):
        bias = np.abs(np.where(x.offset == 0, 0.0, x.offset / x.scale))
    fits = np.abs(x.correction) + bias + x.peak < INT32_SAFE
    dead = ~fits & (x.peak * np.abs(x.scale) < _NEGLIGIBLE * scale)
    if not dead.any():
        return x
    match x.accumulator:
        case Call(op="conv2d" | "conv3d" as op, args=(source, Constant() as w)) as conv:
            weights = np.where(dead.reshape(-1, *(1,) * (w.value.ndim - 1)), 0, w.value).astype(np.int8)
            accumulator = call(op, source, Constant(weights, w.name, w.span), span=conv.span, **conv.attrs)
            step, most = np.full(len(x.scale), scale / (1 << 12)), 1024 * scale
            x = replace(x, accumulator=accumulator, peak=np.where(dead, 0.0, x.peak))
        case _:  # so small a factor that the accumulator, which stays as it is, still makes no difference
            most = 512 * scale  # more is saturated anyway
            step = np.maximum(np.minimum(np.abs(x.offset), most), scale) / SUM_SAFE
            dead &= 2 * x.peak * step < scale / 8
    return replace(
        x, correction=np.where(dead, 0, x.correction), scale=np.where(dead, step, x.scale),
        offset=np.where(dead, np.clip(x.offset, -most, most), x.offset),
    )  # fmt: skip


def _with_whole_bias(x: Affine, scale: float) -> Affine:
    """Multiply the accumulator by a weight for which the bias is whole, where one is (`in_whole_parts`)."""
    first = float(x.scale[0]) if x.scale.size else 0.0
    if not first or np.any(x.scale != first) or np.array_equal(x.offset / first, np.rint(x.offset / first)):
        return x
    found = in_whole_parts([first], [float(np.max(x.peak + np.abs(x.correction)))], x.offset, scale)
    if found is None:
        return x
    (weight,), bits = found
    return replace(
        x, accumulator=_times(x, weight), correction=x.correction * weight, peak=x.peak * abs(weight),
        scale=np.full(len(x.scale), scale * 2.0**-bits),
    )  # fmt: skip


def _times(x: Affine, weight: int) -> Expr:
    span, attrs = x.accumulator.span, {"weight": weight}
    if x.host:
        return host_call("multiply_immediate", (x.accumulator,), attrs, x.host, span)
    return call("multiply_immediate", x.accumulator, span=span, **attrs)


def _with_fine_bias(x: Affine, scale: float) -> Affine:
    """Multiply the accumulator by a power of two where rounding the bias to its unit would be too coarse."""
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = np.where(x.offset == 0, 0.0, x.offset / x.scale)
        error = np.abs(exact - np.rint(exact)) * np.abs(x.scale) / scale
    error = np.where(np.isfinite(error), error, 0.0)
    if not np.any(error > _FINE_BIAS):
        return x
    wanted = math.ceil(math.log2(float(np.max(np.abs(x.scale))) / scale / _FINE_BIAS))
    extent = float(np.max(x.peak + np.abs(exact) + np.abs(x.correction)))
    bits = min(wanted, math.floor(math.log2(SUM_SAFE / extent))) if math.isfinite(extent) else 0
    if bits < 1:
        return x
    factor, wide = float(1 << bits), _times(x, 1 << bits)
    return replace(x, accumulator=wide, correction=x.correction << bits, scale=x.scale / factor, peak=x.peak * factor)


def _quantised_sum(x: Sum, scale: float, zero_point: int, span: Span) -> Expr | Refusal:
    low, high = limits_of(x.low, x.high, scale, zero_point)
    used = ((low - zero_point - 0.5) * scale, (high - zero_point + 0.5) * scale)
    total = total_of(x, scale, used, span)
    if isinstance(total, Refusal):
        return total
    made = total.accumulator
    inner = span if made.shape == x.shape else Span(span.nodes)
    factor = np.full(len(total.bias), total.factor)
    result = _requantise(made, total.bias, factor, zero_point, (low, high), inner)
    if isinstance(result, Refusal) or result.shape == x.shape:
        return result
    return call("reshape", result, shape=x.shape, span=span)
