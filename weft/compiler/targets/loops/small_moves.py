"""Small tensors that are moved between operators: the kernel that reads one computes it, through its moves.

Every value is an expression of an index (`View`), so a kernel whose result is made elementwise can read an operand
through a transposition, a concatenation or a slice, and compute there what stands before it. For large tensors that
would be slow: rows would be read across, and choices made for each element. Between two programs of an accelerator the
host moves a few kilobytes, where a kernel more costs more than its work.

Rows of large ones are read through moves that keep parts of rows together: lanes then load what lies together, as the
channels of a block that the accelerator has stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from math import gcd

import numpy as np

from ...graph.dtypes import numpy_dtype
from ...graph.ir import Array, Call, Constant, Expr, GraphError, TensorType
from ...graph.registry import Anchor, Fusion, Role, apply, operator, role_of
from ...operators.index import indices_of
from .fusion_limits import FusionLimits

REPEATED = 4
"""How often an element may be computed, on average: by what repeats it, and by each of its readers."""

COST_TO_REPEAT = 8
"""Arithmetic of a value, at most, that is computed more than once: no root, no exponential."""

SHORTEST_PART = 8
"""Elements of a row that lie together, at least, so that lanes take a part of it at a time."""

MOST_NUMBERS = 1 << 21
"""Elements of a tensor whose moves are looked at one by one."""

Refuses = Callable[[Call], str]


def is_move(node: Call) -> bool:
    """Whether an operator moves data only."""
    return isinstance(node.op, str) and operator(node.op).fusion is Fusion.LAYOUT


def joined_by_moves(
    members: list[Call], uses: Mapping[Expr, int], elsewhere: Collection[Expr], limits: FusionLimits, refuses: Refuses
) -> list[Call]:
    """What else a kernel computes: moves and elementwise values of at most ``limits.moved_bytes`` that nothing but the
    kernel reads, and moves of any size through which it reads parts of rows that lie together.

    ``members``: the kernel so far, its root first; ``elsewhere``: members of other kernels. A kernel with a product, or
    another operator that reads elements more than once, has nothing joined: sums of floats keep the order that they
    have without moves. So do those of a kernel of rows, which moves a row before it reads it (`moved_rows`).
    """
    root = members[0]
    rows = combines_rows(members)
    if not rows and not all(map(_each_element_once, members)):
        return []
    if not _is_small(root, limits):
        return _joined_in_parts(members, uses, elsewhere, limits, refuses)
    joined: list[Call] = []
    times: dict[Expr, int] = {member: member.tensor_type.size for member in members}
    waiting = list(members)
    while waiting:
        node = waiting.pop(0)
        for arg in dict.fromkeys(each for each in node.args if isinstance(each, Call)):
            if arg in times or arg in elsewhere or not _each_element_once(arg):
                continue
            if not is_move(arg) and (rows or not _is_small(arg, limits)):
                continue
            inside = [*members, *joined]
            readers = [member for member in inside if arg in member.args]
            if sum(member.args.count(arg) for member in readers) != uses[arg] or len(inside) >= limits.depth:
                continue
            if any(arg is indices_of(member) for member in readers):  # they are looked at before the kernel runs
                continue
            often, size = sum(times[member] * member.args.count(arg) for member in readers), arg.tensor_type.size
            if rows and not all(map(is_move, readers)):
                often = size  # it is stored
            if often > size and operator(str(arg.op)).cost > COST_TO_REPEAT:
                continue
            if often > REPEATED * size or is_behind_a_start(arg) or refuses(arg):
                continue
            times[arg] = often
            joined.append(arg)
            waiting.append(arg)
    return joined


def moved_rows(members: Collection[Call], joined: Collection[Call]) -> frozenset[Call]:
    """Of what `joined_by_moves` gave a kernel of rows, the moves whose results it stores, row by row: what combines
    rows reads elements again."""
    if not combines_rows(members):
        return frozenset()
    return frozenset(move for move in joined if any(move in member.args for member in members))


def combines_rows(members: Collection[Call]) -> bool:
    """Whether a kernel combines elements along whole rows, and no others: a softmax, or what needs statistics."""
    combining = [member for member in members if not _each_element_once(member)]
    return bool(combining) and all(map(_along_rows, combining))


def _along_rows(node: Call) -> bool:
    return reduces_rows(node) or (role_of(node) is Role.SOFTMAX and node.attr("axis") == len(node.shape) - 1)


def reduces_rows(node: Call) -> bool:
    """Whether each row of an operand becomes one element."""
    entry = operator(node.op) if isinstance(node.op, str) else None
    if entry is None or (entry.fusion, entry.anchor) != (Fusion.REDUCTION, Anchor.REDUCTION):
        return False
    return bool(node.attr("keepdims")) and tuple(node.attr("axes")) == (len(node.shape) - 1,)


def moves_behind_rows(
    root: Call, uses: Mapping[Expr, int], elsewhere: Collection[Expr], refuses: Refuses
) -> tuple[list[Call], Call | None]:
    """Moves one before the other, the last of which is ``root``, and what they move, where parts of its rows stay
    together and nothing else needs it: a kernel of rows may write them to their places itself. None where it may not.
    """
    chain: list[Call] = []
    value: Expr = root
    while isinstance(value, Call) and is_move(value) and not refuses(value):
        if value is not root and (uses[value] > 1 or value in elsewhere):
            break
        chain.append(value)
        value = value.args[0]
    alone = all(isinstance(arg, Constant) for move in chain for arg in move.args[1:])
    if not isinstance(value, Call) or is_move(value) or not alone or len(root.shape) < 2:
        return [], None
    if max(value.tensor_type.size, root.tensor_type.size) > MOST_NUMBERS:
        return [], None
    places = np.arange(_FILLS, _FILLS + value.tensor_type.size, dtype=np.int32).reshape(value.shape)
    try:
        for move in reversed(chain):
            known = [arg.value for arg in move.args[1:] if isinstance(arg, Constant)]
            places = apply(move, [places, *known])
    except (GraphError, ValueError, TypeError, OverflowError):
        return [], None
    together = _part_of_row(places, root.shape[-1]) >= SHORTEST_PART
    return (chain, value) if together else ([], None)


_FILLS = 1024
"""Where the numbers of elements begin: what a move fills in is none of them."""


def _joined_in_parts(
    members: list[Call], uses: Mapping[Expr, int], elsewhere: Collection[Expr], limits: FusionLimits, refuses: Refuses
) -> list[Call]:
    """Moves one before the other, of one operand of a kernel of elementwise operators or before a move."""
    root = members[0]
    if root.tensor_type.size > MOST_NUMBERS or (is_move(root) and len(members) > 1):
        return []
    operands = root.args[:1] if is_move(root) else [arg for member in members for arg in member.args]
    read = [arg for arg in dict.fromkeys(operands) if isinstance(arg, Call) and is_move(arg)]
    # Elements are numbered where a move is read at all: large tensors have millions.
    first = None if not read else _moved(root) if is_move(root) else np.arange(root.tensor_type.size, dtype=np.int32)
    if first is None:
        return []
    value: Expr
    for value in read:
        places = first
        chain: list[Call] = []
        joined: list[Call] = []
        while isinstance(value, Call) and is_move(value) and len(members) + len(chain) < limits.depth:
            inside = sum(node.args.count(value) for node in (*members, *chain))
            alone = value not in elsewhere and uses[value] == inside and not refuses(value)
            moved = _moved(value) if alone and (chain or is_move(root) or value.shape == root.shape) else None
            if moved is None:
                break
            chain.append(value)
            value, places = value.args[0], moved[places]
            renames = np.array_equal(moved, np.arange(moved.size))  # which costs nothing as it is
            if not renames and _part_of_row(places + _FILLS, root.shape[-1]) >= SHORTEST_PART:
                joined = list(chain)
        if joined:
            return joined
    return []


def _moved(move: Call) -> Array | None:
    """Of each element of a move's result, which of the one value that it moves that is; None where it is not known."""
    x, *others = move.args
    if not all(isinstance(each, Constant) for each in others) or x.tensor_type.size > MOST_NUMBERS:
        return None
    known = [each.value for each in others if isinstance(each, Constant)]
    try:
        numbers = np.arange(x.tensor_type.size, dtype=np.int32)
        moved = apply(move, [numbers.reshape(x.shape), *known]).ravel()
    except (GraphError, ValueError, TypeError, OverflowError):
        return None
    return moved if 0 <= moved.min(initial=0) <= moved.max(initial=0) < x.tensor_type.size else None


def _part_of_row(places: Array, row: int) -> int:
    """So many neighbours of a row lie together wherever it is divided by as many, or are filled in."""
    rows = places.reshape(-1, row)
    apart = (np.diff(rows) != 1) & (rows[:, 1:] >= _FILLS) & (rows[:, :-1] >= _FILLS)
    breaks = np.flatnonzero(apart.any(axis=0)) + 1
    return gcd(row, *breaks.tolist())


def _each_element_once(node: Call) -> bool:
    """Whether each element of a result is made of one element of each operand, wherever that is."""
    return isinstance(node.op, str) and operator(node.op).fusion in (Fusion.ELEMENTWISE, Fusion.LAYOUT)


def is_behind_a_start(value: Call) -> bool:
    """Whether elementwise operators alone are between a value and a reduction or the like: their kernel makes it."""
    waiting, seen = [value], {value}
    while waiting:
        node = waiting.pop()
        if starts(node):
            return True
        if _each_element_once(node) and not is_move(node):
            behind = [arg for arg in node.args if isinstance(arg, Call) and arg not in seen]
            seen.update(behind)
            waiting += behind
    return False


def starts(node: Call) -> bool:
    """Whether a kernel can start with this operator."""
    return isinstance(node.op, str) and operator(node.op).fusion in (Fusion.ANCHOR, Fusion.REDUCTION)


def _is_small(node: Call, limits: FusionLimits) -> bool:
    kind = node.type
    if not isinstance(kind, TensorType):
        return False
    return 0 < kind.size * numpy_dtype(kind.dtype).itemsize <= limits.moved_bytes
