"""Changes between the layouts of the core and of the host as moves that every target knows: pads, slices, reshapes and
transposes. So they meet the host's own moves, cancel with them, or are views of the same memory that cost nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from ....graph.host import host_call
from ....graph.ir import Call, Constant, Expr, Function
from ....graph.registry import call
from ....graph.visit import rewrite, substitute
from .packed_layout import Blocks, blocks_of, spatial

Make = Callable[..., Expr]
"""A call of an operator by its name, operands and attributes."""


def layouts_as_moves(body: Expr) -> Expr:
    """Each host function that packs or unpacks a tensor as host functions of one move each, for the same reason."""
    return rewrite(body, _as_moves)


def _as_moves(node: Call) -> Expr | None:
    inner = node.op.body if isinstance(node.op, Function) and node.op.host_reason else None
    if not isinstance(inner, Call) or len(inner.args) != 1:
        return None
    function, x = node.op, inner.args[0]
    if not isinstance(function, Function) or isinstance(x, Constant | Call):
        return None
    x = substitute(x, dict(zip(function.params, node.args, strict=True)))

    def make(op: str, operand: Expr, **attrs: object) -> Expr:
        return host_call(op, (operand,), attrs, function.host_reason, node.span)

    if inner.op == "pack":
        return packed_by_moves(x, blocks_of(inner.attr("blocks")), make)
    if inner.op == "unpack":
        return unpacked_by_moves(x, inner.shape, blocks_of(inner.attr("blocks")), make)
    return None


def plain_call(op: str, operand: Expr, **attrs: Any) -> Expr:
    """A call outside of functions."""
    return call(op, operand, **attrs)


def packed_by_moves(x: Expr, blocks: Blocks, make: Make = plain_call) -> Expr:
    """(N, C, H, W) or (N, C) -> (No, Cd, H, W, r, n, bs), what pads it 0, as ``pack`` does."""
    batch, channels, height, width = spatial(x.shape)
    outer, groups, *_, rows, lanes, sub_block = shape = blocks.activation_shape(x.shape)
    missing = outer * lanes - batch, groups * blocks.dram_block - channels
    if any(missing):
        x = _reshaped(x, (batch, channels, height * width), make)
        x = make("pad", x, pads=(0, 0, 0, *missing, 0), value=0)
    sizes = (outer, lanes, groups, rows, sub_block, height, width)
    return _reshaped(_transposed(x, sizes, (0, 2, 5, 6, 3, 1, 4), make), shape, make)


def unpacked_by_moves(x: Expr, shape: Sequence[int], blocks: Blocks, make: Make = plain_call) -> Expr:
    """(No, Cd, H, W, r, n, bs) -> ``shape``, (N, C, H, W) or (N, C), without what pads it, as ``unpack`` does."""
    batch, channels, height, width = spatial(shape)
    whole = x.shape[0] * blocks.batch, x.shape[1] * blocks.dram_block
    x = _transposed(x, x.shape, (0, 5, 1, 4, 6, 2, 3), make)
    if whole != (batch, channels):
        sizes = (batch, channels, height * width)
        x = make("slice", _reshaped(x, (*whole, height * width), make), starts=(0,) * 3, sizes=sizes, steps=(1,) * 3)
    return _reshaped(x, tuple(shape), make)


def _reshaped(x: Expr, shape: tuple[int, ...], make: Make) -> Expr:
    return x if x.shape == shape else make("reshape", x, shape=shape)


def _transposed(x: Expr, sizes: Sequence[int], perm: Sequence[int], make: Make) -> Expr:
    """``x``, seen as axes of these sizes, with its axes in another order, of which axes of one element are left out and
    neighbours that stay neighbours are one."""
    runs: list[list[int]] = []
    for axis in (axis for axis in perm if sizes[axis] != 1):
        joins = runs and all(sizes[between] == 1 for between in range(runs[-1][-1] + 1, axis))
        if joins and runs[-1][-1] < axis:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    before = sorted(runs)
    if runs == before:
        return x
    x = _reshaped(x, tuple(prod(sizes[axis] for axis in run) for run in before), make)
    return make("transpose", x, perm=tuple(before.index(run) for run in runs))
