"""Weights as a sum of two whose products with any bytes can be added up by pairs in 16 bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from weft.compiler.targets.loops.byte_pairs import bears_pairs, by_pairs

ENDS = np.array([-128, -127, -65, -64, -1, 0, 1, 63, 64, 65, 127], np.int8)


def fits(weights: np.ndarray) -> bool:
    """Whether no data make a sum of two products that has more than 16 bits: the extremes are at 0 and 255."""
    pairs = weights.reshape(-1, 2).astype(np.int32)
    high = 255 * np.maximum(pairs, 0).sum(1)
    low = 255 * np.minimum(pairs, 0).sum(1)
    return bool((high <= 32767).all() and (low >= -32768).all())


def test_every_pair_is_judged_as_its_sums_are() -> None:
    numbers = np.arange(-128, 128, dtype=np.int8)
    for first in numbers:
        for pair in np.stack([np.full(256, first), numbers], 1)[:, np.newaxis]:
            assert bears_pairs(pair) == fits(pair)


@pytest.mark.parametrize("weights", [np.zeros((2, 4), np.uint8), np.zeros((2, 3), np.int8), np.zeros((), np.int8)])
def test_what_has_no_pairs_of_int8_bears_none(weights: np.ndarray) -> None:
    assert not bears_pairs(weights)


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(*[st.integers(1, 3)] * 4).flatmap(
        lambda shape: arrays.arrays(np.int8, (*shape[:3], 2 * shape[3], 4), elements=st.sampled_from([*ENDS.tolist()]))
    ),
    st.booleans(),
)
def test_two_parts_add_up_to_the_weights_and_bear_pairs(packed: np.ndarray, halves: bool) -> None:
    *_, lanes, _ = packed.shape
    parts = by_pairs(packed, together := lanes // 2 if halves else lanes)
    assert bears_pairs(parts.most)
    assert not parts.rest.size or bears_pairs(parts.rest)
    total = parts.most.astype(np.int32)
    split = packed.reshape(*packed.shape[:-2], -1, together, 4)
    for tile, part in np.ndindex(*parts.rest.shape[:2]):
        for weights, place in zip(parts.rest[tile, part], parts.places[tile, part], strict=True):
            total[(tile, *place, slice(part * together, (part + 1) * together))] += weights
    np.testing.assert_array_equal(total, packed)
    counts = [
        sum(not bears_pairs(step) for step in split[tile, ..., part, :, :].reshape(-1, together, 4))
        for tile, part in np.ndindex(*parts.rest.shape[:2])
    ]
    assert parts.rest.shape[2] == max(counts)
