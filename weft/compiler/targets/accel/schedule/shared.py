"""One core's share of a scheduled function: the outermost loops over parts of its result, with their numbers put in.

All cores so have one schedule, which is made and proved once, and no two of them have an element of the result.
"""

from __future__ import annotations

from dataclasses import replace

from ....tensor.ir import Allocate, Const, For, IntrinsicCall, PrimFunc, Seq, Stmt
from ....tensor.tree import simplify_tree
from ....tensor.visitor import statements, substitute_stmt
from ...errors import CompileError
from ..operators.intrinsics import EmitStore
from .tiling import Problem


def shared(func: PrimFunc, problem: Problem) -> PrimFunc:
    """What the core of the kernel's share computes of a function that `schedule.schedule_kernel` has made."""
    if not problem.cuts:
        return func
    body = func.body
    for _, _, number in problem.cuts:
        body = _at_part(body, number)
    # A part of what is proved to stay inside its buffers stays inside of them.
    return replace(func, body=simplify_tree(body)).with_origin(func)


def _at_part(stmt: Stmt, number: int) -> Stmt:
    """With the outermost loop around the store of the result run once, for this ``number``."""
    match stmt:
        case For(var=var, body=body):
            return substitute_stmt(body, {var: Const(number)})
        case Allocate(body=body):
            return replace(stmt, body=_at_part(body, number))
        case Seq(children):
            return Seq(tuple(_at_part(child, number) if _stores(child) else child for child in children))
    raise CompileError("its result has no loop over the parts of the cores")


def _stores(stmt: Stmt) -> bool:
    return any(
        isinstance(each, IntrinsicCall) and isinstance(each.intrinsic.emits, EmitStore) for each in statements(stmt)
    )
