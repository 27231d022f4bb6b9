"""Operators that pick or place elements at computed indices, for every element type. A negative index counts from the
end of its axis."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from .. import tensor as te
from ..graph.chooser import Chooser
from ..graph.dtypes import NUMBERS, STRING, numpy_dtype
from ..graph.gradient import zeros
from ..graph.ir import Array, Attrs, Call, Constant, Expr, TensorType
from ..graph.registry import (
    Accuracy,
    Family,
    Fusion,
    Operator,
    call,
    operator_of,
    register,
)
from ..integers.moves import looked_up
from ..tensor import ir as tir
from ..tensor.view import Builder, Index, NotLoweredError, View
from .build import contract, nn
from .derivatives import expanded, like, nothing_like, reshaped, transposed, where
from .move import unflatten
from .samples import indices as constant_indices
from .samples import sample_at
from .type_rules import integer, require, require_dtype


def index_sizes(node: Call) -> tuple[int, ...]:
    """Sizes of the axes in which the indices of a call count: one, or one for each number of their last axis. Empty for
    operators without."""
    entry = operator_of(node)
    return entry.index_sizes(node) if entry is not None and entry.index_sizes is not None else ()


def indices_of(node: Call) -> Expr | None:
    """The operand of a call that holds indices, if one does."""
    entry = operator_of(node)
    return node.args[entry.index_operand] if entry is not None and entry.index_sizes is not None else None


def _require_indices(indices: TensorType) -> None:
    require_dtype(indices, "indices", "int32", "int64")


def read_place(call: Call, indices: View) -> Callable[[Index, int], tir.Expr]:
    """Reads an index of a call, of an axis of the given size, as a place that counts from the front. Machine code
    trusts it to be inside: of constants that is known here, others are checked before the kernel runs."""
    source = indices_of(call)
    negative = True
    if isinstance(source, Constant):
        sizes = np.array(index_sizes(call))
        if not ((source.value >= -sizes) & (source.value < sizes)).all():
            raise NotLoweredError("an index that is outside")
        negative = bool((source.value < 0).any())

    def read(index: Index, size: int) -> tir.Expr:
        picked = indices[index].astype("int64")
        return picked + (picked < 0).astype("int64") * size if negative else picked

    return read


def _gather_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, indices = operands
    _require_indices(indices)
    require(x.rank >= 1, "cannot pick from a scalar")
    axis = integer(attrs, "axis", 0, x.rank - 1)
    return TensorType((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)


def _gather(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    (x, indices), axis = operands, call.attr("axis")
    place, end = read_place(call, indices), axis + len(indices.shape)

    def read(index: Index) -> tir.Expr:
        return x[(*index[:axis], place(index[axis:end], x.shape[axis]), *index[end:])]

    return View(call.shape, x.dtype, read)


def _along_axis(node: Call) -> tuple[int, ...]:
    return (node.args[0].shape[node.attr("axis")],)


def _draw_gather(choose: Chooser) -> Expr:
    x = choose.operand(lambda node: len(node.shape) > 0 and 0 not in node.shape)
    axis = choose.whole(0, len(x.shape) - 1)
    picked = [choose.whole(0, x.shape[axis] - 1) for _ in range(choose.whole(0, 4))]
    return call("gather", x, constant_indices(picked), axis=axis)


def _gather_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    """What was picked more than once gets the sum."""
    (x, indices), axis = node.args, node.attr("axis")
    count, rank = prod(indices.shape), len(x.shape)
    slices = reshaped(upstream, (*x.shape[:axis], count, *x.shape[axis + 1 :]))
    order = (axis, *(i for i in range(rank) if i != axis))
    turned = transposed(slices, order)
    target = zeros(TensorType((x.shape[axis], *turned.shape[1:]), x.dtype))
    placed = contract.scatter_nd(target, reshaped(indices, (count, 1)), turned, reduction="add")
    return transposed(placed, [order.index(i) for i in range(rank)]), None


def _gather_elements_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    x, indices = node.args
    placed = contract.scatter_elements(nothing_like(x), indices, upstream, axis=node.attr("axis"), reduction="add")
    return placed, None


def _with_batch(node: Call) -> Expr:
    """The indices of a gather_nd, with the places along its batch axes as further coordinates."""
    indices, batch = node.args[1], node.attr("batch_dims")
    if not batch:
        return indices
    outer = indices.shape[:-1]
    dtype = numpy_dtype(indices.dtype)
    places = np.stack(np.broadcast_arrays(*(
        np.arange(size, dtype=dtype).reshape([-1 if i == axis else 1 for i in range(len(outer))])
        for axis, size in enumerate(outer[:batch])
    )), -1)  # fmt: skip
    spread = np.broadcast_to(places, (*outer, batch))
    return contract.concat(Constant(spread), indices, axis=len(outer))


def _gather_nd_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    return contract.scatter_nd(nothing_like(node.args[0]), _with_batch(node), upstream, reduction="add"), None


_PICK: dict[str, Any] = {
    "family": Family.INDEX, "fusion": Fusion.LAYOUT, "accuracy": Accuracy.EXACT,
}  # fmt: skip
register(Operator(
    "gather", "x indices", types=_gather_type, numpy=lambda x, indices, axis: np.take(x, indices, axis), lower=_gather,
    gradient=_gather_gradient,
    defaults={"axis": 0}, index_sizes=_along_axis, **_PICK,
    sample=sample_at("gather", constant_indices([[0, -1], [2, 2]]), axis=0), draw=_draw_gather, integer=looked_up,
    doc="Slices of x along axis: the axis is replaced by those of the indices.",
))  # fmt: skip


def _gather_elements_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, indices = operands
    _require_indices(indices)
    require(x.rank >= 1 and x.rank == indices.rank, f"{x} and indices {indices} differ in rank")
    axis = integer(attrs, "axis", 0, x.rank - 1)
    fits = all(i <= s for a, (i, s) in enumerate(zip(indices.shape, x.shape, strict=True)) if a != axis)
    require(fits, f"indices {indices} reach beyond {x}")
    return TensorType(indices.shape, x.dtype)


def _element_places(indices: Array, axis: int, size: int) -> tuple[Array, ...]:
    """For each element of ``indices`` its own coordinates, with the one along ``axis`` replaced by the index."""
    places: list[Array] = list(np.indices(indices.shape, sparse=True))
    places[axis] = np.where(indices < 0, indices + size, indices)
    return tuple(places)


def _gather_elements(x: Array, indices: Array, axis: int) -> Array:
    return np.asarray(x[_element_places(indices, axis, x.shape[axis])])


def _lower_gather_elements(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    (x, indices), axis = operands, call.attr("axis")
    place = read_place(call, indices)

    def read(index: Index) -> tir.Expr:
        return x[(*index[:axis], place(index, x.shape[axis]), *index[axis + 1 :])]

    return View(call.shape, x.dtype, read)


register(Operator(
    "gather_elements", "x indices", types=_gather_elements_type, numpy=_gather_elements, lower=_lower_gather_elements,
    gradient=_gather_elements_gradient,
    defaults={"axis": 0}, index_sizes=_along_axis, **_PICK,
    sample=sample_at("gather_elements", constant_indices([[0, -1], [2, 1]]), axis=1), integer=looked_up,
    doc="result[i, j, ...] = x[i, indices[i, j, ...], ...], for axis 1.",
))  # fmt: skip


def _gather_nd_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, indices = operands
    _require_indices(indices)
    require(indices.rank >= 1, "indices need an axis that holds coordinates")
    batch = integer(attrs, "batch_dims", 0, min(x.rank, indices.rank - 1))
    depth = indices.shape[-1]
    require(x.shape[:batch] == indices.shape[:batch], f"{x} and indices {indices} differ in their batch axes")
    require(batch + depth <= x.rank, f"coordinates of {depth} numbers are too long for {x} behind {batch} batch axes")
    return TensorType((*indices.shape[:-1], *x.shape[batch + depth :]), x.dtype)


def _gather_nd(x: Array, indices: Array, batch_dims: int) -> Array:
    outer: tuple[Array, ...] = np.indices(indices.shape[:batch_dims], sparse=True)
    spread = [axis.reshape(axis.shape + (1,) * (indices.ndim - 1 - batch_dims)) for axis in outer]
    return np.asarray(x[(*spread, *np.moveaxis(indices, -1, 0))])


def _along_batch(node: Call) -> tuple[int, ...]:
    first = node.attr("batch_dims")
    return node.args[0].shape[first : first + node.args[1].shape[-1]]


def _lower_gather_nd(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    (x, indices), batch = operands, call.attr("batch_dims")
    place, sizes = read_place(call, indices), index_sizes(call)
    end = len(indices.shape) - 1

    def read(index: Index) -> tir.Expr:
        picked = [place((*index[:end], tir.Const(number)), size) for number, size in enumerate(sizes)]
        return x[(*index[:batch], *picked, *index[end:])]

    return View(call.shape, x.dtype, read)


register(Operator(
    "gather_nd", "x indices", types=_gather_nd_type, numpy=_gather_nd, lower=_lower_gather_nd,
    gradient=_gather_nd_gradient,
    defaults={"batch_dims": 0}, index_sizes=_along_batch, **_PICK,
    sample=sample_at("gather_nd", constant_indices([[0, 1], [2, -1]])), integer=looked_up,
    doc="x at the coordinates that the last axis of the indices holds, behind batch_dims common axes.",
))  # fmt: skip


_REDUCTIONS: dict[str, Callable[..., Any] | None] = {
    "none": None, "add": np.add.at, "multiply": np.multiply.at, "maximum": np.maximum.at, "minimum": np.minimum.at,
}  # fmt: skip


def _reduction(x: TensorType, attrs: Attrs) -> None:
    require(x.dtype != STRING or attrs["reduction"] == "none", "strings cannot be combined")
    require(attrs["reduction"] in _REDUCTIONS, f"reduction must be one of {', '.join(_REDUCTIONS)}")


def _require_updates(x: TensorType, updates: TensorType, shape: tuple[int, ...]) -> None:
    wanted = TensorType(shape, x.dtype)
    require(updates == wanted, f"the updates must be {wanted}, not {updates}")


def _scatter_elements_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, indices, updates = operands
    _require_indices(indices)
    _reduction(x, attrs)
    require(x.rank >= 1 and x.rank == indices.rank, f"{x} and indices {indices} differ in rank")
    integer(attrs, "axis", 0, x.rank - 1)
    _require_updates(x, updates, indices.shape)
    return x


def _place(x: Array, places: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    result = x.copy()
    update_at = _REDUCTIONS[reduction]
    if update_at is None:
        result[places] = updates
    else:
        update_at(result, places, updates)
    return result


def _scatter_elements(x: Array, indices: Array, updates: Array, axis: int, reduction: str) -> Array:
    return _place(x, _element_places(indices, axis, x.shape[axis]), updates, reduction)


PLACES_SEARCHED = 1024
"""Updates among which a kernel looks for those of an element. Where there are more, NumPy is faster: it goes through
the updates, and not through the elements."""


def _combined(builder: Builder, call: Call, x: View, matches: Callable[[Index], tir.Expr],
              updates: Callable[[Index], tir.Expr], searched: list[te.ReduceAxis]) -> View:  # fmt: skip
    """``x`` with the updates that match an element, of all places in ``searched``."""
    if call.dtype not in NUMBERS:
        raise NotLoweredError(f"a scatter of {call.dtype}")
    if prod(axis.extent for axis in searched) > PLACES_SEARCHED:
        raise NotLoweredError(f"a scatter of more than {PLACES_SEARCHED} updates of an element")
    least = -math.inf if x.dtype in tir.FLOATS else tir.INTEGER_RANGES[x.dtype][0]
    most = math.inf if x.dtype in tir.FLOATS else tir.INTEGER_RANGES[x.dtype][1]
    how: dict[str, tuple[Callable[..., te.Reduction], float, Callable[[tir.Expr, tir.Expr], tir.Expr]]] = {
        "add": (te.sum, 0, operator.add), "multiply": (te.product, 1, operator.mul),
        "maximum": (te.max, least, tir.maximum), "minimum": (te.min, most, tir.minimum),
    }  # fmt: skip
    reducer, neutral, combine = how[call.attr("reduction")]

    def value(*index: tir.Expr) -> te.Reduction:
        return reducer(tir.select(matches(index), updates(index), tir.Const(neutral, x.dtype)), searched)

    found = builder.reduction(x.shape, value, "found")
    return View(x.shape, x.dtype, lambda index: combine(x[index], found[index]))


def _last(builder: Builder, x: View, matches: Callable[[Index], tir.Expr], searched: list[te.ReduceAxis]) -> View:
    """For each element of ``x`` the last place in ``searched``, in row-major order, that matches it; -1 without one."""
    if prod(axis.extent for axis in searched) > PLACES_SEARCHED:
        raise NotLoweredError(f"a scatter of more than {PLACES_SEARCHED} updates of an element")
    position: tir.Expr = tir.Const(0)
    for axis in searched:
        position = position * axis.extent + axis

    def value(*index: tir.Expr) -> te.Reduction:
        return te.max(tir.select(matches(index), position, tir.Const(-1)), searched)

    return builder.reduction(x.shape, value, "last")


def _lower_scatter_elements(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    (x, indices, updates), axis = operands, call.attr("axis")
    place, r = read_place(call, indices), builder.axis(indices.shape[axis], "r")
    shorter = [i for i, size in enumerate(indices.shape) if i != axis and size < x.shape[i]]

    def at(index: Index, found: tir.Expr) -> Index:
        """Where the update ``found`` of an element stands."""
        inside = [tir.minimum(each, indices.shape[i] - 1) if i in shorter else each for i, each in enumerate(index)]
        return (*inside[:axis], found, *inside[axis + 1 :])

    def matches(index: Index) -> tir.Expr:
        same = place(at(index, r), x.shape[axis]).eq(index[axis])
        for i in shorter:
            same = same & (index[i] < indices.shape[i])
        return same

    if call.attr("reduction") != "none":
        return _combined(builder, call, x, matches, lambda index: updates[at(index, r)], [r])
    last = _last(builder, x, matches, [r])

    def read(index: Index) -> tir.Expr:
        found = tir.clamp(last[index], 0, indices.shape[axis] - 1)
        return tir.select(last[index] < 0, x[index], updates[at(index, found)])

    return View(x.shape, x.dtype, read)


def _lower_scatter_nd(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, indices, updates = operands
    outer, depth = indices.shape[:-1], indices.shape[-1]
    if not outer or not depth:
        raise NotLoweredError("a scatter of one update")
    place, searched = read_place(call, indices), [builder.axis(size, f"r{axis}") for axis, size in enumerate(outer)]

    def matches(index: Index) -> tir.Expr:
        return functools.reduce(operator.and_, (
            place((*searched, tir.Const(number)), x.shape[number]).eq(index[number]) for number in range(depth)
        ))  # fmt: skip

    if call.attr("reduction") != "none":
        return _combined(builder, call, x, matches,
                         lambda index: updates[(*searched, *index[depth:])], searched)  # fmt: skip
    last = _last(builder, x, matches, searched)

    def read(index: Index) -> tir.Expr:
        found = unflatten(tir.clamp(last[index], 0, prod(outer) - 1), outer)
        return tir.select(last[index] < 0, x[index], updates[(*found, *index[depth:])])

    return View(x.shape, x.dtype, read)


def _scatter_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    """For a scatter of either kind. Where one place is set more than once, the last update has set it; where several
    elements are the extreme one, they share its gradient. A product is exact where factors are 0, too."""
    x, indices, updates = node.args
    elements, reduction = node.op == "scatter_elements", node.attr("reduction")

    def picked(value: Expr) -> Expr:
        return contract.gather_elements(value, indices, axis=node.attr("axis")) if elements else (
            contract.gather_nd(value, indices)
        )  # fmt: skip

    def placed(target: Expr, value: Expr, how: str) -> Expr:
        axis = {"axis": node.attr("axis")} if elements else {}
        return call(str(node.op), target, indices, value, reduction=how, **axis)

    if reduction == "add":
        return upstream, None, picked(upstream)
    if reduction == "none":
        order = np.arange(updates.tensor_type.size, dtype=np.int64).reshape(updates.shape)
        nobody = zeros(TensorType(x.shape, "int64"))
        last = nn.equal(picked(placed(nobody, Constant(order), "maximum")), Constant(order))
        return placed(upstream, nothing_like(updates), "none"), None, where(last, picked(upstream))
    if reduction == "multiply":
        is_zero = nn.equal(updates, like(updates, 0))
        nonzero = nn.where(is_zero, like(updates, 1), updates)
        zero = nn.cast(is_zero, to=updates.dtype)
        others_zero = nn.subtract(picked(placed(nothing_like(x), zero, "add")), zero)
        others = nn.divide(picked(nn.multiply(upstream, placed(x, nonzero, "multiply"))), nonzero)
        own = nn.multiply(upstream, placed(expanded(like(x, 1), x.shape), updates, "multiply"))
        return own, None, where(nn.equal(others_zero, like(zero, 0)), others)
    kept, taken = nn.equal(x, node), nn.equal(updates, picked(node))
    count = placed(nn.cast(kept, to=x.dtype), nn.cast(taken, to=x.dtype), "add")
    share = nn.divide(upstream, count)
    return where(kept, share), None, where(taken, picked(share))


_PLACE: dict[str, Any] = {
    "family": Family.INDEX, "gradient": _scatter_gradient, "fusion": Fusion.OPAQUE,
}  # fmt: skip
register(Operator(
    "scatter_elements", "x indices updates", types=_scatter_elements_type, numpy=_scatter_elements,
    defaults={"axis": 0, "reduction": "none"}, index_sizes=_along_axis, lower=_lower_scatter_elements, **_PLACE,
    sample=sample_at("scatter_elements", constant_indices([[0, 3], [2, 1]]), updates=(2, 2), axis=1),
    doc="A copy of x whose elements that gather_elements would pick are set, or combined.",
))  # fmt: skip


def _scatter_nd_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, indices, updates = operands
    _require_indices(indices)
    _reduction(x, attrs)
    require(indices.rank >= 1 and indices.shape[-1] <= x.rank, f"the coordinates {indices} do not fit {x}")
    _require_updates(x, updates, (*indices.shape[:-1], *x.shape[indices.shape[-1] :]))
    return x


def _scatter_nd(x: Array, indices: Array, updates: Array, reduction: str) -> Array:
    return _place(x, tuple(np.moveaxis(indices, -1, 0)), updates, reduction)


register(Operator(
    "scatter_nd", "x indices updates", types=_scatter_nd_type, numpy=_scatter_nd, defaults={"reduction": "none"},
    lower=_lower_scatter_nd,
    index_sizes=lambda node: node.args[0].shape[: node.args[1].shape[-1]],
    sample=sample_at("scatter_nd", constant_indices([[2], [0]]), updates=(2, 4)), **_PLACE,
    doc="A copy of x whose slices that gather_nd would pick are set, or combined.",
))  # fmt: skip
