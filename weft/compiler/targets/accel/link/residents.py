"""States of sessions that may stay in the core's memory: what puts them together is a phase of its own.

A decoder's keys are an input, and what a run adds to them stands behind: a concatenation, which the host gives the
core's layout. Each element of it has one byte there, so a run that follows another has to write the new rows only.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ....graph.ir import Array, Call, Expr, Function, Module, Var
from ....graph.registry import EightBits, Fusion, operator
from ....graph.visit import calls, use_counts
from .phases import Phase, StateInPlace

LARGEST = 1 << 26
"""Bytes of a state whose places are followed: they are numbers of 64 bits meanwhile."""


def with_states_apart(phases: Sequence[Phase], module: Module) -> list[Phase]:
    """The phases, with one more behind each on the host for every state that it puts together for the core."""
    uses = use_counts(module.main.body)
    on_core = {arg for phase in phases if phase.on_core for node in phase.calls for arg in node.args}
    results = set(module.main.results)
    apart: list[Phase] = []
    for phase in phases:
        apart.append(phase)
        if phase.on_core:
            continue
        for value in [node for node in phase.calls if node in on_core and node not in results]:
            moves = _moves_of_a_state(value, uses)
            found = _in_place(moves) if moves and set(moves) <= set(phase.calls) else None
            if found is not None:
                phase.calls = [node for node in phase.calls if node not in moves]
                apart.append(Phase(False, moves, found, phase.stage))
    return [phase for phase in apart if phase.calls]


def _inner(node: Expr) -> Call | None:
    """The one operator of a function of the host."""
    if not isinstance(node, Call) or not isinstance(node.op, Function) or not node.op.host_reason:
        return None
    body = node.op.body
    return body if isinstance(body, Call) and len(calls(body)) == 1 and len(body.args) == len(node.args) else None


def _moves_of_a_state(value: Call, uses: dict[Expr, int]) -> list[Call]:
    """The moves that make a value of an input and new rows, a concatenation of these first; none where there is more
    to it, or something else reads what is between."""
    moves: list[Call] = []
    node: Expr = value
    while isinstance(node, Call) and (inner := _inner(node)) is not None and (node is value or uses[node] == 1):
        moves.insert(0, node)
        entry = operator(str(inner.op))
        if entry.eight_bits is EightBits.JOINS:
            state, *rest = node.args
            return moves if isinstance(state, Var) and len(rest) == 1 and state is not rest[0] else []
        if entry.fusion is not Fusion.LAYOUT or inner.attrs.get("value", 0):
            return []
        node = node.args[0]
    return []


def _in_place(moves: list[Call]) -> StateInPlace | None:
    """Where the elements of a concatenation lie; None where their axes do not add up to a byte."""
    joined, *rest = moves
    (state, rows), inner = joined.args, _inner(joined)
    if inner is None or not isinstance(state, Var) or state.dtype != "int8" or not 0 < prod(joined.shape) <= LARGEST:
        return None
    numbers = np.arange(1, prod(joined.shape) + 1).reshape(joined.shape)
    for move in rest:
        numbers = _moved(move, numbers)
    flat = numbers.reshape(-1)
    there = np.flatnonzero(flat)
    if len(there) != prod(joined.shape):
        return None
    places = np.zeros(joined.shape, np.int64)
    places.reshape(-1)[flat[there] - 1] = there
    tables = _by_axis(places)
    return None if tables is None else StateInPlace(state, rows, int(inner.attr("axis")), tables)


def _moved(move: Call, numbers: Array) -> Array:
    inner = _inner(move)
    assert inner is not None
    assert isinstance(inner.op, str)
    return np.asarray(operator(inner.op).numpy(numbers, **inner.attrs))


def _by_axis(places: Array) -> tuple[tuple[int, ...], ...] | None:
    """Numbers for the indices of each axis whose sums are ``places``; None where there are no such."""
    start, total, tables = int(places.reshape(-1)[0]), np.zeros((), np.int64), []
    for axis in range(places.ndim):
        along = places[tuple(slice(None) if each == axis else 0 for each in range(places.ndim))]
        own = along - (start if axis else 0)
        tables.append(tuple(int(each) for each in own))
        total = total + own.reshape([-1 if each == axis else 1 for each in range(places.ndim)])
    return tuple(tables) if np.array_equal(total, places) and min(map(min, tables)) >= 0 else None
