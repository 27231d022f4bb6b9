"""Numbers of groups, warps and threads, of which loops are digits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ...tensor.ir import Const, Expr, For, Stmt, Var
from ...tensor.simplify import constant_range

THREAD, WARP = "thread", "warp"
BLOCK_AXES = ("block.x", "block.y", "block.z")
"""Names for `Schedule.bind`."""

SHARED = "shared"
"""Scope of a buffer that the threads of a group have together."""

Loops = tuple[tuple[Var, Expr], ...]
"""Variables and extents, outermost first."""


@dataclass(frozen=True)
class Digit:
    """A loop whose variable is a digit of a number: ``number // weight % radix``. ``extent``: what the digit must be
    below; it may depend on digits and loops around, and is never more than ``radix``."""

    var: Var
    radix: int
    weight: int
    extent: Expr

    @property
    def is_guarded(self) -> bool:
        """Whether some numbers have a digit for which nothing is done."""
        return self.extent != Const(self.radix)


def digits_of(nest: Sequence[For], around: Loops, lanes: int = 1) -> tuple[Digit, ...]:
    """The loops of a nest as digits, the innermost of which changes fastest: every ``lanes`` numbers."""
    radices: list[int] = []
    for loop in nest:
        radices.append(max(1, constant_range(loop.extent, around)[1]))
        around = (*around, (loop.var, loop.extent))
    return tuple(
        Digit(loop.var, radix, prod(radices[place + 1 :]) * lanes, loop.extent)
        for place, (loop, radix) in enumerate(zip(nest, radices, strict=True))
    )


def is_thread(stmt: Stmt) -> bool:
    """Whether it is a loop over threads, or over warps."""
    return isinstance(stmt, For) and stmt.kind in (f"bind:{THREAD}", f"bind:{WARP}")
