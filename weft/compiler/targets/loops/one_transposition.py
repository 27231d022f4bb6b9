"""Transpositions with reshapes between them as one: a tensor is moved once, not once for each.

Channels of an accelerator that become heads and tokens, or patches, are transposed for each of these. What all of it
does to the tensor's axes, divided as finely as the reshapes need, is one transposition.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from ...graph.ir import Call, Expr
from ...graph.registry import call


def one_transposition(node: Call) -> Expr | None:
    """Two transpositions with reshapes between them  ->  one, between reshapes"""
    if node.op != "transpose":
        return None
    chain: list[Call] = [node]
    value = node.args[0]
    while isinstance(value, Call) and value.op == "reshape":
        chain.append(value)
        value = value.args[0]
    if isinstance(value, Call) and value.op == "transpose":
        chain.append(value)
        value = value.args[0]
    if len(chain) == 1 or chain[-1].op != "transpose" or not node.tensor_type.size:
        return None
    axes = _moved_axes(value.shape, chain[::-1])
    if axes is None:
        return None
    before, order = axes
    moved = call("reshape", value, shape=before, span=node.span)
    turned = call("transpose", moved, perm=order, span=node.span)
    return call("reshape", turned, shape=node.shape, span=node.span)


def _moved_axes(shape: Sequence[int], moves: Sequence[Call]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The sizes of the axes into which a shape is divided for moves, and their order behind these; None where a reshape
    takes parts of axes that do not divide each other."""
    sizes = list(shape)  # by number of an axis, which are those of the shape divided so far
    begin = [[axis] for axis in range(len(shape))]  # the axes of each axis of the shape
    axes = [[axis] for axis in range(len(shape))]  # of each axis of what is moved
    for move in moves:
        if move.op == "transpose":
            axes = [axes[axis] for axis in move.attr("perm")]
            continue
        flat = [axis for group in axes for axis in group if sizes[axis] != 1]
        axes = []
        for wanted in move.shape:
            group: list[int] = []
            while wanted > 1:
                axis = flat.pop(0)
                if wanted % sizes[axis]:
                    if sizes[axis] % wanted:
                        return None
                    sizes.append(sizes[axis] // wanted)
                    sizes[axis], rest = wanted, len(sizes) - 1
                    for divided in begin:
                        if axis in divided:
                            divided.insert(divided.index(axis) + 1, rest)
                    flat.insert(0, rest)
                group.append(axis)
                wanted //= sizes[axis]
            axes.append(group)
    order = [axis for group in axes for axis in group if sizes[axis] != 1]
    return _joined(sizes, begin, order)


def _joined(
    sizes: Sequence[int], begin: Sequence[Sequence[int]], order: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A transposition with as few axes as it can have: those of one axis that stay neighbours are one."""
    behind = {axis: rest for group in begin for axis, rest in pairwise(group)}
    groups: list[list[int]] = []
    for axis in order:
        if groups and behind.get(groups[-1][-1]) == axis:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    place = {axis: number for number, axis in enumerate(axis for group in begin for axis in group)}
    ordered = sorted(groups, key=lambda group: place[group[0]])
    return tuple(prod(sizes[axis] for axis in group) for group in ordered), tuple(map(ordered.index, groups))
