"""Arithmetic in integers: factors and offsets, sums and products of two values, clamps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..graph import Call, Constant, Expr, Role, Span, call, role_of
from ..graph.evaluate import static_value
from ..graph.host import host_call
from .describer import NO_INTEGER_FORM, Describer, of_operand
from .form import (
    Affine,
    IntegerForm,
    Integers,
    Mapped,
    Real,
    Refusal,
    Sum,
    as_affine,
    as_image,
    channels_in,
    clipped,
    per_channel,
    scaled,
    shifted,
    term_times,
    uniform,
    with_channels_at,
)
from .moves import constant_integers
from .windows import nudged_from_zero


def linear(describer: Describer, node: Call, name: str) -> IntegerForm:
    """An operator of a role in `LINEAR`, of computed values or of one and a constant."""
    role = role_of(node)
    a, b = node.args
    if a.static and role is not Role.DIVIDE:
        x = describer.described[id(b)]
        if isinstance(x, Refusal):
            return x
        if role is not Role.SUBTRACT:
            return _whole_multiple(describer, x, a, node) or _with_constant(x, role, a, node, name)
        opposite = _with_constant(x, Role.SUBTRACT, a, node, name)
        return opposite if isinstance(opposite, Refusal) else negated(opposite, name)
    x = describer.described[id(a)]
    if b.static:
        if isinstance(x, Refusal):
            return x
        return _whole_multiple(describer, x, b, node) or _with_constant(x, role, b, node, name)
    if role is Role.DIVIDE:
        return Refusal(f"{name} divides by a computed tensor")
    y = describer.described[id(b)]
    if isinstance(x, Refusal) or isinstance(y, Refusal):
        return x if isinstance(x, Refusal) else y
    if role is Role.MULTIPLY and isinstance(x, Integers) and isinstance(y, Integers):
        gated = _gated(x, y, node) or _gated(y, x, node)
        if gated is not None:
            return gated
    if role is Role.ADD and isinstance(x, Affine) and isinstance(y, Affine):
        nudged = nudged_from_zero(x, y) or nudged_from_zero(y, x)
        if nudged is not None:
            return nudged
    return _arithmetic(_expanded(x, node), _expanded(y, node), node, role, name)


def at_least(describer: Describer, node: Call, name: str) -> IntegerForm:
    """The larger of a value and one number."""
    return _bounded(describer, node, name, lambda x, bound: clipped(x, bound, math.inf))


def at_most(describer: Describer, node: Call, name: str) -> IntegerForm:
    """The smaller of a value and one number."""
    return _bounded(describer, node, name, lambda x, bound: clipped(x, -math.inf, bound))


def _bounded(describer: Describer, node: Call, name: str, clip: Callable[[Real, float], Real]) -> IntegerForm:
    """A clip with one end."""
    constants = [arg for arg in node.args if arg.static]
    computed = [arg for arg in node.args if not arg.static]
    if len(constants) != 1 or math.prod(constants[0].shape) != 1:
        return Refusal(f"{name} {NO_INTEGER_FORM}")
    x, bound = describer.described[id(computed[0])], float(static_value(constants[0]).reshape(()))
    if isinstance(x, Refusal) or math.isnan(bound) or computed[0].shape != node.shape:
        return x if isinstance(x, Refusal) else Refusal(f"{name} {NO_INTEGER_FORM}")
    return clip(x, bound)


@of_operand
def clamped(x: Real, node: Call, name: str) -> IntegerForm:
    """Within the attributes ``low`` and ``high``."""
    return clipped(x, node.attr("low"), node.attr("high"))


@of_operand
def opposite(x: Real, node: Call, name: str) -> IntegerForm:
    """The negative value."""
    return negated(x, name)


def negated(x: Real, name: str) -> IntegerForm:
    return scaled(x, uniform(x, -1.0), name)


def _expanded(x: Real, node: Call) -> Real:
    """An operand of ``node`` as often as its broadcasting repeats it."""
    if x.shape == node.shape or not isinstance(x, Integers):
        return x
    reason = f"{str(node.op).removeprefix('nn.')} {node.span.node!r} repeats a computed tensor along an axis"
    q = host_call("expand", (x.q,), {"shape": node.shape}, reason, Span(node.span.nodes))
    return replace(x, q=q, exclusive=False)


def _gated(x: Integers, gate: Integers, node: Call) -> Affine | None:
    """``x`` times one number a channel, (N, C, 1, 1): the gates of squeeze and excite. None for other shapes."""
    wanted = (*x.shape[:2], *(1 for _ in x.shape[2:]))
    if len(x.shape) < 3 or x.shape != node.shape or gate.shape != wanted or gate.shape == x.shape:
        return None
    return _elementwise_product(x, gate, node)


def _arithmetic(x: Real, y: Real, node: Call, role: Role | None, name: str) -> IntegerForm:
    """A sum, a difference or a product of two values."""
    if x.shape != y.shape:
        return Refusal(f"{name} broadcasts a computed tensor that is not quantised")
    match role:
        case Role.ADD:
            return _sum(x, y, 1.0, name)
        case Role.SUBTRACT:
            return _sum(x, y, -1.0, name)
        case Role.MULTIPLY if isinstance(x, Integers) and isinstance(y, Integers):
            return _elementwise_product(x, y, node)
    return Refusal(f"{name} of computed tensors has no integer form here")


def _whole_multiple(describer: Describer, x: Real, constant: Expr, node: Call) -> Affine | None:
    """``x`` times a constant of 8 bits as a product of integers, so that the factor behind it is one number; None where
    nothing asks for that, or it is no such product."""
    if not describer.whole_factors or role_of(node) is not Role.MULTIPLY or not isinstance(x, Integers):
        return None
    whole = constant_integers(constant)
    if whole is None or x.shape != node.shape:
        return None
    aligned = (1,) * (len(x.shape) - len(whole.shape)) + whole.shape
    shape = x.shape if any(size != 1 for size in aligned[2:]) else (*x.shape[:2], *(1 for _ in x.shape[2:]))
    values = np.ascontiguousarray(np.broadcast_to(static_value(whole.q), shape))
    return _elementwise_product(x, replace(whole, q=Constant(values, span=node.span)), node)


def _with_constant(x: Real, role: Role | None, constant: Expr, node: Call, name: str) -> IntegerForm:
    """``x`` and a constant: a factor or an offset a channel, or a tensor that the model has in 8 bits."""
    value = static_value(constant)
    if not np.isfinite(value).all():
        return Refusal(f"the constant operand of {name} is not finite")
    try:
        grows = np.broadcast_shapes(x.shape, value.shape) != x.shape
    except ValueError:
        grows = True
    if grows:
        return Refusal(f"{name} repeats a computed tensor along the axes of a constant of shape {value.shape}")
    channel = per_channel(x, value)
    if channel is None and isinstance(x, Integers):
        aligned = (1,) * (len(x.shape) - value.ndim) + value.shape
        varying = [axis for axis, size in enumerate(aligned) if size != 1]
        if len(varying) == 1:
            turned = with_channels_at(x, varying[0])
            channel, x = per_channel(turned, value), turned
    if channel is None:
        whole = None if role is Role.DIVIDE else constant_integers(constant)
        if whole is None:
            return Refusal(f"the constant operand of {name} has the shape {value.shape}, not one value a channel")
        spread = np.ascontiguousarray(np.broadcast_to(static_value(whole.q), x.shape))
        return _arithmetic(x, replace(whole, q=Constant(spread, span=node.span)), node, role, name)
    if role is Role.DIVIDE:
        if np.any(channel == 0):
            return Refusal(f"{name} divides by zero")
        return scaled(x, 1 / channel, name)
    if role is Role.MULTIPLY:
        return scaled(x, channel, name)
    return shifted(x, -channel if role is Role.SUBTRACT else channel, name)


def _sum(x: Real, y: Real, sign: float, name: str) -> IntegerForm:
    for value in (x, y):
        if isinstance(value, Mapped):
            return _sum_below_a_move(x, y, value, sign, name)
    sums: list[Sum] = []
    for value in (x, y):
        part = _as_sum(value)
        if part is None:
            return Refusal(f"{name} adds a tensor that is not quantised; quantise both operands")
        sums.append(part)
    terms = tuple(term_times(term, sign) for term in sums[1].terms)
    span = sums[0].span.merged(sums[1].span)
    return Sum(sums[0].terms + terms, sums[0].offset + sign * sums[1].offset, span=span)


def _as_sum(value: Real) -> Sum | None:
    match value:
        case Integers():
            return Sum((value,), np.zeros(channels_in(value.shape)), span=value.span)
        case Affine() if not value.clamped and not value.host:
            return Sum((value,), np.zeros(len(value.scale)), span=value.span)
        case Sum() if not value.clamped:
            return value
    return None


def _sum_below_a_move(x: Real, y: Real, mapped: Mapped, sign: float, name: str) -> IntegerForm:
    """A sum with a value that is moved: the other value is moved back, or has moved the same way."""
    a, b = (_moved_back(value, mapped) for value in (x, y))
    if a is None or b is None:
        return Refusal(f"{name} adds a tensor that is not quantised; quantise both operands")
    inner = _sum(a, b, sign, name)
    return inner if isinstance(inner, Refusal) else replace(mapped, inner=inner, span=x.span.merged(y.span))


def _moved_back(value: Real, mapped: Mapped) -> Real | None:
    """What becomes ``value`` by the move of ``mapped``."""
    if value is mapped:
        return mapped.inner
    if isinstance(value, Integers) and mapped.undo is not None:
        return replace(value, q=mapped.undo(value.q), exclusive=False)
    shape = mapped.inner.shape
    if not isinstance(value, Mapped) or value.inner.shape != shape or value.move is None or mapped.move is None:
        return None
    places = np.arange(math.prod(shape)).reshape(shape)
    return value.inner if np.array_equal(value.move(places), mapped.move(places)) else None


def _elementwise_product(x: Integers, y: Integers, node: Call) -> Affine:
    def centred(value: Integers) -> Expr:
        q = as_image(value.q)
        return q if value.zero_point == 0 else call("subtract_immediate", q, value=value.zero_point, span=node.span)

    if isinstance(x.q, Constant) and y.shape == x.shape:
        x, y = y, x
    channels = channels_in(x.shape)
    correction = np.zeros(channels, np.int64)
    if y.zero_point and isinstance(y.q, Constant):
        # x * (q - zero), with q as it is: the core reads constants of 8 bits
        product: Expr = call("multiply", centred(x), as_image(y.q), span=node.span)
        product = call("multiply_accumulate", product, as_image(x.q), weight=-y.zero_point, span=node.span)
        correction += y.zero_point * x.zero_point
    else:
        product = call("multiply", centred(x), centred(y), span=node.span)
    return replace(
        as_affine(x), accumulator=product, correction=correction, scale=np.full(channels, x.scale * y.scale),
        peak=np.full(channels, 65536.0), span=x.span.merged(y.span),
    )  # fmt: skip
