"""Loop primitives: split, fuse, reorder and the marks on loops. Pure functions from function to function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from ...whole import whole
from .errors import ScheduleError
from .independence import check_independent
from .ir import Allocate, Block, Const, Expr, For, IntrinsicCall, PrimFunc, Stmt, Var, loop_nest, minimum
from .names import fresh_name, taken_names
from .overlap import check_no_overlap
from .printer import expr_text as text
from .simplify import simplifier_of
from .tree import (
    find_loop,
    loops_of,
    map_leaves,
    ranges_of,
    reduction_vars,
    rewrite,
    simplify_tree,
)
from .visitor import free_vars, statements, substitute_stmt

ROLLED = "rolled"
"""The note on a loop whose iterations go on from what the one before left in a buffer; its text is the block's name."""

MOST_ITERATIONS = (1 << 31) - 1
"""The factors of a split together."""


def split(func: PrimFunc, loop: Var, factors: Sequence[int | None]) -> tuple[PrimFunc, tuple[Var, ...]]:
    """Split a loop into as many as there are factors, outermost first. The first factor may be None: what is left.

    Where the factors do not divide the extent, the inner loop runs ``min(factor, extent - outer * factor)`` times.
    """
    node = _loop(func, loop)
    _refuse_marked(node, "split")
    if len(factors) < 2 or any(factor is None for factor in factors[1:]):
        raise ScheduleError(
            f"split: factors are {list(factors)}, but must be at least two, of which only the first may be None",
            at=f"loop {loop.name!r}",
        )
    if any(factor is not None and whole(factor) is None for factor in factors):
        raise ScheduleError(f"split: factors are {list(factors)}, but must be whole numbers", at=f"loop {loop.name!r}")
    if any(factor is not None and factor < 1 for factor in factors):
        raise ScheduleError(f"split: factors are {list(factors)}, but must be at least 1", at=f"loop {loop.name!r}")
    # Sums and products of counts then stay inside int64, in which indices are computed.
    if math.prod(factor or 1 for factor in factors) > MOST_ITERATIONS:
        raise ScheduleError(
            f"split: the product of the factors {list(factors)} is beyond {MOST_ITERATIONS:,}", at=f"loop {loop.name!r}"
        )
    names = taken_names(func)
    suffixes = ("o", "i") if len(factors) == 2 else tuple(str(place) for place in range(len(factors)))
    variables = tuple(Var(fresh_name(f"{loop.name}_{suffix}", names)) for suffix in suffixes)

    inner = [factor or 1 for factor in factors[1:]]
    # counts[p] is how often the loops 0 .. p run together.
    counts = [node.extent]
    for factor in reversed(inner):
        counts.insert(0, (counts[0] + (factor - 1)) // factor)
    loops: list[tuple[Var, Expr]] = [(variables[0], counts[0])]
    for place, factor in enumerate(inner, start=1):
        done = _mixed_radix(variables[:place], inner[: place - 1]) * factor
        loops.append((variables[place], minimum(Const(factor), counts[place] - done)))
    value = _mixed_radix(variables, inner)

    body = _rename_reductions(substitute_stmt(node.body, {loop: value}), {loop: variables})
    nest = simplify_tree(loop_nest(loops, body), ranges_of(find_loop(func, loop)[:-1]))
    first = factors[0]
    if first is not None and isinstance(nest, For) and nest.extent != Const(first):
        raise ScheduleError(
            f"split: loop {loop.name!r} runs {text(node.extent)} times, so with inner factors "
            f"{list(factors[1:])} the outer loop runs {text(nest.extent)} times, not {first}",
            at=f"loop {loop.name!r}",
            hint="give None as the first factor",
        )
    return rewrite(func, node, nest), variables


def split_shifted(func: PrimFunc, loop: Var, factor: int) -> tuple[PrimFunc, tuple[Var, Var]]:
    """Split a loop into two, of which the inner one always runs ``factor`` times: where that does not divide the
    extent, the last run starts earlier, and what it shares with the run before is computed twice.

    ScheduleError if the loop may run fewer than ``factor`` times, or if computing an element again would change it.
    """
    path = find_loop(func, loop)
    node, at = _loop(func, loop), f"loop {loop.name!r}"
    _refuse_marked(node, "split_shifted")
    if factor < 1:
        raise ScheduleError(f"split_shifted: the factor is {factor}, but must be at least 1", at=at)
    reducing = reduction_vars(node).get(loop)
    if reducing is not None:
        raise ScheduleError(
            f"split_shifted: loop {loop.name!r} is a reduction of block {reducing!r}, which would add elements twice",
            at=at,
            hint="use split",
        )
    simplifier = simplifier_of(ranges_of(path[:-1]))
    least = simplifier.range_of(node.extent)[0]
    if least < factor:
        raise ScheduleError(
            f"split_shifted: the factor is {factor}, but loop {loop.name!r} may run only {max(0, least)} times",
            at=at,
            hint="use split, or a smaller factor",
        )
    names = taken_names(func)
    outer, inner = Var(fresh_name(f"{loop.name}_o", names)), Var(fresh_name(f"{loop.name}_i", names))
    value = minimum(outer * factor, node.extent - factor) + inner
    body = _rename_reductions(substitute_stmt(node.body, {loop: value}), {loop: (outer, inner)})
    nest = loop_nest([(outer, (node.extent + (factor - 1)) // factor), (inner, Const(factor))], body)
    func = rewrite(func, node, simplify_tree(nest, ranges_of(path[:-1])))
    check_no_overlap(find_loop(func, outer)[-1], "split_shifted")
    return func, (outer, inner)


def tile(
    func: PrimFunc, order: Sequence[Var], factors: Sequence[int]
) -> tuple[PrimFunc, tuple[Var, ...], tuple[Var, ...]]:
    """Split directly nested loops, each by its factor, and put all outer loops around all inner ones."""
    if not order or len(order) != len(factors):
        raise ScheduleError(
            f"tile: {len(order)} loops, but {len(factors)} factors", hint="give one factor for each of the loops"
        )
    for above, below in pairwise(order):
        body = _loop(func, above).body
        if not isinstance(body, For) or body.var != below:
            raise ScheduleError(
                f"tile: loop {below.name!r} is not directly inside loop {above.name!r}",
                at=f"loop {above.name!r}",
                hint="reorder the loops first, and tile before other stages are moved between them",
            )
    outer: list[Var] = []
    inner: list[Var] = []
    for loop, factor in zip(order, factors, strict=True):
        func, (over, inside) = split(func, loop, [None, factor])
        outer.append(over)
        inner.append(inside)
    return reorder(func, [*outer, *inner]), tuple(outer), tuple(inner)


def _mixed_radix(variables: Sequence[Var], factors: Sequence[int]) -> Expr:
    """``((v0 * f1 + v1) * f2 + v2) ...``"""
    value: Expr = variables[0]
    for var, factor in zip(variables[1:], factors, strict=True):
        value = value * factor + var
    return value


def fuse(func: PrimFunc, outer: Var, inner: Var) -> tuple[PrimFunc, Var]:
    """Make one loop of two, of which the inner one is all there is in the outer one."""
    node = _loop(func, outer)
    below = node.body
    if not isinstance(below, For) or below.var != inner:
        raise ScheduleError(
            f"fuse: loop {inner.name!r} is not directly inside loop {outer.name!r}",
            at=f"loop {outer.name!r}",
            hint="reorder the loops first, and fuse before other stages are moved between them",
        )
    _refuse_marked(node, "fuse")
    _refuse_marked(below, "fuse")
    if not isinstance(below.extent, Const):
        raise ScheduleError(
            f"fuse: the inner loop {inner.name!r} runs {text(below.extent)} times, which is not constant",
            at=f"loop {inner.name!r}",
            hint="split by a factor that divides the extent",
        )
    for leaf in statements(below):
        if isinstance(leaf, Block | IntrinsicCall) and (outer in leaf.reduce_vars) != (inner in leaf.reduce_vars):
            name = leaf.name if isinstance(leaf, Block) else leaf.block
            raise ScheduleError(
                f"fuse: of loops {outer.name!r} and {inner.name!r} only one is a reduction of block {name!r}",
                at=f"loop {outer.name!r}",
                hint="fuse reductions with reductions only",
            )
    fused = Var(fresh_name(f"{outer.name}_{inner.name}", taken_names(func)))
    bindings: dict[Var, Expr] = {outer: fused // below.extent, inner: fused % below.extent}
    body = _rename_reductions(substitute_stmt(below.body, bindings), {outer: (fused,), inner: (fused,)})
    nest = For(fused, node.extent * below.extent, "serial", body)
    return rewrite(func, node, simplify_tree(nest, ranges_of(find_loop(func, outer)[:-1]))), fused


def reorder(func: PrimFunc, order: Sequence[Var]) -> PrimFunc:
    """Put loops of one perfect nest into the given order, outermost first; the others keep their places."""
    if not order:
        raise ScheduleError("reorder: no loop is named", hint="name the loops in the order that they are to have")
    if len(set(order)) != len(order):
        raise ScheduleError("reorder: a loop is named twice")
    loop_paths = [find_loop(func, var) for var in order]
    deepest = max(loop_paths, key=len)
    places = [position for position, node in enumerate(deepest) if isinstance(node, For) and node.var in order]
    for var, path in zip(order, loop_paths, strict=True):
        if path[-1] not in deepest:
            raise ScheduleError(
                f"reorder: loops {var.name!r} and {order[0].name!r} are not in one nest", at=f"loop {var.name!r}"
            )
    nest = deepest[places[0] :]
    for above, below in pairwise(nest):
        if not isinstance(above, For) or above.body is not below or not isinstance(below, For):
            raise ScheduleError(
                f"reorder: between loops {loops_of(nest)[0].var.name!r} and {loops_of(nest)[-1].var.name!r} "
                "stand other statements",
                at=f"loop {loops_of(nest)[0].var.name!r}",
                hint="reorder before other stages are moved between them",
            )
    for loop in loops_of(nest):
        _refuse_rolled(loop, "reorder")
    by_name = {loop.var: loop for loop in loops_of(nest)}
    wanted = iter(order)
    ordered = [by_name[next(wanted)] if loop.var in order else loop for loop in loops_of(nest)]
    for position, loop in enumerate(ordered):
        late = sorted(var.name for var in free_vars(loop.extent) & {later.var for later in ordered[position:]})
        if late:
            raise ScheduleError(
                f"reorder: loop {loop.var.name!r} runs {text(loop.extent)} times, which depends on loop {late[0]!r}",
                at=f"loop {loop.var.name!r}",
                hint=f"keep {loop.var.name!r} inside {late[0]!r}, or split by a factor that divides the extent",
            )
    body = loops_of(nest)[-1].body
    for loop in reversed(ordered):
        body = replace(loop, body=body)
    check_no_overlap(body, "reorder")
    return rewrite(func, nest[0], body)


def mark(func: PrimFunc, loop: Var, kind: str) -> PrimFunc:
    """Set the kind of a loop. Kinds that run iterations at once need iterations that do not meet."""
    path = find_loop(func, loop)
    node = _loop(func, loop)
    if node.kind != "serial" and kind != "serial":
        raise ScheduleError(f"{kind}: loop {loop.name!r} is marked {node.kind} already", at=f"loop {loop.name!r}")
    if kind in ("unroll", "vectorize") and not isinstance(node.extent, Const):
        raise ScheduleError(
            f"{kind}: loop {loop.name!r} runs {text(node.extent)} times, which is not constant",
            at=f"loop {loop.name!r}",
            hint="split by a factor that divides the extent",
        )
    if kind not in ("unroll", "serial") and node.extent != Const(1):
        _refuse_rolled(node, kind)
        check_independent(path, kind)
    if kind == "vectorize" and any(isinstance(below, For | Allocate) for below in statements(node.body)):
        raise ScheduleError(
            f"vectorize: loop {loop.name!r} is not innermost", at=f"loop {loop.name!r}", hint="reorder it inwards"
        )
    return rewrite(func, node, replace(node, kind=kind))


def annotate(func: PrimFunc, loop: Var, key: str, value: str | int) -> PrimFunc:
    """Attach a note for the target to a loop; an older one with the same key is replaced."""
    node = _loop(func, loop)
    kept = tuple(item for item in node.annotations if item[0] != key)
    return rewrite(func, node, replace(node, annotations=(*kept, (key, value))))


def _loop(func: PrimFunc, var: Var) -> For:
    node = find_loop(func, var)[-1]
    if not isinstance(node, For):
        raise ScheduleError(f"there is no loop {var.name!r}")
    return node


def _refuse_rolled(node: For, primitive: str) -> None:
    """Iterations that go on from the one before stay in their order."""
    if any(key == ROLLED for key, _ in node.annotations):
        raise ScheduleError(
            f"{primitive}: the iterations of loop {node.var.name!r} go on from one another",
            at=f"loop {node.var.name!r}",
            hint=f"{primitive} before roll",
        )


def _refuse_marked(node: For, primitive: str) -> None:
    _refuse_rolled(node, primitive)
    if node.kind != "serial":
        raise ScheduleError(
            f"{primitive}: loop {node.var.name!r} is marked {node.kind}",
            at=f"loop {node.var.name!r}",
            hint=f"{primitive} first, then mark the new loops",
        )


def _rename_reductions(stmt: Stmt, names: dict[Var, tuple[Var, ...]]) -> Stmt:
    def renamed(variables: tuple[Var, ...]) -> tuple[Var, ...]:
        return tuple(dict.fromkeys(new for var in variables for new in names.get(var, (var,))))

    def change(leaf: Stmt) -> Stmt:
        match leaf:
            case Block(reduce_vars=reduce_vars):
                return replace(leaf, reduce_vars=renamed(reduce_vars))
            case IntrinsicCall(reduce_vars=reduce_vars, init=init):
                return replace(leaf, reduce_vars=renamed(reduce_vars), init=None if init is None else renamed(init))
        return leaf

    return map_leaves(stmt, change)
