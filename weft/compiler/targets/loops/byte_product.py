"""Products of matrices of bytes: rows (tokens) with constant weights, which the contract writes as a convolution of a
batch of single pixels, and ``product``, of two computed tensors.

The tile and the panels are those of products of floats (`product.py`), with four bytes where these have a float. Dot
products multiply unsigned by signed bytes: the rows are copied first, 128 higher. So an element is

    sum of (a - za) * (b - zb) = sum of u * b - (za + 128) * sum of b - zb * sum of u + depth * (za + 128) * zb

with u = a + 128. Panels of b have the sums of their columns, rows their sums, where a factor is not 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ... import tensor as te
from ...graph.ir import Call, Constant, Expr
from ...tensor import ir as tir
from ...tensor.view import Builder, View
from ..errors import CompileError
from .convolution import is_token_product
from .fusion import FusedGroup
from .kernels import Kernel, Operands, finished, lower_members
from .layouts import PLAIN, QUAD, UINT8_OFFSET, Layout
from .placement import Placement
from .product import ACC, LEFT, PANEL, Blocking, ProductSchedule, moved_operands

ROW_SUMS, COLUMN_SUMS = "row_sums", "column_sums"
"""Stages: of the copied rows, and of each column, times the rows' zero point."""

_ZERO = tir.Const(0)


@dataclass(frozen=True)
class ByteProductKernels:
    """Groups whose anchor is such a product."""

    schedule: ProductSchedule
    name: str = "product"

    def result_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        anchor = group.anchor
        return PLAIN if anchor is not None and (is_token_product(anchor) or is_byte_product(anchor)) else None

    def data_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        return None

    def needs_blocks(self, anchor: Call) -> bool:
        return False

    def build(self, group: FusedGroup, layouts: Mapping[Expr, Layout], layout: Layout, name: str) -> Kernel:
        anchor = group.anchor
        operands = Operands(Builder(), layouts)
        if anchor is not None and is_token_product(anchor):
            views: dict[Expr, View] = {}
            factors = _of_tokens(anchor, operands, self.schedule)
        elif anchor is not None and is_byte_product(anchor):
            views = moved_operands(group, anchor, operands)
            factors = _of_computed(anchor, views, operands, self.schedule)
        else:
            raise CompileError("it has no product of bytes", at=f"kernel {group.name!r}")
        views[anchor] = _result(anchor, factors, _sums(factors, operands))

        def constant(call: Call, place: int, node: Constant) -> View:
            axis = 0 if len(node.shape) == 1 else 1
            by_column = factors.column_axis == 1 and len(node.shape) > axis
            return operands.constant(node, axis if by_column else None)

        result = lower_members(group, operands, views, constant)
        width = anchor.shape[-1]

        def value(*index: tir.Expr) -> tir.Expr:
            if factors.column_axis == 1:
                return result[(*index, _ZERO, _ZERO)]
            *outer, column = index
            return result[(*outer, *((column, _ZERO) if width == 1 else (column // width, column % width)))]

        output = te.compute(factors.shape, value, operands.builder.name("out"))
        arrange = partial(self.schedule.arrange, blocking=factors.blocking, depth=factors.left.shape[-1], step="bytes")
        return finished(operands, group.root.shape, output, PLAIN, name, arrange)


def is_byte_product(call: Call) -> bool:
    """Whether a call is a ``product`` of two computed tensors that has at least one step of a dot product."""
    computed = not any(isinstance(arg, Constant) for arg in call.args)
    return call.op == "product" and computed and call.args[0].shape[1] >= QUAD


@dataclass(frozen=True)
class _Factors:
    """``left``: (..., rows, depth), copied as unsigned bytes. ``right``: (..., quads, columns, 4). ``unsigned_zero``:
    what stands for 0 in ``left``; its products with the columns' sums are ``excess`` where those are known.
    ``right_zero``: that of the other. ``rest``: what whole quads leave over, as the sum of products of an element.
    ``column_axis``: that of the result as the graph sees it."""

    shape: tuple[int, ...]
    left: te.Tensor
    right: View
    blocking: Blocking
    column_axis: int
    unsigned_zero: int = UINT8_OFFSET
    excess: te.Tensor | None = None
    right_zero: int = 0
    rest: View | None = None


def _of_tokens(anchor: Call, operands: Operands, schedule: ProductSchedule) -> _Factors:
    """Rows and weights filled up with what stands for 0 to whole quads."""
    rows, channels = anchor.shape[:2]
    weights = anchor.args[1]
    if not isinstance(weights, Constant):
        raise CompileError("its weights are computed", at=f"node {anchor.span.node!r}")
    matrix = weights.value.reshape(channels, -1)
    count, quads = matrix.shape[1], -(-matrix.shape[1] // QUAD)
    data = operands.view(anchor.args[0])
    pixel = (_ZERO,) * (len(data.shape) - 2)

    def element(n: tir.Expr, k: tir.Expr) -> tir.Expr:
        if count == quads * QUAD:
            return data[(n, k, *pixel)]
        inside = data[(n, tir.minimum(k, count - 1), *pixel)]
        return tir.select(k < count, inside, tir.Const(0, "int8"))

    left = _unsigned(View((rows, quads * QUAD), "int8", lambda index: element(*index)))
    blocking = schedule.blocking((rows, channels), quads, (False, False), True)
    wide = np.zeros((channels, quads * QUAD), np.int8)
    wide[:, :count] = matrix
    lanes = blocking.tile.lanes
    shape = (quads, channels, QUAD)
    if channels % lanes == 0:
        panels = operands.array(wide.reshape(channels // lanes, lanes, quads, QUAD).transpose(0, 2, 1, 3))
        right = View(shape, "int8", lambda at: panels[at[1] // lanes, at[0], at[1] % lanes, at[2]])
    else:
        plain = operands.array(wide.reshape(channels, quads, QUAD).transpose(1, 0, 2))
        right = View(shape, "int8", lambda at: plain[at])
        right = _panel(right) if blocking.packed else right
    excess = operands.array((matrix.astype(np.int64).sum(1) * UINT8_OFFSET).astype(np.int32))
    return _Factors((rows, channels), left, right, blocking, 1, excess=excess)


def _of_computed(anchor: Call, views: Mapping[Expr, View], operands: Operands, schedule: ProductSchedule) -> _Factors:
    """Rows of the second operand, columns of the first one, so that the result lies in order."""
    x, w = (views[arg] if arg in views else operands.view(arg) for arg in anchor.args)
    images, depth, _, width = x.shape
    rows, columns, quads = anchor.shape[1], x.shape[2] * width, depth // QUAD
    right_zero, left_zero = anchor.attr("zero_points")

    def at(n: tir.Expr, k: tir.Expr, column: tir.Expr) -> tir.Expr:
        return x[(n, k, *((column, _ZERO) if width == 1 else (column // width, column % width)))]

    left = View((images, rows, quads * QUAD), "int8", lambda index: w[(index[0], index[2], index[1], _ZERO)])
    right = View((images, quads, columns, QUAD), "int8", lambda i: at(i[0], i[1] * QUAD + i[3], i[2]))

    def left_over(index: tuple[tir.Expr, ...]) -> tir.Expr:
        n, row, column = index
        total: tir.Expr | None = None
        for k in range(quads * QUAD, depth):
            a = w[(n, tir.Const(k), row, _ZERO)].astype("int32") - left_zero
            product = a * (at(n, tir.Const(k), column).astype("int32") - right_zero)
            total = product if total is None else total + product
        if total is None:
            raise CompileError("no products are left over", at=f"node {anchor.span.node!r}")
        return total

    shape = (images, rows, columns)
    blocking = replace(schedule.blocking(shape, quads, (False, False), False), packed=True)
    rest = View(shape, "int32", left_over) if depth % QUAD else None
    zero = left_zero + UINT8_OFFSET
    return _Factors(shape, _unsigned(left), _panel(right), blocking, 2, zero, None, right_zero, rest)


def _unsigned(view: View) -> te.Tensor:
    """The rows, ``UINT8_OFFSET`` higher."""
    offset = tir.Const(-UINT8_OFFSET, "int8")
    return te.compute(view.shape, lambda *index: (view[index] + offset).astype("uint8"), LEFT)


def _panel(view: View) -> View:
    return View.of(te.compute(view.shape, lambda *index: view[index], PANEL))


def _sums(factors: _Factors, operands: Operands) -> View:
    """The sums of products of an element, less what zero points add."""
    left, right = factors.left, factors.right
    quads, columns, _ = right.shape[-3:]
    kb, q = te.reduce_axis(quads, "kb"), te.reduce_axis(QUAD, "q")

    def products(*index: tir.Expr) -> te.Reduction:
        *outer, row, column = index
        byte = left[(*outer, row, kb * QUAD + q)].astype("int32")
        return te.sum(byte * right[(*outer, kb, column, q)].astype("int32"), [kb, q])

    acc = te.compute(factors.shape, products, ACC)
    terms = [factors.rest.read] if factors.rest is not None else []
    outer_shape, depth = factors.shape[:-2], quads * QUAD
    if factors.excess is not None:
        excess = factors.excess
        terms.append(lambda index: -excess[index[-1]])
    elif factors.unsigned_zero:
        zeros = operands.array(np.full(QUAD, factors.unsigned_zero, np.uint8))
        j, p = te.reduce_axis(quads, "j"), te.reduce_axis(QUAD, "p")

        def of_column(*index: tir.Expr) -> te.Reduction:
            *outer, column = index
            byte = zeros[p].astype("int32")
            return te.sum(byte * right[(*outer, j, column, p)].astype("int32"), [j, p])

        by_column = te.compute((*outer_shape, columns), of_column, COLUMN_SUMS)
        terms.append(lambda index: -by_column[(*index[:-2], index[-1])])
    if factors.right_zero:
        k = te.reduce_axis(depth, "k")
        by_row = te.compute(factors.shape[:-1], lambda *index: te.sum(left[(*index, k)].astype("int32"), [k]), ROW_SUMS)
        whole = depth * factors.unsigned_zero
        terms.append(lambda index: (whole - by_row[index[:-1]]) * factors.right_zero)

    def read(index: tuple[tir.Expr, ...]) -> tir.Expr:
        value: tir.Expr = acc[index]
        for term in terms:
            value = value + term(index)
        return value

    return View(factors.shape, "int32", read)


def _result(anchor: Call, factors: _Factors, sums: View) -> View:
    """The product as the graph sees it."""
    if factors.column_axis == 1:
        return View(anchor.shape, "int32", lambda index: sums[index[:2]])
    width = anchor.shape[-1]

    def read(index: tuple[tir.Expr, ...]) -> tir.Expr:
        n, row, y, x = index
        return sums[(n, row, y if width == 1 else y * width + x)]

    return View(anchor.shape, "int32", read)
