"""Moves between layers as one list of entries: windows, rolls, transposes, slices, pads, concatenations, in any order.

A chain of moves is composed by what it does with the numbers of its operands' elements. Where each entry of what the
core reads then holds one entry of what it, or the host, has, or one number, the core moves entries; otherwise the host
moves elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from .....hw.config import CoreConfig
from ....graph import Array, Attrs, Call, Constant, Expr, Function, GraphError, Var, call, operator_of
from ....graph.registry import Family, Fusion, apply
from ..operators import packed_layout
from ..operators.moves import entry_of_fill, is_renaming, move_call
from ..operators.packed_layout import Blocks
from ..walk.emit_move import instructions_of

LARGEST = 1 << 22
"""Elements of a tensor whose moves are composed."""

ENTRIES_AN_INSTRUCTION = 2
"""That a move of the core brings to their places on average, at least: with fewer, the host is as fast."""

_FILLS = 1024
"""Where the numbers of elements begin: what a move fills in is none of them, nor is what pads channels, which is 0."""

Form = Callable[[Expr], Expr | None]


def moved_on_core(node: Expr, blocks: Blocks, known: Form, rows: Form, core: CoreConfig) -> Call | None:
    """The packed form of a value as a move of the core; None where the core does not move it.

    ``known``: the packed form that a value has; None where it has none. ``rows``: of a value of the host, what has its
    bytes in their order as a packed tensor; None where there is no such thing.
    """
    if blocks.block_in != blocks.block_out:
        return None
    moves, roots = _chain(node, known)
    sizes = [value.tensor_type.size for value in (node, *moves, *roots)]
    if not moves or not roots or max(sizes) > LARGEST or min(sizes) == 0:
        return None
    values: dict[Expr, Array] = {}
    operands: list[Expr] = []
    first = _FILLS
    for root in roots:
        form = known(root)
        operand = form if form is not None else rows(root)
        if operand is None:
            return None
        numbers = np.arange(first, first + operand.tensor_type.size)
        values[root] = (
            numbers.reshape(root.shape) if form is None
            else packed_layout.unpack(numbers.reshape(operand.shape), root.shape)
        )  # fmt: skip
        operands.append(operand)
        first += operand.tensor_type.size
    for value, inner in moves.items():
        moved = _moved(value, inner, values)
        if moved is None:
            return None
        values[value] = moved
    entries = _entries(packed_layout.pack_activation(values[node] + _FILLS, blocks), blocks)
    if entries is None or instructions_of(entries, core) * ENTRIES_AN_INSTRUCTION > len(entries) + _SMALL:
        return None
    if is_renaming(entries, [each.shape for each in operands]) and known(roots[0]) is None:
        return None  # the host has it as the core reads it
    name = f"{node.span.node or 'move'}.moved"
    params = tuple(Var(f"x{number}", operand.tensor_type) for number, operand in enumerate(operands))
    body = move_call(name, entries, params, blocks, blocks.activation_shape(node.shape))
    attrs = Attrs({"name": name, "primitive": True, "anchor": "move", "shape": node.shape, "macs": 0})
    return call(Function(params, body, attrs), *operands, span=node.span)


_SMALL = 64


def _chain(node: Expr, known: Form) -> tuple[dict[Expr, Call], list[Expr]]:
    """The moves that make a value, in their order, as calls of operators, and what they are made of."""
    moves: dict[Expr, Call] = {}
    roots: dict[Expr, None] = {}
    done: set[Expr] = set()

    def visit(value: Expr) -> None:
        if value in done or isinstance(value, Constant):
            return
        done.add(value)
        inner = _move(value) if known(value) is None else None
        if inner is None or not isinstance(value, Call):
            roots[value] = None
            return
        for operand in value.args:
            visit(operand)
        moves[value] = inner

    visit(node)
    return moves, list(roots)


def _move(node: Expr) -> Call | None:
    """The call of an operator that a move of int8 elements is, in ``main`` or on the host."""
    if not isinstance(node, Call) or node.dtype != "int8":
        return None
    inner = node.op.body if isinstance(node.op, Function) and node.op.host_reason else node
    entry = operator_of(inner)
    if not isinstance(inner, Call) or entry is None or entry.family not in (Family.MOVE, Family.INDEX):
        return None
    if entry.fusion is not Fusion.LAYOUT or any(isinstance(arg, Call) for arg in inner.args if inner is not node):
        return None
    data = [arg for arg in inner.args if not isinstance(arg, Constant)]
    return inner if data and all(arg.dtype == "int8" for arg in data) else None


def _moved(node: Expr, inner: Call, values: Mapping[Expr, Array]) -> Array | None:
    """What a move makes of the numbers of its operands' elements; None where it has no meaning on them."""
    if not isinstance(node, Call):
        return None
    outer = dict(zip(node.op.params, node.args, strict=True)) if isinstance(node.op, Function) else {}
    operands = []
    for arg in inner.args:
        place = outer.get(arg, arg) if isinstance(arg, Var) else arg
        if isinstance(place, Constant):
            value = place.value
            operands.append(value.astype(np.int64) if value.dtype == np.int8 else value)
        else:
            operands.append(values[place])
    try:
        return apply(inner, operands)
    except (GraphError, ValueError, TypeError, IndexError, OverflowError):
        return None


def _entries(numbers: Array, blocks: Blocks) -> Array | None:
    """Of a packed tensor of numbers, increased by `_FILLS`, the entries of a move; None where it is none."""
    lanes = blocks.batch * blocks.sub_block
    numbers = numbers.reshape(-1, lanes)
    wanted = numbers != 0
    moved = numbers >= 2 * _FILLS
    source, lane = np.divmod(numbers - 2 * _FILLS, lanes)
    if (moved & (lane != np.arange(lanes))).any():
        return None
    number = np.where(moved, source, entry_of_fill(numbers - _FILLS))
    most = np.where(wanted, number, np.iinfo(np.int64).min).max(1)
    least = np.where(wanted, number, np.iinfo(np.int64).max).min(1)
    nothing = ~wanted.any(1)
    if ((most != least) & ~nothing).any():
        return None
    entries: Array = np.where(nothing, entry_of_fill(0), most)
    return entries
