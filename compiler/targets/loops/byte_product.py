"""Products of many rows of int8 with constant weights: a dense layer of tokens, which the contract writes as a
convolution of a batch of single pixels.

The rows are the pixels of one row of an image, in plain order: so that a tile has several of them, and neither operand
nor result is put into blocks. Dot products multiply unsigned by signed bytes: the rows are copied first, 128 higher,
and filled up to whole groups of four.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ... import tensor as te
from ...graph.ir import Call, Constant, Expr
from ...tensor import ir as tir
from ...tensor.view import Builder, View
from ..errors import CompileError
from .convolution import ConvolutionSchedule, ConvolutionTask, is_token_product
from .fusion import FusedGroup
from .kernels import Array, Kernel, Operands, Tile, lower_members
from .layouts import QUAD, UINT8_OFFSET, Layout, channel_block
from .placement import Placement

ROWS = "rows"
"""The stage that copies the rows."""


class ByteProductSchedule(ConvolutionSchedule, Protocol):
    """A target's way to compute such products: as a convolution, after a stage that copies."""

    def arrange_copied(self, schedule: te.Schedule, task: ConvolutionTask, stage: str) -> None:
        """Schedule the kernel, and the ``stage`` that comes before all others."""


@dataclass(frozen=True)
class ByteProductKernels:
    """Groups whose anchor is such a product."""

    schedule: ByteProductSchedule
    name: str = "product"

    def block(self, group: FusedGroup, placement: Placement) -> int | None:
        return 0 if group.anchor is not None and is_token_product(group.anchor) else None

    def data_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        return None

    def needs_blocks(self, anchor: Call) -> bool:
        return False

    def build(self, group: FusedGroup, layouts: Mapping[Expr, Layout], layout: Layout, name: str) -> Kernel:
        anchor = group.anchor
        if anchor is None or not isinstance(anchor.args[1], Constant):
            raise CompileError("it has no product with constant weights", at=f"kernel {group.name!r}")
        operands = Operands(Builder(), layouts)
        rows, channels = anchor.shape[:2]
        tile = self.schedule.tile(rows, channels, channel_block(channels))
        weights = anchor.args[1].value.reshape(channels, -1)
        depth = -(-weights.shape[1] // QUAD) * QUAD
        copied = _copied(operands.view(anchor.args[0]), depth)
        views: dict[Expr, View] = {anchor: _sums(anchor, operands, copied, weights, tile)}

        def constant(call: Call, place: int, node: Constant) -> View:
            axis = 0 if len(node.shape) == 1 else 1
            return operands.constant(node, axis if len(node.shape) > axis else None)

        result = lower_members(group, operands, views, constant)
        zero = tir.Const(0)

        def value(n: tir.Expr, o: tir.Expr, g: tir.Expr, y: tir.Expr, x: tir.Expr, lane: tir.Expr) -> tir.Expr:
            return result[(x, o * tile.lanes + lane, zero, zero)]

        output = te.compute((1, channels // tile.lanes, 1, 1, rows, tile.lanes), value, operands.builder.name("out"))
        # Rows of the result are as long as there are channels, of which a tile is a part.
        windows = {output.name: (rows * channels, tile.lanes, tile.lanes, rows * channels, channels, 1)}
        task = ConvolutionTask(tile, depth, 0, True)

        def arrange(schedule: te.Schedule) -> None:
            self.schedule.arrange_copied(schedule, task, ROWS)

        constants = tuple(each for _, each in operands.constants)
        func = te.lower([output], operands.parameters, name)
        return Kernel(func, arrange, tuple(operands.inputs), constants, windows, 0)


def _copied(data: View, depth: int) -> te.Tensor:
    """The rows as unsigned bytes, filled up with what stands for 0."""
    count = data.shape[1]
    zero = tir.Const(0)
    offset = tir.Const(-UINT8_OFFSET, "int8")

    def value(n: tir.Expr, k: tir.Expr) -> tir.Expr:
        element = data[(n, k, zero, zero)] if count == depth else tir.select(
            k < count, data[(n, tir.minimum(k, count - 1), zero, zero)], tir.Const(0, "int8")
        )  # fmt: skip
        return (element + offset).astype("uint8")

    return te.compute((data.shape[0], depth), value, ROWS)


def _sums(call: Call, operands: Operands, rows: te.Tensor, weights: Array, tile: Tile) -> View:
    """The sums of products, as the graph sees them."""
    depth, channels = rows.shape[1], call.shape[1]
    wide = np.zeros((channels, depth), np.int8)
    wide[:, : weights.shape[1]] = weights
    packed = wide.reshape(channels // tile.lanes, tile.lanes, depth // QUAD, QUAD).transpose(0, 2, 1, 3)
    w = operands.array(packed)
    kb, q = te.reduce_axis(depth // QUAD, "kb"), te.reduce_axis(QUAD, "q")

    def value(n: tir.Expr, o: tir.Expr, y: tir.Expr, x: tir.Expr, lane: tir.Expr) -> te.Reduction:
        byte = rows[x, kb * QUAD + q].astype("int32")
        return te.sum(byte * w[o, kb, lane, q].astype("int32"), [kb, q])

    acc = te.compute((1, channels // tile.lanes, 1, call.shape[0], tile.lanes), value, "acc")
    excess = operands.array((weights.astype(np.int64).sum(1) * UINT8_OFFSET).astype(np.int32))
    zero = tir.Const(0)

    def read(index: tuple[tir.Expr, ...]) -> tir.Expr:
        n, c = index[:2]
        return acc[zero, c // tile.lanes, zero, n, c % tile.lanes] - excess[c]

    return View(call.shape, acc.dtype, read)
