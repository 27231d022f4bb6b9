"""One StableHLO operation as its rule sees it, and the table of rules.

A rule takes the site alone and gives a graph value, or a tuple of them. Regions are looked at as names and places of
their operations, or run on graph values (`Site.region`). Rules know nothing of MLIR.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...graph import Array, Call, Constant, Expr, TensorType
from ..site import OperatorSite, adds_to

Result = Expr | Sequence[Expr]
Rule = Callable[["Site"], Result]

RULES: dict[str, Rule] = {}
"""By the name of an operation without its dialect: those of chlo that StableHLO has too mean the same."""

REFUSED: dict[str, str] = {}
"""Operations that no rule is for, with the reason."""

rule = adds_to(RULES)


@dataclass(frozen=True)
class Inner:
    """An operation of a region's block: its name, the places of its operands (``("argument", i)``, ``("result", n, i)``
    for result i of operation n, ``("outer", value)``), its attributes."""

    name: str
    operands: tuple[tuple[Any, ...], ...]
    attrs: Mapping[str, Any]


@dataclass(frozen=True)
class Region:
    """A region of one block. ``run``: its results for values of its arguments; ``returned``: their places."""

    operations: tuple[Inner, ...]
    returned: tuple[tuple[Any, ...], ...]
    run: Callable[[Sequence[Expr]], list[Expr]]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.operations)


@dataclass(frozen=True)
class Site(OperatorSite):
    """``types``: of the results. ``attrs``: numbers, texts, tuples, arrays; dimension numbers are dictionaries."""

    operands: tuple[Expr, ...]
    types: tuple[TensorType, ...]
    attrs: Mapping[str, Any]
    regions: tuple[Region, ...] = ()

    @property
    def x(self) -> Expr:
        return self.operands[0]

    @property
    def type(self) -> TensorType:
        return self.types[0]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> str:
        return self.type.dtype

    def ints(self, name: str, default: Sequence[int] = ()) -> tuple[int, ...]:
        return tuple(int(each) for each in np.asarray(self.attrs.get(name, default)).reshape(-1))

    def pairs(self, name: str, count: int) -> list[tuple[int, int]]:
        """Paddings of ``count`` axes; none where the attribute is left out."""
        flat = self.ints(name, (0, 0) * count)
        return [(flat[2 * i], flat[2 * i + 1]) for i in range(count)]

    def static(self, value: Expr) -> Array | None:
        """What is known of a value while the model is read."""
        return self.node.scope.static_value(value)

    def constant(self, value: Array) -> Constant:
        return Constant(np.asarray(value, order="C"), span=self.span)


def thin(value: Expr) -> Expr:
    """A value without the axes that it was only spread along: operators broadcast by themselves."""
    while isinstance(value, Call) and value.op == "expand":
        value = value.args[0]
    return value


def splat(value: Expr) -> Any:
    """The number that all elements of a constant are; None for any other value."""
    inner = thin(value)
    if not isinstance(inner, Constant) or inner.value.size == 0:
        return None
    flat = inner.value.reshape(-1)
    return flat[0].item() if inner.value.size == 1 or bool((flat == flat[0]).all()) else None
