"""Primitives on buffers: the memory, the distance of rows, two copies in turn."""

from __future__ import annotations

from dataclasses import replace

from .errors import ScheduleError
from .ir import Alignment, Allocate, Buffer, Const, Expr, IntrinsicCall, PrimFunc
from .tree import drop_allocation, find_allocation, find_buffer, loops_of, paths, rewrite, simplify_tree
from .visitor import map_accesses, name_mark, replace_buffer


def set_scope(func: PrimFunc, buffer_name: str, scope: str) -> PrimFunc:
    """Move an allocated buffer to another memory."""
    buffer = find_buffer(func, buffer_name)
    if find_allocation(func, buffer) is None:
        raise ScheduleError(
            f"set_scope: {buffer_name!r} is a parameter, and its memory is the caller's",
            at=f"buffer {buffer_name!r}",
            hint="use cache_read or cache_write",
        )
    _refuse_calls(func, buffer, "set_scope")
    return replace(func, body=replace_buffer(func.body, buffer, replace(buffer, scope=scope)))


MOST_ALIGNED = 1 << 20
"""Elements; more would be a mistake, and could ask for more memory than there is."""


def storage_align(func: PrimFunc, buffer_name: str, axis: int, factor: int, offset: int) -> PrimFunc:
    """Leave gaps in an allocated buffer, so that neighbours along ``axis`` are ``offset`` elements apart, modulo
    ``factor``. An older alignment of the axis is replaced."""
    buffer, at = find_buffer(func, buffer_name), f"buffer {buffer_name!r}"
    if find_allocation(func, buffer) is None:
        raise ScheduleError(
            f"storage_align: {buffer_name!r} is a parameter, and its layout is the caller's",
            at=at,
            hint="use cache_read or cache_write",
        )
    if not 0 <= axis < buffer.ndim - 1:
        raise ScheduleError(
            f"storage_align: axis is {axis}, but must be in 0..{buffer.ndim - 2}: "
            f"{buffer_name!r} has {buffer.ndim} dimensions, and elements along the last one are neighbours"
            if buffer.ndim > 1
            else f"storage_align: {buffer_name!r} has no rows to be aligned, its shape is {list(buffer.shape)}",
            at=at,
        )
    if not 0 <= offset < factor:
        raise ScheduleError(
            f"storage_align: factor is {factor} and offset {offset}, but 0 <= offset < factor must hold", at=at
        )
    if factor > MOST_ALIGNED:
        raise ScheduleError(f"storage_align: factor is {factor}, but must be at most {MOST_ALIGNED:,}", at=at)
    _refuse_calls(func, buffer, "storage_align")
    kept = [item for item in buffer.alignments if item.axis != axis]
    alignments = sorted([*kept, Alignment(axis, factor, offset)], key=lambda item: item.axis)
    aligned = replace(buffer, alignments=tuple(alignments))
    return replace(func, body=replace_buffer(func.body, buffer, aligned))


def double_buffer(func: PrimFunc, buffer_name: str) -> PrimFunc:
    """Give a buffer two copies, which the iterations of the loop around its allocation use in turn.

    The buffer moves out of that loop, and its new first dimension is ``loop % 2``. So the next iteration may fill one
    copy while this one still reads the other.
    """
    buffer, at = find_buffer(func, buffer_name), f"buffer {buffer_name!r}"
    path = find_allocation(func, buffer)
    if path is None:
        raise ScheduleError(
            f"double_buffer: {buffer_name!r} is a parameter", at=at, hint="cache_read it, and compute_at the copy"
        )
    around = loops_of(path)
    if not around:
        raise ScheduleError(
            f"double_buffer: {buffer_name!r} is not allocated inside a loop whose iterations could take turns",
            at=at,
            hint="compute_at its stage first",
        )
    loop = around[-1]
    if loop.kind not in ("serial", "unroll"):
        raise ScheduleError(
            f"double_buffer: loop {loop.var.name!r} around {buffer_name!r} is marked {loop.kind}, "
            "so each of its iterations has a copy already",
            at=at,
            hint="compute_at a serial loop inside of it",
        )
    if loop.extent == Const(1):
        raise ScheduleError(
            f"double_buffer: loop {loop.var.name!r} around {buffer_name!r} runs once, so there is no next turn", at=at
        )
    _refuse_calls(func, buffer, "double_buffer")
    alignments = tuple(replace(item, axis=item.axis + 1) for item in buffer.alignments)
    doubled = replace(buffer, shape=(2, *buffer.shape), alignments=alignments)

    def take_turns(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (loop.var % 2, *indices)

    body = drop_allocation(loop.body, buffer)
    if body is None:
        raise ScheduleError(f"double_buffer: nothing uses {buffer_name!r}", at=at)
    inner = map_accesses(body, buffer, doubled, take_turns)
    func = rewrite(func, loop, Allocate(doubled, replace(loop, body=inner)))
    return replace(func, body=simplify_tree(func.body))


def _refuse_calls(func: PrimFunc, buffer: Buffer, primitive: str) -> None:
    for *_, node in paths(func.body, name_mark(buffer.name), IntrinsicCall, lambda call: True):
        if isinstance(node, IntrinsicCall) and any(region.buffer == buffer for region in node.operands):
            raise ScheduleError(
                f"{primitive}: block {node.block!r}, which uses {buffer.name!r}, is a call of "
                f"{node.intrinsic.name!r} already",
                at=f"buffer {buffer.name!r}",
                hint=f"{primitive} before tensorize",
            )
