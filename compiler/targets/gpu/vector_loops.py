"""Loops over neighbours in memory, which one instruction may do at once."""

from __future__ import annotations

from ...tensor.ir import BinOp, Const, Expr, Load, PrimFunc, Var
from ...tensor.simplify import Linear, linear_form
from ...tensor.tree import simplify_tree
from ...tensor.visitor import free_vars, map_exprs, map_stmt_exprs, substitute, walk_exprs
from ..loops.nests import position_of


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
        loads = [node for node in walk_exprs(split) if isinstance(node, Load)]
        if loads and all(goes_by_whole_steps(position_of(node.buffer, node.indices), each, most) for node in loads):
            return most
        most //= 2
    return 0
