"""Finding and replacing nodes in the statement tree of a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import is_
from typing import Any

from .errors import ScheduleError
from .ir import (
    Allocate,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    If,
    IntrinsicCall,
    Load,
    PrimFunc,
    Region,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
)
from .simplify import Simplifier, simplifier_of
from .visitor import (
    below,
    children,
    loads_of,
    loop_mark,
    map_children,
    marks,
    name_mark,
    rebuild,
    statements,
    stores_of,
    with_body,
)

Leaf = Block | IntrinsicCall | Store
LEAVES = (Block, IntrinsicCall, Store)
AROUND_ONE = (For, Allocate)


def paths(
    root: Stmt, mark: int, kind: type[Stmt] | tuple[type[Stmt], ...], wanted: Callable[[Any], bool]
) -> Iterator[tuple[Stmt, ...]]:
    """The paths to those statements of a kind that are wanted and have every bit of ``mark`` (``visitor.marks``), in
    the order of execution. Parts of the tree without these bits are not looked at."""
    if marks(root) & mark != mark:
        return
    path: list[Stmt] = []
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        del path[depth:]
        while True:
            path.append(node)
            if isinstance(node, kind) and wanted(node):
                yield tuple(path)
            if isinstance(node, AROUND_ONE):
                node = node.body
                if node.__dict__["_marks"] & mark == mark:  # all below have marks, since the root has
                    continue
            else:
                depth, inner = len(path), reversed(below(node))
                waiting.extend([(child, depth) for child in inner if child.__dict__["_marks"] & mark == mark])
            break


_latest: tuple[Stmt | None, dict[tuple[object, object], tuple[Stmt, ...] | None]] = (None, {})
"""Of the tree that was asked for last, what was found. Primitives ask several times before they make the next tree;
another thread's question in between costs a walk."""


def _found(
    root: Stmt, mark: int, kind: type[Stmt] | tuple[type[Stmt], ...], key: object, wanted: Callable[[Any], bool]
) -> tuple[Stmt, ...] | None:
    """The first of such paths. ``key`` says, together with the kind of statement, what is wanted."""
    global _latest
    latest, found = _latest
    if latest is not root:
        found = {}
        _latest = (root, found)
    place = kind, key
    if place not in found:
        found[place] = next(paths(root, mark, kind, wanted), None)
    return found[place]


def is_later(path: Sequence[Stmt], other: Sequence[Stmt]) -> bool:
    """Whether the statement at the end of a path is executed, or begins, behind the one at the end of another path in
    the same tree."""
    for around, (node, beside) in zip(path, zip(path[1:], other[1:], strict=False), strict=False):
        if node is not beside:
            return next(each for each in below(around) if each is node or each is beside) is beside
    return len(path) > len(other)


def block_name(stmt: Stmt) -> str | None:
    """Name of the stage if the statement is a block or an intrinsic call."""
    if isinstance(stmt, Block):
        return stmt.name
    return stmt.block if isinstance(stmt, IntrinsicCall) else None


def check_name(what: str, name: object) -> None:
    """Callers hand names in, and traces of schedules from files."""
    if not isinstance(name, str):
        raise ScheduleError(f"a {what} is named {name!r:.80}, but must be named by a text")


def find_block(func: PrimFunc, name: str) -> tuple[Stmt, ...]:
    """Path to the block ``name``; ScheduleError if there is none."""
    check_name("block", name)
    found = _found(func.body, name_mark(name), LEAVES, name, lambda node: block_name(node) == name)
    if found is None:
        names = filter(None, map(block_name, statements(func.body)))
        raise ScheduleError(f"there is no block {name!r}", hint=f"the blocks are {', '.join(names)}")
    return found


def find_loop(func: PrimFunc, var: Var) -> tuple[Stmt, ...]:
    """Path to the loop of ``var``; ScheduleError if there is none."""
    found = _found(func.body, loop_mark(var.name), For, var, lambda node: node.var == var)
    if found is None:
        names = [node.var.name for node in statements(func.body) if isinstance(node, For)]
        raise ScheduleError(f"there is no loop {var.name!r}", hint=f"the loops are {', '.join(names)}")
    return found


def find_allocation(func: PrimFunc, buffer: Buffer) -> tuple[Stmt, ...] | None:
    """Path to the Allocate of ``buffer``; None if it is a parameter."""
    return _found(func.body, name_mark(buffer.name), Allocate, buffer, lambda node: node.buffer == buffer)


def find_buffer(func: PrimFunc, name: str) -> Buffer:
    """The parameter or allocated buffer ``name``; ScheduleError if there is none."""
    check_name("buffer", name)
    for buffer in func.params:
        if buffer.name == name:
            return buffer
    for *_, node in paths(func.body, name_mark(name), Allocate, lambda node: node.buffer.name == name):
        assert isinstance(node, Allocate)
        return node.buffer
    buffers = [*func.params, *(node.buffer for node in statements(func.body) if isinstance(node, Allocate))]
    raise ScheduleError(
        f"there is no buffer {name!r}", hint=f"the buffers are {', '.join(buffer.name for buffer in buffers)}"
    )


def plain_block(path: tuple[Stmt, ...], primitive: str) -> Block:
    """The block at the end of the path; ScheduleError if it has been tensorized already."""
    node = path[-1]
    if isinstance(node, IntrinsicCall):
        raise ScheduleError(
            f"{primitive}: block {node.block!r} is a call of {node.intrinsic.name!r} already",
            at=f"block {node.block!r}",
            hint=f"{primitive} before tensorize",
        )
    if not isinstance(node, Block):
        raise ScheduleError(f"{primitive}: not a block")
    return node


def loops_of(path: Sequence[Stmt]) -> list[For]:
    """The loops on a path, outermost first."""
    return [node for node in path if isinstance(node, For)]


def ranges_of(path: Sequence[Stmt]) -> list[tuple[Var, Expr]]:
    """Variables and extents of the loops on a path, outermost first."""
    return [(loop.var, loop.extent) for loop in loops_of(path)]


def opened(body: Stmt, scope: str) -> tuple[tuple[Buffer, ...], list[Stmt]]:
    """The buffers of a scope that are allocated around all or some of a body's statements, and those statements."""
    buffers: list[Buffer] = []
    items: list[Stmt] = []
    waiting = [body]
    while waiting:
        match waiting.pop(0):
            case Allocate(buffer, inner) if buffer.scope == scope:
                buffers.append(buffer)
                waiting.insert(0, inner)
            case Seq(body=parts):
                waiting[:0] = parts
            case other:
                items.append(other)
    return tuple(buffers), items


def leaves(stmt: Stmt) -> Iterator[tuple[Stmt, ...]]:
    """Paths of the blocks, calls and bare stores below ``stmt``, in the order of execution."""
    return paths(stmt, 0, LEAVES, lambda leaf: True)


def readers(stmt: Stmt, buffer: Buffer) -> list[tuple[Stmt, ...]]:
    """Paths of the leaves that read ``buffer``, other than to update it at the element that they write."""
    return list(paths(stmt, name_mark(buffer.name), LEAVES, lambda leaf: _reads(leaf, buffer)))


def _reads(leaf: Stmt, buffer: Buffer) -> bool:
    own = [indices for written, indices in stores_of(leaf) if written == buffer]
    return any(read == buffer and indices not in own for read, indices in loads_of(leaf))


def writers(stmt: Stmt, buffer: Buffer) -> list[tuple[Stmt, ...]]:
    """Paths of the leaves that write ``buffer``."""
    return list(paths(stmt, name_mark(buffer.name), LEAVES, lambda leaf: _writes(leaf, buffer)))


def _writes(leaf: Stmt, buffer: Buffer) -> bool:
    return any(written == buffer for written, _ in stores_of(leaf))


def own_nest(path: tuple[Stmt, ...]) -> int:
    """Position on the path of the outermost loop that holds nothing but the block (of the block, if there is none)."""
    position = len(path) - 1
    while position > 0 and isinstance(path[position - 1], For):
        position -= 1
    return position


def reduction_vars(stmt: Stmt) -> dict[Var, str]:
    """Loop variables that are reductions for some block below ``stmt``, with the name of one such block."""
    block_of: dict[Var, str] = {}
    for node in statements(stmt):
        match node:
            case Block(name=name, reduce_vars=reduce_vars) | IntrinsicCall(block=name, reduce_vars=reduce_vars):
                for var in reduce_vars:
                    block_of.setdefault(var, name)
    return block_of


def replace_node(stmt: Stmt, old: Stmt, new: Stmt | None) -> Stmt | None:
    """The tree with the node ``old`` (this very object) replaced, or taken out if ``new`` is None."""
    path = next(paths(stmt, marks(old), type(old), lambda node: node is old), None)
    if path is None:
        return stmt
    for above, inside in zip(path[-2::-1], path[:0:-1], strict=True):
        new = map_children(above, partial(_instead, inside, new))
    return new


def _instead(old: Stmt, new: Stmt | None, node: Stmt) -> Stmt | None:
    return new if node is old else node


def rewrite(func: PrimFunc, old: Stmt, new: Stmt | None) -> PrimFunc:
    """The function with one node replaced, or taken out if ``new`` is None."""
    body = replace_node(func.body, old, new)
    if body is None:
        raise ScheduleError(f"function {func.name!r} would be left empty")
    return replace(func, body=body)


def drop_allocation(stmt: Stmt, buffer: Buffer) -> Stmt | None:
    """The tree without the Allocate of ``buffer``; its body stays."""
    if not marks(stmt) & name_mark(buffer.name):
        return stmt
    if isinstance(stmt, Allocate) and stmt.buffer == buffer:
        return drop_allocation(stmt.body, buffer)
    return map_children(stmt, lambda child: drop_allocation(child, buffer))


def map_leaves(stmt: Stmt, change: Callable[[Stmt], Stmt]) -> Stmt:
    """The tree with ``change`` applied to every block, call and bare store."""
    if isinstance(stmt, Leaf):
        return change(stmt)
    new = map_children(stmt, lambda child: map_leaves(child, change))
    if new is None:
        raise ScheduleError("a statement lost its body")
    return new


def simplify_tree(stmt: Stmt, loops: Sequence[tuple[Var, Expr]] = ()) -> Stmt:
    """The tree with all indices, conditions and extents simplified. The arithmetic on the data stays as written."""
    return _simplified(stmt, simplifier_of(loops))


def _simplified(stmt: Stmt, simplifier: Simplifier) -> Stmt:
    """Most of a function stays as it is from one step of a schedule to the next: a statement that was found to be
    simple under these loops is not looked through again."""
    if stmt.simple_under == simplifier.number:
        return stmt
    result = _looked_through(stmt, simplifier)
    if result is stmt:
        stmt.note_simple(simplifier.number)
    return result


def _looked_through(stmt: Stmt, simplifier: Simplifier) -> Stmt:
    match stmt:
        case For(var, extent, kind, body, annotations):
            simple = simplifier.extent(extent)
            inner = _simplified(body, simplifier.inside(var, simple))
            return stmt if simple is extent and inner is body else For(var, simple, kind, inner, annotations)
        case Allocate(body=body):
            return with_body(stmt, _simplified(body, simplifier))
        case If(cond, then):
            simple, inner = simplifier.simplify(cond), _simplified(then, simplifier)
            return stmt if simple is cond and inner is then else If(simple, inner)
        case Seq(body):
            items = tuple([_simplified(child, simplifier) for child in body])
            return stmt if all(map(is_, items, body)) else Seq(items)
        case Store():
            return _simplify_store(stmt, simplifier)
        case Block(body=store):
            moved = _simplify_store(store, simplifier)
            return stmt if moved is store else replace(stmt, body=moved)
        case IntrinsicCall(operands=operands, scalars=scalars):
            regions = tuple([_simplify_region(region, simplifier) for region in operands])
            values = [simplifier.simplify(value) for _, value in scalars]
            if all(map(is_, regions, operands)) and all(map(is_, values, (value for _, value in scalars))):
                return stmt
            named = tuple((name, value) for (name, _), value in zip(scalars, values, strict=True))
            return replace(stmt, operands=regions, scalars=named)
    return stmt


def _simplify_region(region: Region, simplifier: Simplifier) -> Region:
    indices = tuple(map(simplifier.simplify, region.indices))
    return region if all(map(is_, indices, region.indices)) else replace(region, indices=indices)


def _simplify_store(store: Store, simplifier: Simplifier) -> Store:
    indices = tuple(map(simplifier.simplify, store.indices))
    value = _simplify_value(store.value, simplifier)
    unchanged = value is store.value and all(map(is_, indices, store.indices))
    return store if unchanged else Store(store.buffer, indices, value)


def _simplify_value(expr: Expr, simplifier: Simplifier) -> Expr:
    match expr:
        case Load(buffer, indices):
            simple = tuple(map(simplifier.simplify, indices))
            return expr if all(map(is_, simple, indices)) else Load(buffer, simple)
        case Select(cond, a, b):
            cond = simplifier.simplify(cond)
            if isinstance(cond, Const):
                return _simplify_value(a if cond.value else b, simplifier)
            return Select(cond, _simplify_value(a, simplifier), _simplify_value(b, simplifier))
    old = children(expr)
    new = tuple([_simplify_value(child, simplifier) for child in old])
    return expr if all(map(is_, new, old)) else rebuild(expr, new)
