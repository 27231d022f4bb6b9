"""The parts of a normalisation of int8 that a model quantises one by one: mean squares of rows, and values times a
function of a row's 8-bit value.

docs/integers.md says what they compute; `compiler.passes.integer_moments` finds them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .. import tensor as te
from ..graph.ir import Array, Attrs, Call, Constant, TensorType
from ..graph.registry import REQUIRED, Operator, call, register
from ..tensor import ir as tir
from ..tensor.view import Builder, Index, View, broadcast
from .numerics import SHIFT_RANGE
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

LARGEST_MOMENT_BITS = 30
"""Bits of a mean square before it is quantised, and of what is added to it, at most."""

# Meanings


def mean_square(
    x: Array, axes: tuple[int, ...], centred: bool, input_zero: int, fraction: int, bias: int, multiplier: int,
    shift: int, zero_point: int, low: int, high: int,
) -> Array:  # fmt: skip
    """The meaning of ``mean_square``."""
    count = math.prod(x.shape[axis] for axis in axes)
    q = x.astype(np.int64) - (0 if centred else input_zero)
    squares = np.asarray((q * q).sum(axes, keepdims=True), np.int64)
    if centred:
        value = np.maximum(spread_of(squares, q.sum(axes, keepdims=True), count, fraction), 0)
    else:
        value = squares << fraction if fraction >= 0 else scaled_by(squares, 1, -fraction)
    return np.clip(scaled_by(value + bias, multiplier, shift) + zero_point, low, high).astype(np.int8)


def scale_rows(
    x: Array, index: Array, multipliers: Array, shifts: Array, axes: tuple[int, ...], input_zero: int, zero_point: int,
    low: int, high: int,
) -> Array:  # fmt: skip
    """The meaning of ``scale_rows``."""
    q = x.astype(np.int64)
    mean: Int64 | int = input_zero << MEAN_BITS
    if axes:
        mean = scaled_by(q.sum(axes, keepdims=True), *mean_factor(math.prod(x.shape[axis] for axis in axes)))
    place = index.astype(np.int64) & (ENTRIES - 1)
    value = scaled_by((q << MEAN_BITS) - mean, multipliers.astype(np.int64)[place], shifts.astype(np.int64)[place])
    return np.clip(value + zero_point, low, high).astype(np.int8)


# Loops


def _lower_mean_square(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    (x,) = operands
    axes, centred, fraction = (call.attr(name) for name in ("axes", "centred", "fraction"))
    count = math.prod(x.shape[axis] for axis in axes)

    def whole(index: Index) -> tir.Expr:
        q = x[index].astype("int32")
        return q if centred or not call.attr("input_zero") else q - call.attr("input_zero")

    counted = View(x.shape, "int32", whole)
    squared = View(x.shape, "int32", lambda index: counted[index] * counted[index])
    squares = reduced(builder, squared, axes, True, te.sum)
    total = reduced(builder, counted, axes, True, te.sum) if centred else None

    def value(row: Index) -> tir.Expr:
        square = wide(squares[row])
        if total is None:
            moment = square << fraction if fraction >= 0 else product_of(square, 1, -fraction)
        elif fraction >= 0:
            once = wide(total[row])
            moment = tir.maximum((square * count - once * once) << fraction, 0)
        else:
            once = wide(total[row])
            moment = tir.maximum(product_of(square, count, -fraction) - product_of(once, once, -fraction), 0)
        return narrowed(product_of(moment + call.attr("bias"), call.attr("multiplier"), call.attr("shift")), call)

    return View(squares.shape, "int8", value)


def _lower_scale_rows(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, places, multipliers, shifts = operands
    axes = call.attr("axes")
    rows = broadcast(places, x.shape)
    means: View | None = None
    if axes:
        count = math.prod(x.shape[axis] for axis in axes)
        total = reduced(builder, View(x.shape, "int32", lambda index: x[index].astype("int32")), axes, True, te.sum)
        mean = View(total.shape, "int32", lambda row: product_of(wide(total[row]), *mean_factor(count)).astype("int32"))
        means = builder.stored(mean, "mean")

    def value(index: Index) -> tir.Expr:
        offset = x[index].astype("int32") << MEAN_BITS
        offset = offset - (means[row_of(index, axes)] if means is not None else call.attr("input_zero") << MEAN_BITS)
        place = wide(rows[index])
        shift = tir.clamp(entry_of(shifts, place), *SHIFT_RANGE)
        return narrowed(product_of(wide(offset), entry_of(multipliers, place), shift), call)

    return View(x.shape, "int8", value)


# Entries


def _check_axes(x: TensorType, axes: Sequence[int]) -> int:
    fits = list(axes) == sorted(set(axes)) and all(0 <= axis < x.rank for axis in axes)
    require(fits, f"axes must be different axes of {x} in rising order, but are {tuple(axes)}")
    count = math.prod(x.shape[axis] for axis in axes)
    require(1 <= count <= LONGEST_ROW, f"a row has {count} elements, but may have 1..{LONGEST_ROW}")
    return count


def _mean_square_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    (x,) = operands
    require_dtype(x, "the input", "int8")
    axes = tuple_of_ints(attrs, "axes")
    _check_axes(x, axes)
    require(bool(axes), "axes is empty, but a mean is over one axis at least")
    flag(attrs, "centred")
    integer(attrs, "input_zero", -128, 127)
    integer(attrs, "fraction", -LARGEST_MOMENT_BITS, LARGEST_MOMENT_BITS)
    largest = (1 << LARGEST_MOMENT_BITS) - 1
    integer(attrs, "bias", -largest, largest)
    integer(attrs, "multiplier", -(1 << 24), (1 << 24) - 1)
    integer(attrs, "shift", *SHIFT_RANGE)
    check_ends(attrs)
    return TensorType(tuple(1 if axis in axes else size for axis, size in enumerate(x.shape)), "int8")


def _scale_rows_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, index, *tables = operands
    require_dtype(x, "the input", "int8")
    require_dtype(index, "the index", "int8")
    same = index.rank == x.rank and all(mine in (1, size) for mine, size in zip(index.shape, x.shape, strict=True))
    require(same, f"the index {index} does not broadcast to {x} axis by axis")
    for name, table in zip(("multipliers", "shifts"), tables, strict=True):
        require(table == TABLE, f"{name} must be {TABLE}, not {table}")
    _check_axes(x, tuple_of_ints(attrs, "axes"))
    integer(attrs, "input_zero", -128, 127)
    check_ends(attrs)
    return x


def _sample_mean_square(dtype: str) -> Call:
    return call("mean_square", variable(dtype, 3, 4, 2), axes=(1, 2), fraction=3, bias=77, multiplier=12_345_678,
                shift=36, zero_point=-100)  # fmt: skip


def _sample_scale_rows(dtype: str) -> Call:
    tables = np.arange(1 << 23, (1 << 23) + ENTRIES, dtype=np.int32), np.full(ENTRIES, 40, np.int32)
    rows = Constant(np.array([[[5]], [[-3]], [[127]]], np.int8))
    return call("scale_rows", variable(dtype, 3, 4, 2), rows, *map(Constant, tables), axes=(1, 2), zero_point=3)


register(Operator(
    "mean_square", "x", types=_mean_square_type, numpy=mean_square, lower=_lower_mean_square, **ROW_ENTRY, cost=2,
    defaults={"axes": REQUIRED, "centred": True, "input_zero": 0, "fraction": REQUIRED, "bias": 0,
              "multiplier": REQUIRED, "shift": REQUIRED, **ENDS},
    sample=_sample_mean_square,
    doc="The mean square over axes, which stay with size 1, of x less its mean (with ``centred``) or less input_zero, "
        "in integers: the sum that ``normalise`` works with, and a requantise.",
))  # fmt: skip
register(Operator(
    "scale_rows", "x index multipliers shifts", types=_scale_rows_type, numpy=scale_rows, lower=_lower_scale_rows,
    **ROW_ENTRY, cost=4, defaults={"axes": (), "input_zero": 0, **ENDS}, sample=_sample_scale_rows,
    doc="x less its mean over axes, or less input_zero where there are none, times the factor that two tables have at "
        "the 8-bit values of index, which broadcasts to x.",
))  # fmt: skip
