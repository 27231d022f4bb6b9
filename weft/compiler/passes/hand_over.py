"""Sums of products of the core whose real values the host needs, exactly.

The core stores 8-bit values. So a sum of 32 bits leaves it as digits of base 256, each from -128 to 127, the highest
first: every lower one is the requantise, by a power of two, of what the higher ones leave. How many there are follows
from the largest sum that the weights allow.
"""

from __future__ import annotations

import math

import numpy as np

from ..graph import Array, Call, Constant, Expr, Family, Span, call, operator_of
from ..graph.host import host_call
from ..graph.registry import Anchor
from ..integers.form import Affine, Int64, IntegerForm, Mapped
from ..operators.numerics import quantise_multiplier

_MOST_DIGITS = 4


def handed_over(x: IntegerForm, name: str, span: Span) -> Expr | None:
    """The real value of a product, ``name`` and ``span`` its node's, computed on the core and put together on the host;
    None for what is no product on the core, or is clamped."""
    moves = []
    while isinstance(x, Mapped):
        moves.append(x.apply)
        x = x.inner
    if not isinstance(x, Affine) or x.host or x.clamped:
        return None
    digits = _digits(x, span) if _is_product(x.accumulator) or is_of_picture(x.accumulator) else None
    if digits is None:
        return None
    if not _is_product(x.accumulator) and len(digits) * _size(x.accumulator) >= _size(x.accumulator.children[0]):
        return None  # the host reads less where it makes the sums itself
    for place, digit in enumerate(digits):
        if digit.shape != x.shape:
            digit = call("reshape", digit, shape=x.shape, span=Span(span.nodes))
        for move in reversed(moves):
            digit = move(digit)
        digits[place] = digit
    scale, offset = (_beside(value, x) for value in (x.scale, x.offset))
    if moves and scale.ndim + offset.ndim:
        return None  # one a channel of what is below the moves
    return _together(digits, scale, offset, f"puts the sums of {name} together, which go on as float32", span)


def is_of_picture(node: Expr) -> bool:
    """Whether a value is a pooling of one that lies as the core reads it."""
    entry = operator_of(node)
    if entry is None or entry.anchor is not Anchor.POOL:
        return False
    below = operator_of(node.children[0])
    return below is None or below.family not in (Family.MOVE, Family.INDEX)


def _size(node: Expr) -> int:
    return math.prod(node.shape)


def _is_product(node: Expr) -> bool:
    """Whether an accumulator is, below sums with other things, a convolution or a product."""
    match node:
        case Call(op="add" | "multiply_accumulate"):
            return _is_product(node.args[0])
    entry = operator_of(node)
    return entry is not None and entry.anchor in (Anchor.CONVOLUTION, Anchor.PRODUCT) and node.dtype == "int32"


def _beside(values: Array, x: Affine) -> Array:
    """One value a channel, or one for all that are equal, as they broadcast with ``x``."""
    if np.all(values == values[0]):
        return np.asarray(values[0])
    place = min(len(x.shape) - 1, 1)
    return values.reshape([-1 if axis == place else 1 for axis in range(len(x.shape))])


def bounds_of(x: Affine) -> tuple[Int64, Int64]:
    """The least and the largest ``accumulator + correction``, channel by channel."""
    match x.accumulator:
        case Call(op="conv2d", args=(_, Constant() as w)) as node:
            zero, inner = int(node.attr("pad_value")), tuple(range(1, w.value.ndim))
            total = w.value.sum(inner, dtype=np.int64)
            if np.all(x.correction == -zero * total):
                positive = np.maximum(w.value, 0).sum(inner, dtype=np.int64)
                negative = total - positive
                low, high = -128 - zero, 127 - zero
                return positive * low + negative * high, positive * high + negative * low
        case Call(op="sum_pool") as node:
            count = math.prod(node.attr("kernel"))
            return x.correction - 128 * count, x.correction + 127 * count
    peak = np.ceil(x.peak).astype(np.int64)
    return -peak, peak


def _digits(x: Affine, span: Span) -> list[Expr] | None:
    """``accumulator + correction`` as int8 digits, the highest first, each in the accumulator's shape."""
    least, largest = bounds_of(x)
    low, high = int(min(least)), int(max(largest))
    count = 1
    while not _lowest(count) <= low <= high <= _lowest(count) + 256**count - 1:
        count += 1
    if count > _MOST_DIGITS:
        return None
    channels, rest = len(x.correction), x.accumulator
    digits: list[Expr] = []
    for place in reversed(range(count)):
        multiplier, shift = quantise_multiplier(np.full(channels, 256.0**-place))
        # A requantise rounds half up; a digit rounds by what is half of all lower digits' range.
        bias = x.correction + (-_lowest(place - 1) if place else 0)
        parameters = (Constant(each.astype(np.int32)) for each in (bias, multiplier, shift))
        digit = call("requantise", rest, *parameters, span=Span(span.nodes, span.tensor if place == count - 1 else ""))
        digits.append(digit)
        if place:
            rest = call("multiply_accumulate", rest, digit, weight=-(256**place), span=Span(span.nodes))
    return digits


def _lowest(count: int) -> int:
    """The least number of so many digits."""
    return -128 * sum(1 << 8 * place for place in range(count))


def _together(digits: list[Expr], scale: Array, offset: Array, reason: str, span: Span) -> Expr:
    inner = Span(span.nodes)

    def on_host(op: str, *args: Expr, at: Span = inner, **attrs: object) -> Expr:
        return host_call(op, args, attrs, reason, at)

    first, *others = [on_host("nn.cast", digit, to="int32") for digit in digits]
    total = first
    for digit in others:
        total = on_host("nn.add", on_host("nn.multiply", total, Constant(np.array(256, np.int32))), digit)
    real = on_host("nn.cast", total, to="float32")
    if not offset.any():
        return on_host("nn.multiply", real, Constant(scale.astype(np.float32)), at=span)
    real = on_host("nn.multiply", real, Constant(scale.astype(np.float32)))
    return on_host("nn.add", real, Constant(offset.astype(np.float32)), at=span)
