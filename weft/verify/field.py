"""Arithmetic modulo the prime 2^61 - 1 on NumPy arrays: elements are uint64 below it.

Products with small whole numbers go through float64: an element is split into two halves of 31 and 30 bits, whose sums
of products stay below 2^53 and are so exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Elements = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]
Halves = npt.NDArray[np.float64]

PRIME = (1 << 61) - 1
MOST_TERMS = 1 << 15
"""Products of a half with an int8 whose sum float64 holds exactly."""

_HALF = 31
_LOW = np.uint64((1 << _HALF) - 1)
_PRIME, _BITS = np.uint64(PRIME), np.uint64(61)
_LIMB = 21
_LIMB_TERMS = 2048


def fold(x: Elements) -> Elements:
    """Any uint64 -> the element that it is."""
    return below((x & _PRIME) + (x >> _BITS))


def below(x: Elements) -> Elements:
    """Of x < 2 * PRIME: where ``x - PRIME`` is negative it is a very large uint64, so the least of both is right."""
    return np.asarray(np.minimum(x, x - _PRIME))


def of_int(x: npt.ArrayLike) -> Elements:
    """Whole numbers whose size is below the prime -> elements."""
    whole = np.asarray(x, np.int64)
    return np.asarray(whole + (whole >> 63 & PRIME)).view(np.uint64)


def to_int(x: Elements) -> Numbers:
    """Elements -> the whole numbers of least size that they are."""
    whole = x.view(np.int64)
    return np.where(x > np.uint64(PRIME // 2), whole - PRIME, whole)


def add(a: Elements, b: Elements) -> Elements:
    return below(a + b)


def subtract(a: Elements, b: Elements) -> Elements:
    x = a - b
    return np.asarray(np.minimum(x, x + _PRIME))


def multiply(a: Elements, b: Elements) -> Elements:
    """a * b, from four products of 32 bits."""
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a_high, a_low, b_high, b_low = a >> half, a & mask, b >> half, b & mask
    middle, low = a_high * b_low + a_low * b_high, a_low * b_low
    high = ((a_high * b_high) << np.uint64(3)) + (middle >> np.uint64(29))
    high += (middle & np.uint64((1 << 29) - 1)) << half
    return fold(high + (low & _PRIME) + (low >> _BITS))


def times_power(x: Elements, bits: int) -> Elements:
    """x * 2^bits, for less than 61 bits: a rotation."""
    if not bits:
        return x
    return fold(((x << np.uint64(bits)) & _PRIME) + (x >> np.uint64(61 - bits)))


def halves(x: Elements) -> Halves:
    """(2, ...): the low and the high half of each element."""
    return np.stack([(x & _LOW).astype(np.float64), (x >> np.uint64(_HALF)).astype(np.float64)])


def join(parts: Halves) -> Elements:
    """The elements whose halves, or sums of halves times whole numbers below 2^53 in size, ``parts`` holds."""
    low, high = parts[0].astype(np.int64), parts[1].astype(np.int64)
    low += high >> 30
    high &= (1 << 30) - 1
    high <<= _HALF
    high += low  # above -2^54, below 2^61 + 2^54
    high += PRIME
    return fold(high.view(np.uint64))


def matrix_product(a: Elements, b: Elements) -> Elements:
    """a (R, K) @ b (K, C) of any elements, from products of limbs of 21 bits."""
    mask, total = np.uint64((1 << _LIMB) - 1), np.zeros((a.shape[0], b.shape[1]), np.uint64)
    first, second = ([(x >> np.uint64(_LIMB * i) & mask).astype(np.float64) for i in range(3)] for x in (a, b))
    for start in range(0, a.shape[1], _LIMB_TERMS):
        part = slice(start, start + _LIMB_TERMS)
        for i, left in enumerate(first):
            for j, right in enumerate(second):
                found = (left[:, part] @ right[part]).astype(np.uint64)
                total = add(total, times_power(fold(found), _LIMB * (i + j) % 61))
    return total


def weighted(parts: Halves, weights: npt.NDArray[np.float64]) -> Elements:
    """Elements (R, K), as halves (2, R, K), times weights (K, C), whole numbers of int8: (R, C)."""
    terms = weights.shape[0]
    if terms <= MOST_TERMS:
        return join(parts @ weights)
    total: Any = np.uint64(0)
    for start in range(0, terms, MOST_TERMS):
        part = slice(start, start + MOST_TERMS)
        total = add(total, join(parts[:, :, part] @ weights[part]))
    return np.asarray(total)
