"""Convolutions that make one channel or two: lanes run over the channels of the data.

A block of such a result has no lanes to multiply by. So each number is summed up in as many parts as the data's blocks
have channels, of bytes as they have fours, and the parts are added up at the end. The result is plain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from ... import tensor as te
from ...graph.ir import Call, Constant, Expr
from ...tensor import ir as tir
from ...tensor.view import Builder, View
from ..errors import CompileError
from .convolution import data_block, is_matrix_convolution, padded_layout, without_excess
from .convolution_sums import reader, whole_blocks, window_axes
from .fusion import FusedGroup
from .kernels import Array, Kernel, Operands, finished, lower_members
from .layouts import PLAIN, PREFERRED_BLOCKS, QUAD, Layout
from .placement import Placement

MOST_MADE = 2
"""Channels of the result: three are worth a block of four, in which all are multiplied at once."""

FEWEST_TAKEN = PREFERRED_BLOCKS[1]
"""Channels of the data, so that there are lanes."""

PARTS, SUMS = "parts", "sums"
"""The stages that add up products, for each lane, and then lanes."""


@dataclass(frozen=True)
class FewChannelsTask:
    """What a schedule has to know. The stage `PARTS` has the shape of the result and an axis of ``lanes`` behind it;
    `SUMS` has that shape. ``quads``: whether the last loop of `PARTS` that reduces runs over four bytes.
    ``width``: of a row of the result. ``row_stride``: elements of the data from one pixel of it to the next."""

    width: int
    lanes: int
    quads: bool
    row_stride: int


class FewChannelsSchedule(Protocol):
    """A target's way to compute them."""

    def arrange(self, schedule: te.Schedule, task: FewChannelsTask) -> None:
        """Schedule the kernel."""


@dataclass(frozen=True)
class FewChannelsKernels:
    """Groups whose anchor is such a convolution, of float32 or of bytes."""

    schedule: FewChannelsSchedule
    name: str = "convolution"

    def result_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        anchor = group.anchor
        if anchor is None or not self.needs_blocks(anchor):
            return None
        return PLAIN if group.root.shape == anchor.shape else None

    def data_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        if group.anchor is None:
            return None
        return padded_layout(group.anchor, data_block(group.anchor, placement.layout(group.anchor.args[0]).block))

    def needs_blocks(self, anchor: Call) -> bool:
        return (
            is_matrix_convolution(anchor) and anchor.shape[1] <= MOST_MADE and anchor.attr("groups") == 1
            and anchor.args[1].shape[1] >= FEWEST_TAKEN and anchor.args[0].dtype in ("float32", "int8")
        )  # fmt: skip

    def build(self, group: FusedGroup, layouts: Mapping[Expr, Layout], layout: Layout, name: str) -> Kernel:
        anchor = group.anchor
        if anchor is None or not isinstance(anchor.args[1], Constant):
            raise CompileError("it has no convolution with constant weights", at=f"kernel {group.name!r}")
        operands = Operands(Builder(), layouts)
        data, data_layout = operands.tensor(anchor.args[0]), layouts[anchor.args[0]]
        weights, together = anchor.args[1].value, QUAD if data.dtype == "uint8" else 1

        def constant(call: Call, place: int, node: Constant) -> View:
            return operands.constant(node)

        views: dict[Expr, View] = {anchor: _sums(anchor, operands, data, data_layout, weights, together)}
        if data.dtype == "uint8":
            views = without_excess(group, views[anchor], weights, operands, constant)
        result = lower_members(group, operands, views, constant)
        output = te.compute(anchor.shape, lambda *index: result[index], operands.builder.name("out"))
        row_stride = anchor.attr("strides")[-1] * data_layout.block
        task = FewChannelsTask(anchor.shape[-1], data_layout.block // together, together > 1, row_stride)
        arrange = partial(self.schedule.arrange, task=task)
        return finished(operands, group.root.shape, output, layout, name, arrange)


def _sums(call: Call, operands: Operands, data: te.Tensor, layout: Layout, weights: Array, together: int) -> View:
    """Products of data as it is held. ``together``: channels of a lane."""
    made, channels, *kernel = weights.shape
    blocks, lanes = -(-channels // layout.block), layout.block // together
    wide = whole_blocks(weights, blocks * layout.block)
    w = operands.array(np.moveaxis(wide.reshape(made, blocks, lanes, together, *kernel), (2, 3), (-2, -1)))
    kc, window, q = te.reduce_axis(blocks, "kc"), window_axes(kernel), te.reduce_axis(together, "q")
    at = reader(call, layout)
    sum_type: tir.DType = "float32" if data.dtype == "float32" else "int32"

    def part(n: tir.Expr, o: tir.Expr, *rest: tir.Expr) -> te.Reduction:
        *places, lane = rest
        value = data[(n, kc, *at(places, window), lane * together + q)].astype(sum_type)
        return te.sum(value * w[(o, kc, *window, lane, q)].astype(sum_type), [kc, *window, q])

    parts = te.compute((*call.shape, lanes), part, PARTS)
    lane = te.reduce_axis(lanes, "lane")

    def total(*index: tir.Expr) -> te.Reduction:
        return te.sum(parts[(*index, lane)], [lane])

    sums = te.compute(call.shape, total, SUMS)

    def read(index: Sequence[tir.Expr]) -> tir.Expr:
        return sums[tuple(index)]

    return View(call.shape, sum_type, read)
