"""Helpers for schedules: questions about loops, and steps that most schedules take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ... import tensor as te
from ...tensor.ir import Allocate, BinOp, Block, Buffer, Const, Expr, Load, PrimFunc, Seq, Stmt, TensorIntrinsic, Var
from ...tensor.linear import Linear, linear_form
from ...tensor.statements import sequence
from ...tensor.tree import find_block, find_buffer, find_loop, rewrite, simplify_tree
from ...tensor.visitor import free_vars, map_children, map_exprs, map_stmt_exprs, replace_buffer, walk_exprs

REGISTER = "register"
"""Scope of a buffer on the stack of which every index is constant, so that it is held in registers."""

ANY_ORDER = ("order", "any")
"""Note on a loop of a reduction that may be computed in any order."""


def tidy(schedule: te.Schedule) -> None:
    """Simplify the function's indices, so that later steps see which are the same."""
    func = schedule.func
    schedule.func = PrimFunc(func.name, func.params, simplify_tree(func.body))


def extent_of(schedule: te.Schedule, loop: Var) -> int:
    """How often a loop with a constant extent runs."""
    node = find_loop(schedule.func, loop)[-1]
    extent = getattr(node, "extent", None)
    return int(extent.value) if isinstance(extent, Const) else 0


def largest_divisor(size: int, limit: int) -> int:
    """The largest divisor of ``size`` up to ``limit``."""
    return max(each for each in range(1, max(1, min(size, limit)) + 1) if size % each == 0)


def position_of(buffer: Buffer, indices: Sequence[Expr]) -> Linear:
    """The flat position of an element."""
    total = Linear()
    for index, stride in zip(indices, buffer.strides, strict=True):
        total = total.add(linear_form(index), stride)
    return total


def unroll_lanes(schedule: te.Schedule, loops: Sequence[Var]) -> None:
    """Lanes over the innermost of ``loops``, the others written out. A tile of one value has none."""
    for loop in loops[:-1]:
        schedule.unroll(loop)
    for loop in loops[-1:]:
        schedule.vectorize(loop)


def split_loops(schedule: te.Schedule, name: str) -> tuple[list[Var], list[Var]]:
    """The loops of a block alone: those that reduce, and the others."""
    block = find_block(schedule.func, name)[-1]
    reducing = block.reduce_vars if isinstance(block, Block) else ()
    loops = own_loops(schedule, name)
    return [loop for loop in loops if loop in reducing], [loop for loop in loops if loop not in reducing]


def own_loops(schedule: te.Schedule, name: str) -> list[Var]:
    """Loops around a block that are not around any other."""
    loops = schedule.get_loops(name)
    others = [set(schedule.get_loops(other)) for other in schedule.blocks() if other != name]
    return [loop for loop in loops if not any(loop in other for other in others)]


def tensorize_innermost(
    schedule: te.Schedule, reduced: Sequence[Var], kept: Sequence[Var], step: TensorIntrinsic
) -> None:
    """Let an instruction do the loops of a tile, ``kept``, and the innermost of those that reduce, if it has more loops
    than the tile."""
    inside = sum(extent != 1 for _, extent in step.loops) - sum(extent_of(schedule, loop) != 1 for loop in kept)
    outside = len(reduced) - inside
    if inside:
        schedule.reorder(*reduced[:outside], *kept, *reduced[outside:])
    schedule.tensorize(kept[0], step)


def sum_together(schedule: te.Schedule, stage: str, other: str) -> None:
    """Let a stage that adds up integers from 0 go on from the sums of ``other``, which stands before it, so that both
    take the registers of one. They stay as they are unless all that is read of them is the sum of the two."""
    first, second = find_buffer(schedule.func, other), find_buffer(schedule.func, stage)
    apart = 0

    def joined(node: Expr) -> Expr | None:
        nonlocal apart
        match node:
            case BinOp("add", Load(a, at), Load(b, place)) if (a, b) == (first, second) and at == place:
                apart -= 2
                return Load(first, at)
            case Load(buffer) if buffer in (first, second):
                apart += 1
        return None

    begin = find_block(schedule.func, f"{stage}_init")[-1]
    rest = rewrite(schedule.func, begin, None)
    body = map_stmt_exprs(rest.body, lambda expr: map_exprs(expr, joined))
    if not apart and (first.shape, first.dtype) == (second.shape, "int32"):
        schedule.func = replace(rest, body=_without_allocation(replace_buffer(body, second, first), first))


def live_together(schedule: te.Schedule, stage: str, other: str) -> None:
    """Let the buffer of a stage be there wherever that of ``other`` is, which is around it, so that who reads them may
    compute each of them where it wants to."""
    first, second = find_buffer(schedule.func, stage), find_buffer(schedule.func, other)

    def moved(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Allocate) and stmt.buffer in (first, second):
            inner = moved(stmt.body)
            return inner if stmt.buffer == first else Allocate(second, Allocate(first, inner))
        return sequence(*map(moved, stmt.body)) if isinstance(stmt, Seq) else map_children(stmt, moved) or stmt

    func = schedule.func
    schedule.func = PrimFunc(func.name, func.params, moved(func.body))


def _without_allocation(stmt: Stmt, buffer: Buffer, outer: bool = False) -> Stmt:
    """The tree in which a buffer is not allocated again where it is there already."""
    found = isinstance(stmt, Allocate) and stmt.buffer == buffer
    if found and outer and isinstance(stmt, Allocate):
        return _without_allocation(stmt.body, buffer, True)
    return map_children(stmt, lambda child: _without_allocation(child, buffer, outer or found)) or stmt


def reduces_neighbours(block: Block, loop: Var) -> bool:
    """Whether neighbours in memory are neighbours along a reduction's loop, in all that the block reads there."""
    steps = []
    for node in walk_exprs(block.body.value):
        if isinstance(node, Load) and node.buffer != block.body.buffer:
            position = position_of(node.buffer, node.indices)
            if any(loop in free_vars(atom) for atom in position.terms if atom != loop):
                return False
            steps.append(position.terms.get(loop, 0))
    return 1 in steps and set(steps) <= {0, 1}
