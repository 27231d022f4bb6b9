"""Convolutions as outer products in registers: packed data, packed weights, a tile of pixels times output channels."""

from __future__ import annotations

from collections.abc import Mapping

from ... import tensor as te
from ...graph.ir import Call, Constant, Expr
from ...graph.registry import Anchor, operator_of
from ...tensor import ir as tir
from ...tensor.ir import TensorIntrinsic
from ...tensor.view import Builder, View
from ..errors import CompileError
from ..loops.convolution_sums import byte_sums, float_sums, grouped_sums
from ..loops.fusion import Group
from ..loops.kernels import Kernel, Operands, finished, lower_members
from ..loops.layouts import PREFERRED_BLOCKS, Layout, channel_block, folded, to_memory, unfolded_row
from .intrinsics import QUAD, REGISTER, dot_product, grouped_dot, grouped_product, outer_product
from .processor import CpuTarget
from .schedules import extent_of, own_loops, split_loops, tidy, unroll_lanes
from .tiles import Tile, choose_grouped_tile, choose_tile


def is_convolution(call: Call) -> bool:
    entry = operator_of(call)
    return entry is not None and entry.anchor is Anchor.CONVOLUTION


def is_matrix_convolution(call: Call) -> bool:
    """Whether a call is a convolution over images, or over volumes without padding in depth and height, with constant
    weights that has a form in register tiles."""
    return (
        is_convolution(call) and not any(_padding(call)[1]) and isinstance(call.args[1], Constant)
        and call.args[0].dtype in ("float32", "int8") and not isinstance(call.args[0], Constant)
        and result_block(call) > 0
    )  # fmt: skip


def _padding(call: Call) -> tuple[tuple[int, int, int, int], tuple[int, ...]]:
    """What is around an image (top, left, bottom, right), and what else is asked for."""
    pads: tuple[int, ...] = call.attr("pads")
    count = len(pads) // 2
    if count == 2:
        return (pads[0], pads[1], pads[2], pads[3]), ()
    return (0, pads[count - 1], 0, pads[-1]), (*pads[: count - 1], *pads[count:-1])


def result_block(call: Call) -> int:
    """Channels in a block of a convolution's result: of one group, or of some whole groups; 0 if neither can be."""
    channels, groups = call.shape[1], call.attr("groups")
    if groups == 1:
        return channel_block(channels)
    block = channel_block(channels)
    if _group_in_block(call, block):
        return block
    taken, made = call.args[1].shape[1], channels // groups
    own = channel_block(made)
    return own if own in PREFERRED_BLOCKS and channel_block(taken) in PREFERRED_BLOCKS else 0


def data_block(call: Call, present: int) -> int:
    """Channels in a block of a convolution's data; ``present``: those that it has already (0: it is plain)."""
    block = result_block(call)
    if _group_in_block(call, block):
        return block
    multiple = QUAD if call.args[0].dtype == "int8" else 1
    taken = call.args[1].shape[1]
    if present and present % multiple == 0 and (call.attr("groups") == 1 or taken % present == 0):
        return present
    return channel_block(taken, multiple)


def _group_in_block(call: Call, block: int) -> int:
    """Channels of a group, where several groups that take as many channels as they make fit into a block; else 0."""
    groups, taken = call.attr("groups"), call.args[1].shape[1]
    multiple = QUAD if call.args[0].dtype == "int8" else 1
    fits = taken < block and block % taken == 0 and taken % multiple == 0 and block in PREFERRED_BLOCKS
    return taken if groups > 1 and call.shape[1] == groups * taken and taken > 1 and fits else 0


def data_layout(call: Call, block: int) -> Layout:
    """How a convolution wants its data."""
    (top, left, bottom, right), _ = _padding(call)
    return Layout(block, (top, left, bottom, right), int(str(call.attrs.get("pad_value", 0))))


def convolution_kernel(
    group: Group, layouts: Mapping[Expr, Layout], layout: Layout, name: str, target: CpuTarget
) -> Kernel:
    """A group whose anchor is a convolution, in the blocked layout from data to result."""
    anchor = group.anchor
    if anchor is None or not isinstance(anchor.args[1], Constant):
        raise CompileError("it has no convolution with constant weights", at=f"kernel {group.name!r}")
    operands = Operands(Builder(), layouts)
    data = operands.tensor(anchor.args[0])
    data_in = layouts[anchor.args[0]]
    channels = anchor.shape[1]
    within = _group_in_block(anchor, layout.block)
    width = anchor.shape[-1]
    if within:
        tile = choose_grouped_tile(width, layout.block, target)
    else:
        tile = choose_tile(width, channels // anchor.attr("groups"), layout.block, target)
    weights = anchor.args[1].value
    weights = weights.reshape(folded(weights.shape))
    known: dict[Expr, View] = {}
    if within:
        accumulated = grouped_sums(anchor, operands, data, data_in, weights, tile)
    elif data.dtype == "uint8":
        accumulated = byte_sums(anchor, operands, data, data_in, weights, tile)
    else:
        accumulated = float_sums(anchor, operands, data, data_in, weights, tile)
    known[anchor] = accumulated

    def constant(call: Call, place: int, node: Constant) -> View:
        axis = 0 if len(node.shape) == 1 else 1
        return operands.constant(node, axis if len(node.shape) > axis else None)

    result = lower_members(group, operands, known, constant)
    block = layout.block

    def value(n: tir.Expr, o: tir.Expr, g: tir.Expr, y: tir.Expr, x: tir.Expr, lane: tir.Expr) -> tir.Expr:
        index = (n, o * tile.lanes + g * block + lane, *unfolded_row(y, anchor.shape), x)
        return to_memory(result[index], layout)

    batch, _, height, width = folded(anchor.shape)
    shape = (batch, channels // tile.lanes, tile.lanes // block, height, width, block)
    output = te.compute(shape, value, operands.builder.name("out"))
    row_stride = anchor.attr("strides")[-1] * data_in.block

    def arrange(schedule: te.Schedule) -> None:
        _schedule(schedule, tile, data, row_stride, within, target)

    recipe = f"convolution {tile.rows} {tile.lanes} {row_stride} {within}"
    return finished(operands, group.root.shape, output, layout, name, recipe, arrange)


def _schedule(
    schedule: te.Schedule, tile: Tile, data: te.Tensor, row_stride: int, within: int, target: CpuTarget
) -> None:
    tidy(schedule)
    n, o, g, y, x, lane = schedule.get_loops(schedule.blocks()[-1])
    outer, row = schedule.split_shifted(x, tile.rows)
    schedule.reorder(n, o, y, outer, row, g, lane)
    schedule.set_scope("acc", REGISTER)
    schedule.compute_at("acc", outer)
    reduced, kept = split_loops(schedule, "acc")  # loops that run once are gone by now
    schedule.reorder(*reduced, *kept)
    initial = schedule.decompose_reduction("acc", reduced[0])
    for loop in (n, o, y):
        schedule.parallel(loop)
    for loop in (row, g):
        schedule.unroll(loop)
    schedule.vectorize(lane)
    unroll_lanes(schedule, own_loops(schedule, initial))
    if within:
        step = _grouped_step(tile, data, row_stride, within, target)
        lanes = schedule.split(kept[-1], within)
        kept = [*kept[:-1], *lanes]
    elif not kept:  # a tile of one value: the loops of the reduction are all there is
        return
    elif data.dtype == "uint8":
        step = dot_product(tile.rows, tile.lanes, row_stride, target.float_lanes, target.dot_product)
    else:
        step = outer_product(tile.rows, tile.lanes, row_stride, target.float_lanes)
    # What of the reduction is inside of the step: the loops that it has besides those of the tile.
    inside = sum(extent != 1 for _, extent in step.loops) - sum(extent_of(schedule, loop) != 1 for loop in kept)
    schedule.reorder(*reduced[: len(reduced) - inside], *kept, *reduced[len(reduced) - inside :])
    schedule.tensorize(kept[0], step)


def _grouped_step(tile: Tile, data: te.Tensor, row_stride: int, within: int, target: CpuTarget) -> TensorIntrinsic:
    if data.dtype == "uint8":
        return grouped_dot(tile.rows, tile.lanes, within, row_stride, target.float_lanes, target.dot_product)
    return grouped_product(tile.rows, tile.lanes, within, row_stride, target.float_lanes)
