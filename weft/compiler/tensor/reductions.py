"""Primitives on reductions: an initial value in loops of its own, partial results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .errors import ScheduleError
from .evaluate import identity
from .ir import Allocate, BinOp, Block, Buffer, Const, Expr, For, Load, PrimFunc, Stmt, Store, Var, loop_nest, sequence
from .names import fresh_name, taken_names
from .overlap import check_no_overlap
from .printer import expr_text
from .simplify import constant_range
from .tree import find_block, find_loop, loops_of, own_nest, plain_block, ranges_of, rewrite, simplify_tree
from .visitor import accumulation, free_vars, substitute


def decompose_reduction(func: PrimFunc, block: str, loop: Var) -> tuple[PrimFunc, str]:
    """Store the initial value of a reduction in loops of its own, just before ``loop``; gives the new block's name."""
    path = find_block(func, block)
    leaf = plain_block(path, "decompose_reduction")
    at = f"block {block!r}"
    if leaf.kind != "reduce" or leaf.init is None:
        raise ScheduleError(f"decompose_reduction: block {block!r} has no initial value to separate", at=at)
    node = find_loop(func, loop)[-1]
    if node not in path or not isinstance(node, For):
        raise ScheduleError(f"decompose_reduction: block {block!r} is not inside loop {loop.name!r}", at=at)
    position = next(place for place, item in enumerate(path) if item is node)
    if position < own_nest(path):
        raise ScheduleError(
            f"decompose_reduction: loop {loop.name!r} also holds other stages than block {block!r}",
            at=at,
            hint="choose one of the block's own loops",
        )
    outside = [outer.var.name for outer in loops_of(path[:position]) if outer.var in leaf.reduce_vars]
    if outside:
        raise ScheduleError(
            f"decompose_reduction: loop {outside[0]!r} of the reduction is around loop {loop.name!r}",
            at=at,
            hint=f"decompose at loop {outside[0]!r}",
        )
    names = taken_names(func)
    name = fresh_name(f"{block}_init", names)
    bindings: dict[Var, Expr] = {}
    loops: list[tuple[Var, Expr]] = []
    for inner in loops_of(path[position:]):
        if any(inner.var in free_vars(index) for index in leaf.body.indices):
            reduced = free_vars(inner.extent) & set(leaf.reduce_vars)
            if reduced:
                raise ScheduleError(
                    f"decompose_reduction: loop {inner.var.name!r} depends on the reduction",
                    at=at,
                )
            fresh = Var(fresh_name(f"{inner.var.name}_init", names))
            loops.append((fresh, substitute(inner.extent, bindings)))
            bindings[inner.var] = fresh
    indices = tuple(substitute(index, bindings) for index in leaf.body.indices)
    init = loop_nest(loops, Block(name, "reduce-init", Store(leaf.body.buffer, indices, leaf.init)))
    func = rewrite(func, leaf, replace(leaf, kind="reduce-update", init=None))
    path = find_loop(func, loop)
    check_no_overlap(path[-1], "decompose_reduction")
    init = simplify_tree(init, ranges_of(path[:-1]))
    return rewrite(func, path[-1], sequence(init, path[-1])), name


def rfactor(func: PrimFunc, block: str, loop: Var, axis: int) -> tuple[PrimFunc, str]:
    """Let each iteration of a reduction ``loop`` have a result of its own, and combine these afterwards.

    The partial results stand in a new buffer, whose dimension ``axis`` is the loop: there it is no reduction any more.
    Gives the name of the block that computes them (and of the buffer); ``block`` combines them.
    """
    path = find_block(func, block)
    leaf = plain_block(path, "rfactor")
    at = f"block {block!r}"
    update = accumulation(leaf.body)
    if leaf.kind != "reduce" or leaf.init is None or update is None:
        raise ScheduleError(
            f"rfactor: block {block!r} is no sum, maximum or minimum with an initial value",
            at=at,
            hint="rfactor before decompose_reduction",
        )
    if loop not in leaf.reduce_vars:
        reductions = ", ".join(var.name for var in leaf.reduce_vars)
        raise ScheduleError(
            f"rfactor: loop {loop.name!r} is not a reduction of block {block!r}",
            at=at,
            hint=f"its reductions are {reductions}; split one of them first to get partial results of a part",
        )
    buffer = leaf.body.buffer
    if not 0 <= axis <= buffer.ndim:
        raise ScheduleError(f"rfactor: axis is {axis}, but must be in 0..{buffer.ndim}", at=at)
    nest_position = own_nest(path)
    own = loops_of(path[nest_position:])
    parts = next((node.extent for node in own if node.var == loop), None)
    if parts is None:
        raise ScheduleError(
            f"rfactor: loop {loop.name!r} also holds other stages than block {block!r}",
            at=at,
            hint=f"rfactor before stages are moved under loop {loop.name!r}",
        )
    if not isinstance(parts, Const):
        raise ScheduleError(
            f"rfactor: loop {loop.name!r} runs {expr_text(parts)} times, which is not constant",
            at=at,
            hint="split by a factor that divides the extent",
        )
    _check_nest(path, own, leaf, loop)
    op, value = update
    neutral = identity(op, buffer.dtype)
    if neutral is None:
        raise ScheduleError(f"rfactor: {op!r} has no neutral element of {buffer.dtype}", at=at)

    names = taken_names(func)
    shape = (*buffer.shape[:axis], int(parts.value), *buffer.shape[axis:])
    partial = Buffer(fresh_name(f"{block}_rf", names), shape, buffer.dtype, buffer.scope)
    here = tuple(node.var for node in own)
    rest = tuple(var for var in leaf.reduce_vars if var in here and var != loop)
    place = _insert(leaf.body.indices, axis, loop)
    if rest:
        store = Store(partial, place, BinOp(op, Load(partial, place), value))
        part = Block(partial.name, "reduce", store, rest, neutral)
    else:
        part = Block(partial.name, "spatial", Store(partial, place, value))

    bindings: dict[Var, Expr] = {}
    loops: list[tuple[Var, Expr]] = []
    for node in own:
        if node.var not in leaf.reduce_vars:
            fresh = Var(fresh_name(f"{node.var.name}_all", names))
            loops.append((fresh, substitute(node.extent, bindings)))
            bindings[node.var] = fresh
    over = Var(fresh_name(f"{loop.name}_all", names))
    indices = tuple(substitute(index, bindings) for index in leaf.body.indices)
    combined = BinOp(op, Load(buffer, indices), Load(partial, _insert(indices, axis, over)))
    outer = tuple(var for var in leaf.reduce_vars if var not in here)
    whole = Block(block, "reduce", Store(buffer, indices, combined), (*outer, over), leaf.init)

    nest = path[nest_position]
    parts_nest = rewrite(PrimFunc("", (), nest), leaf, part).body
    whole_nest = loop_nest([*loops, (over, parts)], whole)
    new = Allocate(partial, sequence(parts_nest, whole_nest))
    return rewrite(func, nest, simplify_tree(new, ranges_of(path[:nest_position]))), partial.name


def _check_nest(path: tuple[Stmt, ...], own: Sequence[For], leaf: Block, loop: Var) -> None:
    """Partial results need loops that can be repeated without the reduction, and that run for every part."""
    at = f"block {leaf.name!r}"
    for node in own:
        if node.kind != "serial":
            raise ScheduleError(
                f"rfactor: loop {node.var.name!r} is marked {node.kind}", at=at, hint="rfactor first, then mark loops"
            )
        reduced = sorted(var.name for var in free_vars(node.extent) & set(leaf.reduce_vars))
        if node.var not in leaf.reduce_vars and reduced:
            raise ScheduleError(
                f"rfactor: loop {node.var.name!r} runs {expr_text(node.extent)} times, "
                f"which depends on the reduction {reduced[0]!r}",
                at=at,
            )
        fewest = constant_range(node.extent, ranges_of(path))[0]
        if node.var in leaf.reduce_vars and node.var != loop and fewest < 1:
            raise ScheduleError(
                f"rfactor: loop {node.var.name!r} runs {expr_text(node.extent)} times, "
                f"perhaps never, so a part of {loop.name!r} might have no value",
                at=at,
                hint="split by factors that divide the extent",
            )


def _insert(indices: tuple[Expr, ...], axis: int, index: Expr) -> tuple[Expr, ...]:
    return (*indices[:axis], index, *indices[axis:])
