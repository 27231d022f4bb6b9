"""The schedule of products in whole tiles: stages ``left`` and ``right`` in shared memory, both with the depth
innermost, ``acc`` in registers, ``sums`` in shared memory again, from where the result takes them. Tensor cores
multiply, or threads (`thread_products.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod
from typing import TypeAlias

from ... import tensor as te
from ...tensor.evaluate import ITEM_BYTES
from ...tensor.ir import BinOp, Block, Const, Var
from ...tensor.tree import find_block, find_buffer
from ...tensor.visitor import free_vars, walk_exprs
from ..loops.nests import REGISTER, extent_of, largest_divisor, own_loops, split_loops, tidy
from .devices import GpuDescription
from .digits import BLOCK_AXES, SHARED, THREAD, WARP
from .intrinsics import COLUMNS, MATRIX_BYTES, MATRIX_ROWS, MmaShape, ldmatrix, mma
from .schedules import by_elements
from .thread_products import ThreadShape, hold_by_threads, multiply_by_threads
from .vector_loops import found_together, neighbours_at_once, with_digits_apart
from .warp_parts import COPIES, PIPELINE

FRAGMENT_BYTES = 2 * MATRIX_BYTES
"""Of a row that a warp loads at a time."""


Shape: TypeAlias = MmaShape | ThreadShape
"""What multiplies: an instruction of tensor cores, or threads."""


@dataclass(frozen=True)
class TensorTile:
    """``rows`` x ``columns`` of the result for a group of ``warps[0]`` x ``warps[1]`` warps; ``depth`` (elements) of
    the operands is in shared memory at a time."""

    rows: int
    columns: int
    depth: int
    warps: tuple[int, int]

    @property
    def warp_rows(self) -> int:
        return self.rows // self.warps[0]

    @property
    def warp_columns(self) -> int:
        return self.columns // self.warps[1]

    def threads(self, device: GpuDescription) -> int:
        return self.warps[0] * self.warps[1] * device.warp

    def shared_bytes(self, size: int, device: GpuDescription) -> int:
        """Of a group, for operands of ``size`` bytes an element: the ring of these, then the sums in its place."""
        row = self.depth * size + ROW_PADDING
        return max(stages(device) * (self.rows + self.columns) * row, self.rows * (self.columns + SUMS_PADDING) * 4)


def tensor_tiles(size: int) -> tuple[TensorTile, ...]:
    """Tiles for operands of ``size`` bytes an element."""
    depth = 2 * FRAGMENT_BYTES // size
    return tuple(
        TensorTile(rows, columns, depth, warps)
        for rows, columns, warps in (
            (128, 128, (2, 2)), (256, 128, (4, 2)), (128, 256, (2, 4)), (128, 64, (2, 2)), (64, 128, (2, 2)),
            (64, 64, (2, 2)), (64, 32, (2, 2)), (32, 64, (2, 2)), (32, 32, (2, 2)), (64, 16, (4, 1)), (16, 64, (1, 4)),
            (32, 16, (2, 1)), (16, 32, (1, 2)), (16, 16, (1, 1)),
        )
    )  # fmt: skip


ROW_PADDING, SUMS_PADDING = MATRIX_BYTES, 8
"""Bytes that a row of operands is longer than its elements, and sums that a row of these is: neighbours in a column
then lie in different banks."""


def stages(device: GpuDescription) -> int:
    """Steps of the depth that are in shared memory at a time: one more where copies run by themselves."""
    return 3 if device.asynchronous else 2


LEAST_SUMS, LEAST_DEPTH = 8, 8
"""Below these a thread an element does as well. Few rows or columns waste products, but their operands are still read
by vectors, once; many such products, as of a depthwise convolution, read little."""


@dataclass(frozen=True)
class Plan:
    """``tile``, and in how many ``parts`` the depth is added up, each by groups of its own; another launch adds those
    up. A part is a whole number of steps."""

    tile: TensorTile
    parts: int = 1


PARTS = (1, 2, 3, 4, 6, 8, 12, 16)
LEAST_STEPS = 4
"""Of a part."""


def choose_plan(batch: int, rows: int, columns: int, depth: int, shape: Shape, device: GpuDescription) -> Plan | None:
    """The tile and parts for ``batch`` products (rows, depth) x (depth, columns); None where none is worth it."""
    if depth < LEAST_DEPTH or rows * columns < LEAST_SUMS or (batch > 1 and min(rows, columns) < LEAST_SUMS):
        return None
    size = ITEM_BYTES[shape.dtype]
    most = max(device.shared_bytes, device.shared_most)
    plans = [
        Plan(tile, parts)
        for tile in tiles_of(shape)
        for parts in PARTS
        if tile.threads(device) <= device.group_threads and tile.shared_bytes(size, device) <= most
        and (parts == 1 or depth >= parts * LEAST_STEPS * tile.depth)
    ]  # fmt: skip
    return min(plans, key=lambda plan: _cycles(plan, batch, rows, columns, depth, shape, device), default=None)


GROUP_CYCLES, LAUNCH_CYCLES = 1500, 2500
"""Until a group's first operands are there and after its last ones; of a further launch. As seen on an H100."""

GROUP_BYTES, ALL_BYTES = 24, 2500
"""Bytes a cycle of operands for a multiprocessor, and of what all of them exchange through memory."""

LEAST_GAIN = 1.15
"""Parts have to be so much faster by this estimate to be worth it."""

BUSY_WARPS = 8
"""Of a multiprocessor: fewer wait for what they have begun."""


def _cycles(plan: Plan, batch: int, rows: int, columns: int, depth: int, shape: Shape, device: GpuDescription) -> float:
    """About how long it takes."""
    tile, size = plan.tile, ITEM_BYTES[shape.dtype]
    groups = batch * -(-rows // tile.rows) * -(-columns // tile.columns) * plan.parts
    each = -(-groups // device.multiprocessors)  # of the multiprocessor that has most to do
    steps = -(-depth // (tile.depth * plan.parts))
    # Of tensor cores a multiprocessor does 32 products of bytes for each lane; their operands have to be loaded first.
    rate = device.lanes * (32 // size if isinstance(shape, MmaShape) else 1)
    loads = 8 / tile.warp_rows + 8 / tile.warp_columns
    multiply = tile.rows * tile.columns * tile.depth * (1 + loads) / rate
    fetch = (tile.rows + tile.columns) * tile.depth * size / GROUP_BYTES
    warps = prod(tile.warps)
    resident = min(each * warps, device.warps)
    busy = min(1.0, resident / 4) * (0.7 + 0.3 * min(1.0, resident / BUSY_WARPS))
    turns = -(-each * warps // device.warps)
    cycles = each * steps * max(multiply / busy, fetch) + turns * GROUP_CYCLES
    if plan.parts > 1:
        cycles = LEAST_GAIN * cycles + LAUNCH_CYCLES + 2 * plan.parts * batch * rows * columns * 4 / ALL_BYTES
    return cycles


def tiles_of(shape: Shape) -> tuple[TensorTile, ...]:
    """All tiles for what multiplies."""
    return tensor_tiles(ITEM_BYTES[shape.dtype]) if isinstance(shape, MmaShape) else THREAD_TILES


THREAD_TILES = tuple(
    TensorTile(rows, columns, 16, warps)
    for rows, columns, warps in (
        (128, 128, (4, 2)), (128, 64, (4, 1)), (64, 128, (2, 2)), (64, 64, (2, 2)), (64, 32, (4, 1)), (32, 64, (2, 2)),
        (32, 32, (2, 2)), (16, 64, (1, 4)), (64, 16, (4, 1)), (16, 32, (1, 2)), (32, 16, (2, 1)), (16, 16, (2, 1)),
    )
)  # fmt: skip
"""Threads have 8 x 8 sums at most, which all registers have room for."""


def schedule_tensor_cores(schedule: te.Schedule, plan: Plan, shape: Shape, device: GpuDescription) -> None:
    """Tiles for groups, parts of them for warps, the depth in steps; all threads load the operands of a step. Where
    there are parts, threads for the elements of the result add up what stage ``part`` has of each."""
    tidy(schedule)
    tile = plan.tile
    name = schedule.blocks()[-1] if plan.parts == 1 else PART
    *outer, m, n = schedule.get_loops(name)
    count = _stored_together(schedule, name, n, device)
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
    _hold(schedule, "sums", tile, shape)
    _store_together(schedule, m, n, each, tile, tile.threads(device))
    step = _multiply(schedule, tile, shape)
    for name in ("left", "right"):
        _load_together(schedule, name, step, tile.threads(device))
    if isinstance(shape, MmaShape):
        _fragments(schedule, tile, shape)
    if extent_of(schedule, step) > 1:
        schedule.annotate(step, PIPELINE, stages(device))
    if plan.parts > 1:
        _add_up_parts(schedule, device)


PART, TOTAL = "part", "total"
"""Stages of sums over parts of the depth."""


def _add_up_parts(schedule: te.Schedule, device: GpuDescription) -> None:
    count = device.neighbours
    while count:
        attempt = schedule.copy()
        if by_elements(attempt, device, count, [TOTAL]):
            schedule.func, schedule.trace = attempt.func, attempt.trace
            return
        count //= 2


def _hold(schedule: te.Schedule, name: str, tile: TensorTile, shape: Shape) -> None:
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


def _stored_together(schedule: te.Schedule, output: str, columns: Var, device: GpuDescription) -> int:
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


def _store_together(schedule: te.Schedule, rows: Var, columns: Var, each: Var, tile: TensorTile, threads: int) -> None:
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


def _multiply(schedule: te.Schedule, tile: TensorTile, shape: Shape) -> Var:
    """The stage that adds up, by warps or threads; gives the loop over steps of the depth."""
    reduced, kept = split_loops(schedule, "acc")
    i, j = kept[-2:]
    step, k = schedule.split(reduced[0], tile.depth)
    schedule.reorder(*kept[:-2], step, i, j, k)
    _hold(schedule, schedule.decompose_reduction("acc", step), tile, shape)
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


def _load_together(schedule: te.Schedule, name: str, step: Var, threads: int) -> None:
    """All threads of a group for a copy to shared memory, 16 bytes at a time. Rows are 16 bytes more than a multiple of
    32 apart, so that eight rows lie in different banks."""
    schedule.set_scope(name, SHARED)
    schedule.compute_at(name, step)
    buffer = find_buffer(schedule.func, name)
    size = ITEM_BYTES[buffer.dtype]
    schedule.storage_align(name, buffer.ndim - 2, FRAGMENT_BYTES // size, ROW_PADDING // size)
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


def _fragments(schedule: te.Schedule, tile: TensorTile, shape: MmaShape) -> None:
    """Operands of warps in registers, and instructions in place of loops."""
    loops = own_loops(schedule, "acc")
    part, row = loops[-7], loops[-3]
    schedule.annotate(part, PIPELINE, COPIES)
    for name in ("left", "right"):
        stride = find_buffer(schedule.func, name).strides[-2]
        copy = schedule.cache_read("acc", name, REGISTER)
        schedule.compute_at(copy, part)
        rows, _ = own_loops(schedule, copy)[-2:]
        count = min(2 * MATRIX_ROWS, extent_of(schedule, rows))
        outer, inner = schedule.split(rows, count)
        schedule.unroll(outer)
        schedule.tensorize(inner, ldmatrix(shape.dtype, count, stride, by_rows=name == "right"))
    acc = find_buffer(schedule.func, "acc")
    schedule.tensorize(row, mma(shape, acc.strides[-2]))
