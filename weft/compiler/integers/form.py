"""What a floating-point value of the source model is in integers: the algebra that `legalise` works with.

Every value between a dequantise and a quantise is described by one of the classes here, or by a `Refusal` that says
why it has to be computed in floating point on the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..graph import UNKNOWN, Array, Call, Constant, Expr, Family, Span, call
from ..graph.host import host_call
from ..graph.registry import operator

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]


INT32_SAFE = float(1 << 31) - 1
"""The largest magnitude that a sum may come to, its bias included. Additions of 32 bits wrap, so whatever the partial
sums are, the total is right if it is within int32; peaks bound totals."""

SUM_SAFE = 1 << 30
"""Up to here what is still to be rounded is scaled: each of its weights and biases may come out larger by a half."""


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
    ``peak`` (C,): bound of |accumulator + correction|. ``shape``: of the value. ``host``: why the
    accumulator is computed on the host; empty where it is not.
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
    host: str = ""

    @property
    def clamped(self) -> bool:
        return self.low > -math.inf or self.high < math.inf


@dataclass(frozen=True, eq=False)
class Sum:
    """clamp(sum of terms + offset, low, high), all of one shape. The scale of a term may be negative. Terms that are
    `Affine` are not clamped and not on the host."""

    terms: tuple[Integers | Affine, ...]
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
    """An operator that commutes with quantisation (max_pool, moves), applied to ``inner``. ``move``: what it does to an
    array of any element type, where each element of the result is one of the operand. ``undo``: back from an int8 value
    of ``shape`` to one of the operand's, where every element of the operand is one of the result."""

    inner: Real
    apply: Callable[[Expr], Expr]
    shape: tuple[int, ...]
    span: Span = UNKNOWN
    move: Callable[[Array], Array] | None = None
    undo: Callable[[Expr], Expr] | None = None


@dataclass(frozen=True, eq=False)
class Concatenated:
    """``parts`` one after another along ``axis``."""

    parts: tuple[Real, ...]
    axis: int
    shape: tuple[int, ...]
    span: Span = UNKNOWN


Real = Integers | Affine | Sum | Mapped | Concatenated
IntegerForm = Real | Refusal


def channels_in(shape: tuple[int, ...]) -> int:
    """How many channels a tensor has: the size of axis 1; of a row its own size."""
    return shape[1] if len(shape) > 1 else math.prod(shape)


def image_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape (N, C) or (N, C, H, W) of the same elements in the same order, with the same `channels_in`."""
    match len(shape):
        case 2 | 4:
            return shape
        case 0 | 1:
            return (1, channels_in(shape))
        case 3:
            return (*shape[:2], 1, shape[2])
    return (*shape[:2], math.prod(shape[2:-1]), shape[-1])


def as_image(q: Expr) -> Expr:
    """An int8 value under its `image_shape`."""
    shape = image_shape(q.shape)
    return q if shape == q.shape else call("reshape", q, shape=shape, span=Span(q.span.nodes))


def concatenated(parts: list[Expr], axis: int, shape: tuple[int, ...], span: Span) -> Expr:
    """int8 values one after another; channels as those of images."""
    if axis != 1 or len(shape) == 4:
        return call("concat", *parts, axis=axis, span=span)
    images = [call("reshape", part, shape=_four(part.shape), span=Span(part.span.nodes)) for part in parts]
    return call("reshape", call("concat", *images, axis=1, span=Span(span.nodes)), shape=shape, span=span)


def _four(shape: tuple[int, ...]) -> tuple[int, ...]:
    return image_shape(shape) if len(shape) > 2 else (*shape, 1, 1)


def as_affine(x: Integers) -> Affine:
    """An int8 value as its own accumulator."""
    channels = channels_in(x.shape)
    ones = np.ones(channels)
    return Affine(
        as_image(x.q),
        np.full(channels, -x.zero_point, np.int64),
        ones * x.scale,
        ones * 0.0,
        ones * 256.0,
        x.shape,
        span=x.span,
    )


def with_span(x: Real, span: Span) -> Real:
    """``x`` with the user's nodes of ``span`` in front of its own."""
    return replace(x, span=span.merged(x.span))


def channels_of(x: Real) -> int:
    """How many channels the value has below all moves: factors and offsets are one a channel of these."""
    while isinstance(x, Mapped):
        x = x.inner
    return channels_in(x.shape)


def uniform(x: Real, value: float) -> Float64:
    """One number for every channel of ``x``, as `scaled` and `shifted` take them."""
    return np.full(channels_of(x), value)


def per_channel(x: Real, value: Array) -> Float64 | None:
    """A constant operand of ``x``, that broadcasts to its shape, as one number a channel (C,); None where it is not."""
    channels = channels_of(x)
    if value.size == 1:
        return uniform(x, float(value.reshape(())))
    if isinstance(x, Mapped):
        numbers = _channel_numbers(x)
        if numbers is None:
            return None
        spread = np.broadcast_to(value, x.shape).astype(np.float64)
        result = np.full(channels, float(value.reshape(-1)[0]))
        result[numbers.reshape(-1)] = spread.reshape(-1)
        return result if np.array_equal(result[numbers], spread) else None
    aligned = (1,) * (len(x.shape) - value.ndim) + value.shape
    place = min(len(aligned) - 1, 1)
    if any(size != 1 for axis, size in enumerate(aligned) if axis != place) or aligned[place] != channels:
        return None
    return value.reshape(-1).astype(np.float64)


def _channel_numbers(x: Mapped) -> Array | None:
    """For each element of the value the channel that it comes from; None behind anything but moves."""
    moves = []
    inner: Real = x
    while isinstance(inner, Mapped):
        if inner.move is None:
            return None
        moves.append(inner.move)
        inner = inner.inner
    numbers = np.arange(channels_in(inner.shape)).reshape(_channel_axis(inner.shape))
    result = np.ascontiguousarray(np.broadcast_to(numbers, inner.shape))
    for move in reversed(moves):
        result = move(result)
    return result


def _channel_axis(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of one number a channel beside a tensor of ``shape``."""
    place = min(len(shape) - 1, 1)
    return tuple(-1 if axis == place else 1 for axis in range(len(shape)))


def scaled(x: Real, factor: Array, described_as: str) -> IntegerForm:
    """x * factor, where factor is one a channel, (C,), of `channels_of`."""
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
            terms = tuple(term_times(term, first) for term in x.terms)
            return replace(x, terms=terms, offset=x.offset * first, low=limits[0], high=limits[1])
        case Mapped():
            if x.move is None and (not uniform or first <= 0):
                return Refusal(f"{described_as} scales by other than one positive factor behind a pooling")
            inner = scaled(x.inner, factor, described_as)
            return inner if isinstance(inner, Refusal) else replace(x, inner=inner)
    return Refusal(f"{described_as} works on a concatenation that is not quantised")


def term_times(term: Integers | Affine, factor: float) -> Integers | Affine:
    """A term of a sum times a number, which may be negative."""
    if isinstance(term, Affine):
        return replace(term, scale=term.scale * factor, offset=term.offset * factor)
    return replace(term, scale=term.scale * factor)


def shifted(x: Real, offset: Array, described_as: str) -> IntegerForm:
    """x + offset, where offset is one a channel, (C,), of `channels_of`."""
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
            if x.move is None and not uniform:
                return Refusal(f"{described_as} shifts channels differently behind a pooling")
            inner = shifted(x.inner, offset, described_as)
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


def moved(x: Real, node: Call) -> Real:
    """The move ``node``, whose other operands are constants, of x. The host does those that the integer contract does
    not know."""
    op, others, attrs = str(node.op), node.args[1:], dict(node.attrs)
    entry = operator(op)

    def apply(q: Expr) -> Expr:
        if entry.family is Family.MOVE:
            return call(op, q, *others, span=node.span, **attrs)
        reason = f"{op} {node.span.node!r} moves data, which the accelerator does not do"
        return host_call(op, (q, *others), attrs, reason, node.span)

    if isinstance(x, Integers):
        return replace(x, q=apply(x.q), exclusive=False)

    def move(array: Array) -> Array:
        values = [other.value for other in others if isinstance(other, Constant)]
        return np.asarray(entry.numpy(array, *values, **attrs))

    return Mapped(x, apply, node.shape, move=move, undo=_back(x.shape, node))


def _back(shape: tuple[int, ...], node: Call) -> Callable[[Expr], Expr] | None:
    """From the result of the move ``node`` to its operand, of ``shape``; None where elements are lost or repeated."""
    match node.op:
        case "reshape":
            return lambda q: call("reshape", q, shape=shape, span=Span(node.span.nodes))
        case "transpose":
            perm = tuple(int(place) for place in np.argsort(node.attr("perm")))
            return lambda q: call("transpose", q, perm=perm, span=Span(node.span.nodes))
    return None


def with_channels_at(x: Integers, axis: int) -> Mapped:
    """``x`` as a move of a value that has the channels, which are its ``axis``, at axis 1."""
    rank = len(x.shape)
    if axis == rank - 1:
        flat = (math.prod(x.shape[:-1]), x.shape[-1])
        inner = call("reshape", x.q, shape=flat, span=Span(x.q.span.nodes))
        back = call("reshape", inner, shape=x.shape, span=x.span)
    else:
        rest = [other for other in range(rank) if other != axis]
        perm = (rest[0], axis, *rest[1:])
        inner = call("transpose", x.q, perm=perm, span=Span(x.q.span.nodes))
        back = call("transpose", inner, perm=tuple(int(place) for place in np.argsort(perm)), span=x.span)
    mapped = moved(as_affine(replace(x, q=inner, exclusive=False)), back)
    if not isinstance(mapped, Mapped):
        raise TypeError("a move of what is no int8 value is a Mapped")
    return mapped


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
