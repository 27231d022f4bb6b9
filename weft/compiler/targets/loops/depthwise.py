"""Convolutions of bytes of each channel by itself, as products of words: two rows of a window at a time.

A byte of data and the one a row below stand side by side as words, and so do their weights: an instruction that
multiplies words by twos adds up both products. A row that is left over makes a stage of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np

from ... import tensor as te
from ...graph.ir import Call, Constant, Expr
from ...tensor import ir as tir
from ...tensor.view import Builder, View
from ..errors import CompileError
from .blocked import depthwise_block, is_depthwise
from .convolution import filled, padded_layout, without_excess
from .convolution_sums import REST, reader
from .fusion import FusedGroup
from .kernels import Array, Kernel, Operands, finished, lower_members
from .layouts import PAIR, PREFERRED_BLOCKS, Layout, to_memory
from .placement import Placement

IMAGE = 4
"""Axes of what has this form."""


@dataclass(frozen=True)
class DepthwiseTask:
    """What a schedule has to know of a kernel whose result is (N, C/b, H, W, b), as are the stages ``acc`` and, where a
    row of the window is left over, `REST`, which add up.

    ``width``: of a row of the result; ``block``: b. ``taps``: of a row of the window. ``row_stride``, ``tap_stride``:
    elements of the data from a pixel of the result, or from a tap, to the next; ``pair_stride``: from a row of the
    window to the next. ``pairs``: twos of rows of the window.
    """

    width: int
    block: int
    taps: int
    row_stride: int
    tap_stride: int
    pair_stride: int
    pairs: int


class DepthwiseSchedule(Protocol):
    """A target's way to compute them."""

    def takes(self, taps: int) -> bool:
        """Whether there is an instruction, and registers for so many weights of a row of the window."""

    def block(self, channels: int) -> int:
        """Channels that lie together, of so many; the last block may have some that nobody uses."""

    def arrange(self, schedule: te.Schedule, task: DepthwiseTask) -> None:
        """Schedule the kernel."""


@dataclass(frozen=True)
class DepthwiseKernels:
    """Groups whose anchor is such a convolution of an image."""

    schedule: DepthwiseSchedule
    name: str = "blocked"

    def result_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        if group.anchor is None or not self.needs_blocks(group.anchor) or len(group.root.shape) != IMAGE:
            return None
        if group.root.shape != group.anchor.shape:
            return None
        block = depthwise_block(group, placement, self.schedule.block)
        return Layout(block) if block in PREFERRED_BLOCKS else None

    def data_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        if group.anchor is None:
            return None
        return padded_layout(group.anchor, placement.layout(group.root).block)

    def needs_blocks(self, anchor: Call) -> bool:
        image = is_depthwise(anchor) and len(anchor.shape) == IMAGE and anchor.args[0].dtype == "int8"
        return image and self.schedule.takes(anchor.args[1].shape[-1])

    def build(self, group: FusedGroup, layouts: Mapping[Expr, Layout], layout: Layout, name: str) -> Kernel:
        anchor = group.anchor
        if anchor is None or not isinstance(anchor.args[1], Constant):
            raise CompileError("it has no convolution with constant weights", at=f"kernel {group.name!r}")
        operands = Operands(Builder(), layouts)
        data, held = operands.tensor(anchor.args[0]), layouts[anchor.args[0]]
        block, blocks = layout.block, -(-anchor.shape[1] // layout.block)
        weights = filled(anchor.args[1].value, anchor.shape[1], blocks * block, axes=1)

        def constant(call: Call, place: int, node: Constant) -> View:
            axis = 0 if len(node.shape) == 1 else 1
            whole = replace(node, value=filled(node.value, anchor.shape[1], blocks * block))
            return replace(operands.constant(whole, axis if len(node.shape) > axis else None), shape=node.shape)

        sums = _sums(anchor, operands, data, held, weights)
        views = without_excess(group, sums, weights[: anchor.shape[1]], operands, constant)
        result = lower_members(group, operands, views, constant)

        def value(n: tir.Expr, cb: tir.Expr, y: tir.Expr, x: tir.Expr, lane: tir.Expr) -> tir.Expr:
            return to_memory(result[(n, cb * block + lane, y, x)], layout)

        batch, _, height, width = anchor.shape
        output = te.compute((batch, blocks, height, width, block), value, operands.builder.name("out"))
        down, right = anchor.attr("dilations")
        task = DepthwiseTask(
            width, block, weights.shape[-1], anchor.attr("strides")[-1] * block, right * block,
            down * data.shape[3] * block, weights.shape[2] // PAIR,
        )  # fmt: skip
        return finished(operands, group.root.shape, output, layout, name, partial(self.schedule.arrange, task=task))


def _sums(call: Call, operands: Operands, data: te.Tensor, layout: Layout, weights: Array) -> View:
    """Products of data as it is held."""
    block = layout.block
    batch, _, *sizes = call.shape
    channels, _, rows, taps = weights.shape
    pairs = rows // PAIR
    blocks = channels // block
    shape = (batch, blocks, *sizes, block)
    at = reader(call, layout)
    wide = weights.astype(np.int16).reshape(blocks, block, rows, taps)
    stages: list[te.Tensor] = []
    if pairs:
        packed = wide[:, :, : pairs * PAIR].reshape(blocks, block, pairs, PAIR, taps)
        w = operands.array(packed.transpose(0, 2, 4, 1, 3))
        p, t, q = (te.reduce_axis(size, name) for size, name in ((pairs, "p"), (taps, "t"), (PAIR, "q")))

        def by_twos(n: tir.Expr, cb: tir.Expr, y: tir.Expr, x: tir.Expr, lane: tir.Expr) -> te.Reduction:
            byte = data[(n, cb, *at((y, x), (p * PAIR + q, t)), lane)].astype("int32")
            return te.sum(byte * w[cb, p, t, lane, q].astype("int32"), [p, t, q])

        stages.append(te.compute(shape, by_twos, "acc"))
    if rows % PAIR:
        last = operands.array(wide[:, :, -1:].transpose(0, 3, 1, 2))
        s, one = te.reduce_axis(taps, "s"), te.reduce_axis(1, "one")

        def alone(n: tir.Expr, cb: tir.Expr, y: tir.Expr, x: tir.Expr, lane: tir.Expr) -> te.Reduction:
            byte = data[(n, cb, *at((y, x), (tir.Const(rows - 1) + one, s)), lane)].astype("int32")
            return te.sum(byte * last[cb, s, lane, one].astype("int32"), [s, one])

        stages.append(te.compute(shape, alone, REST if pairs else "acc"))

    def read(index: tuple[tir.Expr, ...]) -> tir.Expr:
        n, c, *places = index
        each = [stage[(n, c // block, *places, c % block)] for stage in stages]
        return each[0] if len(each) == 1 else each[0] + each[1]

    return View(call.shape, "int32", read)
