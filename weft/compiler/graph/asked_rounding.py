"""How a quantise asks that the whole-number sums of a product be rounded: its attribute ``rounding``."""

from __future__ import annotations

from ...roundings import HALF_UP
from .ir import Call, Expr
from .registry import Role, role_of


def asked_rounding(node: Expr) -> str:
    """What a quantise asks for; `HALF_UP` of what is none."""
    is_quantise = isinstance(node, Call) and role_of(node) is Role.QUANTISE
    return str(node.attr("rounding")) if isinstance(node, Call) and is_quantise else HALF_UP
