"""Operands of REQUANTISE that show whether it rounds as float32 does: random ones hardly ever do."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Int32 = npt.NDArray[np.int32]

EXTREMES = (
    *(-(2**31), -(2**31) + 1, -(2**24) - 1, -(2**24), -1, 0, 1),
    *(2**24 - 1, 2**24, 2**24 + 1, 2**31 - 65, 2**31 - 64, 2**31 - 1),
)


class Operands(NamedTuple):
    """What stands in ``acc``, all of one shape."""

    values: Int32
    bias: Int32
    multiplier: Int32
    shift: Int32


def float32_operands(random: np.random.Generator, shape: tuple[int, ...]) -> Operands:
    """A third of each: sums and factors of few bits, whose products are halves; products next to halves; extremes."""

    def signed(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.where(random.random(shape) < 0.5, -numbers, numbers)

    wholes = random.integers(0, 300, shape) * 2 + 1  # twice a result
    next_to = random.integers(-2, 3, shape) * random.integers(0, 2, shape)
    places = random.integers(0, 22, shape)  # of the half, in the sum
    few = np.int64(1) << random.integers(0, 25, shape)
    of_few_bits = (wholes << places) + next_to, few, places + 1 + np.log2(few).astype(np.int64)

    full = random.integers(1 << 23, 1 << 24, shape)
    shifts = random.integers(15, 46, shape)
    near = np.rint(wholes * np.exp2(shifts - 1.0) / full).clip(-(2**31), 2**31 - 1).astype(np.int64)
    of_full_factors = near, full, shifts

    extreme = (
        random.choice(EXTREMES, shape),
        random.choice((1, 3, 2**23, 2**24 - 1, 2**24), shape),
        (random.integers(0, 64, shape)),
    )
    kind = random.integers(0, 3, shape)
    sums, factors, amounts = (
        np.choose(kind, parts) for parts in zip(of_few_bits, of_full_factors, extreme, strict=True)
    )
    sums, factors = signed(sums), np.minimum(signed(factors), 2**24 - 1)
    bias = random.choice((0, 0, 1, -5, 1 << 20), shape)
    wrapped = (sums - bias).astype(np.int32)
    return Operands(wrapped, bias.astype(np.int32), factors.astype(np.int32), amounts.astype(np.int32))
