"""What a kernel reads through moves: the operands of transposes, slices, pads and the like, where they lie.

A move that only one kernel needs is a change of that kernel's indices, and what is elementwise before the move is
computed where it is read. So a chain of moves is one kernel, also with the change of numbers at either end of it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import numpy as np

from ...graph.ir import Array, Call, Constant, Expr, GraphError
from ...graph.registry import Fusion, apply, operator
from .fusion_limits import FusionLimits
from .small_moves import Refuses, is_behind_a_start, is_move

MOST_JOINED = 8
"""Operands of a concatenation that a kernel reads, at most: its code asks at each element which one that is."""

COST_OF_READING = 4
"""Arithmetic of a value, at most, that a kernel computes at each of several readings: reductions of a row read it
again."""

MOST_NUMBERS = 1 << 21
"""Elements of a move that is looked at one by one."""

_FIRST = 1024
"""Where the numbers of elements begin: what a move fills in is none of them, as a rule."""


def through_moves(
    members: Sequence[Call], uses: Mapping[Expr, int], elsewhere: Container[Expr], limits: FusionLimits,
    refuses: Refuses,
) -> list[Call]:  # fmt: skip
    """Moves before the members of a kernel, and what is elementwise before these, that nothing else needs. Reshapes of
    what is in memory are left out, as they cost nothing. Arguments as of `joined_by_moves`."""
    root, room = members[0], limits.depth - len(members)
    kinds = {operator(str(member.op)).fusion for member in members}
    if not limits.through_moves or not kinds <= {Fusion.ELEMENTWISE, Fusion.LAYOUT, Fusion.REDUCTION}:
        return []
    again = any(map(_reads_again, members))
    inside: dict[Call, None] = dict.fromkeys(members)
    moved: set[Expr] = {root} if _is_move(root) else set()
    found: dict[Call, None] = {}
    waiting = list(members)
    while waiting and len(found) < room:
        reader = waiting.pop()
        for arg in reader.args:
            if not isinstance(arg, Call) or arg in inside or arg in elsewhere or not isinstance(arg.op, str):
                continue
            count = sum(member.args.count(arg) for member in inside)
            joins = (_is_move(arg) and (not again or _keeps_rows(arg))) or (
                operator(arg.op).fusion is Fusion.ELEMENTWISE and count == 1 and not is_behind_a_start(arg)
                and (_reads_again(reader) or (reader in moved and _reads_once(reader, arg)))
                and not (again and operator(arg.op).cost > COST_OF_READING)
            )  # fmt: skip
            if count != uses[arg] or not joins or refuses(arg):
                continue
            inside[arg] = found[arg] = None
            moved.add(arg)
            waiting.append(arg)
    while True:
        first = [
            node for node in found
            if _is_move(node) and not any(arg in found for arg in node.args) and _keeps_order(node)
        ]  # fmt: skip
        if not first:
            return list(found)
        for node in first:
            del found[node]


def _is_move(node: Call) -> bool:
    """Whether the elements of a result are those of computed operands at places that are known."""
    if not is_move(node) or not operator(str(node.op)).folds:
        return False
    computed = [arg for arg in node.args if not isinstance(arg, Constant)]
    return len(computed) == 1 or (operator(str(node.op)).operands.endswith("*") and len(computed) <= MOST_JOINED)


def _moved(move: Call) -> Array | None:
    """Of each element of the result, the number of the operands' element that it is, from `_FIRST` on; None where the
    move has no meaning on numbers, or too many."""
    if move.tensor_type.size > MOST_NUMBERS:
        return None
    operands, first = [], _FIRST
    for arg in move.args:
        if isinstance(arg, Constant):
            operands.append(arg.value)
        else:
            operands.append(np.arange(first, first + arg.tensor_type.size).reshape(arg.shape))
            first += arg.tensor_type.size
    try:
        return apply(move, operands) if first < _FIRST + 2 * MOST_NUMBERS else None
    except (GraphError, ValueError, TypeError, OverflowError):
        return None


def _keeps_order(move: Call) -> bool:
    """Whether a move only gives another shape, which costs nothing."""
    moved = _moved(move)
    return moved is not None and moved.size == move.args[0].tensor_type.size and _are_neighbours(moved.reshape(-1))


def _keeps_rows(move: Call) -> bool:
    """Whether neighbours of the result's last axis are neighbours before a move: reductions read these by lanes."""
    moved = _moved(move)
    return moved is not None and bool(moved.shape) and _are_neighbours(moved)


def _are_neighbours(numbers: Array) -> bool:
    return bool((np.diff(numbers, axis=-1) == 1).all())


def _reads_again(node: Call) -> bool:
    return operator(str(node.op)).fusion is Fusion.REDUCTION


def _reads_once(reader: Call, value: Call) -> bool:
    """Whether each element of an operand is in the result once at most."""
    if reader.tensor_type.size <= value.tensor_type.size:
        return True
    moved = _moved(reader) if _is_move(reader) else None
    if moved is None:
        return False
    elements = moved[moved >= _FIRST]
    return bool(np.unique(elements).size == elements.size)
