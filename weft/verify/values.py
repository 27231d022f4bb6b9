"""What the nodes of a graph are over the field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import NotProvedError
from .field import PRIME, Elements, Numbers, add, multiply, of_int
from .keyed import Keys
from .normal_forms import BYTE, INT32, Kinds, closed, numbers_digest

Array = npt.NDArray[Any]

MOST_SIZE = float(1 << 59)
"""Of the coefficients of a polynomial, in sum: two polynomials below it that are equal modulo the prime are equal."""

MOST_SIZE_OF_BYTE = float(1 << 12)
"""Of those of a value in 8 bits, which is what the verifier takes all values in memories of bytes to have."""

MOST_DEGREE_OF_BYTE = 2


def check_size(size: float, what: str) -> None:
    """Raise NotProvedError for coefficients that equality modulo the prime does not tell apart."""
    if size > MOST_SIZE:
        raise NotProvedError(f"{what}: numbers grow so large that equal remainders would prove nothing")


@dataclass(frozen=True, eq=False)
class OneByte:
    """A function of one value of at most 256 numbers. ``base``: the value, (N, C, ...), counted from its least number;
    ``table``: for each channel (or all) the results for 0, 1, ..., whole numbers before they wrap. ``base_size``,
    ``base_degree``: bounds of the base as a polynomial."""

    base: Elements
    table: Numbers  # (numbers, C) or (numbers, 1)
    base_size: float = MOST_SIZE_OF_BYTE
    base_degree: float = MOST_DEGREE_OF_BYTE

    @property
    def size(self) -> float:
        """Of `elements`: a multiple of the base and a number, or one atom and a number."""
        steepest = float(np.abs(self.table[1:2] - self.table[:1]).max(initial=0))
        return max(steepest * self.base_size, 1) + float(np.abs(self.table).max(initial=0))

    def elements(self, keys: Keys) -> Elements:
        """The values: as they are where the function is a multiple and a constant, else a random function of the
        base, which has the table's content as its name. That is counted from the first result, which is added, so that
        a function and the same one plus a number differ by that number."""
        first = self.table[0]
        slopes = self.table[1] - first if len(self.table) > 1 else np.zeros_like(first)
        straight = slopes * np.arange(len(self.table))[:, None] + first
        is_straight = (straight == self.table).all(0)
        start = self._in_channels(of_int(first))
        lines = add(multiply(self.base, self._in_channels(of_int(slopes))), start)
        if is_straight.all():
            return lines
        name = numbers_digest(keys, self.table - first)
        unequal = add(keys.hashed(self.base, "function of a byte", self._in_channels(name)), start)
        return np.where(self._in_channels(is_straight), lines, unequal)

    def _in_channels(self, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return x.reshape((1, -1) + (1,) * (self.base.ndim - 2)) if self.base.ndim > 1 else x


def without_repeats(table: Numbers) -> Numbers:
    """(numbers, C), or (numbers, 1) where all channels have the same results."""
    return table[:, :1] if table.shape[1] and (table == table[:, :1]).all() else table


@dataclass(eq=False)
class Value:
    """``make``: elements and what they are open sums of. ``low``, ``high``: bounds of the numbers that they stand for,
    before they wrap to 32 bits. ``size``, ``degree``: bounds of them as polynomials. ``of_byte``: as a function of one
    8-bit value, where it is one. ``numbers``: of a constant."""

    make: Callable[[], tuple[Elements, Kinds]]
    low: int = INT32[0]
    high: int = INT32[1]
    size: float = 1.0
    degree: float = 1.0
    of_byte: OneByte | None = None
    numbers: Numbers | None = None

    def __post_init__(self) -> None:
        check_size(self.size, "the graph")
        if self.low < INT32[0] or self.high > INT32[1]:
            self.low, self.high = INT32

    @cached_property
    def _made(self) -> tuple[Elements, Kinds]:
        made = self.make()
        self.make = lambda: made
        return made

    @property
    def open_elements(self) -> Elements:
        return self._made[0]

    @property
    def kind(self) -> Kinds:
        return self._made[1]

    def elements(self, keys: Keys) -> Elements:
        """The values, ready for any operation."""
        return closed(keys, *self._made)

    @property
    def is_byte(self) -> bool:
        return BYTE[0] <= self.low and self.high <= BYTE[1]

    @property
    def bounds(self) -> tuple[Numbers, Numbers]:
        return np.array(self.low), np.array(self.high)


def plain(elements: Elements) -> tuple[Elements, Kinds]:
    """Elements that are no open sums."""
    return elements, np.broadcast_to(np.uint8(0), elements.shape)


def known(
    elements: Elements, low: int = INT32[0], high: int = INT32[1], *, size: float = 1, degree: float = 1
) -> Value:
    """A value of elements that are there."""
    return Value(lambda: plain(elements), low, high, size, degree)


def bytes_value(elements: Elements) -> Value:
    """A value in 8 bits."""
    return known(elements, *BYTE, size=MOST_SIZE_OF_BYTE, degree=MOST_DEGREE_OF_BYTE)


def constant_value(x: Array) -> Value:
    """Of whole numbers."""
    numbers = x.astype(np.int64)
    low, high = (int(numbers.min()), int(numbers.max())) if numbers.size else (0, 0)
    if max(abs(low), abs(high)) > PRIME // 2:
        raise NotProvedError("a constant of more than 60 bits")
    size = float(max(abs(low), abs(high), 1))
    return Value(lambda: plain(of_int(numbers)), low, high, size, 0, numbers=numbers)
