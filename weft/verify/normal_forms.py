"""What is no polynomial, in one normal form for every side that is compared.

The largest (or least) of several values is a sum of one random function of each, so that order and grouping do not
matter. Such a sum is *open*: it may take more values. Before anything else is done with it, it is closed by one more
random function: sums of sums would not tell which values were compared with which.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..roundings import HALF_UP
from .field import Elements, Numbers, add, of_int, times_power
from .keyed import Keys, parameter

Kinds = npt.NDArray[np.uint8]
"""For each value: 0, or what it is an open sum of."""

LARGEST, LEAST = 1, 2
BYTE = (-128, 127)
INT32 = (-(1 << 31), (1 << 31) - 1)
_NAMES = {LARGEST: "largest", LEAST: "least"}
_WINS_NEVER = {LARGEST: BYTE[0], LEAST: BYTE[1]}  # beside what is int8
_IDENTITIES = {LARGEST: INT32[0], LEAST: INT32[1]}
TABLE_ENTRIES = 256


def closed(keys: Keys, x: Elements, kind: Kinds) -> Elements:
    """Values that may go into any operation."""
    if not kind.any():
        return x
    for which, name in _NAMES.items():
        chosen = kind == which
        if chosen.any():
            x = x.copy()
            x[chosen] = keys.hashed(x[chosen], f"{name} of all")
    return x


def extreme(
    keys: Keys, which: int, a: tuple[Elements, Kinds], b: tuple[Elements, Kinds], a_bounds: tuple[Numbers, Numbers],
    b_bounds: tuple[Numbers, Numbers],
) -> tuple[Elements, Kinds]:  # fmt: skip
    """The largest or least of two arrays, element by element; bounds broadcast to them.

    A number that cannot win against what it meets leaves the other operand as it is.
    """
    terms = [_term(keys, which, *each) for each in (a, b)]
    result = add(*terms)
    kind: Kinds = np.full(result.shape, which, np.uint8)
    for (_, bounds), (other, other_bounds) in (((a, a_bounds), (b, b_bounds)), ((b, b_bounds), (a, a_bounds))):
        gone = vanishes(which, bounds, other_bounds)
        if gone.any():
            result, kind = np.where(gone, other[0], result), np.where(gone, other[1], kind)
    return result, kind


def _term(keys: Keys, which: int, x: Elements, kind: Kinds) -> Elements:
    """The part of a sum that values are."""
    is_open = kind == which
    if is_open.all():
        return x
    fresh = keys.hashed(closed(keys, x, np.where(is_open, 0, kind).astype(np.uint8)), _NAMES[which])
    return np.where(is_open, x, fresh)


def vanishes(which: int, bounds: tuple[Numbers, Numbers], other: tuple[Numbers, Numbers]) -> npt.NDArray[np.bool_]:
    """Where values are numbers that cannot win against what they meet."""
    number, is_number = bounds[0], bounds[0] == bounds[1]
    other_is_byte = (other[0] >= BYTE[0]) & (other[1] <= BYTE[1])
    limit = _WINS_NEVER[which]
    hopeless = (number <= limit if which == LARGEST else number >= limit) & other_is_byte
    return np.asarray(is_number & (hopeless | (number == _IDENTITIES[which])))


def requantise(
    keys: Keys, x: Elements, bias: Elements, multiplier: Elements, shift: Elements, limits: tuple[int, int, int],
    left_shift: int = 0, rows: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None = None,
    rounding: str = HALF_UP,
) -> Elements:  # fmt: skip
    """``limits``: zero point, low, high. ``rows``: of ``x``, and for each of them the row of the parameters that it
    has; without, ``x`` and the parameters broadcast.

    The bias joins the argument and the zero point the limits, since two programs may split these differently. Equal
    limits leave a constant, which is how padding may be written; so does a multiplier of 0, which padded channels have.
    """
    zero_point, low, high = limits
    if low >= high:
        shape = x.shape if rows is None else (len(rows[0]), x.shape[1])
        return np.broadcast_to(of_int(high << left_shift), shape)
    key = keys.key(f"requantise {rounding}", low - zero_point, high - zero_point, multiplier, shift)
    empty = multiplier == 0
    if rows is None:
        value = add(keys.under(key, add(x, bias)), of_int(zero_point))
    else:
        own, each = rows
        key, bias, empty = (np.broadcast_to(part, (len(multiplier), x.shape[1])) for part in (key, bias, empty))
        value = keys.under_sums(key, bias, each, x, own, zero_point)
        empty = empty[each] if empty.any() else empty[:0]
    if empty.any():
        value = np.where(empty, of_int(min(max(zero_point, low), high)), value)
    return times_power(value, left_shift)


def looked_up(keys: Keys, x: Elements, digest: Elements) -> Elements:
    """``digest``: of the table, for each lane."""
    return keys.hashed(x, "table", digest)


def table_digest(keys: Keys, table: Elements) -> Elements:
    """Of tables (256, ...) of elements, from the entry of 0 on: what stands for their content."""
    total = np.zeros(table.shape[1:], np.uint64)
    for number, entry in enumerate(table):
        total = add(total, keys.hashed(entry, "entry", number))
    return total


def numbers_digest(keys: Keys, table: Numbers) -> Elements:
    """`table_digest` of whole numbers."""
    return table_digest(keys, parameter(table))


def narrowed(keys: Keys, x: Elements, low: Numbers, high: Numbers) -> Elements:
    """The low 8 bits as a signed number: the value itself where its bounds say that it is int8."""
    inside = (low >= BYTE[0]) & (high <= BYTE[1])
    if inside.all():
        return x
    return np.where(inside, x, keys.hashed(x, "low 8 bits"))
