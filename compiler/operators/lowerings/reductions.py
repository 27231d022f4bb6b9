"""Operators that combine elements along axes."""

from __future__ import annotations

import math
from collections.abc import Callable

from ... import tensor as te
from ...graph.ir import Call
from ...tensor import ir as tir
from .view import Builder, Index, NotLoweredError, Rule, View, register_rules

Reducer = Callable[..., te.Reduction]


def reduced(builder: Builder, x: View, axes: tuple[int, ...], keepdims: bool, reducer: Reducer) -> View:
    """``x`` combined along ``axes``, which stay as extent 1 with ``keepdims``."""
    if not axes:
        return x
    extents = {axis: builder.axis(x.shape[axis], f"r{axis}") for axis in axes}
    kept = tuple(axis for axis in range(len(x.shape)) if axis not in axes)
    shape = tuple(x.shape[axis] for axis in kept)

    def value(*index: tir.Expr) -> te.Reduction:
        places: dict[int, tir.Expr] = {**dict(zip(kept, index, strict=True)), **extents}
        return reducer(x[tuple(places[axis] for axis in range(len(x.shape)))], list(extents.values()))

    result = builder.reduction(shape, value, "reduced")
    if not keepdims:
        return result
    full = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    return View(full, result.dtype, lambda index: result[tuple(index[axis] for axis in kept)])


def _reduce(reducer: Reducer) -> Rule:
    def rule(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
        x, axes, keepdims = operands[0], call.attr("axes"), call.attr("keepdims")
        if x.dtype != "bool":
            return reduced(builder, x, axes, keepdims, reducer)
        bits = View(x.shape, "uint8", lambda index: x[index].astype("uint8"))
        result = reduced(builder, bits, axes, keepdims, reducer)
        return View(result.shape, "bool", lambda index: result[index].astype("bool"))

    return rule


def _arg(reducer: Reducer) -> Rule:
    """The extreme value first, then the least (or greatest) place at which it stands; not-a-number is extreme."""

    def rule(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
        x, axis, last = operands[0], call.attr("axis"), call.attr("last")
        extreme = reduced(builder, x, (axis,), True, reducer)
        nowhere = tir.Const(-1 if last else x.shape[axis])

        def place(index: Index) -> tir.Expr:
            value = x[index]
            found = value.eq(extreme[index_1(index, axis)])
            return tir.select(found | value.ne(value) if x.dtype in tir.FLOATS else found, index[axis], nowhere)

        places = View(x.shape, "int64", place)
        return reduced(builder, places, (axis,), call.attr("keepdims"), te.max if last else te.min)

    return rule


def _mean(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x = operands[0]
    if x.dtype not in tir.FLOATS:
        raise NotLoweredError(f"the mean of {x.dtype}")
    axes = call.attr("axes")
    count = math.prod(x.shape[axis] for axis in axes)
    total = reduced(builder, x, axes, call.attr("keepdims"), te.sum)
    return View(call.shape, x.dtype, lambda index: total[index] / float(count))


def _softmax(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, axis = operands[0], call.attr("axis")
    if x.dtype not in tir.FLOATS or not x.shape:
        raise NotLoweredError(f"softmax of {x.dtype}{list(x.shape)}")
    largest = reduced(builder, x, (axis,), True, te.max)
    powers = builder.stored(View(x.shape, x.dtype, lambda index: te.exp(x[index] - largest[index_1(index, axis)])),
                            "powers")  # fmt: skip
    total = reduced(builder, powers, (axis,), True, te.sum)
    return View(x.shape, x.dtype, lambda index: powers[index] / total[index_1(index, axis)])


def index_1(index: Index, axis: int) -> Index:
    """The index with 0 along ``axis``."""
    return (*index[:axis], tir.Const(0), *index[axis + 1 :])


RULES: dict[str, Rule] = {
    "nn.reduce_sum": _reduce(te.sum),
    "nn.reduce_product": _reduce(te.product),
    "nn.reduce_max": _reduce(te.max),
    "nn.reduce_min": _reduce(te.min),
    "nn.reduce_mean": _mean,
    "nn.arg_max": _arg(te.max),
    "nn.arg_min": _arg(te.min),
    "nn.softmax": _softmax,
}

register_rules(RULES)
