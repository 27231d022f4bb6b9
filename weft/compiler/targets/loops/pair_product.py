"""Products of matrices of bfloat16 where an instruction multiplies and adds up two of them a lane, into float32.

The tile and the panels are those of products of floats (`product.py`), with two values along the reduction where these
have one. Rows are read where they lie; panels hold two rows of the second operand between each other. Where the depth
is odd, the last products are added in float32 behind the others. An element is rounded once, at its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ... import tensor as te
from ...graph.ir import Call, Constant, Expr
from ...tensor import ir as tir
from ...tensor.view import Builder, Read, View, broadcast
from ..errors import CompileError
from .fusion import FusedGroup
from .kernels import Array, Kernel, Operands, finished
from .layouts import PAIR, PLAIN, Layout
from .placement import Placement
from .product import (
    ACC,
    LEFT,
    PANEL,
    ProductSchedule,
    constant_matrix,
    is_matrix_product,
    moved_operands,
    result_of,
    rows_of,
    second_of,
)

DTYPE: tir.DType = "bfloat16"


@dataclass(frozen=True)
class PairProductKernels:
    """Groups whose anchor is such a product, for targets that have the instruction."""

    schedule: ProductSchedule
    name: str = "product"

    def result_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        return PLAIN if self.schedule.pairs and group.anchor is not None and is_pair_product(group.anchor) else None

    def data_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        return None

    def needs_blocks(self, anchor: Call) -> bool:
        return False

    def build(self, group: FusedGroup, layouts: Mapping[Expr, Layout], layout: Layout, name: str) -> Kernel:
        anchor = group.anchor
        if anchor is None or not is_pair_product(anchor):
            raise CompileError("it has no product of bfloat16", at=f"kernel {group.name!r}")
        operands = Operands(Builder(), layouts)
        first, shape = anchor.args[0], anchor.shape
        depth = first.shape[-1]
        pairs = depth // PAIR
        matrix = constant_matrix(anchor, DTYPE) if len(anchor.args[1].shape) == 2 else None
        plain = first not in group.members and layouts[first].is_plain, False
        blocking = self.schedule.blocking(shape, pairs, plain, matrix is not None)
        views = moved_operands(group, anchor, operands)
        left, blocking = rows_of(anchor, operands, views, self.schedule, blocking, pairs)
        if blocking.copied:
            left = _stage(left, LEFT)
        blocking = replace(blocking, packed=matrix is None)
        if matrix is None:
            second = second_of(anchor, operands, views)
            right = _stage(_by_twos(second), PANEL)
        else:
            second = _last_row(operands, matrix)
            right = _constant(operands, matrix[: pairs * PAIR], blocking.tile.lanes)
        left, second = (broadcast(view, (*shape[:-2], *view.shape[-2:])) for view in (left, second))
        right = broadcast(right, (*shape[:-2], *right.shape[-3:]))
        sums = _sums(shape, left, right)
        if depth % PAIR:
            sums = _with_last(sums, left, second)
        output = result_of(group, anchor, operands, views, sums)
        arrange = partial(self.schedule.arrange, blocking=blocking, depth=depth, step="pairs")
        return finished(operands, shape, output, PLAIN, name, arrange)


def is_pair_product(call: Call) -> bool:
    """Whether a call is a product of matrices of bfloat16 that has at least one step of the instruction."""
    return is_matrix_product(call) and call.args[0].dtype == DTYPE and call.args[0].shape[-1] >= PAIR


def _sums(shape: tuple[int, ...], left: View, right: View) -> Read:
    """The stage that adds up."""
    kb, q = te.reduce_axis(right.shape[-3], "kb"), te.reduce_axis(PAIR, "q")

    def products(*index: tir.Expr) -> te.Reduction:
        *outer, row, column = index
        value = left[(*outer, row, kb * PAIR + q)].astype("float32")
        return te.sum(value * right[(*outer, kb, column, q)].astype("float32"), [kb, q])

    return te.compute(shape, products, ACC).__getitem__


def _with_last(sums: Read, left: View, right: View) -> Read:
    """Sums and the products of the last column of ``left`` with the last row of ``right``."""

    def read(index: tuple[tir.Expr, ...]) -> tir.Expr:
        *outer, row, column = index
        a = left[(*outer, row, tir.Const(left.shape[-1] - 1))].astype("float32")
        return sums(index) + a * right[(*outer, tir.Const(right.shape[-2] - 1), column)].astype("float32")

    return read


def _by_twos(view: View) -> View:
    """(..., depth, columns) as (..., pairs, columns, 2)."""
    *outer, depth, columns = view.shape
    return View((*outer, depth // PAIR, columns, PAIR), DTYPE, lambda index: view[
        (*index[:-3], index[-3] * PAIR + index[-1], index[-2])
    ])  # fmt: skip


def _constant(operands: Operands, matrix: Array, lanes: int) -> View:
    """A constant of an even depth as (pairs, columns, 2), which is read where it lies: in panels of ``lanes`` columns,
    one behind the other, if they are whole."""
    depth, columns = matrix.shape
    shape = (depth // PAIR, columns, PAIR)
    if columns % lanes:
        plain = operands.array(matrix.reshape(shape[0], PAIR, columns).transpose(0, 2, 1))
        return View(shape, DTYPE, lambda at: plain[at])
    panels = operands.array(matrix.reshape(shape[0], PAIR, columns // lanes, lanes).transpose(2, 0, 3, 1))
    return View(shape, DTYPE, lambda at: panels[at[1] // lanes, at[0], at[1] % lanes, at[2]])


def _last_row(operands: Operands, matrix: Array) -> View:
    """The last row of a constant, (1, columns), where it has no other beside it."""
    if len(matrix) % PAIR == 0:
        return View((1, matrix.shape[1]), DTYPE, lambda index: tir.Const(0.0, DTYPE))
    return operands.constant(Constant(np.ascontiguousarray(matrix[-1:])))


def _stage(view: View, name: str) -> View:
    """The view computed into a buffer."""
    return View.of(te.compute(view.shape, lambda *index: view[index], name))
