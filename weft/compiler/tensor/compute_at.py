"""Moving a stage under a loop of another one: compute_at (producers) and reverse_compute_at (consumers).

The loops of the moved stage are shrunk to the region that one iteration needs, and its buffer with them: it is
allocated right inside the loop, and holds one region. So inside a virtual-thread loop each thread has its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .caching import check_inputs_available, plain_axes, sources
from .errors import ScheduleError
from .ir import (
    Allocate,
    BinOp,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    IntrinsicCall,
    Load,
    PrimFunc,
    Stmt,
    Store,
    Var,
    maximum,
    minimum,
    sequence,
)
from .linear import Linear, linear_form
from .printer import expr_text
from .simplify import UNBOUNDED, constant_range, lower_bound, simplifier_of, upper_bound
from .tree import (
    drop_allocation,
    find_allocation,
    find_block,
    find_loop,
    loops_of,
    map_leaves,
    own_nest,
    plain_block,
    ranges_of,
    readers,
    rewrite,
    simplify_tree,
    writers,
)
from .visitor import free_vars, loads, map_accesses, map_exprs, statements, substitute, substitute_stmt, walk_exprs


@dataclass(frozen=True)
class TouchedRegion:
    """What part of a buffer one iteration of a loop touches: per dimension the first index, how many (both may depend
    on the outer loops) and the most there can be."""

    start: tuple[Expr, ...]
    extent: tuple[Expr, ...]
    most: tuple[int, ...]

    def with_whole(self, shape: tuple[int, ...], made: tuple[Expr, ...], count: int) -> TouchedRegion:
        """The region with all that is ``made`` of the last ``count`` dimensions of a buffer of this shape."""
        kept = len(shape) - count
        return TouchedRegion(
            (*self.start[:kept], *(Const(0) for _ in shape[kept:])),
            (*self.extent[:kept], *made[kept:]),
            (*self.most[:kept], *shape[kept:]),
        )


def compute_at(func: PrimFunc, block: str, loop: Var, whole: int = 0, exact: bool = False) -> PrimFunc:
    """Compute ``block`` inside ``loop``, just what each iteration of it reads, before everything else there; of the
    last ``whole`` dimensions everything. ``exact``: its buffer has room for no more than that, where all iterations can
    be tried."""
    path = find_block(func, block)
    leaf = plain_block(path, "compute_at")
    target = find_loop(func, loop)
    buffer, at = leaf.body.buffer, f"block {block!r}"
    nest_position = own_nest(path)
    nest = path[nest_position]
    if any(node is nest for node in target):
        raise ScheduleError(f"compute_at: loop {loop.name!r} is one of the loops of block {block!r} itself", at=at)
    if find_allocation(func, buffer) is None:
        raise ScheduleError(
            f"compute_at: block {block!r} writes the output {buffer.name!r}, which must be complete at the end",
            at=at,
            hint="cache_write it first, or use reverse_compute_at",
        )
    if len(writers(func.body, buffer)) > 1:
        raise ScheduleError(
            f"compute_at: {buffer.name!r} is written by other blocks than {block!r} too",
            at=at,
            hint="compute_at before decompose_reduction and inplace",
        )
    _check_common_loops(path[:nest_position], target, block, "compute_at")
    if not 0 <= whole <= buffer.ndim:
        raise ScheduleError(f"compute_at: whole is {whole}, but {buffer.name!r} has {buffer.ndim} dimensions", at=at)
    users = readers(func.body, buffer)
    if not users:
        raise ScheduleError(f"compute_at: nothing reads {buffer.name!r}", at=at)
    for user in users:
        if not any(node is target[-1] for node in user):
            raise ScheduleError(
                f"compute_at: block {_name(user[-1])!r}, which reads {buffer.name!r}, is not inside loop {loop.name!r}",
                at=at,
                hint=f"move {_name(user[-1])!r} there first",
            )
    check_inputs_available(func, leaf, path, [target], "compute_at")

    axes = plain_axes(leaf, "compute_at")
    around = {node.var for node in loops_of(path[:nest_position])}
    for axis in axes:
        if axis is not None and axis in around:
            raise ScheduleError(
                f"compute_at: block {block!r} writes {buffer.name!r} at {axis.name!r}, which is a loop around it",
                at=at,
                hint="compute_at before reverse_compute_at and double_buffer",
            )
    runs = {node.var: node.extent for node in loops_of(path[nest_position:])}
    made = tuple(Const(size) if axis is None else runs[axis] for axis, size in zip(axes, buffer.shape, strict=True))
    region = _read_region(buffer, made, users, target, exact).with_whole(buffer.shape, made, whole)
    moved = _retarget_nest(nest, leaf, axes, region)
    local = replace(buffer, shape=region.most)
    moved = _rebase(moved, buffer, local, None)
    func = rewrite(func, nest, None)
    body = drop_allocation(func.body, buffer)
    func = replace(func, body=body if body is not None else func.body)
    node = _for(find_loop(func, loop)[-1])
    inner = Allocate(local, sequence(moved, _rebase(node.body, buffer, local, region.start)))
    return _finish(rewrite(func, node, replace(node, body=inner)))


def reverse_compute_at(func: PrimFunc, block: str, loop: Var) -> PrimFunc:
    """Compute ``block`` inside ``loop`` of its producer, just what each iteration completes, after all else there."""
    path = find_block(func, block)
    leaf = plain_block(path, "reverse_compute_at")
    target = find_loop(func, loop)
    at = f"block {block!r}"
    nest_position = own_nest(path)
    nest = path[nest_position]
    if any(node is nest for node in target):
        raise ScheduleError(
            f"reverse_compute_at: loop {loop.name!r} is one of the loops of block {block!r} itself", at=at
        )
    if any(node is target[-1] for node in path):
        raise ScheduleError(f"reverse_compute_at: block {block!r} is inside loop {loop.name!r} already", at=at)
    if leaf.kind not in ("spatial", "copy"):
        raise ScheduleError(f"reverse_compute_at: block {block!r} is a reduction", at=at, hint="use compute_at")
    _check_common_loops(path[:nest_position], target, block, "reverse_compute_at")
    produced = [source for source in sources(leaf) if writers(target[-1], source)]
    if not produced:
        raise ScheduleError(
            f"reverse_compute_at: nothing that block {block!r} reads is written inside loop {loop.name!r}", at=at
        )
    _check_consumer_movable(func, leaf, path, target, produced)

    outer = ranges_of(target)
    free_loops = [node for node in loops_of(target) if not any(node is other for other in path)]
    plain_axes(leaf, "reverse_compute_at")
    own = {node.var for node in loops_of(path[nest_position:])}
    placed: dict[Var, tuple[Expr, Expr]] = {}
    regions: dict[Buffer, TouchedRegion] = {}
    for source in produced:
        regions[source] = region = _written_region(source, target, outer, free_loops, block)
        for axis, start, extent in _read_axes(leaf, source, region, own):
            if placed.setdefault(axis, (start, extent)) != (start, extent):
                raise ScheduleError(
                    f"reverse_compute_at: the buffers that block {block!r} reads are completed in different parts",
                    at=at,
                )
    bindings = {axis: axis + start for axis, (start, _) in placed.items()}
    moved = _resize(substitute_stmt(nest, bindings), {axis: extent for axis, (_, extent) in placed.items()})
    func = rewrite(func, nest, None)
    node = _for(find_loop(func, loop)[-1])
    func = rewrite(func, node, replace(node, body=sequence(node.body, moved)))
    for source, region in regions.items():
        func = _shrink(func, source, loop, region)
    return _finish(func)


def _check_common_loops(above: Sequence[Stmt], target: Sequence[Stmt], block: str, primitive: str) -> None:
    for node in above:
        if isinstance(node, For) and not any(node is other for other in target):
            raise ScheduleError(
                f"{primitive}: block {block!r} shares loop {node.var.name!r} with other stages",
                at=f"block {block!r}",
                hint=f"{primitive} block {block!r} before stages are moved under its loops",
            )


def _check_consumer_movable(
    func: PrimFunc, leaf: Block, path: tuple[Stmt, ...], target: tuple[Stmt, ...], produced: list[Buffer]
) -> None:
    at = f"block {leaf.name!r}"
    order = list(statements(func.body))
    position = {id(node): place for place, node in enumerate(order)}
    top = next(node for node in target if isinstance(node, For) and not any(node is other for other in path))
    for source in sources(leaf):
        for writer in writers(func.body, source):
            place = position[id(writer[-1])]
            late = place > position[id(leaf)] or (place > position[id(top)] and source not in produced)
            if late:
                raise ScheduleError(
                    f"reverse_compute_at: {source.name!r}, which block {leaf.name!r} also reads, is not complete there",
                    at=at,
                )
            if source in produced and not any(node is target[-1] for node in writer):
                raise ScheduleError(f"reverse_compute_at: {source.name!r} is also written outside of the loop", at=at)
    for other in [*readers(func.body, leaf.body.buffer), *writers(func.body, leaf.body.buffer)]:
        if position[id(other[-1])] < position[id(leaf)]:
            raise ScheduleError(
                f"reverse_compute_at: {leaf.body.buffer.name!r} is used before block {leaf.name!r}", at=at
            )
    allocation = find_allocation(func, leaf.body.buffer)
    if allocation is not None and not any(node is allocation[-1] for node in target):
        raise ScheduleError(f"reverse_compute_at: {leaf.body.buffer.name!r} does not exist there", at=at)


def _read_region(
    buffer: Buffer, made: tuple[Expr, ...], users: list[tuple[Stmt, ...]], target: tuple[Stmt, ...], exact: bool
) -> TouchedRegion:
    """What one iteration reads of the elements that are ``made``, so many in each dimension."""
    accesses: list[tuple[tuple[Expr, ...], list[tuple[Var, Expr]]]] = []
    for user in users:
        leaf = user[-1]
        if isinstance(leaf, IntrinsicCall):
            plain_block(user, "compute_at")
        depth = next(place for place, node in enumerate(user) if node is target[-1])
        inner = ranges_of(user[depth + 1 :])
        if isinstance(leaf, Block):
            accesses += [(load.indices, inner) for load in loads(leaf.body.value) if load.buffer == buffer]
    return _touched_region(buffer, made, accesses, ranges_of(target), exact)


def _touched_region(
    buffer: Buffer, made: tuple[Expr, ...], accesses: list[tuple[tuple[Expr, ...], list[tuple[Var, Expr]]]],
    outer: list[tuple[Var, Expr]], exact: bool = False,
) -> TouchedRegion:  # fmt: skip
    simplifier = simplifier_of(outer)
    starts: list[Expr] = []
    extents: list[Expr] = []
    most: list[int] = []
    for axis, (size, count) in enumerate(zip(buffer.shape, made, strict=True)):
        all_made = isinstance(count, Const) and count.value == size
        end = Const(size - 1) if all_made else count - 1
        of_axis = [(indices[axis], inner) for indices, inner in accesses]
        shifted = _shifted_range(of_axis, outer, size) if all_made else None
        if shifted is not None:
            starts.append(simplifier.simplify(shifted[0]))
            extents.append(Const(shifted[1]))
            most.append(shifted[1])
            continue
        low: Expr | None = None
        high: Expr | None = None
        for indices, inner in accesses:
            first = lower_bound(indices[axis], inner, outer)
            last = upper_bound(indices[axis], inner, outer)
            if first is None or last is None or _depends_on_data(first) or _depends_on_data(last):
                low, high = Const(0), end
                break
            low = first if low is None else minimum(low, first)
            high = last if high is None else maximum(high, last)
        if low is None or high is None:
            raise ScheduleError(f"{buffer.name!r} is not accessed there")
        # Reads outside of what is made stand behind a select: what they would need is not there to be computed.
        low = simplifier.extent(maximum(low, Const(0)))
        high = simplifier.extent(minimum(high, end))
        extent = simplifier.extent(high + 1 - low)
        bound = simplifier.greatest(extent) if exact else simplifier.range_of(extent)[1]
        starts.append(low)
        extents.append(extent)
        most.append(max(1, size if bound >= UNBOUNDED else min(bound, size)))
    return TouchedRegion(tuple(starts), tuple(extents), tuple(most))


def _depends_on_data(expr: Expr) -> bool:
    """Whether memory is read to find the value: loops cannot run so often, and buffers cannot start there."""
    return bool(loads(expr))


def _has_extremum(expr: Expr) -> bool:
    return any(isinstance(node, BinOp) and node.op in ("min", "max") for node in walk_exprs(expr))


def _shifted_range(
    accesses: list[tuple[Expr, list[tuple[Var, Expr]]]], outer: list[tuple[Var, Expr]], size: int
) -> tuple[Expr, int] | None:
    """First index and count of what is accessed around a common place that is a minimum, as ``split_shifted`` makes
    it: the place need not be known, since it cancels in the count. None if there is no such place, or if it might be
    outside of the dimension."""
    if not all(_has_extremum(index) for index, _ in accesses):
        return None
    simplifier = simplifier_of(outer)
    simple = [(simplifier.simplify(index), inner) for index, inner in accesses]
    if not all(map(_has_extremum, (index for index, _ in simple))):
        return None
    places: set[Expr] = set()
    lowest: list[int] = []
    highest: list[int] = []
    for index, inner in simple:
        total = linear_form(index)
        own = {var for var, _ in inner}
        place = Linear({atom: factor for atom, factor in total.terms.items() if not free_vars(atom) & own})
        low, high = constant_range(total.add(place, -1).to_expr(), [*outer, *inner])
        places.add(place.to_expr())
        lowest.append(low)
        highest.append(high)
    if len(places) != 1 or max(map(abs, (*lowest, *highest))) >= UNBOUNDED:
        return None
    (common,) = places
    if _depends_on_data(common):
        return None
    if not _has_extremum(common):
        return None
    low, high = min(lowest), max(highest)
    first, last = lower_bound(common + low, outer), upper_bound(common + high, outer)
    inside = isinstance(first, Const) and isinstance(last, Const) and first.value >= 0 and last.value < size
    return (common + low, high + 1 - low) if inside else None


def _retarget_nest(nest: Stmt, leaf: Block, axes: tuple[Var | None, ...], region: TouchedRegion) -> Stmt:
    """The producer's loops run over the region; the store keeps plain indices, counted from the region's start."""
    extents = {axis: extent for axis, extent in zip(axes, region.extent, strict=True) if axis is not None}
    bindings = {axis: axis + start for axis, start in zip(axes, region.start, strict=True) if axis is not None}
    for loop in loops_of(_chain(nest)):
        if free_vars(loop.extent) & set(bindings):
            raise ScheduleError(
                f"compute_at: loop {loop.var.name!r} of block {leaf.name!r} runs {expr_text(loop.extent)} times, "
                "which depends on the loops that are to be changed",
                at=f"block {leaf.name!r}",
                hint="compute_at first, then split",
            )

    def change(node: Stmt) -> Stmt:
        if not isinstance(node, Block):
            return node
        value = map_exprs(
            substitute(node.body.value, bindings),
            lambda expr: (
                Load(expr.buffer, node.body.indices)
                if isinstance(expr, Load) and expr.buffer == node.body.buffer
                else None
            ),
        )
        return replace(node, body=Store(node.body.buffer, node.body.indices, value))

    return map_leaves(_resize(nest, extents), change)


def _resize(nest: Stmt, extents: dict[Var, Expr]) -> Stmt:
    if isinstance(nest, For):
        return replace(nest, extent=extents.get(nest.var, nest.extent), body=_resize(nest.body, extents))
    return nest


def _chain(nest: Stmt) -> list[Stmt]:
    chain = [nest]
    while isinstance(chain[-1], For):
        chain.append(chain[-1].body)
    return chain


def _rebase(stmt: Stmt, old: Buffer, new: Buffer, start: tuple[Expr, ...] | None) -> Stmt:
    """Accesses to ``old`` become accesses to ``new``, with indices counted from ``start`` (None: as they are)."""

    def moved(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        if start is None:
            return indices
        return tuple(index - first for index, first in zip(indices, start, strict=True))

    return map_accesses(stmt, old, new, moved)


def _written_region(
    buffer: Buffer, target: tuple[Stmt, ...], outer: list[tuple[Var, Expr]], free_loops: list[For], block: str
) -> TouchedRegion:
    """What one iteration of the loop writes. ScheduleError unless it is a box that is complete after the iteration."""
    at = f"block {block!r}"
    accesses = []
    simplifier = simplifier_of(outer)
    write_paths = writers(target[-1], buffer)
    for path in write_paths:
        leaf = plain_block(path, "reverse_compute_at")
        accesses.append((leaf.body.indices, ranges_of(path[1:])))
        reducing = [loop.var.name for loop in free_loops if loop.var in leaf.reduce_vars]
        if reducing:
            raise ScheduleError(
                f"reverse_compute_at: loop {reducing[0]!r} is a reduction of block {leaf.name!r}, "
                f"so {buffer.name!r} is not complete inside it",
                at=at,
                hint="choose a loop outside of the reduction",
            )
    region = _touched_region(buffer, tuple(map(Const, buffer.shape)), accesses, outer)
    for path in write_paths:
        leaf = plain_block(path, "reverse_compute_at")
        inner = [
            simplifier.extent(loop.extent)
            for loop in loops_of(path[1:])
            if loop.var not in leaf.reduce_vars and loop.extent != Const(1)
        ]
        if not _same_product(inner, [extent for extent in region.extent if extent != Const(1)]):
            raise ScheduleError(
                f"reverse_compute_at: one iteration does not complete a whole box of {buffer.name!r}",
                at=at,
                hint="choose an outer loop, or do not fuse the loops of the producer",
            )
    return region


def _same_product(first: list[Expr], second: list[Expr]) -> bool:
    left, right = list(first), list(second)
    for factor in first:
        if factor in right:
            left.remove(factor)
            right.remove(factor)
    product = [1, 1]
    for side, factors in enumerate((left, right)):
        for factor in factors:
            if not isinstance(factor, Const):
                return False
            product[side] *= int(factor.value)
    return product[0] == product[1]


def _read_axes(leaf: Block, source: Buffer, region: TouchedRegion, own: set[Var]) -> list[tuple[Var, Expr, Expr]]:
    """For each of the consumer's own loops that indexes ``source``: the loop, and the start and extent of its part."""
    at = f"block {leaf.name!r}"
    reads = {node.indices for node in loads(leaf.body.value) if node.buffer == source}
    if len(reads) != 1:
        raise ScheduleError(f"reverse_compute_at: block {leaf.name!r} reads {source.name!r} at several elements", at=at)
    placed = []
    for index, start, extent in zip(next(iter(reads)), region.start, region.extent, strict=True):
        if isinstance(index, Var) and index in own:
            placed.append((index, start, extent))
        elif index != start or extent != Const(1):
            raise ScheduleError(
                f"reverse_compute_at: block {leaf.name!r} reads {source.name!r} at {expr_text(index)}, "
                "which is not one of its loops",
                at=at,
            )
    stored = set().union(*(free_vars(index) for index in leaf.body.indices))
    for axis, _, _ in placed:
        if axis not in stored:
            raise ScheduleError(f"reverse_compute_at: loop {axis.name!r} does not index the result", at=at)
    return placed


def _shrink(func: PrimFunc, buffer: Buffer, loop: Var, region: TouchedRegion) -> PrimFunc:
    """Allocate ``buffer`` inside ``loop`` if nothing outside needs it; it then holds one region."""
    node = _for(find_loop(func, loop)[-1])
    used = [*readers(func.body, buffer), *writers(func.body, buffer)]
    if find_allocation(func, buffer) is None or any(not any(item is node for item in path) for path in used):
        return func
    if any(isinstance(path[-1], IntrinsicCall) for path in used):
        return func  # the tile of a call was proved with the strides that the buffer has
    local = replace(buffer, shape=region.most)
    body = drop_allocation(func.body, buffer)
    func = replace(func, body=body if body is not None else func.body)
    node = _for(find_loop(func, loop)[-1])
    inner = Allocate(local, _rebase(node.body, buffer, local, region.start))
    return rewrite(func, node, replace(node, body=inner))


def _finish(func: PrimFunc) -> PrimFunc:
    return replace(func, body=simplify_tree(func.body))


def _for(stmt: Stmt) -> For:
    if not isinstance(stmt, For):
        raise ScheduleError("not a loop")
    return stmt


def _name(leaf: Stmt) -> str:
    match leaf:
        case Block(name=name) | IntrinsicCall(block=name):
            return name
    return "?"
