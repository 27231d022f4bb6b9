"""What normalisations are made of: values less their means, squares, and numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..graph import Call, Expr, Span, call
from .cleanup import static_value
from .integer_form import IntegerForm, Integers

FormOf = Callable[[Expr], IntegerForm]


@dataclass(frozen=True, eq=False)
class Row:
    """``x``, less its mean over ``axes`` where there are some."""

    x: Integers
    axes: tuple[int, ...]


def row_below(node: Expr, form: FormOf) -> Row | None:
    """What ``node`` is of an 8-bit value of its shape."""
    axes: tuple[int, ...] = ()
    match node:
        case Call(op="nn.subtract", args=(whole, Call(op="nn.reduce_mean", args=(again,)) as average)):
            if whole == again and average.attr("keepdims"):
                node, axes = whole, tuple(average.attr("axes"))
        case Call(op="transpose", args=(inner,)):
            row = row_below(inner, form)
            if row is None:
                return None
            perm = node.attr("perm")
            q = call("transpose", row.x.q, perm=perm, span=Span(node.span.nodes))
            return Row(replace(row.x, q=q, exclusive=False), tuple(sorted(perm.index(axis) for axis in row.axes)))
    operand = form(node)
    return Row(operand, axes) if isinstance(operand, Integers) and operand.shape == node.shape else None


def squared(node: Expr) -> Expr | None:
    """What ``node`` is the square of."""
    match node:
        case Call(op="nn.multiply", args=(a, b)) if a == b:
            return a
        case Call(op="nn.power", args=(a, exponent)) if number_of(exponent) == 2:
            return a
    return None


def number_of(node: Expr) -> float | None:
    """The only element of a constant."""
    if not node.static or math.prod(node.shape) != 1:
        return None
    return float(static_value(node).reshape(()))
