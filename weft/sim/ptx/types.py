"""Types of PTX: their bits, and the NumPy types in which they are computed."""

from __future__ import annotations

from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

BITS: dict[str, int] = {
    "pred": 1,
    **{f"{letter}{bits}": bits for letter in "bsu" for bits in (8, 16, 32, 64)},
    "b128": 128, "f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32, "f32": 32, "tf32": 32, "f64": 64,
}  # fmt: skip
"""Bits of each type."""

STORED: dict[int, Any] = {1: np.dtype(bool), **{bits: np.dtype(f"u{bits // 8}") for bits in (8, 16, 32, 64)}}
"""How a register of so many bits is held."""

COMPUTED: dict[str, Any] = {
    "pred": np.dtype(bool),
    **{f"{letter}{bits}": np.dtype(f"{kind}{bits // 8}") for letter, kind in (("b", "u"), ("s", "i"), ("u", "u"))
       for bits in (8, 16, 32, 64)},
    "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype(np.float32),
    "tf32": np.dtype(np.float32), "f64": np.dtype(np.float64), "f16x2": np.dtype("u4"), "bf16x2": np.dtype("u4"),
}  # fmt: skip
"""In what a type is computed; pairs of halves are taken apart by the instructions that know them."""


def is_float(kind: str) -> bool:
    """Whether a type is of floats."""
    return kind in ("f16", "bf16", "f32", "tf32", "f64")


def is_signed(kind: str) -> bool:
    """Whether a type is of signed integers."""
    return kind[0] == "s"
