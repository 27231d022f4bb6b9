"""Softmax and normalisations of int8 in whole numbers: what docs/integers.md says of rows, executable in NumPy.

A row is what is combined: the elements along one axis for a softmax, along some axes for a normalisation. Constants of
a layer are operands and attributes; `compiler.passes.integer_rows` works them out. With those nothing leaves 32 bits,
whatever the input, except products, which have at most 57.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .. import tensor as te
from ..graph.ir import Array, Attrs, Call, Constant, TensorType
from ..graph.registry import REQUIRED, Operator, call, register
from ..tensor import ir as tir
from ..tensor.view import Builder, Index, View, broadcast
from . import numerics
from .reduce import reduced
from .row_arithmetic import (
    ENDS,
    ENTRIES,
    LONGEST_ROW,
    MEAN_BITS,
    ROW_ENTRY,
    TABLE,
    Int64,
    check_ends,
    entry_of,
    mean_factor,
    narrowed,
    product_of,
    row_of,
    scaled_by,
    spread_of,
    wide,
)
from .samples import variable
from .type_rules import flag, integer, require, require_dtype, tuple_of_ints

MOST_BITS = 22
"""Fraction bits of an exponential, at most."""

EPSILON_BITS = 30


def reciprocals() -> NDArray[np.int32]:
    """2^53 / n for n in [2^30, 2^31), by the highest 9 bits of n, of which the first is 1: 256 entries."""
    return np.asarray(np.rint(2.0**31 / (ENTRIES + np.arange(ENTRIES) + 0.5)), np.int32)


def inverse_roots() -> NDArray[np.int32]:
    """2^38 / sqrt(n) for n in [2^29, 2^31), by the highest bits, n >> 23: entries 64 to 255."""
    middle = (np.arange(ENTRIES) + 0.5) * 2.0**23
    used = np.arange(ENTRIES) >= ENTRIES // 4
    return np.asarray(np.where(used, np.rint(2.0**38 / np.sqrt(middle)), 0), np.int32)


def exponentials(scale: float, bits: int) -> NDArray[np.int32]:
    """2^bits * exp(scale * d) for d = 0, -255, .., -1: the entry of d is at its low 8 bits."""
    distance = np.concatenate([[0], np.arange(1 - ENTRIES, 0)])
    return np.asarray(np.rint(2.0**bits * np.exp(scale * distance)), np.int32)


def bits_of_exponentials(count: int) -> int:
    """With how many fraction bits a sum of ``count`` exponentials of at most 1 stays below 2^31."""
    return min(MOST_BITS, (((1 << 31) - 1) // count).bit_length() - 1)


# Meanings


def _places(x: Int64, thresholds: Sequence[int]) -> Int64:
    """Of how many thresholds ``x`` stays below."""
    return np.asarray(sum((x < each).astype(np.int64) for each in thresholds), np.int64)


def softmax(
    x: Array, exponents: Array, inverses: Array, axis: int, bits: int, multiplier: int, shift: int, zero_point: int
) -> Array:
    """The meaning of ``softmax``."""
    wide = x.astype(np.int64)
    powers = exponents.astype(np.int64)[(wide - wide.max(axis, keepdims=True)) & 255]
    total = powers.sum(axis, keepdims=True)
    places = _places(total, _below_leading(bits))
    normal = total << places
    first = inverses.astype(np.int64)[(normal >> 22) & 255]
    inverse = scaled_by(first, (1 << 23) - scaled_by(normal, first, 31), 22)
    value = scaled_by(powers, scaled_by(inverse, multiplier, 24), 29 + shift - places) + zero_point
    return np.clip(value, -128, 127).astype(np.int8)


def _below_leading(bits: int) -> range | list[int]:
    """Powers of two: a sum from 2^bits on is below as many of them as it has places to go to reach 2^30."""
    return [1 << place for place in range(bits + 1, 31)]


_PAIRS = [1 << place for place in range(29, 0, -2)]
"""A number from 1 on is below as many of these as it has pairs of places to go to reach 2^29."""


def normalise(
    x: Array, roots: Array, bias: Array, multiplier: Array, shift: Array, axes: tuple[int, ...], centred: bool,
    input_zero: int, fraction: int, epsilon: int, digits: int, zero_point: int, low: int, high: int,
) -> Array:  # fmt: skip
    """The meaning of ``normalise``."""
    count = math.prod(x.shape[axis] for axis in axes)
    q = x.astype(np.int64) - (0 if centred else input_zero)
    squares = (q * q).sum(axes, keepdims=True)
    mean: Int64 | int = 0
    if centred:
        total = q.sum(axes, keepdims=True)
        mean = scaled_by(total, *mean_factor(count))
        spread = np.maximum(spread_of(squares, total, count, fraction), 0)
    else:
        spread = squares << fraction if fraction >= 0 else scaled_by(squares, 1, -fraction)
    weight = np.maximum(spread + epsilon, 1)
    pairs = _places(weight, _PAIRS)
    normal = weight << 2 * pairs
    inverse = roots.astype(np.int64)[(normal >> 23) & 255]
    for _ in range(2):
        square = scaled_by(scaled_by(normal, inverse, 31), inverse, 23)
        inverse = scaled_by(inverse, (3 << 22) - square, 23)
    unit = scaled_by((q << MEAN_BITS) - mean, inverse, 54 - digits - pairs)
    value = scaled_by(unit + bias, multiplier.astype(np.int64), shift) + zero_point
    return np.clip(value, low, high).astype(np.int8)


# Loops


def _below(x: tir.Expr, thresholds: Sequence[int]) -> tir.Expr:
    result: tir.Expr = tir.Const(0, "int32")
    for each in thresholds:
        result = result + (x < each).astype("int32")
    return result


_UPPER = range(26, 55)
"""Shifts of a product with 24 bits for which 7 bits more leave only the upper 32 of 64 to be shifted on."""


def _upper_product(x: tir.Expr, factor: tir.Expr, shift: tir.Expr) -> tir.Expr:
    """As `product_of`, of int32, with a factor of 24 bits and a shift of `_UPPER`: in 32 bits behind the product."""
    upper = (wide(x) * wide(factor << 7) >> 32).astype("int32")
    rest = tir.clamp(shift - 25, 1, _UPPER[-1] - 25)
    return (upper + (tir.Const(1, "int32") << (rest - 1))) >> rest


def _lower_softmax(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, exponents, inverses = operands
    axis = call.attr("axis")
    largest = reduced(builder, x, (axis,), True, te.max)

    def power(index: Index) -> tir.Expr:
        distance = (x[index] - largest[row_of(index, (axis,))]).astype("uint8")
        return exponents[(wide(distance),)]

    powers = builder.stored(View(x.shape, "int32", power), "powers")
    total = reduced(builder, powers, (axis,), True, te.sum)
    thresholds = _below_leading(call.attr("bits"))
    places = builder.stored(View(total.shape, "int32", lambda row: _below(total[row], thresholds)), "places")

    def moved(row: Index) -> tir.Expr:
        return tir.clamp(wide(places[row]), 0, len(thresholds))

    def factor(row: Index) -> tir.Expr:
        normal = wide(total[row]) << moved(row)
        first = entry_of(inverses, normal >> 22)
        inverse = product_of(first, (1 << 23) - product_of(normal, first, 31), 22)
        return product_of(inverse, call.attr("multiplier"), 24).astype("int32")

    factors = builder.stored(View(total.shape, "int32", factor), "factors")
    most = 29 + call.attr("shift")

    def value(index: Index) -> tir.Expr:
        row = row_of(index, (axis,))
        shift = most - moved(row)
        if most - len(thresholds) in _UPPER and most in _UPPER:
            product = _upper_product(powers[index], factors[row], shift.astype("int32"))
            return narrowed(product, call)
        return narrowed(product_of(wide(powers[index]), wide(factors[row]), shift), call)

    return View(x.shape, "int8", value)


def _lower_normalise(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, roots, *parameters = operands
    axes, centred, fraction, digits = (call.attr(name) for name in ("axes", "centred", "fraction", "digits"))
    count = math.prod(x.shape[axis] for axis in axes)
    bias, multiplier, shift = (broadcast(each, x.shape) for each in parameters)

    def whole(index: Index) -> tir.Expr:
        q = x[index].astype("int32")
        return q if centred or not call.attr("input_zero") else q - call.attr("input_zero")

    counted = View(x.shape, "int32", whole)
    squared = View(x.shape, "int32", lambda index: counted[index] * counted[index])
    squares = reduced(builder, squared, axes, True, te.sum)
    total = reduced(builder, counted, axes, True, te.sum) if centred else None

    def spread(row: Index) -> tir.Expr:
        square = wide(squares[row])
        if total is None:
            return square << fraction if fraction >= 0 else product_of(square, 1, -fraction)
        once = wide(total[row])
        if fraction >= 0:
            return tir.maximum((square * count - once * once) << fraction, 0)
        return tir.maximum(product_of(square, count, -fraction) - product_of(once, once, -fraction), 0)

    def weight(row: Index) -> tir.Expr:
        return tir.maximum(spread(row) + call.attr("epsilon"), 1).astype("int32")

    weights = builder.stored(View(squares.shape, "int32", weight), "spread")
    pairs = builder.stored(View(squares.shape, "int32", lambda row: _below(weights[row], _PAIRS)), "pairs")

    def moved(row: Index) -> tir.Expr:
        return tir.clamp(wide(pairs[row]), 0, len(_PAIRS))

    def closer(row: Index, inverse: tir.Expr) -> tir.Expr:
        normal = wide(weights[row]) << moved(row) * 2
        square = product_of(product_of(normal, inverse, 31), inverse, 23)
        return product_of(inverse, (3 << 22) - square, 23).astype("int32")

    first = View(
        squares.shape, "int32",
        lambda row: closer(row, entry_of(roots, wide(weights[row]) << moved(row) * 2 >> 23)),
    )  # fmt: skip
    first = builder.stored(first, "root")
    second = View(squares.shape, "int32", lambda row: closer(row, wide(first[row])))
    inverses = builder.stored(second, "root")
    known = call.args[4]
    narrow = isinstance(known, Constant) and bool(np.all(np.isin(known.value, _UPPER)))
    means: View | None = None
    if total is not None:
        mean_of = total
        mean = View(
            total.shape, "int32", lambda row: product_of(wide(mean_of[row]), *mean_factor(count)).astype("int32")
        )
        means = builder.stored(mean, "mean")

    def value(index: Index) -> tir.Expr:
        row = row_of(index, axes)
        offset = counted[index] << MEAN_BITS
        offset = offset if means is None else offset - means[row]
        unit = product_of(wide(offset), wide(inverses[row]), (54 - digits) - moved(row)).astype("int32")
        if narrow:
            product = _upper_product(unit + bias[index], multiplier[index], shift[index])
            return narrowed(product, call)
        amount = tir.clamp(wide(shift[index]), *numerics.SHIFT_RANGE)
        return narrowed(product_of(wide(unit + bias[index]), wide(multiplier[index]), amount), call)

    return View(x.shape, "int8", value)


# Entries


def _softmax_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, exponents, inverses = operands
    require_dtype(x, "the input", "int8")
    axis = integer(attrs, "axis", 0, max(x.rank - 1, 0))
    require(x.rank > 0 and x.shape[axis] > 0, f"{x} has no rows along axis {axis}")
    for name, table in (("exponents", exponents), ("inverses", inverses)):
        require(table == TABLE, f"{name} must be {TABLE}, not {table}")
    bits = integer(attrs, "bits", 1, MOST_BITS)
    require(x.shape[axis] << bits < 1 << 31, f"a sum of {x.shape[axis]} numbers of {bits} bits does not fit 32 bits")
    integer(attrs, "multiplier", 0, (1 << 24) - 1)
    integer(attrs, "shift", 2, 33)
    integer(attrs, "zero_point", -128, 127)
    return x


def _normalise_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, roots, *parameters = operands
    require_dtype(x, "the input", "int8")
    axes = tuple_of_ints(attrs, "axes")
    fits = bool(axes) and list(axes) == sorted(set(axes)) and all(0 <= axis < x.rank for axis in axes)
    require(fits, f"axes must be different axes of {x} in rising order, but are {axes}")
    count = math.prod(x.shape[axis] for axis in axes)
    require(1 <= count <= LONGEST_ROW, f"a row has {count} elements, but may have 1..{LONGEST_ROW}")
    require(roots == TABLE, f"roots must be {TABLE}, not {roots}")
    for name, parameter in zip(("bias", "multiplier", "shift"), parameters, strict=True):
        require_dtype(parameter, name, "int32")
        same = parameter.rank == x.rank and all(
            mine in (1, size) for mine, size in zip(parameter.shape, x.shape, strict=True)
        )
        require(same, f"{name} {parameter} does not broadcast to {x} axis by axis")
    flag(attrs, "centred")
    integer(attrs, "input_zero", -128, 127)
    integer(attrs, "fraction", -EPSILON_BITS, EPSILON_BITS)
    integer(attrs, "epsilon", 0, (1 << EPSILON_BITS) - 1)
    integer(attrs, "digits", 18, 28)
    check_ends(attrs)
    return x


def _sample_softmax(dtype: str) -> Call:
    x, bits = variable(dtype, 2, 5, 3), bits_of_exponentials(5)
    tables = Constant(exponentials(0.05, bits)), Constant(reciprocals())
    return call("softmax", x, *tables, axis=1, bits=bits, multiplier=255 << 16, shift=16, zero_point=-128)


def _sample_normalise(dtype: str) -> Call:
    bias, multiplier, shift = (np.array([[values]], np.int32) for values in ([5, -3], [1 << 23, 12_345_678], [38, 38]))
    parameters = (Constant(each) for each in (bias, multiplier, shift))
    return call("normalise", variable(dtype, 3, 4, 2), Constant(inverse_roots()), *parameters, axes=(1, 2), fraction=10,
                epsilon=77, digits=28, zero_point=3)  # fmt: skip


register(Operator(
    "softmax", "x exponents inverses", types=_softmax_type, numpy=softmax, lower=_lower_softmax, **ROW_ENTRY, cost=8,
    defaults={"axis": REQUIRED, "bits": REQUIRED, "multiplier": REQUIRED, "shift": REQUIRED, "zero_point": 0},
    sample=_sample_softmax,
    doc="Softmax along an axis in integers: exponentials with ``bits`` fraction bits by a table, times the reciprocal "
        "of their sum and multiplier / 2**shift.",
))  # fmt: skip
register(Operator(
    "normalise", "x roots bias multiplier shift", types=_normalise_type, numpy=normalise, lower=_lower_normalise,
    **ROW_ENTRY, cost=8,
    defaults={"axes": REQUIRED, "centred": True, "input_zero": 0, "fraction": REQUIRED, "epsilon": REQUIRED,
              "digits": REQUIRED, **ENDS},
    sample=_sample_normalise,
    doc="Over axes, in integers: x less its mean (with ``centred``) or less input_zero, divided by the root of the "
        "mean square and epsilon, then a requantise.",
))  # fmt: skip
