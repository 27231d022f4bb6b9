"""Proof that a function stays inside its buffers, whatever its data are: what machine code relies on."""

from __future__ import annotations

from collections.abc import Sequence

from .errors import IRError
from .intrinsic import call_loops
from .ir import (
    Allocate,
    BinOp,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    If,
    IntrinsicCall,
    Load,
    PrimFunc,
    Select,
    Seq,
    Stmt,
    Var,
)
from .ir import Store as StoreStmt
from .printer import expr_text
from .simplify import UNBOUNDED, constant_range
from .visitor import children

Loops = tuple[tuple[Var, Expr], ...]
Guards = tuple[BinOp, ...]
"""Comparisons that hold where an access is made."""


def check_bounds(func: PrimFunc) -> None:
    """IRError for the first access that is not proved to lie inside its buffer, by the loops around it and by the
    comparisons (of ``select`` and ``if``) that guard it."""
    _statement(func.body, (), ())


def _statement(stmt: Stmt, loops: Loops, guards: Guards) -> None:
    match stmt:
        case For(var=var, extent=extent, body=body):
            _expression(extent, loops, guards, f"loop {var.name!r}")
            _statement(body, (*loops, (var, extent)), guards)
        case Allocate(body=body):
            _statement(body, loops, guards)
        case Seq(body=items):
            for item in items:
                _statement(item, loops, guards)
        case If(cond, then):
            _expression(cond, loops, guards, "if")
            _statement(then, loops, (*guards, *_conjuncts(cond)))
        case Block(name=name, body=store):
            _store(store, loops, guards, f"block {name!r}")
        case StoreStmt():
            _store(stmt, loops, guards, f"store to {stmt.buffer.name!r}")
        case IntrinsicCall(block=block):
            inner, store = call_loops(stmt)
            _store(store, (*loops, *((var, Const(extent)) for var, extent in inner)), guards, f"block {block!r}")


def _store(store: StoreStmt, loops: Loops, guards: Guards, at: str) -> None:
    _inside(store.buffer, store.indices, loops, guards, at)
    for expr in (*store.indices, store.value):
        _expression(expr, loops, guards, at)


def _expression(expr: Expr, loops: Loops, guards: Guards, at: str) -> None:
    if isinstance(expr, Select):
        _expression(expr.cond, loops, guards, at)
        _expression(expr.a, loops, (*guards, *_conjuncts(expr.cond)), at)
        _expression(expr.b, loops, guards, at)
        return
    if isinstance(expr, Load):
        _inside(expr.buffer, expr.indices, loops, guards, at)
    for child in children(expr):
        _expression(child, loops, guards, at)


def _conjuncts(cond: Expr) -> Guards:
    """The comparisons that all hold where ``cond`` does."""
    match cond:
        case BinOp("and", a, b):
            return (*_conjuncts(a), *_conjuncts(b))
        case BinOp("lt" | "le" | "eq", a, _) if a.dtype == "int64":
            return (cond,)
    return ()


def _inside(buffer: Buffer, indices: Sequence[Expr], loops: Loops, guards: Guards, at: str) -> None:
    for axis, (index, size) in enumerate(zip(indices, buffer.shape, strict=True)):
        low, high = _range(index, loops, guards)
        if low <= high and (low < 0 or high >= size):  # an empty range: the guards never hold
            values = f"{'any' if low <= -UNBOUNDED else low}..{'any' if high >= UNBOUNDED else high}"
            raise IRError(
                f"index {expr_text(index)!r} of {buffer.name!r} may be {values}, but axis {axis} has {size} elements",
                at=at, hint="guard the access: select(condition, access, other value)",
            )  # fmt: skip


def _range(index: Expr, loops: Loops, guards: Guards) -> tuple[int, int]:
    """Constants between which ``index`` lies. A guard ``a < b`` limits whatever differs from a or b by a constant."""
    low, high = constant_range(index, loops)
    for guard in guards:
        below = 1 if guard.op == "lt" else 0
        high = min(high, _sum(constant_range(index - guard.a, loops)[1], constant_range(guard.b, loops)[1]) - below)
        low = max(low, _sum(constant_range(index - guard.b, loops)[0], constant_range(guard.a, loops)[0]) + below)
        if guard.op == "eq":
            low = max(low, _sum(constant_range(index - guard.a, loops)[0], constant_range(guard.b, loops)[0]))
            high = min(high, _sum(constant_range(index - guard.b, loops)[1], constant_range(guard.a, loops)[1]))
    return low, high


def _sum(a: int, b: int) -> int:
    """Of two limits; without limit if one of them is."""
    for unlimited in (-UNBOUNDED, UNBOUNDED):
        if a == unlimited or b == unlimited:
            return unlimited
    return a + b
