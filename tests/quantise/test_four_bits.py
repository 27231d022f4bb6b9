"""Weights of 4 bits: numbers of the right form, close to the floats, and refused by name where there are none."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Attrs, Constant, Expr, Function, Module, TensorType, Var, call, evaluate
from weft.hw.config import PYNQ_W4
from weft.quantise import QuantiseError
from weft.quantise.four_bits import fitted

from examples.story.network import Size, layer_module


def has_the_form(group: np.ndarray) -> bool:
    return any(
        all(value % scale == 0 and 0 <= value // scale + zero <= 15 for value in group.tolist())
        for scale, zero in product(range(1, 16), range(16))
    )


@settings(max_examples=30, deadline=None)
@given(
    outputs=st.integers(1, 3), groups=st.integers(1, 3), seed=st.integers(0, 1 << 16),
    size=st.sampled_from([0.0, 1e-20, 1.0, 1e6]), shift=st.sampled_from([-3.0, 0.0, 2.0]),
)  # fmt: skip
def test_every_group_has_the_form_and_is_an_int8(
    outputs: int, groups: int, seed: int, size: float, shift: float
) -> None:
    real = size * (np.random.default_rng(seed).normal(size=(outputs, groups * 32)) + shift)
    integers, scale, _ = fitted(real, 32)
    assert integers.dtype == np.int8
    assert integers.shape == real.shape
    assert np.isfinite(scale).all()
    assert (scale > 0).all()
    for group in integers.reshape(-1, 32):
        assert has_the_form(group)
    # No code is further from its weight than a step of the coarsest group, unless the search cut an outlier.
    assert np.abs(real - integers * scale[:, None]).max() <= 0.5 * np.abs(real).max()


@pytest.mark.parametrize(("group", "least"), [(32, 21.9), (64, 20.9), (128, 20.2)])
def test_the_error_is_little_more_than_with_float_scales(group: int, least: float) -> None:
    """Float scales and zero points a group, searched as well, leave 22.2, 21.2 and 20.4 dB of these weights."""
    real = np.random.default_rng(0).normal(size=(48, 2048))
    assert fitted(real, group)[2] > least


def test_a_zero_point_is_worth_its_bits() -> None:
    real = np.abs(np.random.default_rng(1).normal(size=(16, 256)))
    assert fitted(real, 64)[2] > fitted(np.where(np.arange(256) % 2, real, -real), 64)[2] + 3


def layers(kernel: int = 1, groups: int = 1) -> Module:
    x = Var("x", TensorType((1, 64, 6, 6), "float32"))
    random = np.random.default_rng(2)

    def conv(value: Expr, filters: int, name: str, size: int = 1, parts: int = 1) -> Expr:
        shape = (filters, value.shape[1] // parts, size, size)
        weights = Constant(random.normal(0, 0.1, shape).astype(np.float32), name)
        return call("nn.conv2d", value, weights, groups=parts, pads=(size // 2,) * 4)

    body = call("nn.maximum", conv(x, 128, "first", kernel, groups), Constant(np.float32(0)))
    body = conv(body, 48, "second")
    return Module(Function((x,), body, Attrs({"name": "main", "outputs": ("y",)})))


EXAMPLES = [{"x": np.random.default_rng(seed).normal(0, 1, (1, 64, 6, 6)).astype(np.float32)} for seed in range(3)]


def test_a_network_is_the_same_on_both_targets_and_near_the_floats() -> None:
    plan = weft.quantise.plan(layers())
    ranges = weft.quantise.calibrate(plan, EXAMPLES)
    found = weft.quantise.four_bits(plan, 64)
    assert set(found) == {"first", "second"}
    module = weft.quantise.quantised(plan, ranges, found)
    core = weft.compile(module, PYNQ_W4)
    plain = weft.compile(weft.quantise.quantised(plan, ranges), PYNQ_W4)
    assert core.statistics["constant_bytes"] < 0.62 * plain.statistics["constant_bytes"]
    wanted = weft.load(weft.compile(module, target="cpu")).run(EXAMPLES[0])["y"]
    np.testing.assert_array_equal(weft.load(core, "fsim").run(EXAMPLES[0])["y"], wanted)
    floats = evaluate(layers(), EXAMPLES[0])["y"]
    assert np.square(wanted - floats).sum() < 0.03 * np.square(floats).sum()


def test_layers_are_chosen_by_name_or_by_their_error() -> None:
    plan = weft.quantise.plan(layers())
    assert set(weft.quantise.four_bits(plan, 64, layers=["second"])) == {"second"}
    every = weft.quantise.four_bits(plan, 64)
    least = sorted(each.decibels for each in every.values())
    assert len(weft.quantise.four_bits(plan, 64, least_decibels=(least[0] + least[1]) / 2)) == 1


@pytest.mark.parametrize(
    ("module", "group", "names", "message"),
    [
        (layers(), 48, None, "groups of 48 exist on no core; hint: one of: 32, 64, 128"),
        (layers(), 64, ["third"], "the plan has no weight 'third'; hint: those that can: first, second"),
        (layers(), 128, ["first"], "'first' cannot have 4 bits: its depth of 64 is no multiple of 128"),
        (layers(kernel=3), 64, ["first"], "'first' cannot have 4 bits: only convolutions of one pixel"),
        (layers(groups=2), 32, ["first"], "'first' cannot have 4 bits: its convolution has groups of channels"),
    ],
)
def test_what_cannot_have_4_bits_is_refused(module: Module, group: int, names: list[str], message: str) -> None:
    with pytest.raises(QuantiseError, match=message):
        weft.quantise.four_bits(weft.quantise.plan(module), group, layers=names)


def test_the_4_bits_of_another_plan_are_refused() -> None:
    plan = weft.quantise.plan(layers())
    ranges = weft.quantise.calibrate(plan, EXAMPLES)
    found = weft.quantise.four_bits(plan, 64)
    with pytest.raises(QuantiseError, match="the plan has no such weight 'other'"):
        weft.quantise.quantised(plan, ranges, {"other": found["first"]})


def test_heads_that_share_a_key_share_a_scale_where_their_results_are_multiplied() -> None:
    """A core's product gives such heads in turns, so any order of them has the form."""
    size = Size(width=128, heads=4, key_heads=2, layers=1, hidden=128, positions=8)
    start = weft.train.initialised(layer_module(size, {})[1], seed=0)
    found = weft.quantise.four_bits(weft.quantise.plan(layer_module(size, start)[0]), 32)

    def groups(name: str) -> np.ndarray:
        return found[name].integers.reshape(-1, size.heads // size.shared * size.depth)[:40]

    assert all(map(has_the_form, groups("layer0.out")))
    assert not all(map(has_the_form, groups("layer0.query")))
