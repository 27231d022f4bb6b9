"""Ranges: what was seen, and what is cut off of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.compiler.graph import Array, Constant, Module
from weft.compiler.operators import nn
from weft.quantise import QuantiseError, Range, calibrate, plan
from weft.quantise.ranges import Method

from .networks import NETWORKS, Weights, examples, image, module_of


def doubled() -> Module:
    """y = 2 * x through a convolution: ranges are known."""
    x = image(1)
    return module_of(nn.conv2d(x, Constant(np.full((1, 1, 1, 1), 2, np.float32), "w")), params=(x,))


def batch(*values: float) -> dict[str, Array]:
    array = np.zeros((1, 1, 6, 6), np.float32)
    array.reshape(-1)[: len(values)] = values
    return {"x": array}


def test_the_whole_range_of_all_batches_counts_and_zero_is_in_it() -> None:
    found = calibrate(plan(doubled()), [batch(1.0, 3.0), batch(-2.0), batch(0.5)])
    assert found == {"x": Range(-2.0, 3.0), "value": Range(-4.0, 6.0)}


@given(st.floats(-1e6, 0), st.floats(0, 1e6))
def test_zero_is_one_of_the_integers_and_the_ends_are_near_the_outermost(low: float, high: float) -> None:
    span = Range(low, high)
    assert span.scale > 0
    ends = (-128 - span.zero_point) * span.scale, (127 - span.zero_point) * span.scale
    if high - low > 1e-30:
        assert abs(ends[0] - low) <= 0.51 * span.scale
        assert abs(ends[1] - high) <= 0.51 * span.scale


def outliers() -> list[dict[str, Array]]:
    """Normal values with one of a hundred times their size."""
    generator = np.random.default_rng(0)
    batches = [{"x": generator.normal(size=(1, 1, 6, 6)).astype(np.float32)} for _ in range(300)]
    batches[7]["x"][0, 0, 0, 0] = 100
    return batches


def test_outliers_are_cut_off_where_that_is_asked_for() -> None:
    methods: tuple[Method, ...] = ("minmax", "percentile", "mse")
    found = {method: calibrate(plan(doubled()), outliers(), method=method)["x"] for method in methods}
    assert found["minmax"].high == 100
    assert found["percentile"].high < 10
    assert -5 < found["percentile"].low < -2.5
    few = calibrate(plan(doubled()), outliers(), method="percentile", percentile=99.0)["x"]
    assert few.low > found["percentile"].low


def test_the_method_mse_loses_least() -> None:
    """Against every other share of the range, by brute force over the very values."""
    generator = np.random.default_rng(1)
    batches = [{"x": generator.laplace(size=(1, 1, 6, 6)).astype(np.float32)} for _ in range(200)]
    values = np.concatenate([each["x"].ravel() for each in batches]).astype(np.float64)
    whole = calibrate(plan(doubled()), batches)["x"]

    def loss(span: Range) -> float:
        steps = np.clip(np.rint(values / span.scale) + span.zero_point, -128, 127) - span.zero_point
        return float(((steps * span.scale - values) ** 2).sum())

    chosen = calibrate(plan(doubled()), batches, method="mse")["x"]
    best = min(loss(Range(whole.low * share, whole.high * share)) for share in np.linspace(0.2, 1, 161))
    assert chosen != whole
    assert loss(chosen) <= 1.02 * best


@pytest.mark.parametrize(
    ("batches", "arguments", "message"),
    [
        ([], {}, "there are no examples"), ([], {"method": "mse"}, "there are no examples"),
        ([batch(np.nan)], {}, "'x' has values that are not finite"),
        ([batch(np.inf)], {}, "'x' has values that are not finite"),
        ([batch(1.0)], {"method": "best"}, "there is no method 'best'"),
        ([batch(1.0)], {"percentile": 50.0}, r"percentile is 50\.0, but must be above 50"),
    ],
)  # fmt: skip
def test_bad_examples_are_refused(batches: list[dict[str, Array]], arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(QuantiseError, match=message):
        calibrate(plan(doubled()), batches, **arguments)


def test_each_batch_is_reported() -> None:
    module = NETWORKS["residual"]()
    lines: list[str] = []
    calibrate(plan(module), examples(module, 3), method="mse", progress=lines.append)
    assert lines == [*(f"ranges: batch {n}" for n in (1, 2, 3)), *(f"histograms: batch {n} of 3" for n in (1, 2, 3))]


def test_places_have_names_of_their_own() -> None:
    w, x = Weights(), image()
    y = nn.conv2d(nn.conv2d(x, w(3, 3, 1, 1, name="w")), w(3, 3, 1, 1, name="w"))
    found = plan(module_of(y, params=(x,)))
    assert [each.name for each in found.weights.values()] == ["w", "w.2"]
    assert len(set(found.values)) == len(found.values) == 3


@pytest.mark.parametrize("ends", [(1.0, 2.0), (0.0, -1.0), (float("nan"), 1.0), (-1.0, float("inf"))])
def test_ends_that_are_no_range_are_refused(ends: tuple[float, float]) -> None:
    with pytest.raises(QuantiseError, match=r"a range from .* to .*, but 0 must lie in it, and its ends be finite"):
        Range(*ends)


def test_operands_of_attention_have_no_zero_point_where_that_is_asked_for() -> None:
    places = plan(NETWORKS["attention"]())
    given_ = examples(places.module, 3)
    plain, centred = calibrate(places, given_), calibrate(places, given_, symmetric_products=True)
    changed = {name for name in plain if plain[name] != centred[name]}
    assert 0 < len(changed) <= 4  # of two products the operands, of which one is a range to both sides already perhaps
    assert all(centred[name].zero_point == 0 and centred[name].low == -centred[name].high for name in changed)
    assert all(max(-plain[name].low, plain[name].high) == centred[name].high for name in changed)


@given(st.floats(1e-6, 1e6))
def test_as_much_room_to_both_sides_is_no_zero_point(far: float) -> None:
    assert Range(-far, far).zero_point == 0
