"""Products of matrices: a tile of rows times columns in registers, an outer product of both operands a step.

The result is cut into blocks of rows and columns, which threads share out; within a block, panels of columns as wide as
the tile go by one after the other, and within a panel the rows. Each panel of the second operand is copied first, so
that the step reads it in one stream; a constant lies in panels already. Blocks that are no multiple of the tile are
covered by tiles that overlap (``split_shifted``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd, prod

import numpy as np

from ... import tensor as te
from ...graph.ir import Call, Constant, Expr
from ...graph.registry import Anchor, operator
from ...tensor import ir as tir
from ...tensor.ir import Var
from ...tensor.view import Builder, View, broadcast, element_type, widened
from ..errors import CompileError
from ..loops.fusion import Group
from ..loops.kernels import Array, Kernel, Operands, finished, lower_members
from ..loops.layouts import Layout
from .intrinsics import REGISTER, outer_product, pieces
from .processor import CpuTarget
from .schedules import extent_of, own_loops, split_loops, tidy, unroll_lanes
from .tiles import LARGEST_TILE_LANES, LATENCY, Tile

COMPUTED_IN_FLOAT32 = ("float32", "float16", "bfloat16")

BLOCK_BYTES = 256 * 1024
"""Rows of the first operand that are used for one panel after the other should stay in a second-level cache."""

BLOCK_ROWS = 96
"""Rows of a block, at least: each of them pays for its part of copying a panel."""

IN_PLACE_BYTES = 24 * 1024
"""A second operand up to this size stays in the first-level cache: it is read where it lies."""

PARTS = 16
"""Blocks that a product is cut into, if it is large enough: threads find work, and none is left alone with the last."""

CACHE_WAYS, WAY_BYTES = 8, 4096
"""Rows a multiple of ``WAY_BYTES`` apart share ``CACHE_WAYS`` lines of a first-level cache: a tile has no more."""

COPYING = 1.1
"""What copying panels costs, about, as a factor."""


@dataclass(frozen=True)
class Blocking:
    """``tile``: accumulators in registers. ``rows``, ``columns``: of a block. ``copied``: whether the first operand is
    copied into plain rows first; ``packed``: whether panels of the second one are copied."""

    tile: Tile
    rows: int
    columns: int
    copied: bool
    packed: bool


def is_matrix_product(call: Call) -> bool:
    """Whether a call is a product of matrices of floats; constant weights count too."""
    return (
        operator(str(call.op)).anchor is Anchor.PRODUCT and call.args[0].dtype in COMPUTED_IN_FLOAT32
        and not isinstance(call.args[0], Constant)
    )  # fmt: skip


def choose_tile(rows: int, columns: int, depth: int, constant: bool, target: CpuTarget) -> Tile:
    """The tile with the fewest cycles for the whole result: all registers but those for a row of the second operand
    and a value of the first. Of two alike that which loads less. ``constant``: the second operand need not be copied if
    it consists of whole tiles."""
    highest = min(rows, target.registers, CACHE_WAYS * WAY_BYTES // gcd(WAY_BYTES, depth * 4))
    most = min(columns, LARGEST_TILE_LANES)
    widths = {*range(target.float_lanes, most + 1, target.float_lanes)}
    if constant:
        widths |= {lanes for lanes in range(target.float_lanes, most + 1) if columns % lanes == 0}
    best: tuple[float, Tile] | None = None
    for lanes in sorted(widths) or [columns]:
        parts = len(pieces(lanes, target.float_lanes))
        for height in range(1, highest + 1):
            if height > 1 and height * parts + parts + 1 > target.registers:
                break
            step = max(height * parts, height / 2 + parts, LATENCY) + (height + parts) / 16
            cycles = -(-rows // height) * -(-columns // lanes) * step
            if constant and columns % lanes:
                cycles *= COPYING
            if best is None or cycles < best[0]:
                best = (cycles, Tile(height, lanes))
    return best[1] if best is not None else Tile(1, min(columns, target.float_lanes))


def block_size(extent: int, tile: int, wanted: int) -> int:
    """Rows (columns) of a block, so that there are at most ``wanted`` and none is smaller than a tile."""
    for blocks in range(min(wanted, extent // tile), 1, -1):
        size = -(-extent // blocks // tile) * tile
        rest = extent % size
        if size < extent and (rest == 0 or rest >= tile):
            return size
    return extent


def choose_blocking(
    shape: tuple[int, ...], depth: int, plain: tuple[bool, bool], constant: bool, target: CpuTarget
) -> Blocking:
    """How to compute a product of this shape. ``plain``: whether each operand is float32 in row-major order, so that
    the step could read it where it is. ``constant``: whether the second is a constant, which may lie in any order."""
    *outer, rows, columns = shape
    tile = choose_tile(rows, columns, depth, constant, target)
    blocks = min(-(-rows * depth * 4 // BLOCK_BYTES), rows // BLOCK_ROWS)
    height = block_size(rows, tile.rows, blocks)
    others = prod(outer) * -(-rows // height)
    width = block_size(columns, tile.lanes, -(-PARTS // others))
    small = tile.lanes == columns or tile.rows == rows or depth * columns * 4 <= IN_PLACE_BYTES
    packed = not (plain[1] and small) and not (constant and columns % tile.lanes == 0)
    return Blocking(tile, height, width, not plain[0], packed)


def product_kernel(group: Group, layouts: Mapping[Expr, Layout], name: str, target: CpuTarget) -> Kernel:
    """A group whose anchor is a product of matrices; all tensors are plain, or read as if they were."""
    anchor = group.anchor
    if anchor is None or not is_matrix_product(anchor):
        raise CompileError("it has no product of matrices", at=f"kernel {group.name!r}")
    operands = Operands(Builder(), layouts)
    first, second = anchor.args
    shape, depth = anchor.shape, first.shape[-1]
    matrix = _constant_matrix(anchor)
    plain = _is_plain(first, layouts), matrix is not None or (anchor.op == "nn.matmul" and _is_plain(second, layouts))
    blocking = choose_blocking(shape, depth, plain, matrix is not None, target)
    left = operands.view(first)
    if blocking.copied:
        left = _stage(left, "left")
    if matrix is not None and shape[-1] % blocking.tile.lanes == 0:
        right = _panels(operands, matrix, blocking.tile.lanes)
    elif matrix is not None:
        right = operands.constant(Constant(matrix))
    else:
        right = operands.constant(second) if isinstance(second, Constant) else operands.view(second)
        if anchor.op == "nn.dense":
            right = _transposed(right)
    if blocking.packed:
        right = _stage(right, "panel")
    left, right = (broadcast(view, (*shape[:-2], *view.shape[-2:])) for view in (left, right))
    k = te.reduce_axis(depth, "k")

    def value(*index: tir.Expr) -> te.Reduction:
        *outer, row, column = index
        return te.sum(left[(*outer, row, k)] * right[(*outer, k, column)], [k])

    acc = te.compute(shape, value, "acc")
    dtype = element_type(anchor.dtype)
    known: dict[Expr, View] = {anchor: View(shape, dtype, lambda index: acc[index].astype(dtype))}
    result = lower_members(group, operands, known, lambda call, place, node: operands.constant(node))
    output = te.compute(shape, lambda *index: result[index], operands.builder.name("out"))

    def arrange(schedule: te.Schedule) -> None:
        _schedule(schedule, blocking, depth, target)

    return finished(operands, shape, output, Layout(), name, f"product {blocking}", arrange)


def _constant_matrix(call: Call) -> Array | None:
    """The second operand as (depth, columns), if it is constant and the same for all rows."""
    value = call.args[1]
    if not isinstance(value, Constant) or len(value.shape) != 2 or value.dtype != "float32":
        return None
    return np.ascontiguousarray(value.value.T if call.op == "nn.dense" else value.value)


def _is_plain(value: Expr, layouts: Mapping[Expr, Layout]) -> bool:
    return value.dtype == "float32" and (isinstance(value, Constant) or layouts[value].is_plain)


def _panels(operands: Operands, matrix: Array, lanes: int) -> View:
    """A constant cut into panels of ``lanes`` columns, each row-major and one behind the other."""
    depth, columns = matrix.shape
    panels = operands.array(matrix.reshape(depth, columns // lanes, lanes).transpose(1, 0, 2))
    return View(matrix.shape, "float32", lambda index: panels[index[1] // lanes, index[0], index[1] % lanes])


def _transposed(view: View) -> View:
    return View(view.shape[::-1], view.dtype, lambda index: view[index[::-1]])


def _stage(view: View, name: str) -> View:
    """The view computed into a buffer, in float32."""
    wide = widened(view)
    tensor = te.compute(view.shape, lambda *index: wide[index], name)
    return View(view.shape, "float32", lambda index: tensor[index])


def _schedule(schedule: te.Schedule, blocking: Blocking, depth: int, target: CpuTarget) -> None:
    tidy(schedule)
    tile = blocking.tile
    *outer, m, n = schedule.get_loops(schedule.blocks()[-1])
    for loop in outer:
        schedule.parallel(loop)
    m_block, m, row = _blocks(schedule, m, blocking.rows, tile.rows)
    n_block, n, lane = _blocks(schedule, n, blocking.columns, tile.lanes)
    schedule.reorder(*outer, m_block, n_block, n, m, row, lane)
    schedule.set_scope("acc", REGISTER)
    schedule.compute_at("acc", m)
    reduced, kept = split_loops(schedule, "acc")
    schedule.reorder(*reduced, *kept)
    initial = schedule.decompose_reduction("acc", reduced[0])
    unroll_lanes(schedule, own_loops(schedule, initial))
    unroll_lanes(schedule, [row, lane])
    if blocking.packed:
        schedule.compute_at("panel", n)
        schedule.vectorize(schedule.get_loops("panel")[-1])
    if blocking.copied:
        *rows, last = schedule.get_loops("left")
        for loop in rows:
            schedule.parallel(loop)
        schedule.vectorize(last)
    if kept:  # else the tile is one value: the loop of the reduction is all there is
        schedule.tensorize(kept[0], outer_product(tile.rows, tile.lanes, depth, target.float_lanes))


def _blocks(schedule: te.Schedule, loop: Var, block: int, tile: int) -> tuple[Var, Var, Var]:
    """Split a loop into blocks, which may run at once, the tiles of a block, and the elements of a tile."""
    if extent_of(schedule, loop) % tile == 0:
        blocks, tiles, elements = schedule.split(loop, factors=[None, block // tile, tile])
        schedule.parallel(blocks)
        return blocks, tiles, elements
    blocks, rest = schedule.split(loop, block)
    schedule.parallel(blocks)
    return blocks, *schedule.split_shifted(rest, tile)
