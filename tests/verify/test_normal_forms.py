"""Equal functions have equal forms, and unequal ones have not."""

from __future__ import annotations

import itertools

import numpy as np
from weft.verify.field import PRIME, Elements, add, of_int
from weft.verify.keyed import Keys
from weft.verify.normal_forms import BYTE, LARGEST, LEAST, Kinds, closed, extreme, narrowed, requantise
from weft.verify.values import OneByte

KEYS = Keys(5)
BOUNDS = np.array(BYTE[0]), np.array(BYTE[1])
Form = tuple[Elements, Kinds]


def atom(name: str) -> Form:
    return KEYS.atoms((1,), name), np.zeros(1, np.uint8)


def number(value: int) -> tuple[Form, tuple[np.ndarray, np.ndarray]]:
    return (of_int([value]), np.zeros(1, np.uint8)), (np.array(value), np.array(value))


def largest(a: Form, b: Form) -> Form:
    return extreme(KEYS, LARGEST, a, b, BOUNDS, BOUNDS)


A, B, C, D = (atom(name) for name in "abcd")


def test_order_and_grouping_of_the_largest_do_not_matter() -> None:
    forms = {int(largest(largest(x, y), z)[0][0]) for x, y, z in itertools.permutations((A, B, C))}
    forms |= {int(largest(x, largest(y, z))[0][0]) for x, y, z in itertools.permutations((A, B, C))}
    assert len(forms) == 1


def test_sums_of_largest_values_tell_what_was_compared_with_what() -> None:
    """max(a, b) + max(c, d) is not max(a, c) + max(b, d)."""
    first, second, third, fourth = (closed(KEYS, *largest(x, y)) for x, y in ((A, B), (C, D), (A, C), (B, D)))
    assert add(first, second) != add(third, fourth)


def test_a_largest_is_no_least() -> None:
    least = extreme(KEYS, LEAST, A, B, BOUNDS, BOUNDS)
    assert least[0] != largest(A, B)[0]
    mixed = extreme(KEYS, LEAST, largest(A, B), C, BOUNDS, BOUNDS)
    other = extreme(KEYS, LEAST, largest(A, C), B, BOUNDS, BOUNDS)
    assert mixed[0] != other[0]


def test_a_number_that_cannot_win_vanishes_and_others_do_not() -> None:
    for which, hopeless, winner in ((LARGEST, -128, -127), (LEAST, 127, 126), (LARGEST, -(1 << 31), 127)):
        form, bounds = number(hopeless)
        assert (extreme(KEYS, which, A, form, BOUNDS, bounds)[0] == A[0]).all()
        assert (extreme(KEYS, which, form, A, bounds, BOUNDS)[0] == A[0]).all()
        form, bounds = number(winner)
        assert (extreme(KEYS, which, A, form, BOUNDS, bounds)[0] != A[0]).all()


def test_a_number_wins_against_what_may_be_less_than_a_byte() -> None:
    form, bounds = number(-128)
    wide = np.array(-129), np.array(0)
    assert (extreme(KEYS, LARGEST, A, form, wide, bounds)[0] != A[0]).all()


def _requantised(x: Elements, bias: int, factor: int, shift: int, limits: tuple[int, int, int], left: int = 0) -> int:
    parameters = (of_int([[value]]) for value in (bias, factor, shift))
    return int(requantise(KEYS, x[:, None], *parameters, limits, left)[0, 0])  # type: ignore[arg-type]


def test_requantises_are_equal_where_they_are_the_same_function() -> None:
    x = A[0]
    base = _requantised(x, 3, 5, 7, (2, -100, 90))
    assert _requantised(add(x, of_int([3])), 0, 5, 7, (2, -100, 90)) == base
    shifted = add(np.array([base], np.uint64), of_int([10]))
    assert _requantised(x, 3, 5, 7, (12, -90, 100)) == int(shifted[0])
    assert _requantised(x, 3, 0, 7, (2, -100, 90)) == 2  # a multiplier of 0
    assert _requantised(x, 3, 5, 7, (2, 9, 9)) == 9
    assert _requantised(x, 3, 5, 7, (2, 9, 8)) == 8  # the upper limit is applied last
    assert _requantised(x, 3, 0, 7, (-120, -100, 90), 2) % 4 == int(of_int(-400)) % 4


def test_a_requantise_rounds_in_float32_or_it_does_not() -> None:
    parameters = [of_int([[value]]) for value in (3, 5, 7)]
    exact, float32 = (
        requantise(KEYS, A[0][:, None], *parameters, (2, -100, 90), rounding=rounding)  # type: ignore[arg-type]
        for rounding in ("half_up", "float32")
    )
    assert (exact != float32).all()


def test_requantises_differ_by_every_parameter() -> None:
    x = A[0]
    base = (3, 5, 7, (2, -100, 90), 0)
    changed = [(4, *base[1:]), (3, 6, *base[2:]), (3, 5, 8, *base[3:]), (3, 5, 7, (3, -100, 90), 0),
               (3, 5, 7, (2, -99, 90), 0), (3, 5, 7, (2, -100, 91), 0), (3, 5, 7, (2, -100, 90), 1)]  # fmt: skip
    found = {_requantised(x, *each) for each in (base, *changed)}
    assert len(found) == 1 + len(changed)


def test_narrowing_keeps_only_what_is_known_to_be_a_byte() -> None:
    assert (narrowed(KEYS, A[0], *BOUNDS) == A[0]).all()
    assert (narrowed(KEYS, A[0], np.array(-129), np.array(127)) != A[0]).all()
    assert (narrowed(KEYS, A[0], np.array(-128), np.array(128)) != A[0]).all()


def test_a_function_of_a_byte_plus_a_number_is_the_same_function_and_that_number() -> None:
    random = np.random.default_rng(0)
    base = random.integers(0, PRIME, (1, 2, 3), dtype=np.uint64)
    table = random.integers(-128, 128, (256, 2))
    values = OneByte(base, table).elements(KEYS)
    assert (OneByte(base, table + 128).elements(KEYS) == add(values, of_int(128))).all()
    table[7, 1] ^= 1
    other = OneByte(base, table).elements(KEYS)
    assert (other == values).all((0, 2)).tolist() == [True, False]
