"""Element types of tensors: their names, and what kind each one is.

Types beyond NumPy's own (bfloat16, the 8-bit and 4-bit floats, integers of less than 8 bits) come from `ml_dtypes`,
which registers them with NumPy under the names used here. An element of less than 8 bits takes a byte of its own.
Strings are sequences of Unicode characters of any length, arrays of NumPy's `StringDType`.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
FLOATS = ("float16", "bfloat16", "float32", "float64")
NUMBERS = INTEGERS + FLOATS
ARITHMETIC = ("bool", *NUMBERS)
"""Types that operators compute with."""

SMALL_FLOATS = (
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn",
)  # fmt: skip
SMALL_INTEGERS = ("int4", "uint4", "int2", "uint2")
NARROW_INTEGERS = ("int8", "uint8", *SMALL_INTEGERS)
"""Integers of 8 bits and fewer."""

STORAGE = SMALL_FLOATS + SMALL_INTEGERS
"""Types that are only moved, cast, quantised and dequantised."""

STRING = "string"
"""Text. Only NumPy handles it: no kernel and no device has such a type."""

DTYPES = (*ARITHMETIC, *STORAGE, STRING)
HALVES = ("float16", "bfloat16")

LARGEST_BYTE = 255
"""The largest difference of two 8-bit values, such as of a value and its zero point."""

EXACT_IN_FLOAT32 = 1 << 24
"""Whole numbers up to this magnitude are float32 values."""


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's type of the name of an element type."""
    if name == STRING:
        return np.dtypes.StringDType()
    return np.dtype(getattr(ml_dtypes, name)) if name in STORAGE or name == "bfloat16" else np.dtype(name)


def dtype_name(dtype: np.dtype[Any]) -> str:
    """The name of NumPy's type: one of `DTYPES`, if it is such a type."""
    return STRING if isinstance(dtype, np.dtypes.StringDType) else dtype.name


def is_float(name: str) -> bool:
    return name in FLOATS or name in SMALL_FLOATS


def limits(name: str) -> tuple[Any, Any]:
    """Least and greatest finite value of a type of numbers, as Python's int or float."""
    if name == "bool":
        return 0, 1
    if is_float(name):
        info: Any = ml_dtypes.finfo(numpy_dtype(name))  # type: ignore[no-untyped-call]
        return float(info.min), float(info.max)
    whole: Any = ml_dtypes.iinfo(numpy_dtype(name))  # type: ignore[no-untyped-call]
    return int(whole.min), int(whole.max)


def step(name: str) -> float:
    """Distance from 1 to the next larger value of a float type."""
    info: Any = ml_dtypes.finfo(numpy_dtype(name))  # type: ignore[no-untyped-call]
    return float(info.eps)
