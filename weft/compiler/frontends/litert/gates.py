"""The interpreter's logistic function and hyperbolic tangent of 16 bits, as tables of all 65,536 values.

Both are series and Newton's steps in fixed point with 16 bits; a value of ``n`` integer bits has ``15 - n`` bits
behind the point. Additions of int16 are exact here, and cut off where the interpreter's are.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ...graph import Array

_ONE = (1 << 15) - 1
"""Of no integer bits."""
_LOW = -(1 << 15)

_EIGHTH = np.exp(-1 / 8)
_LARGEST_EXPONENT = 4
"""The argument's bits from 2**-2 to this one are powers of e that are multiplied."""


def _saturated(x: Array) -> Array:
    return np.clip(x, _LOW, _ONE)


def _constant(real: float, integer_bits: int = 0) -> int:
    """Rounded to 32 bits, then to 16."""
    wide = int(np.floor(real * 2.0 ** (31 - integer_bits) + 0.5))
    return (wide + (1 << 15)) >> 16


def _times(a: Array | int, b: Array | int) -> Array:
    product = np.asarray(a, np.int64) * np.asarray(b, np.int64)
    return _saturated((product + (1 << 14)) >> 15)


def _divided(x: Array, bits: int) -> Array:
    """By a power of two, halves away from 0."""
    mask = (1 << bits) - 1
    return (x >> bits) + ((x & mask) > (mask >> 1) + (x < 0))


def _exponential(x: Array, integer_bits: int) -> Array:
    """e**x of values that are not above 0; no integer bits in the result."""
    fraction = 15 - integer_bits
    quarter = 1 << (fraction - 2)
    near = (x & (quarter - 1)) - quarter
    result = _series(near << integer_bits)
    rest = near - x
    for exponent in range(-2, min(integer_bits, _LARGEST_EXPONENT + 1)):
        taken = (rest & (1 << (fraction + exponent))) != 0
        result = np.where(taken, _times(result, _constant(np.exp(-(2.0**exponent)))), result)
    if integer_bits > _LARGEST_EXPONENT + 1:
        result = np.where(x < -(1 << (fraction + _LARGEST_EXPONENT + 1)), 0, result)
    return np.where(x == 0, _ONE, result)


def _series(x: Array) -> Array:
    """e**x from -1/4 to 0, around -1/8."""
    around = x + (1 << 12)
    square = _times(around, around)
    cube, fourth = _times(square, around), _times(square, square)
    tail = _divided(_times(_saturated(_divided(fourth, 2) + cube), _constant(1 / 3)) + square, 1)
    constant = _constant(_EIGHTH)
    return _saturated(constant + _times(constant, around + tail))


def _reciprocal(x: Array) -> Array:
    """2 / (1 + x) from 0 to 1, with two integer bits."""
    total = x + _ONE
    half = (total + 1) // 2
    found = _constant(48 / 17, 2) + _times(half, _constant(-32 / 17, 2))
    for _ in range(3):
        missing = (1 << 13) - _times(half, found)
        found = found + _saturated(_times(found, missing) << 2)
    return found


@lru_cache(maxsize=8)
def logistic_table() -> Array:
    """int16 with three integer bits to int16 with none, in the order of the stored numbers from the least."""
    x = np.arange(_LOW, _ONE + 1, dtype=np.int64)
    above = _saturated(_reciprocal(_exponential(-np.minimum(np.abs(x), _ONE), 3)) << 1)
    result = np.where(x > 0, above, np.where(x == 0, 1 << 14, _ONE - above))
    return _saturated(result).astype(np.int16)


@lru_cache(maxsize=8)
def tangent_table(integer_bits: int) -> Array:
    """int16 with so many integer bits to int16 with none, in the order of the stored numbers from the least."""
    x = np.arange(_LOW, _ONE + 1, dtype=np.int64)
    ratio = _reciprocal(_exponential(-np.minimum(np.abs(x), _ONE), integer_bits + 1))
    above = _saturated((ratio - (1 << 13)) << 2)
    return _saturated(np.where(x > 0, above, np.where(x == 0, 0, -above))).astype(np.int16)
