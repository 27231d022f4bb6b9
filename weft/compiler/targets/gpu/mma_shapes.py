"""Products that tensor cores do, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...tensor.ir import DType


@dataclass(frozen=True)
class MmaShape:
    """A product of tensor cores: sums (rows, 8) of products (rows, depth) x (8, depth) of ``dtype``, in ``sums``."""

    dtype: DType
    sums: DType
    rows: int
    depth: int

    @property
    def name(self) -> str:
        """As it stands in an intrinsic's name."""
        return f"{TF32 if self.is_rounded else self.dtype}_{self.rows}_{self.depth}"

    @property
    def is_rounded(self) -> bool:
        """Whether operands lose digits before they are multiplied: single precision becomes TF32, which has the
        exponent of that and 10 bits of the fraction."""
        return self.dtype == "float32"


TF32 = "tf32"

TURING_SHAPES = (MmaShape("int8", "int32", 8, 16), MmaShape("float16", "float32", 16, 8))
AMPERE_SHAPES = (
    MmaShape("int8", "int32", 16, 32), MmaShape("float16", "float32", 16, 16),
    MmaShape("bfloat16", "float32", 16, 16), MmaShape("float32", "float32", 16, 8),
)  # fmt: skip
"""What tensor cores do since that architecture."""
