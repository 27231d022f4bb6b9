"""What stands for functions that take the same instructions but for numbers in them."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from .....content import content_digest
from ....graph import Call, Constant, Expr, Function
from ....graph.visit import topological_order
from ..operators.empty_matrices import Kept

NUMBERS = ("zero_point", "low", "high", "left_shift", "pad_value", "weight", "value")
"""Attributes that only go into fields of instructions."""


def signature(function: Function) -> str:
    """A digest, worked out once for each function: choosing chains asks for it for every cut that it tries."""
    known = _SIGNATURES.get(function)
    if known is None:
        known = _SIGNATURES[function] = content_digest(_lines(function))
    return known


_SIGNATURES: WeakKeyDictionary[Function, str] = WeakKeyDictionary()
"""Of functions that are still in use."""


def _lines(function: Function) -> list[object]:
    numbers: dict[Expr, int] = {}
    lines: list[object] = []
    for node in topological_order(function.body):
        numbers[node] = len(numbers)
        match node:
            case Call(op=str() as op):
                sizes = tuple((name, value) for name, value in node.attrs.items() if name not in NUMBERS)
                lines.append((op, sizes, tuple(numbers[arg] for arg in node.args), node.type))
            case Constant():
                lines.append(("Constant", node.type, Kept.of(node.value).digest if node.dtype == "int8" else ""))
            case _:
                lines.append((type(node).__name__, node.type))
    return lines
