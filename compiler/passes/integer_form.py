"""What a floating-point value of the source model is in integers: the algebra that `legalise` works with.

Every value between a dequantise and a quantise is described by one of the classes here, or by a `Refusal` that says
why it has to be computed in floating point on the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graph import UNKNOWN, Array, Expr, Span, call

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class Refusal:
    """Why a value cannot be described in integers."""

    reason: str


@dataclass(frozen=True)
class Integers:
    """(q - zero_point) * scale, q an int8 value of the graph. ``exclusive``: nothing else uses q."""

    q: Expr
    scale: float
    zero_point: int
    exclusive: bool = False
    span: Span = UNKNOWN

    @property
    def shape(self) -> tuple[int, ...]:
        return self.q.shape


@dataclass(frozen=True, eq=False)
class Affine:
    """clamp((accumulator + correction) * scale + offset, low, high), channel by channel.

    ``accumulator``: int32 or int8, (N, C, ...); ``correction`` exact integers (C,); ``scale`` and ``offset`` real (C,);
    ``peak`` (C,): bound of |accumulator + correction|. ``shape``: of the value, (N, C, H, W) or (N, C).
    """

    accumulator: Expr
    correction: Int64
    scale: Float64
    offset: Float64
    peak: Float64
    shape: tuple[int, ...]
    low: float = -math.inf
    high: float = math.inf
    span: Span = UNKNOWN

    @property
    def clamped(self) -> bool:
        return self.low > -math.inf or self.high < math.inf


@dataclass(frozen=True, eq=False)
class Sum:
    """clamp(sum of terms + offset, low, high), all of one shape. The scale of a term may be negative."""

    terms: tuple[Integers, ...]
    offset: Float64
    low: float = -math.inf
    high: float = math.inf
    span: Span = UNKNOWN

    @property
    def shape(self) -> tuple[int, ...]:
        return self.terms[0].shape

    @property
    def clamped(self) -> bool:
        return self.low > -math.inf or self.high < math.inf


@dataclass(frozen=True, eq=False)
class Mapped:
    """An operator that commutes with quantisation (max_pool, moves), applied to ``inner``."""

    inner: Real
    apply: Callable[[Expr], Expr]
    shape: tuple[int, ...]
    span: Span = UNKNOWN


@dataclass(frozen=True, eq=False)
class Concatenated:
    """``parts`` one after another along ``axis``."""

    parts: tuple[Real, ...]
    axis: int
    shape: tuple[int, ...]
    span: Span = UNKNOWN


Real = Integers | Affine | Sum | Mapped | Concatenated
IntegerForm = Real | Refusal


def as_affine(x: Integers) -> Affine:
    """An int8 value as its own accumulator."""
    channels = x.shape[1]
    ones = np.ones(channels)
    return Affine(
        x.q, np.full(channels, -x.zero_point, np.int64), ones * x.scale, ones * 0.0, ones * 256.0, x.shape, span=x.span
    )


def with_span(x: Real, span: Span) -> Real:
    """``x`` with the user's nodes of ``span`` in front of its own."""
    return replace(x, span=span.merged(x.span))


def scaled(x: Real, factor: Array, described_as: str) -> IntegerForm:
    """x * factor, where factor is one number or one a channel, (C,)."""
    uniform = bool(np.all(factor == factor[0]))
    first = float(factor[0])
    match x:
        case Integers():
            if uniform and first > 0:
                return replace(x, scale=x.scale * first)
            return scaled(as_affine(x), factor, described_as)
        case Affine():
            limits = _scaled_limits(x.low, x.high, factor)
            if limits is None:
                return Refusal(f"{described_as} scales channels differently after a clip")
            return replace(x, scale=x.scale * factor, offset=x.offset * factor, low=limits[0], high=limits[1])
        case Sum():
            limits = _scaled_limits(x.low, x.high, factor)
            if not uniform or first == 0 or limits is None:
                return Refusal(f"{described_as} scales the channels of a sum differently")
            terms = tuple(replace(term, scale=term.scale * first) for term in x.terms)
            return replace(x, terms=terms, offset=x.offset * first, low=limits[0], high=limits[1])
        case Mapped():
            if not uniform or first <= 0:
                return Refusal(f"{described_as} scales by other than one positive factor behind a pooling or a move")
            inner = scaled(x.inner, np.full(x.inner.shape[1], first), described_as)
            return inner if isinstance(inner, Refusal) else replace(x, inner=inner)
    return Refusal(f"{described_as} works on a concatenation that is not quantised")


def shifted(x: Real, offset: Array, described_as: str) -> IntegerForm:
    """x + offset, where offset is one a channel, (C,)."""
    uniform = bool(np.all(offset == offset[0]))
    match x:
        case Integers():
            return shifted(as_affine(x), offset, described_as)
        case Affine() | Sum():
            if x.clamped and not uniform:
                return Refusal(f"{described_as} shifts channels differently after a clip")
            low, high = x.low + float(offset[0]), x.high + float(offset[0])
            return replace(x, offset=x.offset + offset, low=low, high=high) if x.clamped else replace(
                x, offset=x.offset + offset
            )  # fmt: skip
        case Mapped():
            if not uniform:
                return Refusal(f"{described_as} shifts channels differently behind a pooling or a move")
            inner = shifted(x.inner, np.full(x.inner.shape[1], offset[0]), described_as)
            return inner if isinstance(inner, Refusal) else replace(x, inner=inner)
    return Refusal(f"{described_as} works on a concatenation that is not quantised")


def clipped(x: Real, low: float, high: float) -> Real:
    """clamp(x, low, high)."""
    match x:
        case Integers():
            return clipped(as_affine(x), low, high)
        case Affine() | Sum():
            return replace(x, low=_between(x.low, low, high), high=_between(x.high, low, high))
        case Mapped():
            return replace(x, inner=clipped(x.inner, low, high))
        case Concatenated():
            return replace(x, parts=tuple(clipped(part, low, high) for part in x.parts))


def moved(x: Real, op: str, attrs: dict[str, Any], shape: tuple[int, ...], span: Span) -> IntegerForm:
    """A reshape or a transpose of x."""

    def apply(q: Expr) -> Expr:
        return call(op, q, span=span, **attrs)

    if isinstance(x, Integers):
        return replace(x, q=apply(x.q), exclusive=False)
    return Mapped(x, apply, shape)


def _between(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def _scaled_limits(low: float, high: float, factor: Array) -> tuple[float, float] | None:
    """The limits after a multiplication, when they are the same for every channel."""
    pairs = np.array([_ordered(low, high, float(value)) for value in np.unique(factor)])
    return (float(pairs[0, 0]), float(pairs[0, 1])) if np.all(pairs == pairs[0]) else None


def _ordered(low: float, high: float, factor: float) -> tuple[float, float]:
    if factor == 0:
        return (-math.inf, math.inf) if (low, high) == (-math.inf, math.inf) else (0.0, 0.0)
    ends = (low * factor, high * factor)
    return min(ends), max(ends)
