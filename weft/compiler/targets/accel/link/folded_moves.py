"""Moves that cost nothing: the layers that read their results load the entries from where these lie before.

A load copies rows and columns of entries, so what a layer reads in another order than it was stored takes other loads,
and no layer of its own. A list of entries (`operators.moves`) says which they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .....hw.config import CoreConfig
from ....graph.ir import Array, Call, Expr, Function, Module
from ....graph.registry import Anchor, operator_of
from ....graph.visit import calls
from ..operators.moves import entries_of, is_renaming
from ..walk.moved_loads import as_matrices, moved_pieces
from .phases import Phase, function_of

ENTRIES_A_LOAD = 4
"""That a load of moved entries brings on average, at least: it takes an instruction of 16 bytes."""

LONG_ROW = 8
"""Entries of a row, on average, from which on the bursts of rows are about as fast as one piece."""


def folded_moves(module: Module, phases: Sequence[Phase], core: CoreConfig) -> dict[Expr, Array]:
    """The calls of moves that the loads of all their readers do, with their entries."""
    readers: dict[Expr, list[tuple[Call, int]]] = {}
    for node in calls(module.main.body):
        for place, arg in enumerate(node.args):
            readers.setdefault(arg, []).append((node, place))
    on_core = {node for phase in phases if phase.on_core for node in phase.calls}
    found: dict[Expr, Array] = {}
    for node in on_core:
        entries = entries_of(function_of(node))
        if entries is None or node in module.main.results or is_renaming(entries, [arg.shape for arg in node.args]):
            continue
        inside = all(reader in on_core for reader, _ in readers[node])
        loading = [(function_of(reader), place) for reader, place in readers[node]] if inside else []
        if inside and costs_nothing(entries, loading, core):
            found[node] = entries
    return found


def costs_nothing(entries: Array, readers: Sequence[tuple[Function, int]], core: CoreConfig) -> bool:
    """Whether the layers that read a move, each at an operand, load its entries about as fast as from one piece.

    A row of a load is a burst of its own. A layer that multiplies may load what it reads several times, so its rows
    have to be long. A core with weights of 4 bits fills matrices with no number.
    """
    numbers = entries.astype(np.int64)
    for each, multiplied in {(loaded_together(*reader, core.block_out), multiplies(reader[0])) for reader in readers}:
        firsts = as_matrices(numbers, each) if each else None
        if firsts is None or (each > 1 and core.weight_group and (firsts < 0).any()):
            return False
        pieces = [piece for piece, _ in moved_pieces(firsts, each)]
        rows = sum(max(1, piece.rows) for piece in pieces)
        if len(numbers) < ENTRIES_A_LOAD * len(pieces) or (multiplied and len(numbers) < LONG_ROW * rows):
            return False
    return True


def multiplies(function: Function) -> bool:
    """Whether a function, or a layer of a chain, has a convolution or a product."""
    for node in calls(function.body):
        entry = operator_of(node)
        if isinstance(node.op, Function):
            if multiplies(node.op):
                return True
        elif entry is not None and entry.anchor in (Anchor.CONVOLUTION, Anchor.PRODUCT):
            return True
    return False


def loaded_together(function: Function, place: int, matrix: int) -> int:
    """How many entries of an operand a layer of the core, or a chain, loads as one: the second operand of a product is
    loaded as matrices, of so many. 0 where it does not load the operand: concatenations and moves have places of their
    own, and what has zero points is moved to them."""
    param, found = function.params[place], 1
    for node in calls(function.body):
        entry = operator_of(node)
        names = entry.operands.split() if entry is not None else ["x*"]
        for number in (number for number, arg in enumerate(node.args) if arg == param):
            if isinstance(node.op, Function):
                each = loaded_together(node.op, number, matrix)
            elif names[-1].endswith("*") or node.attrs.get("zero_points", (0, 0)) != (0, 0):
                each = 0
            else:
                each = matrix if names[number] == "w" else 1
            if not each or found not in (1, each):
                return 0
            found = each
    return found


def operands_of(node: Call, folded: Mapping[Expr, Array]) -> tuple[Expr, ...]:
    """What a call reads in memory: of moves that it does itself, their operands."""
    return tuple(
        each for arg in node.args for each in (arg.args if arg in folded and isinstance(arg, Call) else (arg,))
    )


def entries_in_window(entries: Array, firsts: Sequence[int], offsets: Sequence[int], entry_bytes: int) -> bytes:
    """Of a move, the numbers of its entries in the window, as int64; what is filled in stays as it is. ``firsts``: of
    `first_entries`; ``offsets``: bytes at which the operands lie."""
    numbers = entries.astype(np.int64)
    of = np.searchsorted(np.array(firsts[1:-1], np.int64), np.maximum(numbers, 0), side="right")
    starts = np.array(offsets, np.int64) // entry_bytes - np.array(firsts[:-1], np.int64)
    return np.where(numbers < 0, numbers, numbers + starts[of]).tobytes()
