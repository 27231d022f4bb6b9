"""The tile of a product, and its parts: those that take the least time by an estimate.

A multiprocessor does a step of all groups that it has at a time in the longest of: products, with some of the loads of
their operands; what it fetches from memory; and the time that passes until what a step begins with is there. The
numbers were fitted to 500 kernels on an H100 (float32 by threads, float16 and int8 on tensor cores; 23 products and
convolutions): what is chosen by them took 4 % longer than the best tile and parts there, on average.
"""

from __future__ import annotations

from math import prod

from ...tensor.evaluate import ITEM_BYTES
from .devices import GpuDescription
from .mma_shapes import MmaShape
from .thread_products import TOGETHER, WARP_COLUMNS, WARP_ROWS
from .tiles import Plan, Shape, tiles_of

LEAST_SUMS, LEAST_DEPTH = 8, 8
"""Below these a thread an element does as well. Few rows or columns waste products, but their operands are still read
by vectors, once; many such products, as of a depthwise convolution, read little."""

PARTS = (1, 2, 3, 4, 6, 8, 12, 16)
LEAST_STEPS = 4
"""Of a part."""


def choose_plan(batch: int, rows: int, columns: int, depth: int, shape: Shape, device: GpuDescription) -> Plan | None:
    """The tile and parts for ``batch`` products (rows, depth) x (depth, columns); None where none is worth it."""
    if depth < LEAST_DEPTH or rows * columns < LEAST_SUMS or (batch > 1 and min(rows, columns) < LEAST_SUMS):
        return None
    sizes = batch, rows, columns, depth
    return min(
        plans_of(depth, shape, device), key=lambda plan: estimated_cycles(plan, sizes, shape, device), default=None
    )


def plans_of(depth: int, shape: Shape, device: GpuDescription) -> list[Plan]:
    """The tiles that a group has room for, in each number of parts that the depth is enough for."""
    size = ITEM_BYTES[shape.dtype]
    most = max(device.shared_bytes, device.shared_most)
    return [
        Plan(tile, parts)
        for tile in tiles_of(shape)
        for parts in PARTS
        if tile.threads(device) <= device.group_threads and tile.shared_bytes(size, device) <= most
        and (parts == 1 or depth >= parts * LEAST_STEPS * tile.depth)
    ]  # fmt: skip


GROUP_CYCLES, STEP_CYCLES, LAUNCH_CYCLES = 1200, 540, 5400
"""That pass before and after the steps of a group, at least in a step, and for a launch that adds up parts."""

GROUP_BYTES, ALL_BYTES = 17, 2400
"""Bytes a cycle of operands for a multiprocessor, and of parts of sums that all of them exchange through memory."""

LOAD_CYCLES = 3
"""For a warp's load of 16 bytes a thread from shared memory."""

HIDDEN, REACHED = 0.27, 0.6
"""What remains of loads behind products, and the share of products by tensor cores that is reached at most."""

PARTS_COST = 1.05
"""So much faster parts have to be to be worth it."""

REGISTERS, THREADS = 1 << 16, 2048
"""That a multiprocessor has."""


def estimated_cycles(
    plan: Plan, sizes: tuple[int, int, int, int], shape: Shape, device: GpuDescription, held: int = 0
) -> float:
    """For products of ``sizes``: how many, rows, columns, depth. ``held``: bytes of shared memory that a group needs,
    where that is more than its tile does."""
    tile, size = plan.tile, ITEM_BYTES[shape.dtype]
    batch, rows, columns, depth = sizes
    groups = batch * -(-rows // tile.rows) * -(-columns // tile.columns) * plan.parts
    each = -(-groups // device.multiprocessors)  # of the multiprocessor that has most to do
    steps = -(-depth // (tile.depth * plan.parts))
    warps = prod(tile.warps)
    sums = tile.warp_rows * tile.warp_columns / device.warp
    if isinstance(shape, MmaShape):  # for each lane 32 products of bytes a cycle
        multiply = tile.rows * tile.columns * tile.depth * size / (device.lanes * 32 * REACHED)
        load = warps * tile.depth * size / 32 * (tile.warp_rows + tile.warp_columns) / 16 * 4
        registers = 40 + 1.5 * sums
    else:
        multiply = tile.rows * tile.columns * tile.depth / device.lanes
        loads = tile.warp_rows / WARP_ROWS + tile.warp_columns / WARP_COLUMNS
        load = warps * tile.depth / TOGETHER * loads * LOAD_CYCLES
        registers = 60 + 1.6 * sums
    fetch = (tile.rows + tile.columns) * tile.depth * size / GROUP_BYTES
    threads = warps * device.warp
    shared = max(device.shared_bytes, device.shared_most)
    room = max(1, int(min(REGISTERS / (registers * threads), THREADS / threads,
                          shared / max(held, tile.shared_bytes(size, device)))))  # fmt: skip
    together = min(each, room)
    busy = max(multiply, load)
    step = max(
        together * (busy + HIDDEN * min(multiply, load)), together * fetch, busy * 4 / min(4, warps) + STEP_CYCLES
    )
    cycles = each / together * steps * step + -(-each // room) * GROUP_CYCLES
    if plan.parts > 1:
        cycles = PARTS_COST * cycles + LAUNCH_CYCLES + 2 * plan.parts * batch * rows * columns * 4 / ALL_BYTES
    return cycles
