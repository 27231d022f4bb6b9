"""Convolutions as outer products in registers: packed data, packed weights, a tile of pixels times output channels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ... import tensor as te
from ...graph.ir import Call, Constant, Expr
from ...tensor import ir as tir
from ..errors import CompileError
from ..lowerings import Builder, View
from .groups import Group
from .intrinsics import QUAD, REGISTER, dot_product, outer_product, pieces
from .kernels import Array, Kernel, Operands, finished, lower_members
from .layouts import Layout, to_memory
from .schedules import own_loops, split_loops, tidy, unroll_lanes
from .target import CpuTarget

LATENCY = 8
"""Independent multiply-adds that keep the units of all common processors busy."""

LOAD = 1.25
"""Cycles for a register of weights, some of which come from a second-level cache."""

LARGEST_TILE_LANES = 256


@dataclass(frozen=True)
class Tile:
    """``rows`` pixels of a row times ``lanes`` output channels are accumulated in registers."""

    rows: int
    lanes: int


def choose_tile(width: int, channels: int, block: int, target: CpuTarget) -> Tile:
    """The tile with the fewest cycles for a row of the image: all registers but those for weights and a value. Where
    tiles do not divide the row, the last two overlap."""
    best: tuple[float, int, Tile] | None = None
    for lanes in range(block, min(channels, LARGEST_TILE_LANES) + 1, block):
        if channels % lanes:
            continue
        parts = len(pieces(lanes, target.float_lanes))
        for rows in range(1, min(width, target.registers) + 1):
            if rows * parts + min(parts, 2) + 1 > target.registers:
                break
            cycles = max(rows * parts, rows / 2 + parts * LOAD, LATENCY) + 0.5
            rated = (-(-width // rows) * cycles / lanes, -rows, Tile(rows, lanes))
            if best is None or rated[:2] < best[:2]:
                best = rated
    return best[2] if best is not None else Tile(1, block)


def is_matrix_convolution(call: Call) -> bool:
    """Whether a call is a convolution over images without groups, with constant weights."""
    return (
        call.op in ("nn.conv2d", "conv2d") and call.attr("groups") == 1 and isinstance(call.args[1], Constant)
        and call.args[0].dtype in ("float32", "int8") and not isinstance(call.args[0], Constant)
    )  # fmt: skip


def data_layout(call: Call, block: int) -> Layout:
    """How a convolution wants its data."""
    top, left, bottom, right = call.attr("pads")
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
    tile = choose_tile(anchor.shape[3], channels, layout.block, target)
    weights = anchor.args[1].value
    known: dict[Expr, View] = {}
    if data.dtype == "uint8":
        accumulated = _byte_products(anchor, operands, data, data_in, weights, tile)
    else:
        accumulated = _float_products(anchor, operands, data, data_in, weights, tile)
    known[anchor] = accumulated

    def constant(call: Call, place: int, node: Constant) -> View:
        axis = 0 if len(node.shape) == 1 else 1
        return operands.constant(node, axis if len(node.shape) > axis else None)

    result = lower_members(group, operands, known, constant)
    block = layout.block

    def value(n: tir.Expr, o: tir.Expr, g: tir.Expr, y: tir.Expr, x: tir.Expr, lane: tir.Expr) -> tir.Expr:
        return to_memory(result[n, o * tile.lanes + g * block + lane, y, x], layout)

    batch, _, height, width = anchor.shape
    shape = (batch, channels // tile.lanes, tile.lanes // block, height, width, block)
    output = te.compute(shape, value, operands.builder.name("out"))
    row_stride = anchor.attr("strides")[1] * data_in.block

    def arrange(schedule: te.Schedule) -> None:
        _schedule(schedule, tile, data, row_stride, target)

    recipe = f"convolution {tile.rows} {tile.lanes} {row_stride}"
    return finished(operands, group.root.shape, output, layout, name, recipe, arrange)


def _float_products(
    call: Call, operands: Operands, data: te.Tensor, layout: Layout, weights: Array, tile: Tile
) -> View:
    block = layout.block
    out, channels, kernel_h, kernel_w = weights.shape
    blocks = data.shape[1]
    wide = np.zeros((out, blocks * block, kernel_h, kernel_w), np.float32)
    wide[:, :channels] = weights
    packed = wide.reshape(out // tile.lanes, tile.lanes, blocks, block, kernel_h, kernel_w)
    w = operands.array(packed.transpose(0, 2, 4, 5, 3, 1))
    kc, kh, kw = te.reduce_axis(blocks, "kc"), te.reduce_axis(kernel_h, "kh"), te.reduce_axis(kernel_w, "kw")
    kb = te.reduce_axis(block, "kb")
    at = _reader(call, layout)

    def value(n: tir.Expr, o: tir.Expr, y: tir.Expr, x: tir.Expr, lane: tir.Expr) -> te.Reduction:
        row, column = at(y, x, kh, kw)
        return te.sum(data[n, kc, row, column, kb] * w[o, kc, kh, kw, kb, lane], [kc, kh, kw, kb])

    return _accumulator(call, tile, value)


def _byte_products(
    call: Call, operands: Operands, data: te.Tensor, layout: Layout, weights: Array, tile: Tile
) -> View:
    """Products of bytes. Data is held 128 too high, so the sum is too high by 128 times the sum of the weights."""
    block = layout.block
    out, channels, kernel_h, kernel_w = weights.shape
    blocks = data.shape[1]
    wide = np.zeros((out, blocks * block, kernel_h, kernel_w), np.int8)
    wide[:, :channels] = weights
    packed = wide.reshape(out // tile.lanes, tile.lanes, blocks, block // QUAD, QUAD, kernel_h, kernel_w)
    w = operands.array(packed.transpose(0, 2, 5, 6, 3, 1, 4))
    excess = operands.array((weights.astype(np.int64).sum((1, 2, 3)) * 128).astype(np.int32))
    kc, kh, kw = te.reduce_axis(blocks, "kc"), te.reduce_axis(kernel_h, "kh"), te.reduce_axis(kernel_w, "kw")
    kb, q = te.reduce_axis(block // QUAD, "kb"), te.reduce_axis(QUAD, "q")
    at = _reader(call, layout)

    def value(n: tir.Expr, o: tir.Expr, y: tir.Expr, x: tir.Expr, lane: tir.Expr) -> te.Reduction:
        row, column = at(y, x, kh, kw)
        byte = data[n, kc, row, column, kb * QUAD + q].astype("int32")
        return te.sum(byte * w[o, kc, kh, kw, kb, lane, q].astype("int32"), [kc, kh, kw, kb, q])

    view = _accumulator(call, tile, value)
    return View(view.shape, view.dtype, lambda index: view[index] - excess[index[1]])


def _reader(call: Call, layout: Layout):  # type: ignore[no-untyped-def]
    (stride_y, stride_x), (dilation_y, dilation_x) = call.attr("strides"), call.attr("dilations")
    top, left = layout.halo[0] - call.attr("pads")[0], layout.halo[1] - call.attr("pads")[1]

    def at(y: tir.Expr, x: tir.Expr, kh: tir.Expr, kw: tir.Expr) -> tuple[tir.Expr, tir.Expr]:
        return y * stride_y + kh * dilation_y + top, x * stride_x + kw * dilation_x + left

    return at


def _accumulator(call: Call, tile: Tile, value) -> View:  # type: ignore[no-untyped-def]
    batch, channels, height, width = call.shape
    acc = te.compute((batch, channels // tile.lanes, height, width, tile.lanes), value, "acc")

    def read(index: tuple[tir.Expr, ...]) -> tir.Expr:
        n, c, y, x = index
        return acc[n, c // tile.lanes, y, x, c % tile.lanes]

    return View(call.shape, acc.dtype, read)


def _schedule(schedule: te.Schedule, tile: Tile, data: te.Tensor, row_stride: int, target: CpuTarget) -> None:
    tidy(schedule)
    n, o, g, y, x, lane = schedule.get_loops(schedule.blocks()[-1])
    outer, row = schedule.split_shifted(x, tile.rows)
    schedule.reorder(n, o, y, outer, row, g, lane)
    schedule.set_scope("acc", REGISTER)
    schedule.compute_at("acc", outer)
    reduced, kept = split_loops(schedule, "acc")  # loops that run once are gone by now
    if data.dtype == "uint8":
        schedule.reorder(*reduced[:-1], *kept, reduced[-1])
    else:
        schedule.reorder(*reduced, *kept)
    initial = schedule.decompose_reduction("acc", reduced[0])
    for loop in (n, o, y):
        schedule.parallel(loop)
    for loop in (row, g):
        schedule.unroll(loop)
    schedule.vectorize(lane)
    unroll_lanes(schedule, own_loops(schedule, initial))
    if not kept:  # a tile of one value: the loops of the reduction are all there is
        return
    width = target.float_lanes
    if data.dtype == "uint8":
        step = dot_product(tile.rows, tile.lanes, row_stride, width, target.dot_product)
    else:
        step = outer_product(tile.rows, tile.lanes, row_stride, width)
    schedule.tensorize(kept[0], step)
