"""Requantises that round in another way than half up, where a quantise asks for that (`weft.roundings`)."""

from __future__ import annotations

import numpy as np

from ... import roundings
from ..graph import Array, Attrs, Call, Constant, Expr, Span, call
from ..graph.host import host_call
from ..graph.rounding import wide_multiplier
from ..integers.form import INT32_SAFE, Affine, Float64
from ..operators.numerics import quantise_multiplier

_WHOLE = 2.0**-20  # of a bias: it was written as real number, in float32
_NUDGES = (0, 1, -1, 2, -2, 3, -3, 4, -4)
_AROUND = np.arange(-1, 3)


def rounded_as_asked(
    x: Affine, scale: float, zero_point: int, limits: tuple[int, int], span: Span, rounding: str, wide: bool
) -> Expr | None:
    """``x`` divided by ``scale``, rounded as ``rounding`` says; None where that is half up, and where the bias is no
    whole number of the sum's unit, does not fit beside it, or the factor is too large. ``wide``: whether a multiplier
    may have 31 bits; what rounds away from 0 has no need of that rounding then."""
    bias = _whole_bias(x)
    if bias is None:
        return None
    op, attrs = "requantise", Attrs({"zero_point": zero_point, "low": limits[0], "high": limits[1]})
    factors: tuple[Array, ...]
    try:
        match rounding:
            case roundings.FLOAT32:
                op, factors = "requantise_float32", (x.scale.astype(np.float32) / np.float32(scale),)
            case roundings.TWO_ROUNDINGS:
                factors, attrs = _factor_of_two_roundings(x, scale), attrs.replace(rounding=rounding)
            case roundings.HALF_AWAY if wide:
                factors = _factor_away_from_0(x.scale / scale, (limits[0] - zero_point, limits[1] - zero_point))
            case roundings.HALF_AWAY | roundings.HALF_EVEN:
                factors, attrs = quantise_multiplier(x.scale / scale), attrs.replace(rounding=rounding)
            case _:
                return None
    except ValueError:
        return None
    operands = (x.accumulator, Constant(bias), *map(Constant, factors))
    return host_call(op, operands, attrs, x.host, span) if x.host else call(op, *operands, span=span, **attrs)


def _whole_bias(x: Affine) -> Array | None:
    with np.errstate(divide="ignore", invalid="ignore"):  # a scale of 0 has no whole bias
        exact = np.where(x.offset == 0, 0.0, x.offset / x.scale)
        whole = np.rint(exact)
        is_whole = np.abs(exact - whole) <= np.abs(whole) * _WHOLE
    if not np.all(is_whole & np.isfinite(x.scale)):
        return None
    bias = x.correction + whole
    return bias.astype(np.int32) if np.all(np.abs(bias) + x.peak < INT32_SAFE) else None


def _factor_of_two_roundings(x: Affine, scale: float) -> tuple[Array, Array]:
    """Multiplier and shift. LiteRT has the factor of a product of two tensors in float32, and that of a mean as the
    factor of the sum, divided by the count as a whole number."""
    match x.accumulator:
        case Call(op="multiply"):
            return wide_multiplier((x.scale.astype(np.float32) / np.float32(scale)).astype(np.float64))
        case Call(op="sum_pool") as pool:
            count = int(np.prod(pool.attr("kernel")))
            multiplier, shift = wide_multiplier(x.scale * count / scale)
            places = min(count.bit_length() - 1, int((62 - shift).min()))
            return ((multiplier.astype(np.int64) << places) // count).astype(np.int32), shift + np.int32(places)
        case _:
            return wide_multiplier(x.scale / scale)


def _factor_away_from_0(factor: Float64, reach: tuple[int, int]) -> tuple[Array, Array]:
    """Multiplier and shift that give, rounded half up, what the factor gives in float64, halves away from 0: for every
    sum whose result is within ``reach``. A multiplier that is larger by one in 2**31 moves halves away from 0 and
    hardly anything else, so one near the factor's is looked for."""
    multiplier, shift = wide_multiplier(factor)
    found = multiplier.copy()
    open_ones = np.ones(len(factor), bool)
    safe = np.where(factor == 0, 1.0, factor)
    steps = np.arange(reach[0], reach[1] + 1) + 0.5
    with np.errstate(over="ignore"):
        sums = np.floor(steps / safe[:, None])[..., None] + _AROUND
    sums = np.clip(sums, -(2.0**31), 2.0**31 - 1).astype(np.int64)
    exact = sums * factor[:, None, None]
    wanted = np.clip(np.trunc(exact + np.copysign(0.5, exact)), reach[0], reach[1])
    for nudge in _NUDGES:
        tried = np.clip(multiplier.astype(np.int64) + np.sign(multiplier) * nudge, -(2**31 - 1), 2**31 - 1)
        got = ((sums * tried[:, None, None] >> (shift[:, None, None].astype(np.int64) - 1)) + 1) >> 1
        right = open_ones & np.all(np.clip(got, *reach) == wanted, axis=(1, 2))
        found, open_ones = np.where(right, tried, found), open_ones & ~right
    return found.astype(np.int32), shift
