"""Convolutions by fewer products, in whole numbers: against sums of all products, and what bears them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.compiler.graph import Constant, TensorType, Var, call
from weft.compiler.targets.loops.winograd import (
    MADE,
    TiledAxis,
    bears,
    tiled_axes,
    transformed_weights,
)


@given(st.integers(1, 60), st.integers(1, 5))
def test_every_result_has_one_place_in_one_tile(size: int, dilation: int) -> None:
    axis = TiledAxis(size, dilation)
    assert axis.whole >= size
    places = [axis.first(position) + each * dilation for position in range(axis.positions) for each in range(MADE)]
    assert sorted(places) == list(range(axis.whole))
    for place in range(axis.whole):
        assert axis.first(axis.position(place)) + axis.which(place) * dilation == place


def test_weights_of_a_window_give_twice_its_sums() -> None:
    random = np.random.default_rng(0)
    weights = random.integers(-128, 128, (2, 3, 3), np.int8)
    data = random.integers(0, 256, (3, 4))
    a, b, c, d = data.T
    terms = np.stack([a - c, b + c, c - b, b - d], 1)
    products = (terms * transformed_weights(weights, 1)).sum(1)
    first = products[:, 0] + products[:, 1] + products[:, 2]
    second = products[:, 1] - products[:, 2] - products[:, 3]
    for made, each in zip((first, second), (data[:, :3], data[:, 1:]), strict=True):
        np.testing.assert_array_equal(made, 2 * (weights.astype(int) * each).sum((1, 2)))


def test_weights_are_words_at_their_ends() -> None:
    for value in (-128, 127):
        weights = np.full((1, 1, 3, 3), value, np.int8)
        assert np.abs(transformed_weights(weights, 2).astype(int)).max() == 9 * abs(value)


@pytest.mark.parametrize("axes", [1, 2])
def test_sums_that_would_wrap_are_refused(axes: int) -> None:
    """The last number of weights that bears it has sums below 2^31, the next one does not."""
    most = ((1 << 31) - 1) // (255 * 128 << axes)
    for count, fits in ((most, True), (most + 1, False)):
        weights = np.full((1, count, 1, 1), -128, np.int8)
        assert bears(weights, axes) is fits
    assert bears(np.full((1, 4096, 3, 3), -128, np.int8), axes) is (most >= 4096 * 9)


@pytest.mark.parametrize(
    ("kernel", "attrs", "wanted"),
    [
        ((3, 3), {}, 2), ((1, 3), {}, 1), ((3, 1), {}, 0), ((5, 3), {}, 1), ((3, 3), {"strides": (2, 1)}, 1),
        ((3, 3), {"strides": (1, 2)}, 0), ((3, 3), {"dilations": (4, 4), "pads": (4,) * 4}, 2),
        ((3, 3), {"dilations": (5, 1), "pads": (5, 0, 5, 0)}, 1), ((2, 2), {}, 0),
    ],
)  # fmt: skip
def test_axes_of_windows_of_three(kernel: tuple[int, int], attrs: dict[str, tuple[int, ...]], wanted: int) -> None:
    x = Var("x", TensorType((1, 8, 9, 12), "int8"))
    weights = np.ones((8, 8, *kernel), np.int8)
    assert len(tiled_axes(call("conv2d", x, Constant(weights), **attrs), weights)) == wanted
