"""What the ways to round sums (`weft.roundings`) mean in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...roundings import FIRST_PLACES, FLOAT32, nudged

Array = NDArray[Any]
Int32 = NDArray[np.int32]


def rounded_shift(x: Array, multiplier: Array, shift: Array, rounding: str) -> Array:
    """``x * multiplier / 2**shift`` as whole numbers of int64: the exact product rounded as ``rounding`` says or, in
    float32, factor and product rounded to 24 bits and the result to a whole number, all halves to even."""
    if rounding == FLOAT32:
        product = x.astype(np.float32) * multiplier.astype(np.float32)
        return np.asarray(np.rint(np.ldexp(product.astype(np.float64), -shift.astype(np.int32))).astype(np.int64))
    places = shift.astype(np.int64)
    exact = nudged(rounding, x.astype(np.int64) * multiplier, places)
    return np.asarray(((exact >> (places - 1)) + 1) >> 1)


def wide_multiplier(real: Array) -> tuple[Int32, Int32]:
    """Write each real factor as ``multiplier / 2**shift`` with 31 bits of multiplier, halves away from 0, and a shift
    of 1..62. Smaller factors are 0, as LiteRT has them. Raises `ValueError` for 2**30 or more, or what is no number."""
    real = np.atleast_1d(np.asarray(real, np.float64))
    if not np.all(np.abs(real) < 2.0**30):
        raise ValueError("a requantise factor is not a number below 2**30")
    fraction, exponent = np.frexp(real)
    multiplier = (np.sign(fraction) * np.floor(np.abs(fraction) * 2.0**31 + 0.5)).astype(np.int64)
    carried = np.abs(multiplier) == 1 << 31
    multiplier, exponent = np.where(carried, multiplier // 2, multiplier), exponent + carried
    tiny = exponent < -FIRST_PLACES
    shift = np.where(tiny, FIRST_PLACES, FIRST_PLACES - exponent)
    return np.where(tiny, 0, multiplier).astype(np.int32), shift.astype(np.int32)
