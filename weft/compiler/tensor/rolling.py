"""Rolling a buffer: what the windows of neighbouring iterations share is moved along in it, not computed again."""

from __future__ import annotations

from dataclasses import replace

from .caching import plain_axes, sources
from .errors import ScheduleError
from .ir import Allocate, Block, Const, Expr, For, Load, PrimFunc, Stmt, Store, Var, loop_nest, sequence
from .loops import ROLLED, annotate
from .names import fresh_name, taken_names
from .simplify import simplify
from .tree import (
    drop_allocation,
    find_allocation,
    find_block,
    find_loop,
    loops_of,
    own_nest,
    plain_block,
    rewrite,
    simplify_tree,
    writers,
)
from .visitor import free_vars, substitute, substitute_stmt


def roll(func: PrimFunc, block: str, loop: Var, axis: int) -> tuple[PrimFunc, str]:
    """Let the buffer of ``block``, allocated inside ``loop``, live for all its iterations: each moves what the one
    before it made last to the first places along ``axis``, and computes the rest. Gives the name of the moving block.
    """
    at = f"block {block!r}"
    path = find_block(func, block)
    leaf = plain_block(path, "roll")
    buffer = leaf.body.buffer
    target = find_loop(func, loop)
    allocation = find_allocation(func, buffer)
    if allocation is None or not any(node is target[-1] for node in allocation):
        raise ScheduleError(f"roll: {buffer.name!r} is not allocated inside loop {loop.name!r}", at=at,
                            hint=f"compute_at block {block!r} there first")  # fmt: skip
    _check_block(func, leaf, target[-1])
    outer, nest = target[-1], path[own_nest(path)]
    assert isinstance(outer, For)
    between = [each for each in loops_of(path[: own_nest(path)])[len(loops_of(target)) :] if each.extent != Const(1)]
    if between:
        raise ScheduleError(f"roll: loop {between[0].var.name!r} between loop {loop.name!r} and block {block!r} would "
                            f"fill {buffer.name!r} several times", at=at)  # fmt: skip
    if not 0 <= axis < buffer.ndim:
        raise ScheduleError(f"roll: axis is {axis}, but {buffer.name!r} has {buffer.ndim} dimensions", at=at)
    row, own_loops = plain_axes(leaf, "roll")[axis], loops_of(path[own_nest(path) :])
    rows = next((each for each in own_loops if each.var == row), None)
    if row is None or rows is None:
        raise ScheduleError(f"roll: axis {axis} of {buffer.name!r} has one element", at=at)
    kept = _kept(leaf, outer, rows, buffer.shape[axis])
    if not kept or any(loop in free_vars(each.extent) for each in own_loops if each is not rows):
        raise ScheduleError(
            f"roll: iterations of loop {loop.name!r} are not known to share elements of {buffer.name!r} along axis "
            f"{axis}: at most half of them, the last of each iteration and the first of the next", at=at,
            hint=f"roll before what block {block!r} reads is moved into the loop",
        )  # fmt: skip

    names = taken_names(func)
    name = fresh_name(f"{block}_kept", names)
    moved: Expr = _behind_the_first(outer) * kept
    own = _resized(substitute_stmt(nest, {row: row + moved}), row, rows.extent - moved)
    variables = {each.var: Var(fresh_name(f"{name}_{each.var.name}", names)) for each in own_loops}
    first = tuple(substitute(index, variables) for index in leaf.body.indices)
    source = tuple(index + (buffer.shape[axis] - kept) * (place == axis) for place, index in enumerate(first))
    ranges = [(variables[each.var], moved if each.var == row else each.extent) for each in own_loops]
    move = loop_nest(ranges, Block(name, "copy", Store(buffer, first, Load(buffer, source))))
    func = rewrite(func, nest, sequence(move, own))
    inside = find_loop(func, loop)[-1]
    body = drop_allocation(inside, buffer)
    assert body is not None
    func = rewrite(func, inside, Allocate(buffer, body))
    func = replace(func, body=simplify_tree(func.body))
    return annotate(func, loop, ROLLED, block), name


def _behind_the_first(loop: For) -> Expr:
    """0 in the first iteration of several, 1 in the others. It is no minimum: sums are moved inside of these, and
    bounds of bounds would become long."""
    assert isinstance(loop.extent, Const)
    last = int(loop.extent.value) - 1
    return (loop.var + (last - 1)) // last


def _check_block(func: PrimFunc, leaf: Block, loop: Stmt) -> None:
    """Refuse a block whose buffer others write, or that does not compute the same elements in each iteration."""
    buffer, at = leaf.body.buffer, f"block {leaf.name!r}"
    if leaf.kind not in ("spatial", "copy"):
        raise ScheduleError(f"roll: block {leaf.name!r} is a reduction", at=at, hint="roll what reads its result")
    if len(writers(func.body, buffer)) > 1:
        raise ScheduleError(f"roll: {buffer.name!r} is written by other blocks than {leaf.name!r} too", at=at)
    for source in sources(leaf):
        if writers(loop, source):
            raise ScheduleError(
                f"roll: {source.name!r}, which block {leaf.name!r} reads, is written inside of the loop",
                at=at,
                hint="roll before what the block reads is moved into the loop",
            )


def _kept(leaf: Block, outer: For, rows: For, size: int) -> int:
    """How many rows at the end of each iteration's are the first of the next one's: 0 if that is not known, or if they
    are more than half of the ``size`` rows."""
    loop, row, count = outer.var, rows.var, outer.extent
    if not isinstance(count, Const) or count.value < 2:
        return 0
    made = [simplify(substitute(rows.extent, {loop: Const(place)})) for place in range(int(count.value))]
    for step in range(-(-size // 2), size):
        kept = size - step
        full = all(each == Const(size) for each in made[:-1])
        if not full or not isinstance(made[-1], Const) or made[-1].value < kept:
            return 0
        ranges = [(loop, Const(int(count.value) - 1)), (row, Const(kept))]
        later = simplify(substitute(leaf.body.value, {loop: loop + 1}), ranges)
        if later == simplify(substitute(leaf.body.value, {row: row + step}), ranges):
            return kept
    return 0


def _resized(nest: Stmt, row: Var, extent: Expr) -> Stmt:
    """The nest with another number of runs of one of its loops."""
    if not isinstance(nest, For):
        return nest
    return replace(nest, extent=extent if nest.var == row else nest.extent, body=_resized(nest.body, row, extent))
