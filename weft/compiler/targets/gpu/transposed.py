"""Moves that turn axes: neighbours of the result are far apart in what it is made of.

A group takes a tile of neighbours of both. It loads them into shared memory, neighbours in the source by neighbours,
and makes the result of that, neighbours in the result by neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from ... import tensor as te
from ...tensor.evaluate import ITEM_BYTES
from ...tensor.ir import Block, Const, Expr, Load, Var
from ...tensor.linear import Linear
from ...tensor.simplify import constant_range
from ...tensor.tree import find_block, find_buffer, ranges_of
from ...tensor.visitor import loads
from ..loops.nests import extent_of, largest_divisor, own_loops, position_of, tidy
from .devices import GpuDescription
from .digits import BLOCK_AXES, SHARED, THREAD

LEAST_ELEMENTS = 1 << 16
"""Elements of the result below which the detour is not worth it: caches hold what is read again."""

LEAST_RUN = 16
"""Neighbours along each axis of a tile, at least."""

TILE = 32
"""Neighbours along each axis of a tile: what a warp loads or stores at once."""

THREADS = 64
"""Threads of a group: each has sixteen elements of a whole tile of 32 x 32, which it loads one behind the other and
waits for together."""

WORD = 4
"""Bytes of a bank of shared memory."""


def by_turned_tiles(schedule: te.Schedule, device: GpuDescription) -> bool:
    """For a kernel that makes each element of its result of an element of a source in which neighbours of the result
    are not neighbours, and perhaps of others."""
    tidy(schedule)
    if len(schedule.blocks()) != 1:
        return False
    (output,) = schedule.blocks()
    block = find_block(schedule.func, output)[-1]
    loops = schedule.get_loops(output)
    sizes = {loop: extent_of(schedule, loop) for loop in loops}
    if not isinstance(block, Block) or block.kind == "reduce" or prod(sizes.values()) < LEAST_ELEMENTS:
        return False
    columns = _neighbours(position_of(block.body.buffer, block.body.indices), sizes, ())
    turned = _turned(block, sizes, columns[-1]) if columns else []
    if not turned:
        return False
    rows = _neighbours(position_of(turned[0].buffer, turned[0].indices), sizes, columns[-1:])
    columns = _neighbours(position_of(block.body.buffer, block.body.indices), sizes, rows)
    turned = [load for load in turned if {*rows, *columns} <= set(load.indices)]
    if not turned or any(prod(sizes[loop] for loop in side) < LEAST_RUN for side in (rows, columns)):
        return False
    places = [[_axes_of(load, side) for side in (rows, columns)] for load in turned]
    outer = [loop for loop in loops if loop not in rows and loop not in columns]
    row_group, rows = _cut(schedule, rows)
    column_group, columns = _cut(schedule, columns)
    groups = [*outer, *row_group, *column_group]
    schedule.reorder(*groups, *rows, *columns)
    for load, (row_axes, column_axes) in zip(turned, places, strict=True):
        stage = schedule.cache_read(output, load.buffer.name, SHARED)
        schedule.compute_at(stage, groups[-1])
        own = own_loops(schedule, stage)
        lanes, dealt = [own[axis] for axis in row_axes], [own[axis] for axis in column_axes]
        schedule.reorder(*(loop for loop in own if loop not in lanes and loop not in dealt), *dealt, *lanes)
        _share_out(schedule, stage, dealt, lanes)
        _keep_banks_apart(schedule, stage, column_axes[-1])
    _share_out(schedule, output, rows, columns)
    for loop in groups:
        schedule.bind(loop, BLOCK_AXES[0])
    return True


def _neighbours(position: Linear, sizes: Mapping[Var, int], others: Sequence[Var]) -> list[Var]:
    """The fewest loops that go through `TILE` elements that lie together, outermost first, without ``others``; through
    fewer where there are no more."""
    found: list[Var] = []
    length = 1
    while length < TILE:
        steps = ((loop, size) for loop, size in sizes.items() if size > 1 and position.terms.get(loop) == length)
        loop, size = next(steps, (None, 1))
        if loop is None or loop in others:
            break
        found.insert(0, loop)
        length *= size
    return found


def _turned(block: Block, sizes: Mapping[Var, int], column: Var) -> list[Load]:
    """What a block reads of which neighbours lie along another loop than ``column``, the same one for all: one element
    of each of their buffers, whose index along each axis is a loop or a number, and inside without a condition."""
    reads = loads(block.body.value)
    found: dict[Load, Expr] = {}
    for load in reads:
        steps = position_of(load.buffer, load.indices).terms
        row = next((loop for loop, size in sizes.items() if size > 1 and steps.get(loop) == 1), None)
        alone = sum(each.buffer == load.buffer for each in reads) == 1 and load.buffer != block.body.buffer
        if row is not None and alone and steps.get(column, 0) > 1 and _is_plain(load, sizes):
            found[load] = row
    rows = list(found.values())
    return [load for load, row in found.items() if row == rows[0]]


def _is_plain(load: Load, sizes: Mapping[Var, int]) -> bool:
    seen: set[Var] = set()
    for index, size in zip(load.indices, load.buffer.shape, strict=True):
        if isinstance(index, Const):
            continue
        if not isinstance(index, Var) or index in seen or sizes.get(index, size + 1) > size:
            return False
        seen.add(index)
    return True


def _axes_of(load: Load, loops: Sequence[Var]) -> list[int]:
    """The axes of what is loaded along which the loops go."""
    return [load.indices.index(loop) for loop in loops]


def _cut(schedule: te.Schedule, loops: Sequence[Var]) -> tuple[list[Var], list[Var]]:
    """Loops over neighbours as one for groups, if there is any, and those of a tile."""
    inside = prod(extent_of(schedule, loop) for loop in loops[1:])
    most = max(1, TILE // inside)
    size = extent_of(schedule, loops[0])
    if size <= most:
        return [], list(loops)
    # A side of several loops does not fill a warp anyhow: then equal parts are better, as they need no conditions.
    equal = largest_divisor(size, most)
    group, part = schedule.split(loops[0], equal if inside > 1 and 2 * equal > most else most)
    return [group], [part, *loops[1:]]


def _share_out(schedule: te.Schedule, stage: str, dealt: Sequence[Var], lanes: Sequence[Var]) -> None:
    """Threads for a tile: neighbours for the loops ``lanes``, which are inside of ``dealt``, of which each has some."""
    sizes = {loop: _most(schedule, stage, loop) for loop in (*dealt, *lanes)}
    total = prod(sizes.values())
    threads, own = list(dealt), []
    for loop in sorted(dealt, key=lambda loop: sizes[loop], reverse=True):
        if total <= THREADS:
            break
        total //= sizes[loop]
        each = -(-sizes[loop] // max(1, THREADS // total))
        if each >= sizes[loop]:
            threads.remove(loop)
            own.append(loop)
            continue
        place = threads.index(loop)
        threads[place], part = schedule.split(loop, each)
        own.append(part)
        total *= -(-sizes[loop] // each)
    schedule.reorder(*threads, *lanes, *own)
    for loop in own:
        if extent_of(schedule, loop):
            schedule.unroll(loop)
    for loop in (*threads, *lanes):
        schedule.bind(loop, THREAD)


def _most(schedule: te.Schedule, stage: str, loop: Var) -> int:
    """How often a loop runs at most."""
    path = find_block(schedule.func, stage)
    ranges = ranges_of(path)
    return constant_range(dict(ranges)[loop], ranges)[1]


def _keep_banks_apart(schedule: te.Schedule, stage: str, axis: int) -> None:
    """Neighbours along an axis an odd number of words of a bank apart, or of elements that are longer."""
    item = ITEM_BYTES[find_buffer(schedule.func, stage).dtype]
    words = max(1, WORD // item)
    schedule.storage_align(stage, axis, 2 * words, words)
