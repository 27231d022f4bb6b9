"""What an operator's entry may ask for when it draws a random call of itself (`random_graphs` answers)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from .dtypes import ARITHMETIC
from .ir import Expr

T = TypeVar("T")


class Chooser(Protocol):
    """Random numbers and operands. Each method that finds nothing raises `GraphError`: the draw is given up."""

    def chance(self, probability: float) -> bool:
        """True with this probability."""

    def pick(self, items: Sequence[T]) -> T:
        """One of ``items``."""

    def whole(self, low: int, high: int) -> int:
        """A number from ``low`` to ``high``, both included."""

    def leaf(self, shape: tuple[int, ...], dtype: str) -> Expr:
        """A new input or constant."""

    def operand(self, fits: Callable[[Expr], bool], dtypes: Sequence[str] = ARITHMETIC) -> Expr:
        """A value of the graph that fits, or a new one."""

    def like(self, x: Expr) -> Expr:
        """A value of the type of ``x`` that broadcasts with it."""

    def exact(self, x: Expr) -> Expr:
        """``x``, if every right implementation computes it to the bit."""
