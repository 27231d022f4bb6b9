"""Operators that combine elements along axes. Floats are accumulated in float64 and rounded once; integers wrap."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import tensor as te
from ..graph.chooser import Chooser
from ..graph.dtypes import FLOATS, HALVES, NUMBERS
from ..graph.ir import Array, Attrs, Call, Expr, TensorType
from ..graph.registry import (
    REQUIRED,
    Accuracy,
    Anchor,
    EightBits,
    Family,
    Fusion,
    Gradient,
    Lowering,
    Operator,
    Role,
    TypeRule,
    call,
    register,
)
from ..integers import windows
from ..tensor import ir as tir
from ..tensor.view import Builder, Index, NotLoweredError, View
from .build import nn
from .derivatives import expanded, like, reshaped, times, where
from .reasons import PIECEWISE_CONSTANT
from .samples import sample_of
from .type_rules import flag, integer, require, require_dtype, tuple_of_ints

Reducer = Callable[..., te.Reduction]


def _reduced_type(x: TensorType, axes: Sequence[int], keepdims: bool, dtype: str) -> TensorType:
    if keepdims:
        return TensorType(tuple(1 if i in axes else size for i, size in enumerate(x.shape)), dtype)
    return TensorType(tuple(size for i, size in enumerate(x.shape) if i not in axes), dtype)


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


def _reduce_type(dtypes: tuple[str, ...]) -> TypeRule:
    def rule(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
        x, axes = operands[0], tuple_of_ints(attrs, "axes")
        require_dtype(x, "the input", *dtypes)
        fits = list(axes) == sorted(set(axes)) and all(0 <= axis < x.rank for axis in axes)
        require(fits, f"axes must be different axes of {x} in rising order, but are {axes}")
        return _reduced_type(x, axes, flag(attrs, "keepdims"), x.dtype)

    return rule


def _accumulated(reduce: Callable[..., Any]) -> Callable[..., Array]:
    """A NumPy reduction in float64 for floats, in 64 bits for integers; an empty sum is 0, an empty product 1."""

    def run(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        wide = x.astype(np.float64) if x.dtype.name in FLOATS else x
        return np.asarray(reduce(wide, axis=axes, keepdims=keepdims)).astype(x.dtype)

    return run


def _mean(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    count = np.prod([x.shape[i] for i in axis], dtype=np.int64)
    total = np.sum(x, axis=axis, keepdims=keepdims)
    return np.asarray(total / count if x.dtype.kind == "f" else np.trunc(total / max(count, 1)))


def _extreme(reduce: Callable[..., Any], largest: bool) -> Callable[..., Array]:
    def run(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        wide = x.astype(np.float32) if x.dtype.name in HALVES else x
        if x.dtype.kind == "b":
            neutral: Any = not largest
        elif x.dtype.name in FLOATS:
            neutral = -np.inf if largest else np.inf
        else:
            neutral = np.iinfo(x.dtype).min if largest else np.iinfo(x.dtype).max
        return np.asarray(reduce(wide, axis=axes, keepdims=keepdims, initial=neutral)).astype(x.dtype)

    return run


def _reduce(reducer: Reducer) -> Lowering:
    def rule(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
        x, axes, keepdims = operands[0], call.attr("axes"), call.attr("keepdims")
        if x.dtype != "bool":
            return reduced(builder, x, axes, keepdims, reducer)
        bits = View(x.shape, "uint8", lambda index: x[index].astype("uint8"))
        result = reduced(builder, bits, axes, keepdims, reducer)
        return View(result.shape, "bool", lambda index: result[index].astype("bool"))

    return rule


def _lower_mean(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x = operands[0]
    if x.dtype not in tir.FLOATS:
        raise NotLoweredError(f"the mean of {x.dtype}")
    axes = call.attr("axes")
    count = math.prod(x.shape[axis] for axis in axes)
    total = reduced(builder, x, axes, call.attr("keepdims"), te.sum)
    return View(call.shape, x.dtype, lambda index: total[index] / float(count))


def _draw_reduce(name: str, dtypes: tuple[str, ...]) -> Callable[[Chooser], Expr]:
    def draw(choose: Chooser) -> Expr:
        x = choose.operand(lambda node: len(node.shape) > 0, dtypes)
        axes = tuple(axis for axis in range(len(x.shape)) if choose.chance(0.5))
        return call(name, x, axes=axes or (0,), keepdims=choose.chance(0.5))

    return draw


def _kept(value: Expr, node: Call) -> Expr:
    """A value of the result's shape with the reduced axes as axes of size 1."""
    axes = node.attr("axes")
    return reshaped(value, [1 if axis in axes else size for axis, size in enumerate(node.args[0].shape)])


def _sum_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    return (expanded(_kept(upstream, node), node.args[0].shape),)


def _mean_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    count = math.prod(node.args[0].shape[axis] for axis in node.attr("axes"))
    return _sum_gradient(times(upstream, 1 / max(count, 1)), node)


def _product_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    """The product of all others: without a division where an element is 0. Second derivatives at a 0 lack a part."""
    x, axes = node.args[0], node.attr("axes")
    is_zero = nn.equal(x, like(x, 0))
    zeros = nn.reduce_sum(where(is_zero, like(x, 1)), axes=axes, keepdims=True)
    safe = nn.where(is_zero, like(x, 1), x)
    product = nn.reduce_product(safe, axes=axes, keepdims=True)
    alone = where(is_zero, nn.where(nn.equal(zeros, like(x, 1)), product, like(x, 0)))
    others = nn.where(nn.equal(zeros, like(x, 0)), nn.divide(product, safe), alone)
    return (nn.multiply(_kept(upstream, node), others),)


def _extreme_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    """Elements that share the extreme value share its gradient."""
    x = node.args[0]
    extreme = nn.equal(x, _kept(node, node))
    count = nn.reduce_sum(where(extreme, like(x, 1)), axes=node.attr("axes"), keepdims=True)
    return (where(extreme, nn.divide(_kept(upstream, node), count)),)


def _reduction(
    name: str, dtypes: tuple[str, ...], numpy: Callable[..., Array], lower: Lowering, gradient: Gradient, doc: str,
    drawn: tuple[str, ...] = NUMBERS, accuracy: Accuracy = Accuracy.ROUNDED, **facts: Any,
) -> None:  # fmt: skip
    """A reduction along the attribute ``axes``; random graphs have it of the types ``drawn``."""
    register(Operator(
        name, "x", family=Family.SOURCE, types=_reduce_type(dtypes), numpy=numpy, lower=lower,
        defaults={"axes": REQUIRED, "keepdims": False}, gradient=gradient, fusion=Fusion.REDUCTION,
        anchor=Anchor.REDUCTION, accuracy=accuracy, sample=sample_of(name, (2, 3, 4), axes=(0, 2)),
        draw=_draw_reduce(name, drawn), doc=doc, **facts,
    ))  # fmt: skip


_reduction("nn.reduce_sum", NUMBERS, _accumulated(np.sum), _reduce(te.sum), _sum_gradient,
           "Sum along axes; of nothing it is 0.", role=Role.SUM, integer=windows.reduced)  # fmt: skip
_reduction("nn.reduce_product", NUMBERS, _accumulated(np.prod), _reduce(te.product), _product_gradient,
           "Product along axes; of nothing it is 1.")  # fmt: skip
_reduction("nn.reduce_mean", NUMBERS, _accumulated(_mean), _lower_mean, _mean_gradient,
           "Mean along axes; integers towards zero.", drawn=FLOATS, role=Role.MEAN, integer=windows.reduced,
           eight_bits=EightBits.SUMS)  # fmt: skip
_reduction("nn.reduce_max", ("bool", *NUMBERS), _extreme(np.max, True), _reduce(te.max), _extreme_gradient,
           "Largest along axes; of nothing -inf or least.", accuracy=Accuracy.EXACT, role=Role.LARGEST,
           integer=windows.reduced)  # fmt: skip
_reduction("nn.reduce_min", ("bool", *NUMBERS), _extreme(np.min, False), _reduce(te.min), _extreme_gradient,
           "Least along axes; of nothing inf or largest.", accuracy=Accuracy.EXACT,
           integer=windows.least_along_axes)  # fmt: skip


def _arg_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x = operands[0]
    require_dtype(x, "the input", *NUMBERS)
    require(x.rank >= 1, "a scalar has no axis")
    axis = integer(attrs, "axis", 0, x.rank - 1)
    require(x.shape[axis] >= 1, f"axis {axis} of {x} is empty")
    flag(attrs, "last")
    return _reduced_type(x, (axis,), flag(attrs, "keepdims"), "int64")


def _arg(pick: Callable[..., Any]) -> Callable[..., Array]:
    def run(x: Array, axis: int, keepdims: bool, last: bool) -> Array:
        wide = x.astype(np.float32) if x.dtype.name in HALVES else x
        if last:
            return np.asarray(x.shape[axis] - 1 - pick(np.flip(wide, axis), axis=axis, keepdims=keepdims), np.int64)
        return np.asarray(pick(wide, axis=axis, keepdims=keepdims), np.int64)

    return run


def _lower_arg(reducer: Reducer) -> Lowering:
    """The extreme value first, then the least (or greatest) place at which it stands; not-a-number is extreme."""

    def rule(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
        x, axis, last = operands[0], call.attr("axis"), call.attr("last")
        extreme = reduced(builder, x, (axis,), True, reducer)
        nowhere = tir.Const(-1 if last else x.shape[axis])

        def place(index: Index) -> tir.Expr:
            value = x[index]
            is_extreme = value.eq(extreme[index_1(index, axis)])
            if x.dtype in tir.FLOATS:
                is_extreme = is_extreme | value.ne(value)
            return tir.select(is_extreme, index[axis], nowhere)

        places = View(x.shape, "int64", place)
        return reduced(builder, places, (axis,), call.attr("keepdims"), te.max if last else te.min)

    return rule


def index_1(index: Index, axis: int) -> Index:
    """The index with 0 along ``axis``."""
    return (*index[:axis], tir.Const(0), *index[axis + 1 :])


for _name, _pick, _reducer, _what, _attrs in (
    ("nn.arg_max", np.argmax, te.max, "largest", {"axis": 1}),
    ("nn.arg_min", np.argmin, te.min, "least", {"axis": 0, "keepdims": True, "last": True}),
):
    register(Operator(
        _name, "x", family=Family.SOURCE, types=_arg_type, numpy=_arg(_pick), lower=_lower_arg(_reducer),
        defaults={"axis": REQUIRED, "keepdims": False, "last": False}, gradient=PIECEWISE_CONSTANT,
        fusion=Fusion.REDUCTION, accuracy=Accuracy.JUMPS, sample=sample_of(_name, (3, 4), **_attrs),
        doc=f"Index of the {_what} element along axis; of equal ones the first, or the last.",
    ))  # fmt: skip


def _cumulative_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x = operands[0]
    require_dtype(x, "the input", *NUMBERS)
    require(x.rank >= 1, "a scalar has no axis")
    integer(attrs, "axis", 0, x.rank - 1)
    flag(attrs, "exclusive")
    flag(attrs, "reverse")
    return x


def _cumulative(accumulate: Callable[..., Any], neutral: int) -> Callable[..., Array]:
    def run(x: Array, axis: int, exclusive: bool, reverse: bool) -> Array:
        values = np.flip(x, axis) if reverse else x
        if exclusive:
            first = np.full_like(np.take(values, range(min(1, values.shape[axis])), axis), neutral)
            values = np.concatenate([first, np.take(values, range(values.shape[axis] - 1), axis)], axis)
        wide = values.astype(np.float64) if x.dtype.name in FLOATS else values
        result = accumulate(wide, axis=axis).astype(x.dtype)
        return np.asarray(np.flip(result, axis) if reverse else result)

    return run


LONGEST_ROW = 4096
"""Elements of an axis up to which a kernel goes over them in steps that double. NumPy goes along longer ones once."""


def _lower_cumulative(combine: Callable[[tir.Expr, tir.Expr], tir.Expr], neutral: int) -> Lowering:
    """Each element with its neighbour, then with what is two before, four, eight, until all before are in it (Hillis
    and Steele, 1986). Floats are combined in double precision, as in NumPy."""

    def rule(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
        x, axis, reverse = operands[0], call.attr("axis"), call.attr("reverse")
        size = x.shape[axis]
        if size > LONGEST_ROW:
            raise NotLoweredError(f"{call.op} of more than {LONGEST_ROW} elements, which NumPy goes along once")
        wide: tir.DType = "float64" if x.dtype in tir.FLOATS else x.dtype
        start = tir.Const(neutral, wide)

        def before(view: View, index: Index, step: int) -> tuple[tir.Expr, tir.Expr]:
            """Whether there is an element so many steps before, and that element."""
            place = index[axis] + step if reverse else index[axis] - step
            inside = place < size if reverse else place >= 0
            return inside, view[(*index[:axis], place, *index[axis + 1 :])]

        def combined(view: View, step: int) -> View:
            def value(index: Index) -> tir.Expr:
                inside, other = before(view, index, step)
                return tir.select(inside, combine(other, view[index]), view[index])

            return builder.stored(View(view.shape, wide, value), "total")

        total, step = View(x.shape, wide, lambda index: x[index].astype(wide)), 1
        while step < size:
            total, step = combined(total, step), 2 * step

        def read(index: Index) -> tir.Expr:
            value = tir.select(*before(total, index, 1), start) if call.attr("exclusive") else total[index]
            return value.astype(x.dtype)

        return View(x.shape, x.dtype, read)

    return rule


def _turned_sum(x: Expr, node: Call) -> Expr:
    """For each element the sum of all whose result contains it."""
    return nn.cumulative_sum(x, axis=node.attr("axis"), exclusive=node.attr("exclusive"),
                             reverse=not node.attr("reverse"))  # fmt: skip


def _cumulative_sum_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    return (_turned_sum(upstream, node),)


def _cumulative_product_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    """The results that contain an element, divided by it. For the first 0, whose results are 0, they are computed
    without it; behind it the gradient is 0. Second derivatives at a 0 lack a part."""
    x = node.args[0]
    is_zero = nn.equal(x, like(x, 0))
    safe = nn.where(is_zero, like(x, 1), x)
    so_far = nn.cumulative_sum(where(is_zero, like(x, 1)), axis=node.attr("axis"), reverse=node.attr("reverse"))
    first = nn.and_(is_zero, nn.equal(so_far, like(x, 1)))
    without = call("nn.cumulative_product", nn.where(first, like(x, 1), x), span=node.span, **node.attrs)
    usual = nn.divide(_turned_sum(nn.multiply(upstream, node), node), safe)
    return (nn.where(is_zero, where(first, _turned_sum(nn.multiply(upstream, without), node)), usual),)


for _name, _accumulate, _combine, _neutral, _gradient, _what, _attrs in (
    ("nn.cumulative_sum", np.cumsum, operator.add, 0, _cumulative_sum_gradient, "Sums", {"axis": 0, "reverse": True}),
    (
        "nn.cumulative_product",
        np.cumprod,
        operator.mul,
        1,
        _cumulative_product_gradient,
        "Products",
        {"axis": 1, "exclusive": True},
    ),
):
    register(Operator(
        _name, "x", family=Family.SOURCE, types=_cumulative_type, numpy=_cumulative(_accumulate, _neutral),
        defaults={"axis": REQUIRED, "exclusive": False, "reverse": False}, gradient=_gradient,
        lower=_lower_cumulative(_combine, _neutral),
        fusion=Fusion.OPAQUE, sample=sample_of(_name, (3, 4), **_attrs),
        doc=f"{_what} of the elements up to each one along axis; exclusive: without itself; reverse: from the end.",
    ))  # fmt: skip
