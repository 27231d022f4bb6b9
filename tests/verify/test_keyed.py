"""Random functions: SipHash's own test vector, and what a seed decides."""

from __future__ import annotations

import numpy as np
from weft.verify.field import PRIME, add, of_int
from weft.verify.keyed import Keys, fresh_seed, keyed_words


def test_the_function_is_siphash() -> None:
    """The 16 bytes 0, 1, ..., 15 under the key 0, 1, ..., 15: vector 16 of SipHash-2-4's reference."""
    words = np.arange(16, dtype=np.uint8).view("<u8")
    assert keyed_words(words, words[:1], words[1:])[0] == 0x3F2ACC7F57C29BDB


def test_operands_broadcast() -> None:
    secret, first, second = np.arange(2, dtype=np.uint64), np.arange(3, dtype=np.uint64), np.arange(2, dtype=np.uint64)
    made = keyed_words(secret, first[:, None], second)
    single = [[keyed_words(secret, first[i : i + 1], second[j : j + 1])[0] for j in range(2)] for i in range(3)]
    assert made.tolist() == single


def test_a_seed_decides_everything_and_nothing_else_does() -> None:
    x = np.arange(5, dtype=np.uint64)
    first, again, other = Keys(1), Keys(1), Keys(2)
    again.atoms((7,), "something that was asked before")
    assert (first.hashed(x, "f", 3) == again.hashed(x, "f", 3)).all()
    assert (first.atoms((4,), "a") == again.atoms((4,), "a")).all()
    assert not (first.hashed(x, "f", 3) == other.hashed(x, "f", 3)).any()


def test_functions_differ_by_name_and_by_every_parameter() -> None:
    keys, x = Keys(0), np.zeros(1, np.uint64)
    array = np.array([1, 2], np.uint64)
    found = [keys.hashed(x, "f"), keys.hashed(x, "g"), keys.hashed(x, "f", 1), keys.hashed(x, "f", -1),
             keys.hashed(x, "f", 1, array), keys.hashed(x, "f", array), keys.hashed(x, "f", array, array)]  # fmt: skip
    values = np.concatenate(found)
    assert len(set(values.tolist())) == len(values) == 4 + 3 * len(array)
    twice = keys.hashed(x, "f", np.array([2, 1], np.uint64))
    assert (twice == keys.hashed(x, "f", array)[::-1]).all()


def test_seeds_are_drawn_anew() -> None:
    assert fresh_seed() != fresh_seed()


def test_sums_in_one_pass_are_sums_and_then_the_function() -> None:
    """Also at the ends of the field, and for negative offsets."""
    keys, random = Keys(3), np.random.default_rng(0)
    x, added, key = (random.integers(0, PRIME, (rows, 5), dtype=np.uint64) for rows in (7, 3, 3))
    x[0], added[0] = PRIME - 1, [0, 1, 2, PRIME - 1, PRIME - 2]
    rows, each = np.array([0, 6, 0, 3, 2]), np.array([0, 2, 1, 1, 0])
    for offset in (-128, 0, 127):
        made = keys.made
        wanted = add(keys.under(key[each], add(x[rows], added[each])), of_int(offset))
        assert (keys.under_sums(key, added, each, x, rows, offset) == wanted).all()
        assert keys.made == made + 2 * wanted.size
