"""Walking and rewriting trees of the loop IR."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from operator import is_
from zlib import crc32

from .ir import (
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
    Rewrite,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    sequence,
)

_NO_OPERANDS = (Var, Const)
_OF_ONE = (Cast, Bits)
_AROUND_ONE = (For, Allocate)
"""Tuples, since ``A | B`` makes an object each time that it is evaluated, and these are asked for very often."""


def children(expr: Expr) -> tuple[Expr, ...]:
    """The operands of an expression."""
    if isinstance(expr, _NO_OPERANDS):
        return ()
    if isinstance(expr, BinOp):
        return (expr.a, expr.b)
    if isinstance(expr, Load):
        return expr.indices
    if isinstance(expr, Select):
        return (expr.cond, expr.a, expr.b)
    if isinstance(expr, _OF_ONE):
        return (expr.x,)
    if isinstance(expr, Call):
        return expr.args
    return ()


def rebuild(expr: Expr, operands: tuple[Expr, ...]) -> Expr:
    """The same node with other operands."""
    match expr:
        case BinOp(op, _, _):
            return BinOp(op, *operands)
        case Select():
            return Select(*operands)
        case Cast(dtype, _):
            return Cast(dtype, *operands)
        case Bits(dtype, _):
            return Bits(dtype, *operands)
        case Call(function, _):
            return Call(function, operands)
        case Load(buffer, _):
            return Load(buffer, operands)
    return expr


def walk_exprs(expr: Expr) -> Iterator[Expr]:
    """The expression and everything below it, outermost first."""
    waiting = [expr]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(children(node)))


def free_vars(expr: Expr) -> frozenset[Var]:
    """Variables used in the expression; worked out once for each node but variables, which would hold themselves: only
    the collector of cycles would then free an expression."""
    if isinstance(expr, Var):
        return frozenset((expr,))
    found: frozenset[Var] | None = expr.__dict__.get("_free_vars")
    if found is None:
        found = expr.__dict__["_free_vars"] = frozenset().union(*map(free_vars, children(expr)))
    return found


def loads(expr: Expr) -> tuple[Load, ...]:
    """What the expression reads, in the order of :func:`walk_exprs`; what is below a node is worked out once."""
    below: tuple[Load, ...] | None = expr.__dict__.get("_loads")
    if below is None:
        below = expr.__dict__["_loads"] = tuple(load for child in children(expr) for load in loads(child))
    return (expr, *below) if isinstance(expr, Load) else below


def map_exprs(expr: Expr, rule: Rewrite) -> Expr:
    """Rewrite bottom-up: ``rule`` sees every node after its operands have been rewritten."""
    old = children(expr)
    if old:
        new = tuple([map_exprs(child, rule) for child in old])
        for a, b in zip(old, new, strict=True):
            if a is not b:
                expr = rebuild(expr, new)
                break
    result = rule(expr)
    return expr if result is None else result


def substitute(expr: Expr, bindings: Mapping[Var, Expr]) -> Expr:
    """The expression with variables replaced, all at once."""
    if free_vars(expr).isdisjoint(bindings):
        return expr
    if isinstance(expr, Var):
        return bindings[expr]
    return rebuild(expr, tuple([substitute(child, bindings) for child in children(expr)]))


def below(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements right inside of a statement."""
    if isinstance(stmt, _AROUND_ONE):
        return (stmt.body,)
    if isinstance(stmt, Seq):
        return stmt.body
    return (stmt.then,) if isinstance(stmt, If) else ()


def statements(stmt: Stmt) -> Iterator[Stmt]:
    """The statement and everything below it in the order of execution; the Store of a Block is part of the Block."""
    waiting = [stmt]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(below(node)))


def map_children(stmt: Stmt, change: Callable[[Stmt], Stmt | None]) -> Stmt | None:
    """The statement with ``change`` applied to its children. A child that becomes None goes away, and so does a
    statement whose children are all gone."""
    if isinstance(stmt, _AROUND_ONE):
        new = change(stmt.body)
        return None if new is None else with_body(stmt, new)
    if isinstance(stmt, If):
        new = change(stmt.then)
        return None if new is None else (stmt if new is stmt.then else If(stmt.cond, new))
    if isinstance(stmt, Seq):
        kept = [child for child in map(change, stmt.body) if child is not None]
        if len(kept) == len(stmt.body) and all(map(is_, kept, stmt.body)):
            return stmt
        return sequence(*kept) if kept else None
    return stmt


def with_body(stmt: For | Allocate, body: Stmt) -> Stmt:
    """The statement around another body: itself, if that is its own."""
    if body is stmt.body:
        return stmt
    if isinstance(stmt, For):
        return For(stmt.var, stmt.extent, stmt.kind, body, stmt.annotations)
    return Allocate(stmt.buffer, body)


def map_store_exprs(store: Store, change: Callable[[Expr], Expr]) -> Store:
    """The store with ``change`` applied to its indices and its value."""
    indices, value = tuple(map(change, store.indices)), change(store.value)
    if value is store.value and all(map(is_, indices, store.indices)):
        return store
    return Store(store.buffer, indices, value)


def map_stmt_exprs(stmt: Stmt, change: Callable[[Expr], Expr]) -> Stmt:
    """The tree with ``change`` applied to every expression in it (whole expressions, not their parts). Parts in which
    none becomes another stay the same objects."""
    match stmt:
        case For(var, extent, kind, body, annotations):
            changed, inner = change(extent), map_stmt_exprs(body, change)
            return stmt if changed is extent and inner is body else For(var, changed, kind, inner, annotations)
        case Allocate(body=body):
            return with_body(stmt, map_stmt_exprs(body, change))
        case If(cond, then):
            return If(change(cond), map_stmt_exprs(then, change))
        case Seq(body):
            items = tuple([map_stmt_exprs(child, change) for child in body])
            return stmt if all(map(is_, items, body)) else Seq(items)
        case Store():
            return map_store_exprs(stmt, change)
        case Block(body=store, init=init):
            moved, start = map_store_exprs(store, change), None if init is None else change(init)
            return stmt if moved is store and start is init else replace(stmt, body=moved, init=start)
        case IntrinsicCall(operands=operands, scalars=scalars):
            return replace(
                stmt,
                operands=tuple(replace(region, indices=tuple(map(change, region.indices))) for region in operands),
                scalars=tuple((name, change(value)) for name, value in scalars),
            )
    return stmt


def substitute_stmt(stmt: Stmt, bindings: Mapping[Var, Expr]) -> Stmt:
    """The tree with loop variables replaced in all expressions; the loops themselves stay."""
    return map_stmt_exprs(stmt, lambda expr: substitute(expr, bindings))


MARKS = 1024
"""Bits of a mark for the names of buffers and blocks, and as many again for those of loops."""


@lru_cache(maxsize=1 << 14)
def name_mark(name: str) -> int:
    """The bit that stands for a buffer or block of this name; a few names have the same."""
    return 1 << crc32(name.encode()) % MARKS


@lru_cache(maxsize=1 << 14)
def loop_mark(name: str) -> int:
    """The bit that stands for a loop over a variable of this name."""
    return name_mark(name) << MARKS


def marks(stmt: Stmt) -> int:
    """The bits of all names at and below a statement: of the buffers that are allocated, read or written, of blocks
    and of loops. Where a bit is missing, none of that name is there, and a walk can leave the statement out. Worked out
    once for each statement: a step of a schedule makes few of them anew."""
    found: int | None = stmt.__dict__.get("_marks")
    if found is not None:
        return found
    order, waiting = [], [stmt]
    while waiting:
        node = waiting.pop()
        if "_marks" not in node.__dict__:
            order.append(node)
            waiting.extend(below(node))
    for node in reversed(order):  # what is below a statement before it: trees may be deeper than Python's stack
        found = node.__dict__["_marks"] = _marks(node)
    assert found is not None
    return found


def _marks(stmt: Stmt) -> int:
    if isinstance(stmt, Seq):
        found = 0
        for child in stmt.body:
            found |= child.__dict__["_marks"]
        return found
    if isinstance(stmt, Allocate):
        inner, own = marks(stmt.body), name_mark(stmt.buffer.name)
        return inner if inner & own else inner | own
    if isinstance(stmt, For):
        return marks(stmt.body) | loop_mark(stmt.var.name) | _marks_read((stmt.extent,))
    if isinstance(stmt, If):
        return marks(stmt.then) | _marks_read((stmt.cond,))
    if isinstance(stmt, Block):
        start = () if stmt.init is None else (stmt.init,)
        return marks(stmt.body) | name_mark(stmt.name) | _marks_read(start)
    if isinstance(stmt, Store):
        return name_mark(stmt.buffer.name) | _marks_read((*stmt.indices, stmt.value))
    if isinstance(stmt, IntrinsicCall):
        found = name_mark(stmt.block) | _marks_read(value for _, value in stmt.scalars)
        for region in stmt.operands:
            found |= name_mark(region.buffer.name) | _marks_read(region.indices)
        return found
    return 0


def _marks_read(exprs: Iterable[Expr]) -> int:
    found = 0
    for expr in exprs:
        for load in loads(expr):
            found |= name_mark(load.buffer.name)
    return found


def replace_buffer(stmt: Stmt, old: Buffer, new: Buffer) -> Stmt:
    """The tree with every access and allocation of ``old`` made to ``new``, at the same indices."""
    mark = name_mark(old.name)

    def allocate(node: Stmt) -> Stmt:
        if not marks(node) & mark:
            return node
        changed = map_children(node, allocate) or node
        return Allocate(new, changed.body) if isinstance(changed, Allocate) and changed.buffer == old else changed

    return map_accesses(allocate(stmt), old, new, lambda indices: indices)


def map_accesses(stmt: Stmt, old: Buffer, new: Buffer, change: Callable[[tuple[Expr, ...]], tuple[Expr, ...]]) -> Stmt:
    """The tree with every access to ``old`` made to ``new``, at the indices that ``change`` gives. Parts that have
    nothing of ``old`` stay the same objects."""
    mark = name_mark(old.name)

    def rule(node: Expr) -> Expr | None:
        return Load(new, change(node.indices)) if isinstance(node, Load) and node.buffer == old else None

    def of_expr(expr: Expr) -> Expr:
        return map_exprs(expr, rule) if any(load.buffer == old for load in loads(expr)) else expr

    def move_store(store: Store) -> Store:
        moved = map_store_exprs(store, of_expr)
        return Store(new, change(moved.indices), moved.value) if moved.buffer == old else moved

    def visit(node: Stmt) -> Stmt:
        if not marks(node) & mark:
            return node
        match node:
            case For(var, extent, kind, body, annotations):
                changed, inner = of_expr(extent), visit(body)
                return with_body(node, inner) if changed is extent else For(var, changed, kind, inner, annotations)
            case Allocate(body=body):
                return with_body(node, visit(body))
            case If(cond, then):
                return If(of_expr(cond), visit(then))
            case Seq(body):
                items = tuple(map(visit, body))
                return node if all(map(is_, items, body)) else Seq(items)
            case Store():
                return move_store(node)
            case Block(body=store, init=init):
                moved, start = move_store(store), None if init is None else of_expr(init)
                return node if moved is store and start is init else replace(node, body=moved, init=start)
            case IntrinsicCall(operands=operands, scalars=scalars):
                regions = []
                for region in operands:
                    indices = tuple(map(of_expr, region.indices))
                    own = region.buffer == old
                    regions.append(replace(region, buffer=new, indices=change(indices)) if own
                                   else replace(region, indices=indices))  # fmt: skip
                values = tuple((name, of_expr(value)) for name, value in scalars)
                return replace(node, operands=tuple(regions), scalars=values)
        return node

    return visit(stmt)


ACCUMULATING = ("add", "min", "max")


def accumulation(store: Store) -> tuple[str, Expr] | None:
    """``(op, value)`` if the store is ``x = op(x, value)``, with op in ``ACCUMULATING`` and no x in value."""
    if not isinstance(store.value, BinOp) or store.value.op not in ACCUMULATING:
        return None
    for own, value in ((store.value.a, store.value.b), (store.value.b, store.value.a)):
        if own == Load(store.buffer, store.indices):
            reads = any(isinstance(node, Load) and node.buffer == store.buffer for node in walk_exprs(value))
            return None if reads else (store.value.op, value)
    return None


def stores_of(stmt: Stmt) -> Iterator[tuple[Buffer, tuple[Expr, ...]]]:
    """Buffers written below ``stmt``, with the indices (of the first element, for an intrinsic call)."""
    for node in statements(stmt):
        match node:
            case Block(body=store) | (Store() as store):
                yield store.buffer, store.indices
            case IntrinsicCall(intrinsic=intrinsic, operands=operands):
                for operand, region in zip(intrinsic.operands, operands, strict=True):
                    if operand.mode != "in":
                        yield region.buffer, region.indices


def loads_of(stmt: Stmt) -> Iterator[tuple[Buffer, tuple[Expr, ...]]]:
    """Buffers read below ``stmt``, with the indices (of the first element, for an intrinsic call)."""
    for node in statements(stmt):
        match node:
            case Block(body=store) | (Store() as store):
                for index in (*store.indices, store.value):
                    yield from ((x.buffer, x.indices) for x in loads(index))
            case IntrinsicCall(intrinsic=intrinsic, operands=operands):
                for operand, region in zip(intrinsic.operands, operands, strict=True):
                    if operand.mode != "out":
                        yield region.buffer, region.indices
