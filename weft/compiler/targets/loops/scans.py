"""Loops of kernels: which bodies may be linked as one, and where what they carry from round to round lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...graph.ir import Call, Constant, Expr, Module, TensorType
from ...graph.scan import body_of, place_of, scans_of, without_scans
from ...graph.visit import calls
from ...operators.index import index_sizes, indices_of
from .fusion import FusedGroup, nbytes

OPERAND = -1


@dataclass(frozen=True)
class Moving:
    """A part of a memory that moves from round to round, as a `Place` does. ``memory``: its number among those of the
    loop; `OPERAND` for the operand's own."""

    memory: int
    start: int
    stride: int = 0
    period: int = 0


@dataclass(frozen=True)
class ScanPlan:
    """The memory of a loop.

    ``memories``: bytes of each. ``states``: where each state is before the first round. ``reads``: where the body finds
    each of its operands. ``writes``: the values that the body makes, and where they go: one may go to several places.
    ``results``: where each result of the loop is in the end.
    """

    memories: tuple[int, ...]
    states: tuple[Moving, ...]
    reads: tuple[Moving, ...]
    writes: tuple[tuple[Expr, Moving], ...]
    results: tuple[Moving, ...]


def scan_plan(node: Call) -> ScanPlan:
    """Where everything of a loop lies, so that nothing is copied between rounds.

    A state that is stacked, too, is read from the stack, which is one element longer; any other state has two places,
    which take turns.
    """
    body, steps, backwards = body_of(node), int(node.attr("steps")), node.attr("backwards")
    count, sequences = int(node.attr("states")), int(node.attr("sequences"))
    results = body.results
    memories: list[int] = []
    states: list[Moving] = []
    writes: list[tuple[Expr, Moving]] = []
    ends: list[Moving | None] = [None] * len(results)

    def stack(number: int, more: int) -> tuple[int, int]:
        """The memory of a stacked result, and the bytes from one element to that of the next round."""
        size = nbytes(results[number])
        memories.append((steps + more) * size)
        return len(memories) - 1, -size if backwards[sequences + number - count] else size

    for number, value in enumerate(results[:count]):
        size = nbytes(value)
        twin = next(
            (other for other in range(count, len(results)) if results[other] == value and not ends[other]), None
        )
        if twin is None:
            memories.append(2 * size)
            memory = len(memories) - 1
            states.append(Moving(memory, 0, size, 2))
            writes.append((value, Moving(memory, size, -size, 2)))
            ends[number] = Moving(memory, size * (steps % 2))
            continue
        memory, stride = stack(twin, 1)
        begin = steps * size if stride < 0 else 0
        states.append(Moving(memory, begin, stride))
        writes.append((value, Moving(memory, begin + stride, stride)))
        ends[number] = Moving(memory, begin + stride * steps)
        ends[twin] = Moving(memory, 0 if stride < 0 else size)
    for number in range(count, len(results)):
        if ends[number] is None:
            memory, stride = stack(number, 0)
            writes.append((results[number], Moving(memory, place_of(0, steps, stride < 0) * abs(stride), stride)))
            ends[number] = Moving(memory, 0)
    taken = [
        Moving(OPERAND, place_of(0, steps, back) * nbytes(param), -nbytes(param) if back else nbytes(param))
        for param, back in zip(body.params[count : count + sequences], backwards, strict=False)
    ]
    fixed = [Moving(OPERAND, 0)] * (len(node.args) - count - sequences)
    return ScanPlan(tuple(memories), tuple(states), (*states, *taken, *fixed), tuple(writes), tuple(filter(None, ends)))


def with_loops(module: Module, groups: Callable[[Expr], Sequence[FusedGroup]]) -> Module:
    """The module with all loops unrolled that cannot be linked as one: a body that NumPy has a part in, or whose
    indices only a run knows; and all loops in loops. ``groups``: the kernels of a graph."""

    def flat(node: Call) -> bool:
        body = body_of(node)
        operands = [*(arg.type for arg in node.args), *(result.type for result in body.results)]
        return (
            bool(scans_of(body.body))
            or any(isinstance(kind, TensorType) and not kind.size for kind in operands)
            or any(index_sizes(each) and not isinstance(indices_of(each), Constant) for each in calls(body.body))
            or any(group.reason for group in groups(body.body))
        )

    return module.with_main(without_scans(module.main.body, flat))
