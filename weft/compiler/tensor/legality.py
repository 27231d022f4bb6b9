"""What a function may consist of at each stage of compilation: tables of facts, and one function that checks them.

``COMPUTED`` is what ``compute`` gives, ``SCHEDULED`` what any schedule may make of it. What is left after tensorize
depends on the target, which writes its own ``Legality`` (with ``replace(SCHEDULED, ...)``) beside its intrinsics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache

from .errors import IRError
from .ir import (
    BLOCK_KINDS,
    DTYPES,
    FUNCTIONS,
    OPERATORS,
    SIMPLE_KINDS,
    Allocate,
    BinOp,
    Bits,
    Block,
    Buffer,
    Call,
    Cast,
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
    Store,
    Var,
)
from .verify import verify
from .visitor import below, walk_exprs

STATEMENTS: tuple[type[Stmt], ...] = (For, Allocate, Seq, If, Block, IntrinsicCall)
EXPRESSIONS: tuple[type[Expr], ...] = (Var, Const, BinOp, Call, Cast, Bits, Select, Load)


@dataclass(frozen=True)
class Legality:
    """The nodes of one stage; None stands for whatever there is.

    ``loop_kinds`` has ``bind`` for loops bound to any hardware index. ``operators`` and ``functions`` count in all
    expressions: values, indices, extents and conditions. ``types`` are those of buffers.
    ``parameter_scopes`` are the memories of the function's parameters, ``scopes`` those of allocated buffers.
    """

    stage: str
    statements: tuple[type[Stmt], ...]
    block_kinds: tuple[str, ...] = BLOCK_KINDS
    loop_kinds: tuple[str, ...] = (*SIMPLE_KINDS, "bind")
    expressions: tuple[type[Expr], ...] = EXPRESSIONS
    operators: tuple[str, ...] = OPERATORS
    functions: tuple[str, ...] = tuple(FUNCTIONS)
    types: tuple[str, ...] = DTYPES
    parameter_scopes: tuple[str, ...] | None = ("global",)
    scopes: tuple[str, ...] | None = None
    intrinsics: tuple[str, ...] | None = None


COMPUTED = Legality(
    stage="computed",
    statements=(For, Allocate, Seq, Block),
    block_kinds=("spatial", "reduce"),
    loop_kinds=("serial",),
    scopes=("global",),
    intrinsics=(),
)
"""One nest of serial loops a stage, all buffers in one memory."""

SCHEDULED = Legality(stage="scheduled", statements=(For, Allocate, Seq, If, Block, IntrinsicCall))
"""Anything that the primitives make: every store belongs to a block or to a call."""


def check_legal(func: PrimFunc, legality: Legality) -> None:
    """IRError unless ``func`` is well formed (``verify``) and consists of what is legal at the stage."""
    verify(func)
    for buffer in func.params:
        _check(legality, "scope", buffer.scope, legality.parameter_scopes, f"parameter {buffer.name!r}")
        _check(legality, "type", buffer.dtype, legality.types, f"parameter {buffer.name!r}")
    for node, place in _placed(func.body):
        _check(legality, "statement", type(node).__name__, _names(legality.statements), place)
        match node:
            case For(kind=kind):
                _check(legality, "loop kind", kind.partition(":")[0], legality.loop_kinds, place)
            case Allocate(buffer, _):
                _check(legality, "scope", buffer.scope, legality.scopes, place)
                _check(legality, "type", buffer.dtype, legality.types, place)
            case Block(kind=block_kind):
                _check(legality, "block kind", block_kind, legality.block_kinds, place)
            case IntrinsicCall(intrinsic=intrinsic):
                _check(legality, "intrinsic", intrinsic.name, legality.intrinsics, place)
        for expr in _expressions(node):
            _check_expression(expr, legality, place)


def _check_expression(expr: Expr, legality: Legality, place: str) -> None:
    for node in walk_exprs(expr):
        _check(legality, "expression", type(node).__name__, _names(legality.expressions), place)
        match node:
            case BinOp(op, _, _):
                _check(legality, "operator", op, legality.operators, place)
            case Call(function, _):
                _check(legality, "function", function, legality.functions, place)


def _check(legality: Legality, what: str, name: str, allowed: Sequence[str] | None, place: str) -> None:
    if allowed is None or name in allowed:
        return
    raise IRError(
        f"{what} {name!r} is not legal in a function that is {legality.stage}",
        at=place,
        hint=f"legal are {', '.join(allowed)}" if allowed else f"no {what} is legal there",
    )


def _expressions(stmt: Stmt) -> Iterator[Expr]:
    """The expressions of a statement itself, not of those inside of it."""
    match stmt:
        case For(extent=extent):
            yield extent
        case If(cond, _):
            yield cond
        case Block(body=store, init=init):
            yield from (*store.indices, store.value)
            if init is not None:
                yield init
        case Store(_, indices, value):
            yield from (*indices, value)
        case IntrinsicCall(operands=operands, scalars=scalars):
            for region in operands:
                yield from region.indices
            yield from (value for _, value in scalars)


def _placed(body: Stmt) -> Iterator[tuple[Stmt, str]]:
    """Every statement with the name of the nearest block, buffer or loop: of the statement itself, or around it."""
    waiting = [(body, "the function's body")]
    while waiting:
        node, around = waiting.pop()
        place = _name(node) or around
        yield node, place
        waiting.extend((child, place) for child in reversed(below(node)))


def _name(node: Stmt) -> str:
    match node:
        case For(var=var):
            return f"loop {var.name!r}"
        case Block(name=name) | IntrinsicCall(block=name):
            return f"block {name!r}"
        case Allocate(Buffer(name), _) | Store(Buffer(name), _, _):
            return f"buffer {name!r}"
    return ""


@cache
def _names(nodes: tuple[type, ...]) -> tuple[str, ...]:
    return tuple(node.__name__ for node in nodes)


def legality_table(stages: Sequence[Legality]) -> str:
    """The tables of several stages as text, one row a kind of fact and one column a stage."""
    rows = [["", *(stage.stage for stage in stages)]]
    for item in fields(Legality)[1:]:
        cells = []
        for stage in stages:
            value = getattr(stage, item.name)
            words = [each if isinstance(each, str) else each.__name__ for each in value or ()]
            cells.append("any" if value is None else " ".join(words) or "none")
        rows.append([item.name, *cells])
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])
