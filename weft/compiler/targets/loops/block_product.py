"""Products of rounded rows with weights of 4 bits, by dot products of bytes (``nn.block_product``).

A panel's block of weights is unpacked to bytes, less 8, and multiplied by rows that are 128 higher, so that the result
of a row and a column is

    sum over blocks of (sum of u * w - 128 * sum of w + (8 - zero) * sum of x) * scales,  u = x + 128, w = code - 8
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from ... import tensor as te
from ...graph.ir import Call, Constant, Expr
from ...graph.registry import call
from ...tensor import ir as tir
from ...tensor.view import Builder, View
from ..errors import CompileError
from .fusion import FusedGroup
from .kernels import Array, Kernel, Operands, Tile, finished
from .layouts import PLAIN, QUAD, UINT8_OFFSET, Layout
from .placement import Placement
from .product import ACC, LEFT, PANEL, moved_operands, result_of
from .quantised_weights import Weights, is_weight_only, packed_weights, range_of, weights_of
from .unpacked_weights import by_block

PART, ROW_SUMS = "part", "row_sums"
"""Stages: the sums of one block; those of each row's integers in a block, where zero points ask for them."""

MIDDLE, BITS = 8, 4
LARGEST = 127
ByPlace = Callable[[tir.Expr, tir.Expr, tir.Expr], tir.Expr]


def as_block_product(node: Call, lanes: int) -> Expr | None:
    """x times weights of 4 bits in blocks  ->  x rounded to 8 bits, a scale for each row and block, times the same
    integers. ``lanes``: columns that a kernel computes together, at least."""
    if not is_weight_only(node) or node.shape[-1] % lanes:
        return None
    weights = weights_of(node)
    depth, block = len(weights.codes), weights.block
    if weights.bits > BITS or block % (2 * QUAD) or not _fits_bytes(node.args[1]):
        return None
    rows = node.tensor_type.size // node.shape[-1]
    made = partial(call, span=node.span)
    x = node.args[0] if len(node.shape) == 2 else made("reshape", node.args[0], shape=(rows, depth))
    apart = made("reshape", x, shape=(rows, depth // block, block))
    largest = made("nn.reduce_max", made("nn.abs", apart), axes=(2,), keepdims=False)
    step = made("nn.multiply", largest, Constant(np.array(1 / LARGEST, np.float32)))
    zeros = Constant(np.zeros(step.shape, np.int8))
    rounded = made("quantise", x, step, zeros, axis=1, block=block)
    codes, scales, zero = (Constant(np.ascontiguousarray(each.T)) for each in (
        (weights.codes.astype(np.int16) + weights.lowest).astype(np.int8), weights.scales,
        (weights.zeros + weights.lowest).astype(np.int8),
    ))  # fmt: skip
    product = made("nn.block_product", rounded, step, codes, scales, zero, block=block)
    return product if len(node.shape) == 2 else made("reshape", product, shape=node.shape)


def _fits_bytes(dequantise: Expr) -> bool:
    """Whether integers and zero points are of int8, or of another type but in its range."""
    codes, _, zero = (each.value for each in dequantise.children if isinstance(each, Constant))
    return all(int(each.min()) >= -128 and int(each.max()) <= LARGEST for each in (codes, zero))


def has_known_weights(anchor: Call) -> bool:
    """Whether the weights of a product in blocks are known, have 4 bits, and fill whole bytes in a block."""
    codes, *factors = anchor.args[2:]
    if not isinstance(codes, Constant) or not all(isinstance(each, Constant) for each in factors):
        return False
    return anchor.attr("block") % (2 * QUAD) == 0 and range_of(codes.value)[1] <= BITS


def known_weights(anchor: Call) -> Weights:
    """The weights of such a product."""
    numbers, scales, zeros = (each.value.T for each in anchor.args[2:] if isinstance(each, Constant))
    return packed_weights(numbers, scales, zeros, anchor.attr("block"))


class BlockProductSchedule(Protocol):
    """A target's way to compute products in blocks."""

    def tile(self, rows: int, columns: int) -> Tile | None:
        """Rows and columns that are added up in registers; the columns divide all. None where no tile does."""

    def arrange(self, schedule: te.Schedule, tile: Tile, depth: int) -> None:
        """Schedule the kernel: its stages are `LEFT` (rows as unsigned bytes), `ROW_SUMS` where they are needed,
        `PANEL` (a block of a panel's weights as bytes), `PART`, `ACC` and the result. ``depth``: of a row."""


@dataclass(frozen=True)
class BlockProductKernels:
    """Groups whose anchor is a product in blocks with known weights of 4 bits."""

    schedule: BlockProductSchedule
    name: str = "product"

    def result_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        anchor = group.anchor
        if anchor is None or anchor.op != "nn.block_product" or self.schedule.tile(*anchor.shape) is None:
            return None
        return PLAIN if has_known_weights(anchor) else None

    def data_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        return None

    def needs_blocks(self, anchor: Call) -> bool:
        return False

    def build(self, group: FusedGroup, layouts: Mapping[Expr, Layout], layout: Layout, name: str) -> Kernel:
        anchor = group.anchor
        tile = self.schedule.tile(*anchor.shape) if anchor is not None else None
        if anchor is None or tile is None or not has_known_weights(anchor):
            raise CompileError("it has no product in blocks with known weights", at=f"kernel {group.name!r}")
        weights = known_weights(anchor)
        operands = Operands(Builder(), layouts)
        views = moved_operands(group, anchor, operands)
        x, step = (views[each] if each in views else operands.view(each) for each in anchor.args[:2])
        sums = _sums(anchor, x, weights, tile.lanes, operands)
        scales = by_block(operands, weights.scales, tile.lanes)
        b = te.reduce_axis(len(weights.scales), "b")

        def value(row: tir.Expr, column: tir.Expr) -> te.Reduction:
            return te.sum(sums(b, row, column).astype("float32") * (scales(b, column) * step[(row, b)]), [b])

        acc = te.compute(anchor.shape, value, ACC)
        output = result_of(group, anchor, operands, views, acc.__getitem__)
        arrange = partial(self.schedule.arrange, tile=tile, depth=x.shape[1])
        return finished(operands, anchor.shape, output, PLAIN, name, arrange)


def _sums(anchor: Call, x: View, weights: Weights, lanes: int, operands: Operands) -> ByPlace:
    """The exact sums of a block, by block, row and column."""
    rows, columns = anchor.shape
    blocks, twos, width = len(weights.scales), weights.block // (2 * QUAD), lanes * QUAD
    packed = operands.array(_packed(weights, lanes))
    offset = tir.Const(-UINT8_OFFSET, "int8")
    left = te.compute(x.shape, lambda *index: (x[index] + offset).astype("uint8"), LEFT)

    def weight(b: tir.Expr, two: tir.Expr, half: tir.Expr, place: tir.Expr) -> tir.Expr:
        byte = packed[place // width, b * twos + two, place % width]
        code = (byte >> (half * BITS).astype("uint8")) & tir.Const((1 << BITS) - 1, "uint8")
        return code.astype("int8") - tir.Const(MIDDLE, "int8")

    panel = te.compute((blocks, twos, 2, columns * QUAD), weight, PANEL)
    two, half, q = te.reduce_axis(twos, "two"), te.reduce_axis(2, "half"), te.reduce_axis(QUAD, "q")

    def products(b: tir.Expr, row: tir.Expr, column: tir.Expr) -> te.Reduction:
        quad = (b * twos + two) * 2 + half
        byte = left[row, quad * QUAD + q].astype("int32")
        return te.sum(byte * panel[b, two, half, column * QUAD + q].astype("int32"), [two, half, q])

    part = te.compute((blocks, rows, columns), products, PART)
    centred = weights.codes.astype(np.int32).reshape(blocks, weights.block, columns) - MIDDLE
    excess = by_block(operands, centred.sum(1).astype(np.int32) * UINT8_OFFSET, lanes)
    beside = (MIDDLE - weights.zeros).astype(np.int32)
    if not beside.any():
        return lambda b, row, column: part[b, row, column] - excess(b, column)
    k = te.reduce_axis(weights.block, "k")
    row_sums = te.compute((rows, blocks), lambda row, b: te.sum(x[(row, b * weights.block + k)].astype("int32"), [k]),
                          ROW_SUMS)  # fmt: skip
    missing = by_block(operands, beside, lanes)
    return lambda b, row, column: part[b, row, column] - excess(b, column) + missing(b, column) * row_sums[row, b]


def _packed(weights: Weights, lanes: int) -> Array:
    """(panels, twos of quads, lanes x 4): the lower halves of four bytes are the first quad's codes."""
    depth, columns = weights.codes.shape
    twos = weights.codes.reshape(depth // (2 * QUAD), 2, QUAD, columns // lanes, lanes)
    return np.asarray((twos[:, 0] | twos[:, 1] << BITS).transpose(2, 0, 3, 1).reshape(columns // lanes, len(twos), -1))
