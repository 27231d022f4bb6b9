"""Loops whose iterations share elements: what ``split_shifted`` makes, and what must not be done with them.

Such a loop stands in an index as part of a minimum, ``min(outer * 4, 13 - 4) + inner``: all other primitives give
indices that tell its iterations apart. An element is then computed twice, which must give the same value again.
"""

from __future__ import annotations

from collections.abc import Sequence

from .errors import ScheduleError
from .ir import BinOp, Block, For, IntrinsicCall, Stmt, Var
from .tree import leaves, loops_of
from .visitor import free_vars, loads, stores_of, walk_exprs


def overlapping_loops(stmt: Stmt) -> set[Var]:
    """Variables of loops of which several iterations may store the same element."""
    return {
        var
        for _, indices in stores_of(stmt)
        for index in indices
        for node in walk_exprs(index)
        if isinstance(node, BinOp) and node.op in ("min", "max")
        for var in free_vars(node)
    }


def check_no_overlap(nest: Stmt, primitive: str) -> None:
    """Refuse a nest whose loops compute an element again that is not the same then: of a block that continues an
    earlier sum, or that reads what it replaces."""
    for path in leaves(nest):
        leaf, around = path[-1], loops_of(path)
        overlapping = overlapping_loops(leaf)
        shared = [place for place, node in enumerate(around) if node.var in overlapping]
        if not shared or not isinstance(leaf, Block | IntrinsicCall) or _starts_anew(leaf, around[shared[-1] :]):
            continue
        name = leaf.name if isinstance(leaf, Block) else leaf.block
        loop = around[shared[-1]].var.name
        raise ScheduleError(
            f"{primitive}: loop {loop!r} computes elements of block {name!r} twice, and the second time "
            "the block would go on from the result of the first",
            at=f"loop {loop!r}",
            hint=f"keep the whole reduction inside of loop {loop!r}, or split by a factor that divides the extent",
        )


def _starts_anew(leaf: Block | IntrinsicCall, inside: Sequence[For]) -> bool:
    """Whether a block's result does not depend on what its buffer held before the loops ``inside``."""
    if isinstance(leaf, IntrinsicCall) or leaf.kind == "reduce-update":
        return False
    if leaf.init is not None:
        return all(any(node.var == var for node in inside) for var in leaf.reduce_vars)
    return not any(node.buffer == leaf.body.buffer for node in loads(leaf.body.value))
