"""Arithmetic to the last bit, in Python's integers and fractions, for `sweep_cases`."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
FORMATS = {
    "float16": (11, -24, 65504.0),
    "bfloat16": (8, -133, 3.3895313892515355e38),
    "float32": (24, -149, 3.4028234663852886e38),
    "float64": (53, -1074, 1.7976931348623157e308),
}
"""Digits, the exponent of the least number, and the largest number."""


def nearest(value: Fraction | float, dtype: str) -> float:
    """``value`` in a float type, halves to even; what is not finite stays as it is."""
    if isinstance(value, float) and (not math.isfinite(value) or value == 0):
        return value
    exact = Fraction(value)
    digits, least, largest = FORMATS[dtype]
    if exact == 0:
        return 0.0
    exponent = exact.numerator.bit_length() - exact.denominator.bit_length()
    exponent -= abs(exact) < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - digits + 1, least)
    rounded = round(exact / unit) * unit
    if abs(rounded) > Fraction(largest):
        return math.inf if exact > 0 else -math.inf
    return float(rounded) if rounded else 0.0 if exact > 0 else -0.0


def wrapped(value: int, dtype: Any) -> int:
    """The last bits of an integer, as a type reads them."""
    info = np.iinfo(dtype)
    return (value - info.min) % (info.max - info.min + 1) + info.min


def _one(op: str, a: float, b: float, dtype: str) -> float:
    usual = math.isfinite(a) and math.isfinite(b) and a != 0 and b != 0
    if not usual:
        with np.errstate(all="ignore"):
            x, y = np.float64(a), np.float64(b)
            return float({"Add": x + y, "Sub": x - y, "Mul": x * y, "Div": x / y}[op])
    p, q = Fraction(a), Fraction(b)
    return nearest({"Add": p + q, "Sub": p - q, "Mul": p * q, "Div": p / q}[op], dtype)


def arithmetic(op: str, a: Array, b: Array) -> Array:
    """Add, Sub, Mul or Div of floats, rounded once."""
    wide = np.broadcast_arrays(a, b)
    pairs = zip(*(each.reshape(-1).astype(np.float64) for each in wide), strict=True)
    flat = [_one(op, float(x), float(y), a.dtype.name) for x, y in pairs]
    return np.array(flat).astype(a.dtype).reshape(wide[0].shape)
