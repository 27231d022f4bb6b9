"""Constant weights of 8 bits or fewer as what a kernel reads: packed in memory, floats where they are multiplied.

The value of weight (k, o), in block b = k // block of its column, is scale[b, o] * (code[k, o] - zero[b, o]).
"""

from __future__ import annotations

from collections.abc import Callable

from ...graph.ir import Expr
from ...tensor import ir as tir
from ...tensor.view import View, element_type
from .fusion import FusedGroup
from .kernels import Array, Operands
from .quantised_weights import Weights, is_turned, is_weight_only, weights_of

Code = Callable[[tir.Expr, tir.Expr, tir.Expr], tir.Expr]
ByBlock = Callable[[tir.Expr, tir.Expr], tir.Expr]


def unpacked_operand(group: FusedGroup, operands: Operands) -> dict[Expr, View]:
    """The dequantise of a group's product, as a view that unpacks its weights where they are read; nothing, where the
    group has no such product, or another kernel widens its weights."""
    anchor = group.anchor
    if anchor is None or not is_weight_only(anchor) or anchor.args[1] not in group.members:
        return {}
    weights = weights_of(anchor)
    matrix = as_floats(operands, weights, weights.codes.shape[1])
    if is_turned(anchor):
        return {anchor.args[1]: View(matrix.shape[::-1], matrix.dtype, lambda index: matrix[index[::-1]])}
    return {anchor.args[1]: matrix}


def as_floats(operands: Operands, weights: Weights, lanes: int) -> View:
    """The matrix (depth, columns), in panels of ``lanes`` columns, widened where it is read."""
    code, zero, scale = factors(operands, weights, lanes)
    in_byte, block = weights.in_byte, weights.block

    def read(index: tuple[tir.Expr, ...]) -> tir.Expr:
        k, column = index
        centred = code(k // in_byte, k % in_byte, column) - zero(k // block, column)
        return centred * scale(k // block, column)

    return View(weights.codes.shape, "float32", read)


def factors(operands: Operands, weights: Weights, lanes: int) -> tuple[Code, ByBlock, ByBlock]:
    """Parameters of a kernel: codes as floats, by byte, place in it and column; zeros and scales, by block and
    column."""
    packed = operands.array(weights.packed(lanes))
    mask = (1 << weights.bits) - 1

    def code(at: tir.Expr, place: tir.Expr, column: tir.Expr) -> tir.Expr:
        byte = packed[column // lanes, at, column % lanes].astype("int32")
        return ((byte >> (place * weights.bits).astype("int32")) & mask).astype("float32")

    return code, by_block(operands, weights.zeros, lanes), by_block(operands, weights.scales, lanes)


def by_block(operands: Operands, values: Array, lanes: int) -> ByBlock:
    """A parameter of values by block and column, in the same panels. One value for all becomes part of the code."""
    if (values == values.flat[0]).all():
        literal = tir.Const(values.flat[0].item(), element_type(values.dtype.name))
        return lambda block, column: literal
    blocks, columns = values.shape
    panels = operands.array(values.reshape(blocks, columns // lanes, lanes).transpose(1, 0, 2))
    return lambda block, column: panels[column // lanes, block, column % lanes]
