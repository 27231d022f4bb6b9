"""Kernels on (N, C, H, W) with channels in blocks: poolings, depthwise convolutions and elementwise operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ... import tensor as te
from ...graph.ir import Call, Constant, Expr
from ...graph.registry import Anchor, operator
from ...tensor import ir as tir
from ...tensor.view import Builder, View
from .convolution import is_convolution, padded_layout
from .fusion import FusedGroup
from .kernels import Kernel, Operands, finished, lower_members
from .layouts import PREFERRED_BLOCKS, Layout, channel_block, to_memory
from .placement import Placement


@dataclass(frozen=True)
class BlockedKernels:
    """``arrange`` schedules the stages; it takes the names of those that reduce."""

    arrange: Callable[[te.Schedule, Sequence[str]], None]
    name: str = "blocked"

    def block(self, group: FusedGroup, placement: Placement) -> int | None:
        root, anchor = group.root, group.anchor
        if len(root.shape) != 4:
            return None
        block = channel_block(root.shape[1])
        if anchor is not None and is_depthwise(anchor):
            return block
        if anchor is not None and _keeps_channels(anchor):
            data = anchor.args[0]
            read = [data] if data not in group.members else [each for each in group.inputs if each.shape == data.shape]
            return max((placement.layout(value).block for value in read), default=0) or None
        if anchor is None and block in PREFERRED_BLOCKS:
            blocks = {placement.layout(value).block for value in group.inputs if value.shape == root.shape}
            return block if block in blocks or placement.feeds_blocks(root) else None
        return None

    def data_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        if group.anchor is None or not is_convolution(group.anchor):
            return None
        return padded_layout(group.anchor, placement.layout(group.root).block)

    def needs_blocks(self, anchor: Call) -> bool:
        return is_depthwise(anchor)

    def build(self, group: FusedGroup, layouts: Mapping[Expr, Layout], layout: Layout, name: str) -> Kernel:
        operands = Operands(_BlockedBuilder(layout.block), layouts)
        block = layout.block

        def constant(call: Call, place: int, node: Constant) -> View:
            axis = 0 if len(node.shape) == 1 or (call is group.anchor and place) else 1
            return operands.constant(node, axis if len(node.shape) > axis else None)

        result = lower_members(group, operands, {}, constant)

        def value(n: tir.Expr, cb: tir.Expr, y: tir.Expr, x: tir.Expr, lane: tir.Expr) -> tir.Expr:
            return to_memory(result[n, cb * block + lane, y, x], layout)

        n, c, h, w = group.root.shape
        output = te.compute((n, c // block, h, w, block), value, operands.builder.name("out"))
        reductions = [stage.name for stage in operands.builder.reductions]

        def arrange(schedule: te.Schedule) -> None:
            self.arrange(schedule, reductions)

        return finished(operands, group.root.shape, output, layout, name, arrange)


def is_depthwise(call: Call) -> bool:
    """Whether a call is a convolution over images of each channel by itself, with constant weights."""
    return (
        is_convolution(call) and len(call.shape) == 4 and isinstance(call.args[1], Constant)
        and call.shape[1] == call.attr("groups") and call.args[1].shape[1] == 1
        and call.args[0].dtype in ("float32", "int8") and channel_block(call.shape[1]) in PREFERRED_BLOCKS
    )  # fmt: skip


def _keeps_channels(call: Call) -> bool:
    """Whether a call is a pooling, or a reduction of each channel of an image to one number."""
    match operator(str(call.op)).anchor:
        case Anchor.POOL:
            return True
        case Anchor.REDUCTION:
            return bool(call.attr("axes") == (2, 3) and call.attr("keepdims"))
    return False


class _BlockedBuilder(Builder):
    """Reductions in the blocked layout: a stage over (N, C, ...) becomes one over (N, C/b, ..., b)."""

    def __init__(self, block: int) -> None:
        super().__init__()
        self.block = block

    def reduction(self, shape: tuple[int, ...], value: Callable[..., te.Reduction], wish: str) -> View:
        block = self.block
        physical = (shape[0], -(-shape[1] // block), *shape[2:], block)

        def at(*index: tir.Expr) -> te.Reduction:
            n, outer, *rest, lane = index
            return value(n, outer * block + lane, *rest)

        tensor = te.compute(physical, at, self.name(wish))
        self.reductions.append(tensor)

        def read(index: tuple[tir.Expr, ...]) -> tir.Expr:
            n, c, *rest = index
            return tensor[(n, c // block, *rest, c % block)]

        return View(shape, tensor.dtype, read)
