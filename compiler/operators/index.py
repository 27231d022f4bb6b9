"""Operators that pick or place elements at computed indices, for every element type. A negative index counts from the
end of its axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..graph.chooser import Chooser
from ..graph.dtypes import NUMBERS
from ..graph.ir import Array, Attrs, Call, Constant, Expr, TensorType
from ..graph.registry import REQUIRED, Accuracy, Family, Fusion, Operator, call, operator_of, register
from ..tensor import ir as tir
from ..tensor.view import Builder, Index, NotLoweredError, View
from .reasons import NO_GRADIENT_YET, NOT_DIFFERENTIABLE, NOT_LOWERED
from .samples import indices as constant_indices
from .samples import sample_at, sample_of
from .type_rules import flag, integer, require, require_dtype


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


def _read_place(call: Call, indices: View) -> Callable[[Index, int], tir.Expr]:
    """Reads an index, of an axis of the given size, as a place that counts from the front. Machine code trusts it to be
    inside: of constants that is known here, others are checked before the kernel runs."""
    source = call.args[1]
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
    place, end = _read_place(call, indices), axis + len(indices.shape)

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


_PICK: dict[str, Any] = {
    "family": Family.INDEX, "gradient": NO_GRADIENT_YET, "fusion": Fusion.LAYOUT, "accuracy": Accuracy.EXACT,
}  # fmt: skip
register(Operator(
    "gather", "x indices", types=_gather_type, numpy=lambda x, indices, axis: np.take(x, indices, axis), lower=_gather,
    defaults={"axis": 0}, index_sizes=_along_axis, **_PICK,
    sample=sample_at("gather", constant_indices([[0, -1], [2, 2]]), axis=0), draw=_draw_gather,
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
    place = _read_place(call, indices)

    def read(index: Index) -> tir.Expr:
        return x[(*index[:axis], place(index, x.shape[axis]), *index[axis + 1 :])]

    return View(call.shape, x.dtype, read)


register(Operator(
    "gather_elements", "x indices", types=_gather_elements_type, numpy=_gather_elements, lower=_lower_gather_elements,
    defaults={"axis": 0}, index_sizes=_along_axis, **_PICK,
    sample=sample_at("gather_elements", constant_indices([[0, -1], [2, 1]]), axis=1),
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
    place, sizes = _read_place(call, indices), index_sizes(call)
    end = len(indices.shape) - 1

    def read(index: Index) -> tir.Expr:
        picked = [place((*index[:end], tir.Const(number)), size) for number, size in enumerate(sizes)]
        return x[(*index[:batch], *picked, *index[end:])]

    return View(call.shape, x.dtype, read)


register(Operator(
    "gather_nd", "x indices", types=_gather_nd_type, numpy=_gather_nd, lower=_lower_gather_nd,
    defaults={"batch_dims": 0}, index_sizes=_along_batch, **_PICK,
    sample=sample_at("gather_nd", constant_indices([[0, 1], [2, -1]])),
    doc="x at the coordinates that the last axis of the indices holds, behind batch_dims common axes.",
))  # fmt: skip


_REDUCTIONS: dict[str, Callable[..., Any] | None] = {
    "none": None, "add": np.add.at, "multiply": np.multiply.at, "maximum": np.maximum.at, "minimum": np.minimum.at,
}  # fmt: skip


def _reduction(attrs: Attrs) -> None:
    require(attrs["reduction"] in _REDUCTIONS, f"reduction must be one of {', '.join(_REDUCTIONS)}")


def _require_updates(x: TensorType, updates: TensorType, shape: tuple[int, ...]) -> None:
    wanted = TensorType(shape, x.dtype)
    require(updates == wanted, f"the updates must be {wanted}, not {updates}")


def _scatter_elements_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, indices, updates = operands
    _require_indices(indices)
    _reduction(attrs)
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


_PLACE: dict[str, Any] = {
    "family": Family.INDEX, "gradient": NO_GRADIENT_YET, "lower": NOT_LOWERED, "fusion": Fusion.OPAQUE,
}  # fmt: skip
register(Operator(
    "scatter_elements", "x indices updates", types=_scatter_elements_type, numpy=_scatter_elements,
    defaults={"axis": 0, "reduction": "none"}, index_sizes=_along_axis, **_PLACE,
    sample=sample_at("scatter_elements", constant_indices([[0, 3], [2, 1]]), updates=(2, 2), axis=1),
    doc="A copy of x whose elements that gather_elements would pick are set, or combined.",
))  # fmt: skip


def _scatter_nd_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, indices, updates = operands
    _require_indices(indices)
    _reduction(attrs)
    require(indices.rank >= 1 and indices.shape[-1] <= x.rank, f"the coordinates {indices} do not fit {x}")
    _require_updates(x, updates, (*indices.shape[:-1], *x.shape[indices.shape[-1] :]))
    return x


def _scatter_nd(x: Array, indices: Array, updates: Array, reduction: str) -> Array:
    return _place(x, tuple(np.moveaxis(indices, -1, 0)), updates, reduction)


register(Operator(
    "scatter_nd", "x indices updates", types=_scatter_nd_type, numpy=_scatter_nd, defaults={"reduction": "none"},
    index_sizes=lambda node: node.args[0].shape[: node.args[1].shape[-1]],
    sample=sample_at("scatter_nd", constant_indices([[2], [0]]), updates=(2, 4)), **_PLACE,
    doc="A copy of x whose slices that gather_nd would pick are set, or combined.",
))  # fmt: skip


def _top_k_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x = operands[0]
    require_dtype(x, "the input", *NUMBERS)
    require(x.rank >= 1, "cannot sort a scalar")
    axis = integer(attrs, "axis", 0, x.rank - 1)
    count = integer(attrs, "k", 0, x.shape[axis])
    flag(attrs, "largest")
    return TensorType((*x.shape[:axis], count, *x.shape[axis + 1 :]), "int64")


def _top_k(x: Array, k: int, axis: int, largest: bool) -> Array:
    if largest:  # sorting the reversed axis keeps the first of equal elements first after turning the order around
        order = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    return np.take(order, range(k), axis=axis).astype(np.int64)


register(Operator(
    "top_k", "x", family=Family.INDEX, types=_top_k_type, numpy=_top_k,
    defaults={"k": REQUIRED, "axis": REQUIRED, "largest": True}, gradient=NOT_DIFFERENTIABLE, lower=NOT_LOWERED,
    fusion=Fusion.OPAQUE, accuracy=Accuracy.JUMPS, sample=sample_of("top_k", (3, 4), k=2, axis=1),
    doc="Indices of the k largest (or smallest) elements along axis, in order; of equal ones the first comes first.",
))  # fmt: skip
