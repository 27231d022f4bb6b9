"""Operators that put elements in order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .. import tensor as te
from ..graph.dtypes import HALVES, NUMBERS
from ..graph.ir import Array, Attrs, Call, TensorType
from ..graph.registry import REQUIRED, Accuracy, Family, Fusion, Operator, register
from ..tensor import ir as tir
from ..tensor.view import Builder, Index, NotLoweredError, View
from .reasons import PIECEWISE_CONSTANT
from .samples import sample_of
from .type_rules import flag, integer, require, require_dtype


def _top_k_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x = operands[0]
    require_dtype(x, "the input", *NUMBERS)
    require(x.rank >= 1, "cannot sort a scalar")
    axis = integer(attrs, "axis", 0, x.rank - 1)
    count = integer(attrs, "k", 0, x.shape[axis])
    flag(attrs, "largest")
    return TensorType((*x.shape[:axis], count, *x.shape[axis + 1 :]), "int64")


def _top_k(x: Array, k: int, axis: int, largest: bool) -> Array:
    if x.dtype.name in HALVES:  # of which NumPy does not know where nan belongs
        x = x.astype(np.float32)
    if largest:  # sorting the reversed axis keeps the first of equal elements first after turning the order around
        order = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    return np.take(order, range(k), axis=axis).astype(np.int64)


LONGEST_ROW = 256
"""Elements of an axis up to which a kernel compares all pairs of them. NumPy sorts longer ones."""


def _lower_top_k(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    """The rank of an element is the number of those that stand before it; a result is the place of its rank."""
    x, axis, largest = operands[0], call.attr("axis"), call.attr("largest")
    size = x.shape[axis]
    if size > LONGEST_ROW:
        raise NotLoweredError(f"{call.op} of more than {LONGEST_ROW} elements, which NumPy sorts")
    r, place = builder.axis(size, "r"), builder.axis(size, "place")

    def is_above(a: tir.Expr, b: tir.Expr) -> tir.Expr:
        """Whether ``a`` is larger; what is no number is larger than any."""
        return (a > b) | (a.ne(a) & b.eq(b)) if x.dtype in tir.FLOATS else a > b

    def rank(*index: tir.Expr) -> te.Reduction:
        one, other = x[index], x[at(index, r)]
        before, after = (is_above(other, one), is_above(one, other))
        first, last = (before, after) if largest else (after, before)
        equal_before = tir.select(first | last, tir.Const(False, "bool"), r < index[axis])
        return te.sum((first | equal_before).astype("int32"), r)

    def at(index: Index, where: tir.Expr) -> Index:
        return (*index[:axis], where, *index[axis + 1 :])

    ranks = builder.reduction(x.shape, rank, "rank")

    def found(*index: tir.Expr) -> te.Reduction:
        here = ranks[at(index, place)].astype("int64").eq(index[axis])
        return te.max(tir.select(here, place, tir.Const(0)), place)

    return builder.reduction(call.shape, found, "found")


register(Operator(
    "top_k", "x", family=Family.INDEX, types=_top_k_type, numpy=_top_k,
    defaults={"k": REQUIRED, "axis": REQUIRED, "largest": True}, gradient=PIECEWISE_CONSTANT, lower=_lower_top_k,
    fusion=Fusion.OPAQUE, accuracy=Accuracy.JUMPS, sample=sample_of("top_k", (3, 4), k=2, axis=1),
    doc="Indices of the k largest (or smallest) elements along axis, in order; of equal ones the first comes first.",
))  # fmt: skip
