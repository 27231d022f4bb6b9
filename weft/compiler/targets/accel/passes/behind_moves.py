"""Arithmetic between two chains of moves is done behind both, so that they are one chain.

The queries of an attention are split off their product, scaled and turned around. Scaled last, they are moved once, and
as whole entries, which the core moves itself (`core_moves`).
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from ....graph import Call, Constant, Expr, Fusion, Module, Span, call, operator_of
from ....graph.visit import topological_order, with_children
from ....passes.manager import graph_pass
from ..operators.packed_layout import PACKABLE_RANKS
from .channel_moves import move_of


@graph_pass("behind-moves")
def behind_moves(module: Module) -> Module:
    """Requantises of moved values, whose results are moved again for a layer, become the last of these three."""
    body = module.main.body
    order = topological_order(body)
    uses = Counter(child for node in order for child in dict.fromkeys(node.children))
    moved_on = {child for node in order if _is_move(node) for child in node.children}
    memo: dict[Expr, Expr] = {}
    for node in order:
        made = _done_last(node, uses, memo) if node not in moved_on else None
        if made is None:
            made = with_children(node, tuple(memo[child] for child in node.children))
        memo[node] = made
    return module if memo[body] is body else module.with_main(memo[body])


def _done_last(node: Expr, uses: Counter[Expr], memo: dict[Expr, Expr]) -> Expr | None:
    """``node``, the last of a chain of moves, as a requantise; None where it is none, or no moves are before that."""
    chain: list[Call] = []
    value = node
    while isinstance(value, Call) and _is_move(value) and (value is node or uses[value] == 1):
        chain.append(value)
        value = value.args[0]
    if not chain or len(node.shape) not in PACKABLE_RANKS or not isinstance(value, Call):
        return None
    if value.op != "requantise" or uses[value] != 1 or not _is_move(value.args[0]):
        return None
    numbers = [arg.value for arg in value.args[1:] if isinstance(arg, Constant)]
    if len(numbers) < len(value.args) - 1 or any(len(np.unique(each)) != 1 for each in numbers):
        return None
    moved = memo[value.args[0]]
    for move in reversed(chain):
        moved = call(move.op, moved, *move.args[1:], span=Span(move.span.nodes), **move.attrs)
    same = [Constant(np.full(moved.shape[1], each.flat[0], each.dtype)) for each in numbers]
    return call("requantise", moved, *same, span=value.span.merged(node.span), **value.attrs)


def _is_move(node: Expr) -> bool:
    """Whether a value is elements of one computed value, in other places."""
    inner = move_of(node) if isinstance(node, Call) else None
    entry = operator_of(inner) if inner is not None else None
    return inner is not None and entry is not None and entry.fusion is Fusion.LAYOUT and inner.op != "pad"
