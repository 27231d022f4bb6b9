"""Operands of requantises that round twice: results next to halves, where one rounding differs from two."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Operands = tuple[npt.NDArray[np.int32], ...]

ENDS = (0, 1, -1, 2**31 - 1, -(2**31), 2**30, -(2**30))


def twice_operands(random: np.random.Generator, shape: tuple[int, ...]) -> Operands:
    """Values, biases, multipliers of 32 bits, shifts. Of four, three have results within some units of a half, with
    shifts below and above 31; one has extremes."""
    multiplier = random.integers(1 << 29, 1 << 31, shape) * random.choice((-1, 1), shape)
    multiplier = np.where(random.random(shape) < 0.3, 1 << random.integers(0, 31, shape), multiplier)
    shift = random.integers(28, 45, shape)
    halves = random.integers(-300, 300, shape) + 0.5
    sums = np.rint(halves * np.exp2(shift.astype(np.float64)) / multiplier) + random.integers(-2, 3, shape)
    sums = np.clip(sums, -(2**31), 2**31 - 1).astype(np.int64)
    extreme = random.random(shape) < 0.25
    sums = np.where(extreme, random.choice(ENDS, shape), sums)
    multiplier = np.where(extreme, random.choice(ENDS, shape), multiplier)
    shift = np.where(extreme, random.integers(0, 64, shape), shift)
    bias = random.integers(-(2**31), 2**31, shape)
    parts = sums - bias, bias, multiplier, shift
    return tuple(each.astype(np.int64).astype(np.int32) for each in parts)
