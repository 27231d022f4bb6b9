"""The schedule of products in whole tiles: stages ``left`` and ``right`` in shared memory, both with the depth
innermost, ``acc`` in registers, ``sums`` in shared memory again, from where the result takes them. Tensor cores
multiply, or threads (`thread_products.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from ... import tensor as te
from ...tensor.evaluate import ITEM_BYTES
from ...tensor.ir import BinOp, Block, Const, Var
from ...tensor.tree import find_block, find_buffer
from ...tensor.visitor import free_vars, walk_exprs
from ..loops.nests import REGISTER, extent_of, largest_divisor, own_loops, split_loops, tidy
from .devices import GpuDescription
from .digits import BLOCK_AXES, SHARED, THREAD, WARP
from .intrinsics import COLUMNS, MATRIX_BYTES, MATRIX_ROWS, ldmatrix, mma
from .mma_shapes import MmaShape
from .schedules import schedule_elements
from .thread_products import hold_by_threads, multiply_by_threads
from .tiles import FRAGMENT_BYTES, ROW_PADDING, SUMS_PADDING, Plan, Shape, TensorTile
from .vector_loops import found_together, neighbours_at_once, with_digits_apart
from .warp_parts import COPIES, PIPELINE


def schedule_tensor_cores(schedule: te.Schedule, plan: Plan, shape: Shape, device: GpuDescription) -> None:
    """Tiles for groups, parts of them for warps, the depth in steps; all threads load the operands of a step. Where
    there are parts, threads for the elements of the result add up what stage ``part`` has of each."""
    tidy(schedule)
    tile = plan.tile
    name = schedule.blocks()[-1] if plan.parts == 1 else PART
    *outer, m, n = schedule.get_loops(name)
    count = stored_together(schedule, name, n, device)
    down, m = schedule.split(m, tile.rows)
    across, n, each = schedule.split(n, factors=[None, tile.columns // count, count])
    schedule.reorder(*outer, down, across, m, n, each)
    for name, scope in (("sums", SHARED), ("acc", REGISTER)):
        schedule.set_scope(name, scope)
        schedule.compute_at(name, across, whole=2)
    schedule.storage_align("sums", find_buffer(schedule.func, "sums").ndim - 2, 32, SUMS_PADDING)
    for axis, loops in zip(reversed(BLOCK_AXES), (outer, [down], [across]), strict=True):
        for loop in loops:
            schedule.bind(loop, axis)
    hold(schedule, "sums", tile, shape)
    store_together(schedule, m, n, each, tile, tile.threads(device))
    multiply(schedule, Stages(), ("left", "right"), tile, shape, device)
    if plan.parts > 1:
        schedule_elements(schedule, device, device.neighbours, [TOTAL])


PART, TOTAL = "part", "total"
"""Stages of sums over parts of the depth."""


@dataclass(frozen=True)
class Stages:
    """Names of a product's stages: its operands, and what adds up."""

    left: str = "left"
    right: str = "right"
    acc: str = "acc"


def hold(schedule: te.Schedule, name: str, tile: TensorTile, shape: Shape) -> None:
    if isinstance(shape, MmaShape):
        _by_lanes(schedule, name, tile)
    else:
        hold_by_threads(schedule, name, tile.warp_rows, tile.warp_columns)


def _by_lanes(schedule: te.Schedule, name: str, tile: TensorTile) -> None:
    """A stage over the tile of sums: each thread the sums that it holds."""
    i, j = own_loops(schedule, name)[-2:]
    warp_row, rows, row = schedule.split(i, factors=[None, tile.warp_rows // MATRIX_ROWS, MATRIX_ROWS])
    warp_column, columns, column, pair = schedule.split(
        j, factors=[None, tile.warp_columns // COLUMNS, 4, COLUMNS // 4]
    )
    for loop in (warp_row, row, warp_column, column):
        schedule.bind(loop, THREAD)
    schedule.reorder(warp_row, warp_column, row, column, rows, columns, pair)
    for loop in (rows, columns):
        schedule.unroll(loop)
    schedule.vectorize(pair)


def stored_together(schedule: te.Schedule, output: str, columns: Var, device: GpuDescription) -> int:
    """How many columns of the result a thread makes at a time: those that are stored, and read, at once."""
    count = device.neighbours
    while count > 1:
        if extent_of(schedule, columns) % count == 0:
            attempt = schedule.copy()
            _, each = attempt.split(columns, count)
            block = find_block(attempt.func, output)[-1]
            if isinstance(block, Block) and found_together(block.body, each, count):
                return count
        count //= 2
    return 1


BANKS = 32
"""Of shared memory, a word each."""


def store_together(schedule: te.Schedule, rows: Var, columns: Var, each: Var, tile: TensorTile, threads: int) -> None:
    """The tile of the result: a thread has ``each`` neighbours, then those some rows below. Where a row is less than
    all banks, the rows that are read at once are two apart: these lie in different banks."""
    at_once = min(tile.rows, threads * extent_of(schedule, each) // tile.columns)
    if extent_of(schedule, rows) != tile.rows:  # how many rows there are depends on the group
        row, below = schedule.split(rows, tile.rows // at_once)
        nest = [row, columns]
    elif tile.columns < BANKS and at_once % 4 == 0:
        below, high, two, one = schedule.split(rows, factors=[None, at_once // 4, 2, 2])
        nest = [high, one, two, columns]
    else:
        below, row = schedule.split(rows, at_once)
        nest = [row, columns]
    for loop in nest:  # while they are in order it is seen that no two threads meet
        schedule.bind(loop, THREAD)
    if extent_of(schedule, each) > 1:
        schedule.vectorize(each)
    schedule.reorder(*nest, below, each)


def multiply(
    schedule: te.Schedule,
    stages: Stages,
    by_steps: Sequence[str],
    tile: TensorTile,
    shape: Shape,
    device: GpuDescription,
) -> None:
    """The stage that adds up, by warps or threads, in steps of the depth; ``by_steps``: the operands that are loaded
    for each step."""
    step = _multiply(schedule, stages.acc, tile, shape)
    copies = _place_fragments(schedule, stages) if isinstance(shape, MmaShape) else {}
    for name in by_steps:
        load_together(schedule, name, step, tile.threads(device))
    if isinstance(shape, MmaShape):
        _fragments(schedule, stages, copies, shape)
    if extent_of(schedule, step) > 1:
        schedule.annotate(step, PIPELINE, tile.copies(device))


def _multiply(schedule: te.Schedule, acc: str, tile: TensorTile, shape: Shape) -> Var:
    """The loops that add up; gives that over steps of the depth."""
    reduced, kept = split_loops(schedule, acc)
    i, j = kept[-2:]
    step, k = schedule.split(reduced[0], tile.depth)
    schedule.reorder(*kept[:-2], step, i, j, k)
    hold(schedule, schedule.decompose_reduction(acc, step), tile, shape)
    if not isinstance(shape, MmaShape):
        multiply_by_threads(schedule, i, j, k, tile.warp_rows, tile.warp_columns)
        return step
    fragment = FRAGMENT_BYTES // ITEM_BYTES[shape.dtype]
    part, deep, k = schedule.split(k, factors=[None, fragment // shape.depth, shape.depth])
    warp_row, rows, row = schedule.split(i, factors=[None, tile.warp_rows // shape.rows, shape.rows])
    warp_column, columns, column = schedule.split(j, factors=[None, tile.warp_columns // COLUMNS, COLUMNS])
    for loop in (warp_row, warp_column):
        schedule.bind(loop, WARP)
    schedule.reorder(warp_row, warp_column, part, deep, rows, columns, row, column, k)
    for loop in (part, deep, rows, columns):
        schedule.unroll(loop)
    return step


def load_together(schedule: te.Schedule, name: str, step: Var, threads: int) -> None:
    """All threads of a group for a copy to shared memory in a loop, 16 bytes at a time."""
    schedule.set_scope(name, SHARED)
    schedule.compute_at(name, step)
    size = rows_apart(schedule, name)
    rows, k = own_loops(schedule, name)[-2:]
    together = _neighbours(schedule, name, k, MATRIX_BYTES // size)
    chunk, each = schedule.split(k, together or _alike(schedule, name, k, MATRIX_BYTES // size))
    if together:
        schedule.func = with_digits_apart(schedule.func, each, together)
    height, low = extent_of(schedule, rows), MATRIX_ROWS
    chunks, chunk = schedule.split(chunk, largest_divisor(extent_of(schedule, chunk), threads // low))
    at_once = largest_divisor(height, threads // extent_of(schedule, chunk))
    outer, row = schedule.split(rows, at_once)
    nest = [chunk, row]
    if together:
        high, row = schedule.split(row, low)
        nest = [high, chunk, row]
    for loop in nest:
        schedule.bind(loop, THREAD)
    schedule.reorder(*nest, outer, chunks, each)
    schedule.vectorize(each)


def rows_apart(schedule: te.Schedule, name: str) -> int:
    """Rows of an operand 16 bytes more than a multiple of 32 apart, so that eight of them lie in different banks; gives
    the bytes of an element."""
    buffer = find_buffer(schedule.func, name)
    size = ITEM_BYTES[buffer.dtype]
    schedule.storage_align(name, buffer.ndim - 2, FRAGMENT_BYTES // size, ROW_PADDING // size)
    return size


LEAST_TOGETHER = 4
"""Bytes that it is worth to copy by themselves."""


def _neighbours(schedule: te.Schedule, name: str, loop: Var, most: int) -> int:
    """How many elements that lie together along a loop a copy can read at once; 0 where too few, or none, do."""
    block = find_block(schedule.func, name)[-1]
    if not isinstance(block, Block):
        return 0
    return neighbours_at_once(block.body.value, loop, most, LEAST_TOGETHER // ITEM_BYTES[block.body.buffer.dtype])


def _alike(schedule: te.Schedule, name: str, loop: Var, most: int) -> int:
    """How many elements along a loop a copy finds by the same quotients and conditions; ``most`` where too few."""
    block = find_block(schedule.func, name)[-1]
    if not isinstance(block, Block):
        return most
    alike = most
    for node in walk_exprs(block.body.value):
        if isinstance(node, BinOp) and node.op in ("floordiv", "mod", "lt") and loop in free_vars(node.a):
            alike = gcd(alike, int(node.b.value)) if isinstance(node.b, Const) else 1
    return alike if alike * ITEM_BYTES[block.body.buffer.dtype] >= LEAST_TOGETHER else most


def _place_fragments(schedule: te.Schedule, stages: Stages) -> dict[str, str]:
    """Stages that hold the operands of warps in registers, by those that they are copies of."""
    part = own_loops(schedule, stages.acc)[-7]
    schedule.annotate(part, PIPELINE, COPIES)
    copies = {}
    for name in (stages.left, stages.right):
        is_turned = turned_name(name) in schedule.blocks()
        copies[name] = turned_name(name) if is_turned else schedule.cache_read(stages.acc, name, REGISTER)
        schedule.set_scope(copies[name], REGISTER)
        schedule.compute_at(copies[name], part)
    return copies


def turned_name(name: str) -> str:
    """Of the stage that has the rows of an operand which lies turned, with its depth along its columns."""
    return f"{name}_turned"


def _fragments(schedule: te.Schedule, stages: Stages, copies: Mapping[str, str], shape: MmaShape) -> None:
    """Instructions in place of the loops of warps."""
    row = own_loops(schedule, stages.acc)[-3]
    for name, copy in copies.items():
        stride = find_buffer(schedule.func, name).strides[-2]
        rows, _ = own_loops(schedule, copy)[-2:]
        count = min(2 * MATRIX_ROWS, extent_of(schedule, rows))
        outer, inner = schedule.split(rows, count)
        schedule.unroll(outer)
        load = ldmatrix(shape.dtype, count, stride, by_rows=name == stages.right, turned=copy == turned_name(name))
        schedule.tensorize(inner, load)
    acc = find_buffer(schedule.func, stages.acc)
    schedule.tensorize(row, mma(shape, acc.strides[-2]))
