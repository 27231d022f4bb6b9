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
from ..graph.ir import Array, Attrs, Call, Expr, TensorType
from ..graph.registry import REQUIRED, Accuracy, Anchor, Draw, Family, Fusion, Operator, TypeRule, call, register
from ..tensor import ir as tir
from ..tensor.view import Builder, Index, NotLoweredError, View
from . import numerics
from .reasons import NO_GRADIENT_YET, NOT_DIFFERENTIABLE, NOT_LOWERED
from .samples import IMAGE, WINDOW, sample_of
from .type_rules import pool_type, require, require_dtype
from .windows import clamped_read, drawn_window, padded_read, pooled, windows_meet_input


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
    gradient=NO_GRADIENT_YET, accuracy=Accuracy.EXACT, sample=sample_of("nn.max_pool", IMAGE, **WINDOW),
    draw=_draw_pool("nn.max_pool"), doc="Maximum over windows of 2 or 3 axes; padding never wins.",
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
        better = (value > best) | (result < 0)
        best, result = np.where(better, value, best), np.where(better, place, result)
    return result.astype(np.int64)


register(Operator(
    "nn.max_pool_indices", "x", types=_max_pool_type("int64"), numpy=_max_pool_indices, lower=NOT_LOWERED,
    defaults={"column_major": False, **_DEFAULTS}, **_POOL, gradient=NOT_DIFFERENTIABLE, accuracy=Accuracy.JUMPS,
    sample=sample_of("nn.max_pool_indices", IMAGE, **WINDOW),
    doc="Where in x, flattened, each window's first maximum stands.",
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
    defaults={"count_include_pad": False, **_DEFAULTS}, **_POOL, gradient=NO_GRADIENT_YET,
    sample=sample_of("nn.average_pool", IMAGE, **WINDOW), draw=_draw_pool("nn.average_pool"),
    doc="Mean over windows of 2 or 3 axes; count_include_pad tells whether padding counts.",
))  # fmt: skip
