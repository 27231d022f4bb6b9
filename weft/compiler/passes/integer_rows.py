"""Softmax and normalisations between 8-bit values, in the integers of the contract (docs/integers.md).

They stand in a model as floating-point operators between a dequantise and a quantise, normalisations as the means,
products and roots that define them. Here such an island is found, and its constants are worked out. Results may differ
by 1 from the floats', so `legalise` asks for this only where a user does.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from ..graph import Array, Call, Constant, Expr, Role, Span, call, role_of
from ..graph.evaluate import static_value
from ..graph.host import host_call
from ..integers.form import Float64, Integers
from ..operators.integer_rows import (
    EPSILON_BITS,
    bits_of_exponentials,
    exponentials,
    inverse_roots,
    reciprocals,
)
from ..operators.numerics import quantise_multiplier
from ..operators.row_arithmetic import LONGEST_ROW
from .emit_integers import limits_of
from .integer_moments import integer_moments
from .rows import FormOf, is_row_mean, number_of, row_below, squared

_ON_HOST = "in integers, for which the core has no tables and no roots"
_LARGEST_BIAS = 1 << 30
_LEAST_FACTOR = 2.0**-33
_NEGLIGIBLE = 1 / 8  # of the result's last digit
_DIGITS = range(28, 17, -1)


def integer_rows(source: Expr, form: FormOf, scale: float, zero_point: int, span: Span) -> Expr | None:
    """The int8 result of quantising ``source``, if it is a softmax or a normalisation of an 8-bit value; else None.

    ``form``: what a value is in integers. ``span``: of the quantise node.
    """
    span = Span(source.span.merged(span).nodes, span.tensor)
    match source:
        case Call(op="reshape" | "transpose" as op, args=(inner,)):
            made = integer_rows(inner, form, scale, zero_point, Span(span.nodes))
            return None if made is None else call(op, made, span=span, **source.attrs)
        case Call(args=(x,)) if role_of(source) is Role.SOFTMAX:
            operand = form(x)
            return _softmax(operand, source, scale, zero_point, span) if isinstance(operand, Integers) else None
    part = integer_moments(source, form, scale, zero_point, span)
    if part is not None:
        return part
    found = _normalisation(source, form)
    return None if found is None else _normalised(found, source, scale, zero_point, span)


# Softmax


def _softmax(x: Integers, node: Call, scale: float, zero_point: int, span: Span) -> Expr | None:
    axis = int(node.attr("axis"))
    if not x.shape or 0 in x.shape or not 2.0**-23 < scale < 256 or x.scale <= 0:
        return None
    bits = bits_of_exponentials(x.shape[axis])
    if bits < 1:
        return None
    multiplier, shift = quantise_multiplier(np.array(1 / scale))
    tables = Constant(exponentials(x.scale, bits)), Constant(reciprocals())
    attrs = {
        "axis": axis, "bits": bits, "multiplier": int(multiplier[0]), "shift": int(shift[0]), "zero_point": zero_point,
    }  # fmt: skip
    reason = f"softmax {node.span.node!r} {_ON_HOST}"
    return host_call("softmax", (x.q, *tables), attrs, reason, span)


# Normalisations


@dataclass(frozen=True, eq=False)
class _Normalisation:
    """``(x - mean) / sqrt(variance + epsilon) * factor + offset`` over ``axes``, clamped; of x itself where it is not
    ``centred``. ``factor``, ``offset``: of the rank of x, each axis as long as x's or 1.

    The result may have another shape, whose axes are made of axes of x in order."""

    x: Integers
    axes: tuple[int, ...]
    centred: bool
    epsilon: float
    factor: Float64
    offset: Float64
    low: float = -math.inf
    high: float = math.inf


def _normalisation(node: Expr, form: FormOf) -> _Normalisation | None:
    role = role_of(node)
    match node:
        case Call(args=(inner,)) if role is Role.CLAMP:
            found = _normalisation(inner, form)
            low, high = node.attr("low"), node.attr("high")
            return found and replace(found, low=max(found.low, low), high=max(min(found.high, high), low))
        case Call(op="reshape" | "transpose", args=(inner,)):
            found = _normalisation(inner, form)
            return found and _moved(found, inner.shape, node)
        case Call(args=(a, b)) if a.static or b.static:
            inner = b if a.static else a
            step = _affine_step(node, len(node.shape))
            found = _normalisation(inner, form) if step is not None else None
            return None if step is None or found is None else _scaled(found, step, node.shape)
        case Call(args=(unscaled, Call(args=(moment,)) as root)) if role is Role.DIVIDE and role_of(root) is Role.ROOT:
            return _of_moment(unscaled, moment, form)
        case Call(args=(a, b)) if role is Role.MULTIPLY:
            for unscaled, inverse in ((a, b), (b, a)):
                under = _under_inverse_root(inverse)
                if under is not None:
                    return _of_moment(unscaled, under, form)
    return None


def _scaled(
    found: _Normalisation, step: tuple[Expr, Float64, Float64], shape: tuple[int, ...]
) -> _Normalisation | None:
    """A factor and an offset behind a normalisation whose result has ``shape``."""
    if found.low > -math.inf or found.high < math.inf:
        return None
    factor, offset = (_spread(value, shape, found.x.shape) for value in step[1:])
    return replace(found, factor=found.factor * factor, offset=found.offset * factor + offset)


def _moved(found: _Normalisation, shape: tuple[int, ...], node: Call) -> _Normalisation | None:
    """A normalisation whose result, of ``shape``, is reshaped or transposed: x is, instead."""
    x = found.x
    if node.op == "reshape":
        sizes = _common_sizes(x.shape, node.shape)
        if sizes is None:
            return None
        parts = _parts(x.shape, sizes)
        q = call("reshape", x.q, shape=sizes, span=Span(node.span.nodes))
        axes = tuple(place for axis in found.axes for place in parts[axis])
        factor, offset = (_spread(value, x.shape, sizes) for value in (found.factor, found.offset))
    else:
        parts = [(axis,) for axis in range(len(shape))] if shape == x.shape else _parts(shape, x.shape)
        perm = tuple(place for axis in node.attr("perm") for place in parts[axis])
        q = call("transpose", x.q, perm=perm, span=Span(node.span.nodes))
        axes = tuple(sorted(perm.index(axis) for axis in found.axes))
        factor, offset = (value.transpose(perm) for value in (found.factor, found.offset))
    moved = replace(x, q=q, exclusive=False)
    return replace(found, x=moved, axes=axes, factor=factor, offset=offset) if axes else None


def _common_sizes(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes, longer than 1, of which those of both shapes are made; None where there are none."""
    if 0 in a:
        return None
    sizes, before = [], 1
    for end in sorted({*accumulate(a, operator.mul), *accumulate(b, operator.mul)} - {1}):
        if end % before:
            return None
        sizes.append(end // before)
        before = end
    return tuple(sizes)


def _parts(shape: tuple[int, ...], sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Which of ``sizes``, none of them 1, each axis of ``shape`` is made of."""
    parts, place = [], 0
    for size in shape:
        first, product = place, 1
        while product < size:
            product *= sizes[place]
            place += 1
        parts.append(tuple(range(first, place)))
    return parts


def _spread(value: Float64, shape: tuple[int, ...], sizes: tuple[int, ...]) -> Float64:
    """``value``, of the rank of ``shape`` and broadcasting to it, over the axes that ``shape`` is made of."""
    if shape == sizes:
        return value
    parts = _parts(shape, sizes)
    whole = [sizes[p] if value.shape[axis] > 1 else 1 for axis, places in enumerate(parts) for p in places]
    return value.reshape(whole)


def _affine_step(node: Call, rank: int) -> tuple[Expr, Float64, Float64] | None:
    """The computed operand of arithmetic with a constant, and by what it is multiplied and then shifted."""
    a, b = node.args
    inner, constant = (b, a) if a.static else (a, b)
    if inner.shape != node.shape:
        return None
    value = static_value(constant).astype(np.float64)
    value = value.reshape((1,) * (rank - value.ndim) + value.shape)
    one, zero = np.ones((1,) * rank), np.zeros((1,) * rank)
    match role_of(node):
        case Role.ADD:
            return inner, one, value
        case Role.SUBTRACT:
            return (inner, one, -value) if constant is b else (inner, -one, value)
        case Role.MULTIPLY:
            return inner, value, zero
        case Role.DIVIDE if constant is b and np.all(value != 0):
            return inner, 1 / value, zero
    return None


def _under_inverse_root(node: Expr) -> Expr | None:
    """What ``1 / sqrt(...)`` is of."""
    match node, role_of(node):
        case Call(args=(one, Call(args=(moment,)) as root)), Role.DIVIDE if (
            role_of(root) is Role.ROOT and number_of(one) == 1
        ):
            return moment
        case Call(args=(moment, exponent)), Role.POWER if number_of(exponent) == -0.5:
            return moment
    return None


def _of_moment(unscaled: Expr, moment: Expr, form: FormOf) -> _Normalisation | None:
    """``moment``: the mean of the squares of ``unscaled``, and perhaps a number."""
    epsilon = 0.0
    match moment:
        case Call(args=(a, b)) if role_of(moment) is Role.ADD:
            number, mean = (number_of(a), b) if a.static else (number_of(b), a)
            if number is None or number < 0:
                return None
            epsilon = number
        case _:
            mean = moment
    match mean:
        case Call(args=(squares,)) if is_row_mean(mean) and mean.attr("keepdims"):
            axes = tuple(mean.attr("axes"))
        case _:
            return None
    row = row_below(unscaled, form)
    if not axes or squared(squares) != unscaled or row is None or row.axes not in ((), axes):
        return None
    one = (1,) * len(row.x.shape)
    return _Normalisation(row.x, axes, bool(row.axes), epsilon, np.ones(one), np.zeros(one))


@dataclass(frozen=True, eq=False)
class _Parameters:
    """Of the requantise behind a normalisation, and how many fraction ``digits`` it works on."""

    digits: int
    bias: Array
    multiplier: Array
    shift: Array


def _normalised(found: _Normalisation, source: Expr, scale: float, zero_point: int, span: Span) -> Expr | None:
    x, rank = found.x, len(found.x.shape)
    count = math.prod(x.shape[axis] for axis in found.axes)
    if 0 in x.shape or not 1 <= count <= LONGEST_ROW or x.scale <= 0:
        return None
    unit = count * count if found.centred else count
    fraction = math.floor(math.log2(((1 << EPSILON_BITS) - 1) / (unit << (14 if found.centred else 16))))
    epsilon = unit * found.epsilon / x.scale**2
    while round(epsilon * 2.0**fraction) >= 1 << EPSILON_BITS:  # it dominates
        fraction -= 1
    if fraction < -EPSILON_BITS:
        return None
    offset, factor = found.offset / scale, found.factor * math.sqrt(unit * 2.0**fraction) / scale
    parameters = _parameters(factor, offset, math.sqrt(count / (unit * 2.0**fraction)))
    if parameters is None:
        return None
    low, high = limits_of(found.low, found.high, scale, zero_point)
    attrs = {
        "axes": found.axes, "centred": found.centred, "input_zero": 0 if found.centred else x.zero_point,
        "fraction": fraction, "epsilon": round(epsilon * 2.0**fraction), "digits": parameters.digits,
        "zero_point": zero_point, "low": low, "high": high,
    }  # fmt: skip
    arrays = (_short(each, rank) for each in (parameters.bias, parameters.multiplier, parameters.shift))
    reason = f"normalisation {source.span.node!r} {_ON_HOST}"
    result = host_call("normalise", (x.q, Constant(inverse_roots()), *map(Constant, arrays)), attrs, reason, span)
    return result if result.shape == source.shape else call("reshape", result, shape=source.shape, span=span)


def _parameters(factor: Float64, offset: Float64, largest: float) -> _Parameters | None:
    """``factor`` times a value of at most ``largest``, plus ``offset``, in digits of the result.

    The bias is added before the factor. Where that makes it too large the value gets fewer fraction digits, and a
    factor that makes next to no difference is made larger.
    """
    factor, offset = np.broadcast_arrays(factor, offset)
    for digits in _DIGITS:
        step = factor * 2.0**-digits
        least = np.maximum(np.abs(offset) / _LARGEST_BIAS, _LEAST_FACTOR)
        raised = np.where(np.abs(step) < least, np.copysign(least, step), step)
        if np.all(np.abs(raised - step) * largest * 2.0**digits < _NEGLIGIBLE):
            break
    else:
        return None
    try:
        multiplier, shift = quantise_multiplier(raised.reshape(-1))
    except ValueError:
        return None
    bias = np.rint(offset / raised).astype(np.int32)
    return _Parameters(digits, bias, multiplier.reshape(raised.shape), shift.reshape(raised.shape))


def _short(values: Array, rank: int) -> Array:
    """``values`` with each axis along which they are all the same cut to 1."""
    for axis in range(rank):
        first = np.take(values, [0], axis)
        if np.all(values == first):
            values = first
    return np.ascontiguousarray(values.astype(np.int32))
