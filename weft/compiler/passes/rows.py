"""What normalisations are made of: values less their means, squares, and numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..graph import Anchor, Call, Expr, Role, Span, call, operator_of, role_of
from ..graph.evaluate import static_value
from ..integers.form import IntegerForm, Integers

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
        case Call(args=(whole, Call(args=(again, *_)) as average)) if role_of(node) is Role.SUBTRACT:
            if is_row_mean(average) and whole == again and average.attr("keepdims"):
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


def is_row_mean(node: Expr) -> bool:
    """Whether it is the mean along axes."""
    entry = operator_of(node)
    return entry is not None and entry.role is Role.MEAN and entry.anchor is Anchor.REDUCTION


def squared(node: Expr) -> Expr | None:
    """What ``node`` is the square of."""
    match node, role_of(node):
        case Call(args=(a, b)), Role.MULTIPLY if a == b:
            return a
        case Call(args=(a, exponent)), Role.POWER if number_of(exponent) == 2:
            return a
    return None


def number_of(node: Expr) -> float | None:
    """The only element of a constant."""
    if not node.static or math.prod(node.shape) != 1:
        return None
    return float(static_value(node).reshape(()))
