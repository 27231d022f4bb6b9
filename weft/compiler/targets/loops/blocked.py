"""Kernels on images and volumes with channels in blocks: poolings, depthwise convolutions and elementwise operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ... import tensor as te
from ...graph.ir import Call, Constant, Expr
from ...graph.registry import Anchor, operator
from ...tensor import ir as tir
from ...tensor.view import Builder, View
from .convolution import filled, is_convolution, may_fill, padded_layout
from .fusion import FusedGroup
from .kernels import Kernel, Operands, finished, lower_members
from .layouts import BLOCKED_RANKS, PREFERRED_BLOCKS, Layout, channel_block, filled_block, to_memory, unused
from .placement import Placement
from .small_moves import is_move


@dataclass(frozen=True)
class BlockedKernels:
    """``arrange`` schedules the stages; it takes the names of those that reduce. ``together``: the channels of a block
    of so many, the last of which may have some that nobody uses."""

    arrange: Callable[[te.Schedule, Sequence[str]], None]
    together: Callable[[int], int] = filled_block
    name: str = "blocked"

    def result_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        block = self._block(group, placement)
        return Layout(block) if block else None

    def _block(self, group: FusedGroup, placement: Placement) -> int | None:
        """Channels in a block of the result; None where it is not made so."""
        root, anchor = group.root, group.anchor
        if len(root.shape) not in BLOCKED_RANKS:
            return None
        block = depthwise_block(group, placement, self.together)
        if anchor is not None and is_depthwise(anchor):
            return block if block in PREFERRED_BLOCKS else None
        if anchor is not None and _keeps_channels(anchor):
            data = anchor.args[0]
            read = [data] if data not in group.members else [each for each in group.inputs if each.shape == data.shape]
            return max((placement.layout(value).block for value in read), default=0) or None
        if anchor is None and block in PREFERRED_BLOCKS and not any(map(is_move, group.members)):
            blocks = {placement.layout(value).block for value in group.inputs if value.shape == root.shape}
            fed = root.shape[1] % block == 0 and placement.feeds_blocks(root)  # few channels are quickly brought there
            return block if block in blocks or fed else None
        return None

    def data_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        if group.anchor is None or not is_convolution(group.anchor):
            return None
        return padded_layout(group.anchor, placement.layout(group.root).block)

    def needs_blocks(self, anchor: Call) -> bool:
        return is_depthwise(anchor)

    def build(self, group: FusedGroup, layouts: Mapping[Expr, Layout], layout: Layout, name: str) -> Kernel:
        whole = all(layouts[value].block == layout.block for value in group.inputs)
        return blocked_kernel(group, layouts, layout, name, self.arrange, repeated=whole)


def blocked_kernel(
    group: FusedGroup, layouts: Mapping[Expr, Layout], layout: Layout, name: str,
    schedule: Callable[[te.Schedule, Sequence[str]], None], *, repeated: bool = False,
) -> Kernel:  # fmt: skip
    """A group's kernel, whose stages are in the blocks of its result. ``schedule``: as in `BlockedKernels`.
    ``repeated``: whether all operands have the channels that nobody uses, which are computed, too; else they are
    `unused`."""
    operands = Operands(_BlockedBuilder(layout.block, group.root.shape[1]), layouts)
    block = layout.block
    channels = -(-group.root.shape[1] // block) * block

    def constant(call: Call, place: int, node: Constant) -> View:
        axis = 0 if len(node.shape) == 1 or (call is group.anchor and place) else 1
        whole = replace(node, value=filled(node.value, group.root.shape[1], channels))
        return replace(operands.constant(whole, axis if len(node.shape) > axis else None), shape=node.shape)

    result = lower_members(group, operands, {}, constant)

    def value(n: tir.Expr, cb: tir.Expr, *rest: tir.Expr) -> tir.Expr:
        *places, lane = rest
        element = result[(n, cb * block + lane, *places)]
        if c % block and not repeated:  # channels that nobody uses
            element = tir.select(cb * block + lane < c, element, unused(result, n, *places))
        return to_memory(element, layout)

    n, c, *sizes = group.root.shape
    output = te.compute((n, -(-c // block), *sizes, block), value, operands.builder.name("out"))
    reductions = [stage.name for stage in operands.builder.reductions]

    def arrange(made: te.Schedule) -> None:
        schedule(made, reductions)

    return finished(operands, group.root.shape, output, layout, name, arrange)


def is_depthwise(call: Call) -> bool:
    """Whether a call is a convolution of each channel by itself, with constant weights."""
    return (
        is_convolution(call) and len(call.shape) in BLOCKED_RANKS and isinstance(call.args[1], Constant)
        and call.shape[1] == call.attr("groups") and call.args[1].shape[1] == 1
        and call.args[0].dtype in ("float32", "int8") and filled_block(call.shape[1]) in PREFERRED_BLOCKS
    )  # fmt: skip


def depthwise_block(group: FusedGroup, placement: Placement, together: Callable[[int], int]) -> int:
    """Channels in a block of a kernel that makes each channel by itself. ``together``: as in `BlockedKernels`."""
    channels = group.root.shape[1]
    block = together(channels)
    return block if may_fill(group, placement, block) else channel_block(channels)


def _keeps_channels(call: Call) -> bool:
    """Whether a call is a pooling, or a reduction of each channel of an image or a volume to one number."""
    match operator(str(call.op)).anchor:
        case Anchor.POOL:
            return True
        case Anchor.REDUCTION:
            return bool(call.attr("axes") == tuple(range(2, len(call.args[0].shape))) and call.attr("keepdims"))
    return False


class _BlockedBuilder(Builder):
    """Reductions in the blocked layout: a stage over (N, C, ...) becomes one over (N, C/b, ..., b). Others, as over all
    channels, stay as they are."""

    def __init__(self, block: int, channels: int) -> None:
        super().__init__()
        self.block, self.channels = block, channels

    def reduction(self, shape: tuple[int, ...], value: Callable[..., te.Reduction], wish: str) -> View:
        block = self.block
        if len(shape) < 2 or shape[1] != self.channels:
            return super().reduction(shape, value, wish)
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
