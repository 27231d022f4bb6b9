"""How a LOAD into ``wgt`` says that its weights have 4 bits; only on cores with ``CoreConfig.weight_group``."""

from __future__ import annotations

from collections.abc import Iterable

FOUR_BITS = 4
"""``pad_value`` of a LOAD of 4-bit weights (``docs/isa.md``, "Weights of 4 bits"); of 8-bit ones it is 0."""


def weights_problem(pad_value: int, pads: Iterable[int]) -> str:
    """Why a core with 4-bit weights refuses a LOAD into ``wgt``, or an empty string."""
    if pad_value not in (0, FOUR_BITS):
        return f"pad_value is {pad_value}, but weights have 0 (of 8 bits) or {FOUR_BITS} (of 4 bits)"
    if pad_value and any(pads):
        return "weights of 4 bits take no padding"
    return ""
