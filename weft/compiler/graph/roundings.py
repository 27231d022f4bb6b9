"""How a quantise rounds the whole-number sums of a product: its attribute ``rounding``."""

from __future__ import annotations

from .ir import Call, Expr
from .registry import Role, role_of

EXACT_SUMS = "exact"
"""The sum times the exact factor is rounded once."""

FLOAT32 = "float32"
"""As XNNPACK has it, see the operator ``requantise_float32``."""

ROUNDINGS = (EXACT_SUMS, FLOAT32)


def rounds_in_float32(node: Expr) -> bool:
    """Whether it is a quantise that asks for `FLOAT32`."""
    return isinstance(node, Call) and role_of(node) is Role.QUANTISE and node.attr("rounding") == FLOAT32
