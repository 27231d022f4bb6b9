"""For each way in which a core may round beside half up, operands that tell it from that."""

from __future__ import annotations

from .float32_operands import float32_operands
from .twice_operands import twice_operands

OPERANDS = {
    "float32": float32_operands,
    "two_roundings": twice_operands,
    "half_away": float32_operands,
    "half_even": float32_operands,
}
