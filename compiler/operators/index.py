"""Operators that pick or place elements at computed indices, for every element type. A negative index counts from the
end of its axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..graph.dtypes import NUMBERS
from ..graph.ir import Array, Attrs, TensorType
from ..graph.registry import NOT_LOWERED, REQUIRED, Fusion, register
from .elementwise import NO_GRADIENT_YET, NOT_DIFFERENTIABLE
from .integer import integer, require, require_dtype

_REDUCTIONS: dict[str, Callable[..., Any] | None] = {
    "none": None, "add": np.add.at, "multiply": np.multiply.at, "maximum": np.maximum.at, "minimum": np.minimum.at,
}  # fmt: skip


def _require_indices(indices: TensorType) -> None:
    require_dtype(indices, "indices", "int32", "int64")


def _gather_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, indices = operands
    _require_indices(indices)
    require(x.rank >= 1, "cannot pick from a scalar")
    axis = integer(attrs, "axis", 0, x.rank - 1)
    return TensorType((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)


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


def _scatter_nd_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, indices, updates = operands
    _require_indices(indices)
    _reduction(attrs)
    require(indices.rank >= 1 and indices.shape[-1] <= x.rank, f"the coordinates {indices} do not fit {x}")
    _require_updates(x, updates, (*indices.shape[:-1], *x.shape[indices.shape[-1] :]))
    return x


def _scatter_nd(x: Array, indices: Array, updates: Array, reduction: str) -> Array:
    return _place(x, tuple(np.moveaxis(indices, -1, 0)), updates, reduction)


def _top_k_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x = operands[0]
    require_dtype(x, "the input", *NUMBERS)
    require(x.rank >= 1, "cannot sort a scalar")
    axis = integer(attrs, "axis", 0, x.rank - 1)
    count = integer(attrs, "k", 0, x.shape[axis])
    require(isinstance(attrs["largest"], bool), f"largest must be true or false, not {attrs['largest']!r}")
    return TensorType((*x.shape[:axis], count, *x.shape[axis + 1 :]), "int64")


def _top_k(x: Array, k: int, axis: int, largest: bool) -> Array:
    if largest:  # sorting the reversed axis keeps the first of equal elements first after turning the order around
        order = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    return np.take(order, range(k), axis=axis).astype(np.int64)




_PICK: dict[str, Any] = {"gradient": NO_GRADIENT_YET, "lower": NOT_LOWERED, "fusion": Fusion.LAYOUT}
_PLACE: dict[str, Any] = {"gradient": NO_GRADIENT_YET, "lower": NOT_LOWERED, "fusion": Fusion.OPAQUE}
register(
    "gather", "x indices", types=_gather_type, numpy=lambda x, indices, axis: np.take(x, indices, axis), axis=0,
    doc="Slices of x along axis: the axis is replaced by those of the indices.", **_PICK,
)
register(
    "gather_elements", "x indices", types=_gather_elements_type, numpy=_gather_elements, axis=0,
    doc="result[i, j, ...] = x[i, indices[i, j, ...], ...], for axis 1.", **_PICK,
)
register(
    "gather_nd", "x indices", types=_gather_nd_type, numpy=_gather_nd, batch_dims=0,
    doc="x at the coordinates that the last axis of the indices holds, behind batch_dims common axes.", **_PICK,
)
register(
    "scatter_elements", "x indices updates", types=_scatter_elements_type, numpy=_scatter_elements, axis=0,
    reduction="none", doc="A copy of x whose elements that gather_elements would pick are set, or combined.", **_PLACE,
)
register(
    "scatter_nd", "x indices updates", types=_scatter_nd_type, numpy=_scatter_nd, reduction="none",
    doc="A copy of x whose slices that gather_nd would pick are set, or combined.", **_PLACE,
)
register(
    "top_k", "x", types=_top_k_type, numpy=_top_k, k=REQUIRED, axis=REQUIRED, largest=True,
    gradient=NOT_DIFFERENTIABLE, lower=NOT_LOWERED, fusion=Fusion.OPAQUE,
    doc="Indices of the k largest (or smallest) elements along axis, in order; of equal ones the first comes first.",
)
