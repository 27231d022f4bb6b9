"""Transposed convolutions and the like whose phases, made as channels, are written where they belong.

Passes leave a convolution, moves that put its channels side by side, and what is elementwise behind them. The moves
become one operator, ``depth_to_space``, and what is elementwise stands before it: so it is the last of the
convolution's kernel, whose tiles are stored as far apart as there are phases.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ...graph.ir import Array, Call, Constant, Expr, Module, Span
from ...graph.registry import Anchor, Fusion, apply, call, operator_of
from ...graph.visit import rewrite
from .layouts import NO_HALO, PREFERRED_BLOCKS, Halo, channel_block, halo_of

DEPTH_TO_SPACE = "depth_to_space"


def with_phases_last(module: Module) -> Module:
    """Moves that are a ``depth_to_space`` as such, behind what is elementwise."""
    body = rewrite(module.main.body, phases_last)
    return module if body is module.main.body else module.with_main(body)


def phases_last(node: Call) -> Expr | None:
    """reshape(transpose(reshape(x)))  ->  depth_to_space(x);  f(depth_to_space(x), c)  ->  depth_to_space(f(x, c))"""
    return _recognised(node) or _part(node) or _elementwise_before(node)


def joins_phases(node: Call) -> bool:
    """Whether a value is phases side by side, of which each has whole blocks of channels."""
    whole = node.op == DEPTH_TO_SPACE and channel_block(node.shape[1]) in PREFERRED_BLOCKS
    return whole and node.dtype in ("float32", "int8")


def written_around(node: Expr) -> Halo:
    """Rows and columns (top, left, bottom, right) that a convolution's tiles write around a value: those of its phases
    that are left out."""
    if not isinstance(node, Call) or not joins_phases(node):
        return NO_HALO
    return halo_of(node.attr("left_out"))


def _part(node: Call) -> Expr | None:
    """slice(depth_to_space(x)) of neighbours in images  ->  depth_to_space(x) without the others"""
    match node:
        case Call(op="slice", args=(Call(op="depth_to_space") as move,)) if set(node.attr("steps")) == {1}:
            if node.shape[:2] != move.shape[:2] or 0 in node.shape:
                return None
            first, sizes = node.attr("starts")[2:], move.shape[2:]
            last = [size - start - kept for size, start, kept in zip(sizes, first, node.shape[2:], strict=True)]
            left_out = tuple(a + b for a, b in zip(move.attr("left_out"), (*first, *last), strict=True))
            factors = move.attr("factors")
            return call(DEPTH_TO_SPACE, move.args[0], factors=factors, left_out=left_out, span=node.span)
    return None


def _recognised(node: Call) -> Expr | None:
    match node:
        case Call(op="reshape", args=(Call(op="transpose", args=(Call(op="reshape", args=(x,)) as split,)) as turned,)):
            pass
        case _:
            return None
    if len(x.shape) != 4 or len(node.shape) != 4 or x.shape[0] != node.shape[0] or 0 in x.shape:
        return None
    (_, many, height, width), (_, channels, rows, columns) = x.shape, node.shape
    if rows % height or columns % width or rows * columns == height * width or many == channels:
        return None
    factors = (rows // height, columns // width)
    if not _made_by_convolution(x) or many != channels * prod(factors):
        return None
    result = call(DEPTH_TO_SPACE, x, factors=factors, span=node.span)
    numbers: Array = np.arange(prod(x.shape), dtype=np.int32).reshape(x.shape)
    moved = numbers
    for step in (split, turned, node):
        moved = apply(call(str(step.op), Constant(moved), span=step.span, **step.attrs), [moved])
    return result if np.array_equal(moved, apply(result, [numbers])) else None


def _made_by_convolution(value: Expr) -> bool:
    """Whether elementwise operators on constants alone stand between a value and a convolution, which is not a product
    of bytes: of a batch of single pixels it is, whose rows are stored one behind the other."""
    while isinstance(value, Call):
        entry = operator_of(value)
        if entry is None:
            return False
        if entry.anchor is Anchor.CONVOLUTION:
            product = value.args[0].dtype == "int8" and value.shape[0] > 1 and prod(value.shape[2:]) == 1
            return bool(value.attr("groups") == 1) and not product
        if entry.fusion is not Fusion.ELEMENTWISE or not all(isinstance(arg, Constant) for arg in value.args[1:]):
            return False
        value = value.args[0]
    return False


def _elementwise_before(node: Call) -> Expr | None:
    entry = operator_of(node)
    if entry is None or entry.fusion is not Fusion.ELEMENTWISE:
        return None
    joined = [arg for arg in node.args if isinstance(arg, Call) and arg.op == DEPTH_TO_SPACE]
    if len(joined) != 1 or joined[0].shape != node.shape:
        return None
    (move,), operands = joined, []
    x, times = move.args[0], prod(move.attr("factors"))
    match node.op:
        case "requantise" | "nn.batch_norm":
            of_channels = True
        case _:
            of_channels = False
    for arg in node.args:
        operand = x if arg is move else _for_each_phase(arg, node.shape, times, of_channels=of_channels)
        if operand is None:
            return None
        operands.append(operand)
    value = call(str(node.op), *operands, span=Span(node.span.nodes), **node.attrs)
    return call(DEPTH_TO_SPACE, value, span=node.span, **move.attrs)


def _for_each_phase(value: Expr, shape: tuple[int, ...], times: int, *, of_channels: bool) -> Expr | None:
    """A constant operand with one number, or one a channel, for the channels of all phases; None for any other."""
    if not isinstance(value, Constant):
        return None
    if value.value.size == 1 and not of_channels:
        return value
    if of_channels:
        return Constant(np.tile(value.value, times), value.name, value.span) if value.shape == shape[1:2] else None
    aligned = (1,) * (len(shape) - len(value.shape)) + value.shape
    if aligned != (1, shape[1], 1, 1):
        return None
    return Constant(np.tile(value.value.reshape(aligned), (1, times, 1, 1)), value.name, value.span)
