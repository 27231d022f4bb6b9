"""Tables of small tensors are computed on the core as sums of ramps, to the integer."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.compiler.graph import Array, Call, Expr, call
from weft.compiler.targets.accel.operators.packed_layout import Blocks
from weft.compiler.targets.accel.passes.fuse import Fused
from weft.compiler.targets.accel.passes.prices import Rate
from weft.compiler.targets.accel.passes.ramps import FRACTION_BITS, Ramps, cycles_of
from weft.hw.config import PYNQ, TINY, CoreConfig

from tests.compiler.targets.accel.quantised_layers import compiled, layer, quantised, variable

INPUTS = np.arange(-128, 128)


@st.composite
def tables(draw: st.DrawFn) -> Array:
    """Anything from noise over steps to what is straight."""
    generator = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    kind, scale = draw(st.sampled_from(("noise", "steps", "sigmoid", "square", "straight"))), draw(st.floats(0.01, 0.3))
    values = {
        "noise": generator.integers(-128, 128, 256),
        "steps": np.repeat(generator.integers(-128, 128, 8), 32),
        "sigmoid": 255 / (1 + np.exp(-scale * INPUTS)) - 128,
        "square": scale * INPUTS**2 - 128,
        "straight": draw(st.sampled_from((-1, 1))) * scale * INPUTS + draw(st.integers(-200, 200)),
    }[kind]
    return np.clip(np.round(values), -128, 127).astype(np.int8)


@given(tables())
def test_ramps_give_every_entry_of_a_table(table: Array) -> None:
    ramps = Ramps.of(table)
    total = ramps.start + sum(
        weight * np.maximum(INPUTS, place) for weight, place in zip(ramps.weights, ramps.places, strict=True)
    )
    np.testing.assert_array_equal(total >> FRACTION_BITS, table)
    assert ramps.places[0] == -128
    assert max(map(abs, ramps.weights)) < 1 << 24


def test_what_is_straight_is_one_ramp() -> None:
    assert len(Ramps.of(np.arange(-128, 128).astype(np.int8)).places) == 1


def gated(x: Expr, function: Callable[[Expr], Expr]) -> Call:
    """Squeeze and excite."""
    features = layer(quantised(x), 12)
    pooled = quantised(call("nn.average_pool", features, kernel=x.shape[2:]))
    gate = quantised(function(layer(pooled, 12)), 1 / 256)
    return layer(quantised(call("nn.multiply", features, gate)), 5)


@pytest.mark.parametrize("function", ["nn.sigmoid", "nn.tanh"])
@pytest.mark.parametrize("config", [TINY, PYNQ], ids=lambda config: config.name)
def test_a_gate_never_leaves_the_core(config: CoreConfig, function: str) -> None:
    x = variable(1, 8, 5, 3)
    model = compiled(x, gated(x, lambda value: call(function, value)), config)
    assert len(model.programs) == 1


def test_a_table_of_rows_is_ramps_whatever_shape_they_have() -> None:
    """Between layers, a row of tokens is an image of one pixel."""
    x = variable(1, 32)
    features = layer(call("reshape", quantised(x), shape=(1, 32, 1, 1)), 48)
    row = quantised(call("nn.sigmoid", quantised(call("reshape", features, shape=(1, 1, 48)))), 1 / 256)
    model = compiled(x, layer(call("reshape", row, shape=(1, 48, 1, 1)), 8), PYNQ)
    assert len(model.programs) == 1


def test_ramps_are_priced_by_the_tensor() -> None:
    ramps = Ramps.of(np.clip(np.round(INPUTS**2 / 100 - 128), -128, 127).astype(np.int8))
    rate = Rate(Blocks.of(PYNQ), 8)
    prices = [cycles_of(ramps, (rows, 256, 1, 1), rate) for rows in (1, 2, 8, 16)]
    steps = 2 * len(ramps.places)
    assert all(price >= steps * rows * 16 for price, rows in zip(prices, (1, 2, 8, 16), strict=True))
    assert prices == sorted(prices)
    assert prices[-1] < 17 * prices[0]


def test_ramps_take_two_values_of_the_accumulator() -> None:
    """One bends further with each, the other sums up: so that an instruction has many entries to work on."""
    x = variable(1, 128)
    features = layer(call("reshape", quantised(x), shape=(1, 128, 1, 1)), 256)
    bent = quantised(call("nn.sigmoid", features), 1 / 256)
    model = compiled(x, quantised(call("nn.add", layer(bent, 256), bent)), PYNQ)
    (ramped,) = (each for each in model.layers if any("maximum" in name for name in each.operators))
    assert ramped.schedule.count("inplace(") > 2 * (len(ramped.operators) // 3)
    (program,) = model.programs
    mine = int(np.count_nonzero(np.asarray(program.layer_of) == model.layers.index(ramped)))
    assert mine < 16 * len(ramped.operators)


def test_a_large_tensor_is_the_hosts() -> None:
    """Of it the host's table takes less than the core's ramps."""
    x = variable(1, 8, 24, 24)
    model = compiled(x, layer(quantised(call("nn.sigmoid", layer(quantised(x), 12)), 1 / 256), 5), TINY)
    assert len(model.programs) == 2


def test_a_table_at_the_end_is_the_hosts() -> None:
    """The host has the values anyway."""
    x = variable(1, 8, 2, 2)
    model = compiled(x, quantised(call("nn.sigmoid", layer(quantised(x), 12)), 1 / 256), TINY)
    assert not any("maximum" in name for each in model.layers for name in each.operators)


def test_functions_of_many_ramps_are_not_joined_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product of three functions of some forty operators each."""
    monkeypatch.setattr(sys.modules[Fused.__module__], "MOST_OPERATORS", 48)
    x = variable(1, 8, 2, 2)
    inputs = [layer(layer(quantised(x), 16 + k), 12) for k in range(3)]
    waves = [quantised(call(op, each), 0.05) for op, each in zip(("nn.sin", "nn.cos", "nn.sin"), inputs, strict=True)]
    product = quantised(call("nn.multiply", quantised(call("nn.multiply", *waves[:2]), 0.05), waves[2]), 0.05)
    model = compiled(x, layer(product, 5), TINY)
    assert len(model.programs) == 1
    assert all(len(each.operators) <= 48 for each in model.layers)
    assert max(len(each.operators) for each in model.layers) > 36
