"""Arithmetic modulo 2^61 - 1 against whole numbers of Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.verify.field import (
    PRIME,
    add,
    fold,
    halves,
    join,
    matrix_product,
    multiply,
    of_int,
    subtract,
    times_power,
    to_int,
    weighted,
)

ELEMENTS = st.one_of(
    st.integers(0, PRIME - 1), st.sampled_from([0, 1, PRIME - 1, PRIME // 2, PRIME // 2 + 1, (1 << 31) - 1, 1 << 31])
)


def element(number: int) -> np.ndarray:
    return np.array([number], np.uint64)


@given(ELEMENTS, ELEMENTS, st.integers(0, 60))
def test_arithmetic_of_two_elements(a: int, b: int, bits: int) -> None:
    x, y = element(a), element(b)
    assert add(x, y)[0] == (a + b) % PRIME
    assert subtract(x, y)[0] == (a - b) % PRIME
    assert multiply(x, y)[0] == a * b % PRIME
    assert times_power(x, bits)[0] == (a << bits) % PRIME
    assert join(halves(x))[0] == a


@given(st.integers(0, (1 << 64) - 1))
def test_any_word_folds_into_its_remainder(word: int) -> None:
    assert fold(element(word))[0] % PRIME == word % PRIME
    assert fold(element(word))[0] < PRIME


@given(st.integers(-(1 << 60) + 1, (1 << 60) - 1))
def test_whole_numbers_come_back(number: int) -> None:
    assert to_int(of_int([number]))[0] == number


@pytest.mark.parametrize("terms", [1, 7, 1 << 15, (1 << 15) + 3, (1 << 17) - 5])
@pytest.mark.parametrize("weight", [-128, 127])
def test_sums_of_products_with_the_largest_weights_are_exact(terms: int, weight: int) -> None:
    """All halves and all weights are the largest that there are: sums that are longer would show."""
    x = np.full((2, terms), (1 << 61) - 3, np.uint64)
    wanted = ((1 << 61) - 3) * terms * weight % PRIME
    assert (weighted(halves(x), np.full((terms, 3), float(weight))) == np.uint64(wanted)).all()


@pytest.mark.parametrize("terms", [1, 5, 2048, 2049])
def test_products_of_matrices_of_elements(terms: int) -> None:
    random = np.random.default_rng(terms)
    a = random.integers(0, PRIME, (2, terms), np.uint64)
    b = np.full((terms, 2), PRIME - 1, np.uint64)
    wanted = [[sum(int(x) * int(y) for x, y in zip(row, column, strict=True)) % PRIME for column in b.T] for row in a]
    assert matrix_product(a, b).tolist() == wanted
