"""Primitives on stages: copies through other memories, inlining, in-place updates."""

from __future__ import annotations

from dataclasses import replace

from .errors import ScheduleError
from .ir import (
    Allocate,
    Block,
    Buffer,
    Const,
    Expr,
    Load,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    Var,
    loop_nest,
    sequence,
)
from .names import fresh_name, taken_names
from .overlap import overlapping_loops
from .tree import (
    drop_allocation,
    find_allocation,
    find_block,
    find_buffer,
    is_later,
    loops_of,
    own_nest,
    plain_block,
    readers,
    rewrite,
    simplify_tree,
    writers,
)
from .visitor import free_vars, loads, map_exprs, map_stmt_exprs, replace_buffer, substitute


def cache_read(func: PrimFunc, block: str, buffer_name: str, scope: str) -> tuple[PrimFunc, str]:
    """Let ``block`` read a copy of the buffer in ``scope``; gives the name of the copying block (and its buffer)."""
    buffer = find_buffer(func, buffer_name)
    path = find_block(func, block)
    leaf = plain_block(path, "cache_read")
    if not any(node.buffer == buffer for node in loads(leaf.body.value)):
        raise ScheduleError(f"cache_read: block {block!r} does not read {buffer_name!r}", at=f"block {block!r}")
    if leaf.body.buffer == buffer:
        raise ScheduleError(
            f"cache_read: block {block!r} also writes {buffer_name!r}",
            at=f"block {block!r}",
            hint="use cache_write",
        )
    region, child = _visible_part(func, buffer, path)
    late = writers(child, buffer)
    if late:
        raise ScheduleError(
            f"cache_read: {buffer_name!r} is written in the same loops in which block {block!r} reads it",
            at=f"block {block!r}",
            hint="cache_read before compute_at",
        )
    names = taken_names(func)
    copy = Buffer(fresh_name(f"{buffer.name}_{scope}", names), buffer.shape, buffer.dtype, scope)
    nest = _copy_nest(copy.name, buffer, copy, names)
    changed = _replace_in_block(child, leaf, buffer, copy)
    return rewrite(func, region, Allocate(copy, _put(region, child, sequence(nest, changed)))), copy.name


def cache_write(func: PrimFunc, block: str, scope: str) -> tuple[PrimFunc, str]:
    """Let ``block`` write to ``scope``, and copy from there; gives the name of the copying block."""
    path = find_block(func, block)
    leaf = plain_block(path, "cache_write")
    buffer = leaf.body.buffer
    if len(writers(func.body, buffer)) > 1:
        raise ScheduleError(
            f"cache_write: {buffer.name!r} is written by other blocks than {block!r} too",
            at=f"block {block!r}",
            hint="cache_write before decompose_reduction and inplace",
        )
    region, child = _visible_part(func, buffer, path)
    inside = readers(child, buffer)
    if inside:
        raise ScheduleError(
            f"cache_write: {buffer.name!r} is read in the same loops in which block {block!r} writes it",
            at=f"block {block!r}",
            hint="cache_write before compute_at",
        )
    names = taken_names(func)
    cache = Buffer(fresh_name(f"{buffer.name}_{scope}", names), buffer.shape, buffer.dtype, scope)
    name = fresh_name(f"{buffer.name}_write", names)
    changed = replace_buffer(child, buffer, cache)
    nest = _copy_nest(name, cache, buffer, names)
    return rewrite(func, region, Allocate(cache, _put(region, child, sequence(changed, nest)))), name


def _visible_part(func: PrimFunc, buffer: Buffer, path: tuple[Stmt, ...]) -> tuple[Stmt, Stmt]:
    """What is around the block where ``buffer`` is visible, without the allocations at its top; and its one statement
    that holds the block."""
    allocation = find_allocation(func, buffer)
    position = 0 if allocation is None else path.index(allocation[-1]) + 1
    while isinstance(path[position], Allocate):
        position += 1
    region = path[position]
    return region, path[position + 1] if isinstance(region, Seq) else region


def _put(region: Stmt, child: Stmt, new: Stmt) -> Stmt:
    if region is child or not isinstance(region, Seq):
        return new
    return sequence(*(new if each is child else each for each in region.body))


def _copy_nest(name: str, source: Buffer, target: Buffer, names: set[str]) -> Stmt:
    variables = [Var(fresh_name(f"{name}_i{axis}", names)) for axis in range(source.ndim)]
    store = Store(target, tuple(variables), Load(source, tuple(variables)))
    loops = [(var, Const(extent)) for var, extent in zip(variables, source.shape, strict=True)]
    return simplify_tree(loop_nest(loops, Block(name, "copy", store)))


def _replace_in_block(stmt: Stmt, block: Block, old: Buffer, new: Buffer) -> Stmt:
    changed = replace_buffer(block, old, new)
    result = rewrite(PrimFunc("", (), stmt), block, changed)
    return result.body


def compute_inline(func: PrimFunc, block: str) -> PrimFunc:
    """Put the value of an elementwise stage in the place of every read of it; the stage and its buffer go away."""
    path = find_block(func, block)
    leaf = plain_block(path, "compute_inline")
    store, at = leaf.body, f"block {block!r}"
    if leaf.kind not in ("spatial", "copy"):
        raise ScheduleError(f"compute_inline: block {block!r} is a reduction", at=at, hint="use compute_at")
    if find_allocation(func, store.buffer) is None:
        raise ScheduleError(f"compute_inline: {store.buffer.name!r} is an output", at=at)
    if len(writers(func.body, store.buffer)) > 1:
        raise ScheduleError(f"compute_inline: {store.buffer.name!r} is written by several blocks", at=at)
    axes = plain_axes(leaf, "compute_inline")
    users = readers(func.body, store.buffer)
    for user in users:
        plain_block(user, "compute_inline")
    check_inputs_available(func, leaf, path, [user[:-1] for user in users], "compute_inline")

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.buffer == store.buffer:
            bindings = {axis: index for axis, index in zip(axes, node.indices, strict=True) if axis is not None}
            return substitute(store.value, bindings)
        return None

    nest = path[own_nest(path)]
    func = rewrite(func, nest, None)
    body = drop_allocation(map_stmt_exprs(func.body, lambda expr: map_exprs(expr, rule)), store.buffer)
    if body is None:
        raise ScheduleError(f"compute_inline: nothing reads {store.buffer.name!r}", at=at)
    return replace(func, body=simplify_tree(body))


def plain_axes(leaf: Block, primitive: str) -> tuple[Var | None, ...]:
    """The loop variable that is each index of the store (None: the dimension has one element).

    ScheduleError if an index is anything else, since then the loops have been split or fused.
    """
    axes: list[Var | None] = []
    for index in leaf.body.indices:
        if isinstance(index, Var) and index not in axes:
            axes.append(index)
        elif index == Const(0):
            axes.append(None)
        else:
            raise ScheduleError(
                f"{primitive}: the loops of block {leaf.name!r} have been split or fused",
                at=f"block {leaf.name!r}",
                hint=f"{primitive} first, then split the loops that come out of it",
            )
    return tuple(axes)


def check_inputs_available(
    func: PrimFunc, leaf: Block, path: tuple[Stmt, ...], places: list[tuple[Stmt, ...]], primitive: str
) -> None:
    """Refuse to move a block to later places unless all that it reads exists there and is not written in between."""
    for source in sources(leaf):
        for writer in writers(func.body, source):
            if writer[-1] is not leaf and is_later(writer, path):
                raise ScheduleError(
                    f"{primitive}: {source.name!r}, which block {leaf.name!r} reads, is written again after it",
                    at=f"block {leaf.name!r}",
                )
        allocation = find_allocation(func, source)
        for place in places:
            if allocation is not None and not any(node is allocation[-1] for node in place):
                raise ScheduleError(
                    f"{primitive}: {source.name!r}, which block {leaf.name!r} reads, does not exist there",
                    at=f"block {leaf.name!r}",
                )


def sources(leaf: Block) -> list[Buffer]:
    """Buffers that a block reads, other than the one it writes."""
    buffers = dict.fromkeys(load.buffer for load in loads(leaf.body.value))
    return [buffer for buffer in buffers if buffer != leaf.body.buffer]


def inplace(func: PrimFunc, block: str, buffer_name: str) -> PrimFunc:
    """Let ``block``, which computes v[i] = f(u[i], ...), write its result over u: both become one buffer.

    Refused unless each element of u is read at the index that is written, and u is not needed afterwards.
    """
    path = find_block(func, block)
    leaf = plain_block(path, "inplace")
    source, target, at = find_buffer(func, buffer_name), leaf.body.buffer, f"block {block!r}"
    if leaf.kind not in ("spatial", "copy"):
        raise ScheduleError(f"inplace: block {block!r} is a reduction", at=at)
    reads = [node for node in loads(leaf.body.value) if node.buffer == source]
    if not reads:
        raise ScheduleError(f"inplace: block {block!r} does not read {buffer_name!r}", at=at)
    if any(read.indices != leaf.body.indices for read in reads):
        raise ScheduleError(
            f"inplace: block {block!r} reads {buffer_name!r} at another element than the one it writes", at=at
        )
    if overlapping_loops(leaf):
        raise ScheduleError(f"inplace: elements of block {block!r} are computed twice (split_shifted)", at=at)
    if replace(source, name=target.name) != target:
        raise ScheduleError(
            f"inplace: {source.name!r} and {target.name!r} differ in shape, type, memory or alignment",
            at=at,
            hint="use set_scope, and attach both to the same loop",
        )
    for reader in readers(func.body, source):
        if reader[-1] is not leaf and is_later(reader, path):
            raise ScheduleError(f"inplace: {source.name!r} is read again after block {block!r}", at=at)
    kept = find_allocation(func, source)
    merged = find_allocation(func, target)
    if kept is None:
        raise ScheduleError(f"inplace: {source.name!r} is a parameter", at=at, hint="cache_read it first")
    inner_most = path[path.index(kept[-1]) :]
    shared = [node for node in loops_of(inner_most) if writers(node, source)]
    dead = [node for node in loops_of(inner_most) if not any(node.var in free_vars(i) for i in leaf.body.indices)]
    if shared or any(node.extent != Const(1) for node in dead):
        loop = (shared or dead)[0].var.name
        raise ScheduleError(
            f"inplace: loop {loop!r} would update elements of {source.name!r} more than once or before they are ready",
            at=at,
            hint=f"attach both stages inside loop {loop!r}",
        )
    if merged is None or len(merged) < len(kept):
        survivor, gone = target, source
    else:
        survivor, gone = source, target
    body = drop_allocation(func.body, gone)
    if body is None:
        raise ScheduleError("inplace: the function would be left empty", at=at)
    return replace(func, body=replace_buffer(body, gone, survivor))
