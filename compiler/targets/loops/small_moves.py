"""Small tensors that are moved between operators: the kernel that reads one computes it, through its moves.

Every value is an expression of an index (`View`), so a kernel whose result is made elementwise can read an operand
through a transposition, a concatenation or a slice, and compute there what stands before it. For large tensors that
would be slow: rows would be read across, and choices made for each element. Between two programs of an accelerator the
host moves a few kilobytes, where a kernel more costs more than its work.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ...graph.dtypes import numpy_dtype
from ...graph.ir import Call, Expr, TensorType
from ...graph.registry import Fusion, operator
from ...operators.index import indices_of
from .fusion_limits import FusionLimits

REPEATED = 4
"""How often an element may be computed, on average: by what repeats it, and by each of its readers."""

COST_TO_REPEAT = 8
"""Arithmetic of a value, at most, that is computed more than once: no root, no exponential."""

Refuses = Callable[[Call], str]


def is_move(node: Call) -> bool:
    """Whether an operator moves data only."""
    return isinstance(node.op, str) and operator(node.op).fusion is Fusion.LAYOUT


def joined_by_moves(
    members: list[Call], uses: Mapping[Expr, int], elsewhere: Collection[Expr], limits: FusionLimits, refuses: Refuses
) -> list[Call]:
    """What else a kernel computes: moves and elementwise values of at most ``limits.moved_bytes`` that nothing but the
    kernel reads.

    ``members``: the kernel so far, its root first; ``elsewhere``: members of other kernels. A kernel with a product, or
    another operator that reads elements more than once, has nothing joined: sums of floats keep the order that they
    have without moves.
    """
    root = members[0]
    if not _is_small(root, limits) or not all(map(_each_element_once, members)):
        return []
    joined: list[Call] = []
    times: dict[Expr, int] = {member: member.tensor_type.size for member in members}
    waiting = list(members)
    while waiting:
        node = waiting.pop(0)
        for arg in dict.fromkeys(each for each in node.args if isinstance(each, Call)):
            if arg in times or arg in elsewhere or not _each_element_once(arg) or not _is_small(arg, limits):
                continue
            inside = [*members, *joined]
            readers = [member for member in inside if arg in member.args]
            if sum(member.args.count(arg) for member in readers) != uses[arg] or len(inside) >= limits.depth:
                continue
            if any(arg is indices_of(member) for member in readers):  # they are looked at before the kernel runs
                continue
            often, size = sum(times[member] * member.args.count(arg) for member in readers), arg.tensor_type.size
            if often > size and operator(str(arg.op)).cost > COST_TO_REPEAT:
                continue
            if often > REPEATED * size or is_behind_a_start(arg) or refuses(arg):
                continue
            times[arg] = often
            joined.append(arg)
            waiting.append(arg)
    return joined


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
