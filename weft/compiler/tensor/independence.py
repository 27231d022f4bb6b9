"""Whether the iterations of a loop may run at once: none writes what another one reads or writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .errors import ScheduleError
from .ir import Allocate, Block, Buffer, Expr, For, IntrinsicCall, Load, Stmt, Store, Var, row_major_strides
from .linear import Linear, linear_form
from .simplify import simplifier_of
from .tree import leaves, ranges_of, reduction_vars
from .visitor import free_vars, statements, stores_of, walk_exprs


@dataclass(frozen=True)
class _Access:
    """A read or write below the loop. A call's tile reaches ``span`` elements beyond its first one."""

    indices: tuple[Expr, ...]
    inner: tuple[tuple[Var, Expr], ...]
    span: int | None


def check_independent(path: tuple[Stmt, ...], kind: str) -> None:
    """Refuse to mark the loop at the end of ``path`` as ``kind`` unless its iterations are independent.

    What is allocated inside the loop belongs to one iteration. Of every other buffer that the loop writes, some
    dimensions together must tell the iterations apart.
    """
    node = path[-1]
    if not isinstance(node, For):
        raise ScheduleError(f"{kind}: not a loop")
    loop, at = node.var, f"loop {node.var.name!r}"
    reducing = reduction_vars(node).get(loop)
    if reducing is not None:
        raise ScheduleError(
            f"{kind}: loop {loop.name!r} is a reduction of block {reducing!r}, so its iterations meet",
            at=at,
            hint="mark a loop over the block's output instead",
        )
    local = {below.buffer for below in statements(node) if isinstance(below, Allocate)}
    for buffer in dict.fromkeys(buffer for buffer, _ in stores_of(node)):
        if buffer in local:
            continue
        accesses = list(_accesses(node, buffer))
        if any(not any(loop in free_vars(index) for index in access.indices) for access in accesses):
            raise ScheduleError(
                f"{kind}: all iterations of loop {loop.name!r} use the same elements of {buffer.name!r}", at=at
            )
        if not _tells_apart(buffer, accesses, loop, ranges_of(path)):
            raise ScheduleError(
                f"{kind}: iterations of loop {loop.name!r} may meet in elements of {buffer.name!r}",
                at=at,
                hint=f"allocate {buffer.name!r} inside the loop (compute_at), or mark loops before they are fused, "
                "double-buffered and tensorized",
            )


def are_apart(node: For, outer: list[tuple[Var, Expr]], scope: str) -> bool:
    """Whether no iteration of a loop writes what another one reads or writes, in buffers of a scope. ``outer``: the
    loops around it. What is allocated inside is taken to be in one place for all iterations."""
    written = dict.fromkeys(buffer for buffer, _ in stores_of(node) if buffer.scope == scope)
    local = {below.buffer for below in statements(node) if isinstance(below, Allocate)}
    ranges = [*outer, (node.var, node.extent)]
    return not local & set(written) and all(
        _tells_apart(buffer, list(_accesses(node, buffer)), node.var, ranges) for buffer in written
    )


def _accesses(node: For, buffer: Buffer) -> Iterator[_Access]:
    for path in leaves(node):
        inner = tuple(ranges_of(path[1:]))
        match path[-1]:
            case Block(body=store) | (Store() as store):
                if store.buffer == buffer:
                    yield _Access(store.indices, inner, None)
                for expr in (*store.indices, store.value):
                    for read in walk_exprs(expr):
                        if isinstance(read, Load) and read.buffer == buffer:
                            yield _Access(read.indices, inner, None)
            case IntrinsicCall(operands=operands):
                for region in operands:
                    if region.buffer == buffer:
                        reach = ((size - 1) * stride for size, stride in zip(region.shape, region.strides, strict=True))
                        yield _Access(region.indices, inner, sum(reach))


def _tells_apart(buffer: Buffer, accesses: list[_Access], loop: Var, outer: list[tuple[Var, Expr]]) -> bool:
    """Whether in some neighbouring dimensions, seen as one, the loop takes steps that nothing else reaches over."""
    calls = any(access.span is not None for access in accesses)
    for first in range(buffer.ndim):
        for last in range(buffer.ndim, first, -1):
            if calls and (first, last) != (0, buffer.ndim):
                continue  # a tile may cross dimensions: only the position in the whole buffer says where it is
            strides = buffer.strides if calls else row_major_strides(buffer.shape[first:last])
            if _stride_tells_apart(accesses, loop, outer, slice(first, last), strides):
                return True
    return False


def _stride_tells_apart(
    accesses: list[_Access], loop: Var, outer: list[tuple[Var, Expr]], axes: slice, strides: tuple[int, ...]
) -> bool:
    common: tuple[int, Linear] | None = None
    lowest: list[int] = []
    highest: list[int] = []
    for access in accesses:
        simplifier = simplifier_of([*outer, *access.inner])
        total = Linear()
        for index, stride in zip(access.indices[axes], strides, strict=True):
            total = total.add(linear_form(simplifier.simplify(index)), stride)
        total = linear_form(simplifier.simplify(total.to_expr()))
        within = {var for var, _ in access.inner}
        step, fixed, moving = total.terms.get(loop, 0), Linear(), Linear(constant=total.constant)
        for atom, coefficient in total.terms.items():
            if atom == loop:
                continue
            used = free_vars(atom)
            if loop in used:
                return False
            (moving if used & within else fixed).terms[atom] = coefficient
        if common is None:
            common = (step, fixed)
        if not step or common != (step, fixed):
            return False
        low, high = simplifier.range_of(moving.to_expr())
        lowest.append(low)
        highest.append(high + (access.span or 0))
    return common is not None and max(highest) - min(lowest) < abs(common[0])
