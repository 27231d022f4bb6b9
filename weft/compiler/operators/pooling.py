"""Poolings over windows of 2 or 3 axes, and the loops of every plain pooling. Sums are made in float64."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import tensor as te
from ..graph.chooser import Chooser
from ..graph.dtypes import FLOATS, NUMBERS
from ..graph.ir import Array, Attrs, Call, Constant, Expr, TensorType
from ..graph.registry import (
    REQUIRED,
    Accuracy,
    Anchor,
    Draw,
    EightBits,
    Family,
    Fusion,
    Operator,
    Role,
    TypeRule,
    call,
    register,
)
from ..integers import windows
from ..tensor import ir as tir
from ..tensor.view import Builder, Index, NotLoweredError, View
from . import numerics
from .meanings import rounded_once
from .move import unflatten
from .reasons import PIECEWISE_CONSTANT
from .samples import IMAGE, WINDOW, sample_of, variable
from .type_rules import pool_type, require, require_dtype, tuple_of_ints
from .window_gradients import average_pool_gradient, max_pool_gradient, unpool_gradient
from .windows import clamped_read, drawn_window, met, padded_read, pooled, window_axes, windows_meet_input


def _spatial(x: TensorType) -> int:
    require(x.rank in (4, 5), f"the input must be (N, C, H, W) or (N, C, D, H, W), not {x}")
    return x.rank - 2


def _max_pool_type(dtype: str = "") -> TypeRule:
    def rule(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
        x = operands[0]
        require_dtype(x, "the input", *NUMBERS)
        return pool_type(x, attrs, dtype or x.dtype, _spatial(x))

    return rule


def _least(x: Array) -> Any:
    return np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -math.inf


def _max_pool(x: Array, **attrs: Any) -> Array:
    return numerics.max_pool(x, pad_value=_least(x), **attrs)


def max_pool(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    """The lowering, for numbers of any type."""
    x = operands[0]
    pads = call.attr("pads")
    if set(call.attr("dilations")) == {1} and windows_meet_input(call, x):
        return pooled(builder, call, clamped_read(x, pads), te.max)
    lowest = -math.inf if x.dtype in tir.FLOATS else tir.INTEGER_RANGES[x.dtype][0]
    return pooled(builder, call, padded_read(x, pads, tir.Const(lowest, x.dtype)), te.max)


def _draw_pool(name: str) -> Draw:
    def draw(choose: Chooser) -> Expr:
        x = choose.operand(lambda node: len(node.shape) == 4 and 0 not in node.shape, FLOATS)
        return call(name, x, kernel=(choose.whole(1, 3), choose.whole(1, 3)), **drawn_window(choose, 1, 1))

    return draw


_DEFAULTS: dict[str, Any] = {"kernel": REQUIRED, "strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
_POOL: dict[str, Any] = {"family": Family.SOURCE, "fusion": Fusion.ANCHOR, "anchor": Anchor.POOL}
register(Operator(
    "nn.max_pool", "x", types=_max_pool_type(), numpy=_max_pool, lower=max_pool, defaults=_DEFAULTS, **_POOL,
    gradient=max_pool_gradient, accuracy=Accuracy.EXACT, sample=sample_of("nn.max_pool", IMAGE, **WINDOW),
    draw=_draw_pool("nn.max_pool"), role=Role.LARGEST, integer=windows.largest_of_window, eight_bits=EightBits.PICKS,
    doc="Maximum over windows of 2 or 3 axes; padding never wins.",
))  # fmt: skip


def _max_pool_indices(
    x: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    column_major: bool,
) -> Array:
    order = "F" if column_major else "C"  # of the spatial axes; batch and channels stay in front
    spatial = x.shape[2:]
    own = np.arange(math.prod(spatial)).reshape(spatial, order=order)  # type: ignore[call-overload]
    planes = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *(1 for _ in spatial)) * own.size
    places = numerics.pad_spatial(own + planes, pads, -1)
    best: Array | None = None
    result = np.empty(0, np.int64)
    values = numerics.pad_spatial(x, pads, _least(x))
    pairs = zip(
        numerics.windows(values, kernel, strides, dilations), numerics.windows(places, kernel, strides, dilations),
        strict=True,
    )  # fmt: skip
    for (_, value), (_, place) in pairs:
        if best is None:
            best, result = value.copy(), place.copy()
            continue
        better = (value > best) | ((value != value) & (best == best)) | (result < 0)
        best, result = np.where(better, value, best), np.where(better, place, result)
    return result.astype(np.int64)


def _flat_strides(shape: tuple[int, ...], column_major: bool) -> tuple[int, ...]:
    """Of the elements of (N, C, ...); column-major only behind the channels."""
    spatial = shape[2:]
    inner = tir.row_major_strides(spatial[::-1])[::-1] if column_major else tir.row_major_strides(spatial)
    plane = math.prod(spatial)
    return (shape[1] * plane, plane, *inner)


def _lower_max_pool_indices(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    """The maximum first, then the first place in the window at which it stands; not-a-number is a maximum."""
    x, pads, dilations = operands[0], call.attr("pads"), call.attr("dilations")
    kernel, count = call.attr("kernel"), len(call.attr("kernel"))
    lowest = tir.Const(-math.inf if x.dtype in tir.FLOATS else tir.INTEGER_RANGES[x.dtype][0], x.dtype)
    read = padded_read(x, pads, lowest)
    largest = pooled(builder, call, read, te.max)
    strides, nowhere = _flat_strides(x.shape, call.attr("column_major")), math.prod(kernel)
    window = window_axes(builder, kernel)

    def spot(index: Index) -> te.Reduction:
        """The number of the window's place: its order is that in which places are looked at."""
        met_at = (*index[:2], *met(index, window, call.attr("strides"), dilations))
        value = read(met_at)
        fits = value.eq(largest[index])
        fits = fits | value.ne(value) if x.dtype in tir.FLOATS else fits
        for axis, place in enumerate(met_at[2:]):
            if pads[axis]:
                fits = fits & (tir.Const(pads[axis]) <= place)
            if pads[count + axis]:
                fits = fits & (place < x.shape[2 + axis] + pads[axis])
        number: tir.Expr = tir.Const(0)
        for size, axis_place in zip(kernel, window, strict=True):
            number = number * size + axis_place
        return te.min(tir.select(fits, number, tir.Const(nowhere)), window)

    first = builder.reduction(call.shape, lambda *index: spot(index), "first")

    def position(index: Index) -> tir.Expr:
        offsets = unflatten(first[index], kernel)
        flat = index[0] * strides[0] + index[1] * strides[1]
        for axis, offset in enumerate(offsets):
            place = index[2 + axis] * call.attr("strides")[axis] + offset * dilations[axis] - pads[axis]
            flat = flat + place * strides[2 + axis]
        return tir.select(first[index].eq(nowhere), tir.Const(-1), flat)

    return builder.stored(View(call.shape, "int64", position), "position")  # long, and what reads it may read it often


register(Operator(
    "nn.max_pool_indices", "x", types=_max_pool_type("int64"), numpy=_max_pool_indices, lower=_lower_max_pool_indices,
    defaults={"column_major": False, **_DEFAULTS}, **_POOL, gradient=PIECEWISE_CONSTANT, accuracy=Accuracy.JUMPS,
    sample=sample_of("nn.max_pool_indices", IMAGE, **WINDOW),
    doc="Where in x, flattened, each window's first maximum stands; -1 for a window of padding alone.",
))  # fmt: skip


def _unpool_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, indices = operands
    require_dtype(x, "the input", *NUMBERS)
    require_dtype(indices, "the indices", "int64")
    result = TensorType(tuple_of_ints(attrs, "shape"), x.dtype)
    wanted = pool_type(result, attrs, x.dtype, _spatial(result))
    require(x == wanted and indices.shape == x.shape,
            f"a pooling of {result} gives {wanted}, but there are {x} and indices {indices}")  # fmt: skip
    return result


def _unpool(x: Array, indices: Array, shape: Sequence[int], **window: Any) -> Array:
    result, inside = np.zeros(math.prod(shape), x.dtype), indices >= 0
    np.add.at(result, indices[inside], x[inside])
    return result.reshape(shape)


def _lower_unpool(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    """Each element looks for itself in the windows that it is in."""
    (x, indices), shape, pads = operands, call.shape, call.attr("pads")
    window, strides = window_axes(builder, call.attr("kernel")), call.attr("strides")
    flat_strides = _flat_strides(shape, False)

    def value(*index: tir.Expr) -> te.Reduction:
        own: tir.Expr = tir.Const(0)
        for place, stride in zip(index, flat_strides, strict=True):
            own = own + place * stride
        places, fits = [], []
        for axis, offset in enumerate(window):
            start = index[2 + axis] + pads[axis] - offset * call.attr("dilations")[axis]
            places.append(tir.clamp(start // strides[axis], 0, x.shape[2 + axis] - 1))
            fits += [(start % strides[axis]).eq(0)] if strides[axis] > 1 else []
            fits += [tir.Const(0) <= start, start < x.shape[2 + axis] * strides[axis]]
        at = (*index[:2], *places)
        here = functools.reduce(operator.and_, fits) & indices[at].eq(own)
        return te.sum(tir.select(here, x[at], tir.Const(0, x.dtype)), window)

    return builder.reduction(shape, value, "spread")


_WINDOWED = {**WINDOW, "dilations": (1, 1)}


def _sample_unpool(dtype: str) -> Call:
    values = np.random.default_rng(0).normal(size=IMAGE)
    places = Constant(_max_pool_indices(values, column_major=False, **_WINDOWED))
    return call("nn.unpool", variable(dtype, *places.shape), places, shape=IMAGE, **WINDOW)


register(Operator(
    "nn.unpool", "x indices", types=_unpool_type, numpy=rounded_once(_unpool), lower=_lower_unpool,
    gradient=unpool_gradient, defaults={"shape": REQUIRED, **_DEFAULTS}, family=Family.SOURCE,
    fusion=Fusion.REDUCTION, sample=_sample_unpool,
    doc="Zeros of shape, where each element of x is added at its index: one that nn.max_pool_indices gave its window.",
))  # fmt: skip


def _average_pool_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x = operands[0]
    require_dtype(x, "the input", *FLOATS)
    return pool_type(x, attrs, x.dtype, _spatial(x))


def _average_pool(
    x: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    count_include_pad: bool,
) -> Array:
    def total(values: Array) -> Array:
        padded = numerics.pad_spatial(values.astype(np.float64), pads, 0.0)
        return np.asarray(sum(window for _, window in numerics.windows(padded, kernel, strides, dilations)))

    count = float(math.prod(kernel)) if count_include_pad else total(np.ones((1, 1, *x.shape[2:])))
    return np.asarray(total(x) / count).astype(x.dtype)


def _lower_average_pool(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x = operands[0]
    if x.dtype not in tir.FLOATS:
        raise NotLoweredError(f"{call.op} of {x.dtype}")
    kernel, strides, pads = call.attr("kernel"), call.attr("strides"), call.attr("pads")
    zero = tir.Const(0.0, x.dtype)
    total = pooled(builder, call, padded_read(x, pads, zero), te.sum)
    if not any(pads) or call.attr("count_include_pad"):
        return View(call.shape, x.dtype, lambda index: total[index] / float(math.prod(kernel)))
    if set(call.attr("dilations")) != {1}:
        ones = View(x.shape, x.dtype, lambda index: tir.Const(1.0, x.dtype))
        counted = pooled(builder, call, padded_read(ones, pads, zero), te.sum)
        return View(call.shape, x.dtype, lambda index: total[index] / counted[index])

    def present(place: tir.Expr, axis: int) -> tir.Expr:
        """How many places of the window along an axis are not padding."""
        start = place * strides[axis] - pads[axis]
        end = tir.minimum(start + kernel[axis], x.shape[2 + axis])
        count = end - tir.maximum(start, 0)
        return count if windows_meet_input(call, x) else tir.maximum(count, 0)

    def read(index: Index) -> tir.Expr:
        first, *others = (present(place, axis) for axis, place in enumerate(index[2:]))
        count = functools.reduce(operator.mul, others, first)
        return total[index] / count.astype(x.dtype)

    return View(call.shape, x.dtype, read)


register(Operator(
    "nn.average_pool", "x", types=_average_pool_type, numpy=_average_pool, lower=_lower_average_pool,
    defaults={"count_include_pad": False, **_DEFAULTS}, **_POOL, gradient=average_pool_gradient,
    sample=sample_of("nn.average_pool", IMAGE, **WINDOW), draw=_draw_pool("nn.average_pool"),
    role=Role.MEAN, integer=windows.mean_of_window, eight_bits=EightBits.SUMS,
    doc="Mean over windows of 2 or 3 axes; count_include_pad tells whether padding counts.",
))  # fmt: skip
