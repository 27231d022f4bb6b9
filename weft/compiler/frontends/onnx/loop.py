"""Loops of a known number of steps, as one operator where there are enough of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...graph import Expr, TensorType, Tuple, Var
from ...graph.scan import closed, scan, without_scans
from .node import Node

LEAST_STEPS = 4
"""Of a loop that stays one. Fewer are copied: passes then see through them."""

Body = Callable[[tuple[Expr, ...], tuple[Expr, ...]], tuple[tuple[Expr, ...], tuple[Expr, ...]]]
"""From the states and an element of each sequence to the next states, and what is stacked."""


def looped(
    node: Node, body: Body, states: Sequence[Expr], sequences: Sequence[Expr], backwards: Sequence[bool],
    steps: int | None = None,
) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:  # fmt: skip
    """The last states and the stacked results of a loop over the first axis of ``sequences``.

    ``backwards``: for each sequence, then for each stacked result. ``steps``: for a loop without sequences.
    """
    count = sequences[0].shape[0] if steps is None else steps
    node.scope.reading.nodes += 1
    name = f"{node.name}:{node.scope.reading.nodes}"  # of variables that no other loop has, also not one around this
    given = [Var(f"{name}:state{number}", value.tensor_type) for number, value in enumerate(states)]
    taken = [
        Var(f"{name}:item{number}", TensorType(value.shape[1:], value.dtype)) for number, value in enumerate(sequences)
    ]
    after, stacked = body(tuple(given), tuple(taken))
    function, outer = closed((*given, *taken), (*after, *stacked))
    results = scan(function, states, sequences, outer, steps=count, backwards=backwards, span=node.span)
    if count < LEAST_STEPS:
        whole = without_scans(Tuple(results))
        assert isinstance(whole, Tuple)
        results = whole.fields
    return results[: len(states)], results[len(states) :]
