"""The instructions: each becomes a function of the lanes that run it. All that is not here is refused."""

from __future__ import annotations

from . import accesses, arithmetic, bits, conversions, copies, matrices, warps
from .registry import COMPILERS

__all__ = ["COMPILERS", "accesses", "arithmetic", "bits", "conversions", "copies", "matrices", "warps"]
