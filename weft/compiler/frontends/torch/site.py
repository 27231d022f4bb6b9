"""One call of an ATen operator as its rule sees it, and the table of rules.

A rule takes the site and the operator's arguments: graph values for tensors, numbers, names of element types, lists of
such. It gives a graph value, or a tuple of them for an operator with several results; ``None`` stands for a result that
it does not compute. Rules know nothing of PyTorch, so they are read and checked without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ...graph import Expr, TensorType
from ...graph.dtypes import FLOATS, HALVES, INTEGERS, numpy_dtype
from ..site import OperatorSite

Result = Expr | tuple[Expr | None, ...]
Rule = Callable[..., Result]

RULES: dict[str, Rule] = {}
"""By the full name of an operator's overload, such as ``aten.add.Tensor``."""

NOT_COMPUTED: dict[str, frozenset[int]] = {}
"""The results that a rule leaves out, by the operator's full name: what only a gradient of PyTorch's reads."""

REFUSED: dict[str, str] = {}
"""Operators that no graph of fixed sizes has a form for, with the reason."""

F = TypeVar("F", bound=Rule)


def rule(*names: str, without: Sequence[int] = ()) -> Callable[[F], F]:
    """Decorator: the function is the rule of the ATen overloads ``names``, and leaves out the results ``without``."""

    def add(function: F) -> F:
        for name in names:
            full = name if name.count(".") == 2 else f"aten.{name}"
            RULES[full] = function
            if without:
                NOT_COMPUTED[full] = frozenset(without)
        return function

    return add


@dataclass(frozen=True)
class Site(OperatorSite):
    """``types``: what PyTorch says of the results; ``None`` for one that is no tensor."""

    types: tuple[TensorType | None, ...]

    @property
    def type(self) -> TensorType:
        """The type of the first result."""
        first = self.types[0] if self.types else None
        if first is None:
            raise self.error("its result is no tensor")
        return first

    @property
    def dtype(self) -> str:
        return self.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    # Types

    def promoted(self, *operands: Expr | float) -> list[Expr]:
        """Operands in their common type, as PyTorch's rules of promotion have it: tensors decide before tensors
        without axes, those before numbers, unless the later ones are of a higher category."""
        to = common_type(operands)
        return [self.cast(x, to) if isinstance(x, Expr) else self.like(x, to) for x in operands]


def category(dtype: str) -> int:
    """0 of bool, 1 of integers, 2 of floats."""
    return 0 if dtype == "bool" else 1 if dtype in INTEGERS else 2


def common_type(operands: Sequence[Expr | float]) -> str:
    """See `Site.promoted`."""
    tensors = [x.dtype for x in operands if isinstance(x, Expr) and x.shape]
    scalars = [x.dtype for x in operands if isinstance(x, Expr) and not x.shape]
    numbers = ["bool" if isinstance(x, bool) else "int64" if isinstance(x, int) else "float32"
               for x in operands if not isinstance(x, Expr)]  # fmt: skip
    result = ""
    for group in (tensors, scalars, numbers):
        if not group:
            continue
        own = group[0]
        for dtype in group[1:]:
            own = wider(own, dtype)
        if not result or category(own) > category(result):
            result = own
    return result


def wider(a: str, b: str) -> str:
    """The type in which PyTorch computes with elements of both types."""
    if category(a) != category(b):
        return a if category(a) > category(b) else b
    if a == b:
        return a
    if category(a) == 2:
        if {a, b} == set(HALVES):
            return "float32"
        return max(a, b, key=FLOATS.index)
    return str(np.result_type(numpy_dtype(a), numpy_dtype(b)))
