"""The default schedule of each kind of kernel: nothing needs tuning to run."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

from ... import tensor as te
from ...tensor.errors import ScheduleError
from ...tensor.ir import FLOATS, BinOp, Block, Const, Load, Var
from ...tensor.tree import find_block, find_buffer
from ...tensor.visitor import accumulation, free_vars, walk_exprs
from ..loops.layouts import PAIR
from ..loops.nests import (
    ANY_ORDER,
    REGISTER,
    extent_of,
    largest_divisor,
    own_loops,
    position_of,
    reduces_neighbours,
    split_loops,
    tidy,
    unroll_lanes,
)
from ..loops.small_moves import SHORTEST_PART
from .intrinsics import (
    interleaved,
    interleaved_bytes,
    interleaved_halves,
    transposed_bytes,
    transposed_halves,
    transposed_pairs,
    transposed_tile,
)

SHORTEST_ROW = 8
"""Elements that are combined by lanes, at least."""

SQUARES: dict[str, tuple[int, ...]] = {"float32": (8, 4), "int8": (16, 8), "bfloat16": (16, 8)}
"""Sizes of squares that are transposed in registers. All processors have registers for four rows of four floats."""

TRANSPOSED = {"float32": transposed_tile, "int8": transposed_bytes, "bfloat16": transposed_halves}

INTERLEAVED: dict[str, tuple[int, ...]] = {"int8": (16, 8, 4), "bfloat16": (32, 16, 8, 4)}
"""Elements of each row that are interleaved at once."""

LONGEST_ROW = 4096
"""Elements of a row that are kept on the stack, at most."""

LONGEST_PART = 64
"""Elements of a row that are reduced at a time where lanes run along the row."""

PIXELS_AT_ONCE = 14
"""Pixels of a row that poolings and depthwise convolutions reduce at a time, at most."""

LONGEST_UNROLL = 32
"""Steps of a reduction that are written out."""


LONGEST_SUM = 1024
"""Floats that are added to one sum, one after the other, where its loops allow less."""


def schedule_plain(schedule: te.Schedule) -> None:
    """Every stage a nest of its own: outer loops in parallel, the innermost over lanes. A reduction runs outside of the
    innermost loop of its result, where that is long enough to be worth it. Stages of which the result takes a row at a
    time are computed row by row."""
    tidy(schedule)
    _single_loops_outside(schedule)
    *stages, output = schedule.blocks()
    if transpose_squares(schedule, output, schedule.get_loops(output)):
        rows: set[str] = set()
        around: list[Var] = []
    else:
        around = _put_rows_outside(schedule)
        rows = _move_into_rows(schedule, around)
        stages.append(output)
    for name in stages:
        block = find_block(schedule.func, name)[-1]
        if isinstance(block, Block) and block.kind == "reduce":
            if name in rows:
                _reduce_row(schedule, name)
            else:
                _plain_reduction(schedule, name, block)
        elif name in rows:
            for lanes in _with_whole_parts(schedule, name, own_loops(schedule, name))[-1:]:
                schedule.vectorize(lanes)
        else:
            _plain_loops(schedule, name, schedule.get_loops(name), around if rows and name == output else ())


def _single_loops_outside(schedule: te.Schedule) -> None:
    """Loops of one iteration around all others of their stage, but those of reductions, so that the innermost has lanes
    to run over."""
    for name in schedule.blocks():
        _, kept = split_loops(schedule, name)
        single = [loop for loop in kept if extent_of(schedule, loop) == 1]
        if single and single != kept[: len(single)]:
            schedule.reorder(*single, *(loop for loop in kept if loop not in single))


def _put_rows_outside(schedule: te.Schedule) -> list[Var]:
    """Put loops of the result that run along rows of the stages before it, such as those over blocks of a row that lie
    apart, inside of those that choose a row; gives the latter."""
    loops, rows = schedule.get_loops(schedule.blocks()[-1]), _row_loops(schedule)
    along = [loop for loop in loops if loop not in rows]
    if [*rows, *along] != loops:
        schedule.reorder(*rows, *along)
    return rows


def _row_loops(schedule: te.Schedule) -> list[Var]:
    """The loops of the result that choose a row of the stages before it, and those of one iteration: all but those
    along rows. All but the last where that is not known."""
    *stages, output = schedule.blocks()
    loops, block = schedule.get_loops(output), find_block(schedule.func, output)[-1]
    made = {find_buffer(schedule.func, name): find_block(schedule.func, name)[-1] for name in stages}
    choosing: set[Var] = set()
    for node in walk_exprs(block.body.value) if isinstance(block, Block) and block.kind != "reduce" else ():
        if isinstance(node, Load) and isinstance(stage := made.get(node.buffer), Block):
            rows = node.indices if stage.kind == "reduce" else node.indices[:-1]
            choosing.update(var for index in rows for var in free_vars(index))
    found = [loop for loop in loops[:-1] if loop in choosing or extent_of(schedule, loop) == 1]
    return found if choosing.intersection(found) else loops[:-1]


def _move_into_rows(schedule: te.Schedule, loops: Sequence[Var]) -> set[str]:
    """Let ``loops`` over rows of the result compute the stages before it, as far as each row needs elements of its own;
    gives their names."""
    *stages, _ = schedule.blocks()
    moved: set[str] = set()
    if not loops:
        return moved
    count = prod(extent_of(schedule, loop) for loop in loops)
    for name in reversed(stages):
        attempt, size = schedule.copy(), find_buffer(schedule.func, name).size
        try:
            attempt.compute_at(name, loops[-1])
        except ScheduleError:
            break
        part, block = find_buffer(attempt.func, name), find_block(attempt.func, name)[-1]
        scalar = isinstance(block, Block) and block.kind == "reduce"
        if part.size * count != size or part.size > (1 if scalar else LONGEST_ROW):
            break
        schedule.compute_at(name, loops[-1])
        moved.add(name)
    return moved


def _reduce_row(schedule: te.Schedule, name: str) -> None:
    """A reduction to one element inside of a row: in a register, by lanes where neighbours are combined."""
    reduced, kept = split_loops(schedule, name)
    schedule.reorder(*kept, *reduced)
    *_, (name, _) = _sums_of_sums(schedule, name)
    block, (*_, last) = find_block(schedule.func, name)[-1], split_loops(schedule, name)[0]
    if isinstance(block, Block) and reduces_neighbours(block, last):
        schedule.annotate(last, *ANY_ORDER)


def _sums_of_sums(schedule: te.Schedule, name: str) -> list[tuple[str, str]]:
    """Give a reduction's initial value loops of its own; gives the names of both. Of a long sum of floats every
    iteration of the outer loops adds up a sum of its own, since a sum's rounding error grows with the number of
    additions one after the other: then there are several, the outermost first.

    Such are the statistics of a batch: over 32 x 56 x 56 pixels the sums of rows, of images and of the batch have at
    most 56 terms each.
    """
    stages: list[tuple[str, str]] = []
    reduced, _ = split_loops(schedule, name)
    for loop in reduced[:-1] if _is_long_sum(schedule, name) else ():
        if extent_of(schedule, loop) > 1:
            part = schedule.rfactor(name, loop)
            schedule.set_scope(part, REGISTER)
            (over,), kept = split_loops(schedule, name)
            schedule.reorder(over, *kept)
            stages.append((name, schedule.decompose_reduction(name, over)))
            schedule.compute_at(part, over)
            name = part
    return [*stages, (name, schedule.decompose_reduction(name, split_loops(schedule, name)[0][0]))]


def _is_long_sum(schedule: te.Schedule, name: str) -> bool:
    block = find_block(schedule.func, name)[-1]
    if not isinstance(block, Block) or block.body.buffer.dtype not in FLOATS:
        return False
    update = accumulation(block.body)
    steps = prod(extent_of(schedule, loop) for loop in split_loops(schedule, name)[0])
    return update is not None and update[0] == "add" and steps > LONGEST_SUM


def _plain_loops(schedule: te.Schedule, name: str, loops: Sequence[Var], rows: Sequence[Var]) -> None:
    """``rows``: if any, the loops that compute other stages: threads share those alone."""
    loops = _with_whole_parts(schedule, name, loops)
    for loop in rows or loops[:-1]:
        schedule.parallel(loop)
    if loops:
        inner = loops[-1]
        if len(loops) == 1 and extent_of(schedule, inner) >= 4096:
            outer, inner = schedule.split(inner, largest_divisor(extent_of(schedule, inner), 1024))
            schedule.parallel(outer)
        schedule.vectorize(inner)


def _with_whole_parts(schedule: te.Schedule, name: str, loops: Sequence[Var]) -> Sequence[Var]:
    """Loops of which the innermost is divided where indices divide it."""
    size = _whole_in_indices(schedule, name, loops[-1]) if loops else 0
    if not size:
        return loops
    parts = schedule.split(loops[-1], size)
    tidy(schedule)
    return *loops[:-1], *parts


def _whole_in_indices(schedule: te.Schedule, name: str, loop: Var) -> int:
    """So many iterations of a loop that indices divide it by, as those of channels that lie in blocks: neighbours are
    neighbours in memory within them alone. 0 where they divide it by nothing, or by too little."""
    block = find_block(schedule.func, name)[-1]
    parts = {
        int(node.b.value) for node in walk_exprs(block.body.value)
        if isinstance(node, BinOp) and node.op in ("floordiv", "mod") and isinstance(node.b, Const)
        and loop in free_vars(node.a)
    } if isinstance(block, Block) else set()  # fmt: skip
    size = gcd(extent_of(schedule, loop), *parts) if parts else 0
    return size if SHORTEST_PART <= size < extent_of(schedule, loop) else 0


def _plain_reduction(schedule: te.Schedule, name: str, block: Block) -> None:
    loops = schedule.get_loops(name)
    reduced = [loop for loop in loops if loop in block.reduce_vars]
    kept = [loop for loop in loops if loop not in block.reduce_vars]
    if kept and reduces_neighbours(block, reduced[-1]) and extent_of(schedule, reduced[-1]) >= SHORTEST_ROW:
        reduce_rows(schedule, name)
        return
    if not kept and reduces_neighbours(block, reduced[-1]) and extent_of(schedule, reduced[-1]) >= SHORTEST_ROW:
        schedule.cache_write(name, REGISTER)
        _reduce_row(schedule, name)
        return
    wide = bool(kept) and extent_of(schedule, kept[-1]) >= 4
    if wide and prod(extent_of(schedule, loop) for loop in reduced) <= LONGEST_UNROLL:
        _reduce_part_of_row(schedule, name)
        return
    if wide:
        schedule.reorder(*kept[:-1], *reduced, kept[-1])
    initial = schedule.decompose_reduction(name, reduced[0])
    for loop in kept[: -1 if wide else None]:
        schedule.parallel(loop)
    if wide:
        schedule.vectorize(kept[-1])
        schedule.vectorize(schedule.get_loops(initial)[-1])


def _reduce_part_of_row(schedule: te.Schedule, name: str) -> None:
    """A reduction of few steps, over lanes of a part of a row in registers; each element is written once."""
    written = schedule.cache_write(name, REGISTER)
    *outer, last = schedule.get_loops(written)
    whole, part = schedule.split(last, largest_divisor(extent_of(schedule, last), LONGEST_PART))
    schedule.compute_at(name, whole)
    reduce_in_registers(schedule, name)
    for loop in outer:
        schedule.parallel(loop)
    schedule.vectorize(part)


def transpose_squares(schedule: te.Schedule, name: str, candidates: Sequence[Var], *, parallel: bool = True) -> bool:
    """If a stage copies elements of a type in `SQUARES`, and neighbours of the result are not neighbours in
    memory before, schedule it so that it transposes squares in registers, or interleaves pairs of rows of floats, over
    two of the ``candidates``; else False. ``parallel``: whether threads share its loops."""
    block = find_block(schedule.func, name)[-1]
    if not isinstance(block, Block) or not isinstance(block.body.value, Load):
        return False
    store, load = block.body, block.body.value
    dtype = store.buffer.dtype
    if dtype not in SQUARES or load.buffer.dtype != dtype:
        return False
    written, read = position_of(store.buffer, store.indices), position_of(load.buffer, load.indices)
    across = [loop for loop in candidates if written.terms.get(loop) == 1 and read.terms.get(loop, 0) > 1]
    along = [loop for loop in candidates if read.terms.get(loop) == 1 and written.terms.get(loop, 0) > 1]
    atoms = [atom for atom in (*written.terms, *read.terms) if not isinstance(atom, Var)]
    mixed = {var for atom in atoms for var in free_vars(atom)}
    if len(across) != 1 or len(along) != 1 or mixed & {*across, *along}:
        return False
    row, column = along[0], across[0]
    rows, columns = extent_of(schedule, row), extent_of(schedule, column)
    size = next((size for size in SQUARES[dtype] if size <= min(rows, columns)), 0)
    wide = size
    if size:
        step = TRANSPOSED[dtype](size, written.terms[row], read.terms[column])
    elif dtype == "float32" and columns == 2 == written.terms[row] and rows >= SQUARES[dtype][0]:
        size, wide = SQUARES[dtype][0], 2
        step = interleaved(size, read.terms[column])
    else:
        return False
    others = [loop for loop in own_loops(schedule, name) if loop not in (row, column)]
    (row_o, row), (column_o, column) = schedule.split_shifted(row, size), schedule.split_shifted(column, wide)
    apart = others if rows % size else [*others, row_o]
    schedule.reorder(*others, row_o, column_o, row, column)
    for loop in apart if parallel else ():
        schedule.parallel(loop)
    schedule.tensorize(row, step)
    return True


def interleave_rows(schedule: te.Schedule, name: str) -> bool:
    """If a stage of bytes or of bfloat16, whose last axis has as many as a dot product takes, copies them from rows
    that lie apart, schedule it so that it interleaves these rows in registers; else False."""
    block = find_block(schedule.func, name)[-1]
    if not isinstance(block, Block) or not isinstance(block.body.value, Load):
        return False
    load, loops = block.body.value, own_loops(schedule, name)
    if len(loops) < 2 or load.buffer.dtype not in INTERLEAVED:
        return False
    column, row = loops[-2:]
    read = position_of(load.buffer, load.indices)
    mixed = {var for atom in read.terms if not isinstance(atom, Var) for var in free_vars(atom)}
    size = _whole_part(INTERLEAVED[load.buffer.dtype], extent_of(schedule, column))
    if not size or read.terms.get(column) != 1 or row not in read.terms or mixed & {column, row}:
        return False
    _, column = schedule.split_shifted(column, size)
    step = interleaved_bytes if load.buffer.dtype == "int8" else interleaved_halves
    schedule.tensorize(column, step(size, read.terms[row]))
    return True


def transpose_pairs(schedule: te.Schedule, name: str) -> bool:
    """If the last axis of a stage has pairs of bfloat16 that lie together, but neighbours of its other axes lie apart
    where they are copied from, schedule it so that it transposes squares of pairs in registers; else False."""
    block = find_block(schedule.func, name)[-1]
    if not isinstance(block, Block) or not isinstance(block.body.value, Load):
        return False
    store, load, loops = block.body, block.body.value, own_loops(schedule, name)
    if len(loops) < 3 or load.buffer.dtype != "bfloat16":
        return False
    row, column, one = loops[-3:]
    written, read = position_of(store.buffer, store.indices), position_of(load.buffer, load.indices)
    mixed = {var for atom in read.terms if not isinstance(atom, Var) for var in free_vars(atom)}
    together = (read.terms.get(row), read.terms.get(one)) == (PAIR, 1)
    sizes = [size for size in SQUARES["float32"] if size <= min(extent_of(schedule, each) for each in (row, column))]
    if not together or column not in read.terms or mixed & {row, column, one} or not sizes:
        return False
    step = transposed_pairs(sizes[0], written.terms[row], read.terms[column])
    (row_o, row), (column_o, column) = (schedule.split_shifted(loop, sizes[0]) for loop in (row, column))
    schedule.reorder(row_o, column_o, row, column, one)
    schedule.tensorize(row, step)
    return True


def _whole_part(sizes: Sequence[int], extent: int) -> int:
    """The largest of ``sizes`` that divides the extent, else the largest that fits; 0 if none does."""
    fitting = [size for size in sizes if size <= extent]
    return next((size for size in fitting if extent % size == 0), fitting[0] if fitting else 0)


def reduce_rows(schedule: te.Schedule, name: str) -> None:
    """Each element of the result in a register, while neighbours in memory are combined by lanes."""
    written = schedule.cache_write(name, REGISTER)
    rows = schedule.get_loops(written)
    schedule.compute_at(name, rows[-1])
    _reduce_row(schedule, name)
    for loop in rows:
        schedule.parallel(loop)


def schedule_blocked(schedule: te.Schedule, reductions: Sequence[str]) -> None:
    """The result is (N, C/b, H, W, b), of volumes (N, C/b, D, H, W, b): lanes are channels of a block,
    ``PIXELS_AT_ONCE`` pixels of a row at a time are reduced in registers."""
    tidy(schedule)
    output = schedule.blocks()[-1]
    *outside, x, lane = schedule.get_loops(output)
    if not reductions and transpose_squares(schedule, output, [x, lane]):
        return
    if reductions:
        outer, inner = schedule.split(x, largest_divisor(extent_of(schedule, x), PIXELS_AT_ONCE))
        for name in reversed(reductions):
            schedule.set_scope(name, REGISTER)
            schedule.compute_at(name, outer)
        for name in reductions:
            reduce_in_registers(schedule, name)
        schedule.unroll(inner)
    for loop in outside:
        schedule.parallel(loop)
    schedule.vectorize(lane)


def reduce_in_registers(schedule: te.Schedule, name: str) -> None:
    """Let a stage in scope `REGISTER` reduce with lanes over the innermost loop of its result; short loops are written
    out."""
    reduced, kept = split_loops(schedule, name)
    schedule.reorder(*reduced, *kept)
    for stages in _sums_of_sums(schedule, name):
        reduced, _ = split_loops(schedule, stages[0])
        steps = 1
        for loop in reversed(reduced):
            steps *= max(1, extent_of(schedule, loop))
            if steps <= LONGEST_UNROLL:
                schedule.unroll(loop)
        for stage in stages:
            unroll_lanes(schedule, [loop for loop in own_loops(schedule, stage) if loop not in reduced])
