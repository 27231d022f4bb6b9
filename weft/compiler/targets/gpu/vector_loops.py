"""Loops over neighbours in memory, which one instruction may do at once."""

from __future__ import annotations

from ... import tensor as te
from ...tensor.evaluate import ITEM_BYTES
from ...tensor.ir import BinOp, Block, Const, Expr, Load, PrimFunc, Store, Var
from ...tensor.linear import Linear, linear_form
from ...tensor.tree import find_block, simplify_tree
from ...tensor.visitor import free_vars, loads, map_exprs, map_stmt_exprs, substitute, walk_exprs
from ..loops.nests import REGISTER, position_of


def goes_by_whole_steps(form: Linear, var: Var, count: int) -> bool:
    """Whether it is a multiple of ``count``, and the variable."""
    others = [step for atom, step in form.terms.items() if atom != var]
    alone = all(var not in free_vars(atom) for atom in form.terms if atom != var)
    return alone and form.terms.get(var) == 1 and not any(each % count for each in (*others, form.constant))


def taken_apart(expr: Expr, var: Var, count: int) -> Expr:
    """The expression with quotients and remainders of a multiple of ``count`` and the variable, which is below that,
    written as those of the multiple alone: a remainder then goes by whole steps, too."""

    def rule(node: Expr) -> Expr | None:
        match node:
            case BinOp("floordiv" | "mod" as op, a, Const(value)) if value > 0 and value % count == 0:
                form = linear_form(a)
                if not goes_by_whole_steps(form, var, count):
                    return None
                steps = {atom: step // count for atom, step in form.terms.items() if atom != var}
                whole, less = Linear(steps, form.constant // count).to_expr(), int(value) // count
                return whole // less if op == "floordiv" else (whole % less) * count + var
        return None

    return map_exprs(expr, rule)


def with_digits_apart(func: PrimFunc, var: Var, count: int) -> PrimFunc:
    """A function whose loop ``var`` runs ``count`` times, with indices by whole steps where they are so."""
    body = map_stmt_exprs(func.body, lambda expr: taken_apart(expr, var, count))
    return PrimFunc(func.name, func.params, simplify_tree(body))


def neighbours_at_once(value: Expr, loop: Var, most: int, least: int) -> int:
    """How many elements that lie together along a loop all loads of a value can read at once: at most ``most``, halved
    as often as need be; 0 where that is below ``least``, or it loads nothing."""
    outer, each = Var(".outer"), Var(".each")
    while most >= max(2, least):
        split = taken_apart(substitute(value, {loop: outer * most + each}), each, most)
        reads = loads(split)
        if reads and all(goes_by_whole_steps(position_of(node.buffer, node.indices), each, most) for node in reads):
            return most
        most //= 2
    return 0


def store_of(schedule: te.Schedule, name: str) -> Store:
    """What a stage stores."""
    block = find_block(schedule.func, name)[-1]
    assert isinstance(block, Block)
    return block.body


WIDEST = 16
"""Bytes of the widest load or store."""


def found_together(store: Store, var: Var, count: int) -> int | None:
    """How many things that a store reads lie together along ``count`` neighbours of a loop; None where it goes to
    others, or something lies apart. What other data tell the place of may lie anywhere."""
    if store.buffer.scope != REGISTER:
        position = position_of(store.buffer, [taken_apart(index, var, count) for index in store.indices])
        if count * ITEM_BYTES[store.buffer.dtype] > WIDEST or not goes_by_whole_steps(position, var, count):
            return None
    found = 0
    for node in walk_exprs(taken_apart(store.value, var, count)):
        if not isinstance(node, Load) or node.buffer.scope == REGISTER or var not in free_vars(node):
            continue
        together = goes_by_whole_steps(position_of(node.buffer, node.indices), var, count)
        if together and count * ITEM_BYTES[node.buffer.dtype] <= WIDEST:
            found += 1
        elif together or not any(loads(index) for index in node.indices):
            return None
    return found
