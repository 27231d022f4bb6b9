"""Rows of any length as rows of whole warps: the last lanes add nothing, so that all lanes do the same."""

from __future__ import annotations

from dataclasses import replace

from ... import tensor as te
from ...tensor.evaluate import identity
from ...tensor.ir import Allocate, BinOp, Block, Buffer, Const, For, If, Load, PrimFunc, Select, Stmt, Var
from ...tensor.tree import find_block, find_buffer, find_loop, rewrite
from ...tensor.visitor import accumulation, map_accesses
from ..loops.nests import extent_of, split_loops

MOST_LONGER = 1.5
"""Rows that become longer than that many times their length are rather not cut into warps."""


def longer(extent: int, lanes: int) -> int:
    """A row's length in whole warps; as it is, where it would become much longer."""
    length = -(-extent // lanes) * lanes
    return length if length <= MOST_LONGER * extent else extent


def in_whole_warps(schedule: te.Schedule, reductions: list[str], rows: int, lanes: int) -> None:
    """Make the rows that are reduced, and the stages that hold rows, a multiple of ``lanes`` long. What is added to a
    sum is nothing, and what is added to a stage is not read."""
    *stages, output = schedule.blocks()
    for name in stages:
        if name in reductions:
            (*_, loop), _ = split_loops(schedule, name)
        elif own := schedule.get_loops(name):
            loop = own[-1]
        else:
            continue
        extent = extent_of(schedule, loop)
        length = longer(extent, lanes)
        if length == extent:
            continue
        if name in reductions:
            schedule.func = _longer_reduction(schedule.func, name, loop, extent, length)
        else:
            schedule.func = _longer_stage(schedule.func, name, loop, extent, length)
    if len(loops := schedule.get_loops(output)) > rows:
        extent = extent_of(schedule, loops[-1])
        schedule.func = _longer_output(schedule.func, output, loops[-1], extent, longer(extent, lanes))


def _longer_reduction(func: PrimFunc, name: str, loop: Var, extent: int, length: int) -> PrimFunc:
    leaf = find_block(func, name)[-1]
    update = accumulation(leaf.body) if isinstance(leaf, Block) else None
    neutral = None if update is None else identity(update[0], find_buffer(func, name).dtype)
    if update is None or neutral is None or not isinstance(leaf, Block):
        return func
    store, (op, value) = leaf.body, update
    value = BinOp(op, Load(store.buffer, store.indices), Select(loop < extent, value, neutral))
    func = rewrite(func, leaf, replace(leaf, body=replace(store, value=value)))
    return _longer_loop(func, loop, length)


def _longer_stage(func: PrimFunc, name: str, loop: Var, extent: int, length: int) -> PrimFunc:
    leaf = find_block(func, name)[-1]
    if not isinstance(leaf, Block) or leaf.kind != "spatial" or leaf.body.indices[-1:] != (loop,):
        return func
    old, store = leaf.body.buffer, leaf.body
    if old.shape[-1] != extent:
        return func
    value = Select(loop < extent, store.value, Const(0, old.dtype))
    func = _longer_loop(rewrite(func, leaf, replace(leaf, body=replace(store, value=value))), loop, length)
    new = replace(old, shape=(*old.shape[:-1], length))
    return PrimFunc(func.name, func.params, _with_buffer(map_accesses(func.body, old, new, tuple), old, new))


def _longer_output(func: PrimFunc, name: str, loop: Var, extent: int, length: int) -> PrimFunc:
    leaf = find_block(func, name)[-1]
    return _longer_loop(rewrite(func, leaf, If(loop < extent, leaf)), loop, length)


def _longer_loop(func: PrimFunc, loop: Var, length: int) -> PrimFunc:
    node = find_loop(func, loop)[-1]
    assert isinstance(node, For)
    return rewrite(func, node, replace(node, extent=Const(length)))


def _with_buffer(stmt: Stmt, old: Buffer, new: Buffer) -> Stmt:
    """The tree with ``new`` in the place of ``old`` where that is allocated."""
    if isinstance(stmt, Allocate) and stmt.buffer == old:
        return Allocate(new, stmt.body)
    if isinstance(stmt, Allocate):
        return Allocate(stmt.buffer, _with_buffer(stmt.body, old, new))
    return stmt
