"""Layers whose halves a core sends away from zero, or to even: their integers are those of the real numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import weft
from weft.compare import rounded_apart
from weft.compiler.graph import Call, Constant, Expr, call, evaluate
from weft.hw.config import TINY
from weft.verify import verify

from tests.compiler.targets.accel.quantised_layers import module_of, variable
from tests.compiler.targets.accel.rounded_layers import made, values

MORE: list[dict[str, Any]] = [{}, {"batch": 2}, {"tables": 2}, {"block_in": 8}]
STEP, ZERO = 2.0, 3


def quantised(x: Expr, scale: float, rounding: str = "half_up") -> Call:
    constants = Constant(np.float32(scale)), Constant(np.int8(ZERO))
    return call("dequantise", call("quantise", x, *constants, rounding=rounding), *constants)


def sums(x: Expr) -> Call:
    """Multiples of an eighth, which floats hold."""
    weights = np.random.default_rng(0).integers(-3, 4, (12, x.shape[1], 1, 1)).astype(np.int8)
    real = call("dequantise", Constant(weights), Constant(np.float32(0.25)), Constant(np.int8(0)))
    bias = Constant(np.random.default_rng(1).integers(-9, 9, (12, 1, 1)).astype(np.float32))
    return call("nn.add", call("nn.conv2d", quantised(x, 0.5), real), bias)


def wanted_of(rounding: str) -> np.ndarray:
    x = variable(2, 8, 9, 7)
    steps = evaluate(module_of(x, sums(x)), values())["y"] / STEP
    assert np.mean(steps % 1 == 0.5) > 0.03
    whole = np.rint(steps) if rounding == "half_even" else np.trunc(steps + np.copysign(0.5, steps))
    return np.asarray((np.clip(whole + ZERO, -128, 127) - ZERO) * STEP, np.float32)


@pytest.mark.parametrize("more", MORE, ids=str)
@pytest.mark.parametrize("rounding", ["half_away", "half_even"])
def test_a_core_sends_halves_where_it_is_asked_to(rounding: str, more: dict[str, Any]) -> None:
    config, wanted = replace(TINY, name="halves", rounding=rounding, **more), wanted_of(rounding)
    module, model = made(lambda x: quantised(sums(x), STEP, rounding), config)
    np.testing.assert_array_equal(weft.load(model, "fsim").run(values())["y"], wanted)
    np.testing.assert_array_equal(weft.load(weft.compile(module, target="cpu")).run(values())["y"], wanted)
    assert verify(model).proved
    assert not rounded_apart(module, "accel", "cpu", config)
    for other in {"half_away", "half_even"} - {rounding} | {"half_up"}:
        plain = weft.compile(module, replace(config, rounding=other))
        assert np.any(weft.load(plain, "fsim").run(values())["y"] != wanted)
        assert rounded_apart(module, "accel", "cpu", replace(config, rounding=other)) == 1


@pytest.mark.parametrize("rounding", ["half_away", "half_even"])
def test_the_rtl_does_so(rounding: str) -> None:
    _, model = made(lambda x: quantised(sums(x), STEP, rounding), replace(TINY, name="halves", rounding=rounding))
    np.testing.assert_array_equal(weft.load(model, "rtl").run(values())["y"], wanted_of(rounding))


def test_a_core_that_rounds_twice_sends_halves_away_from_zero() -> None:
    """By a multiplier of 31 bits, so nothing is rounded apart."""
    config = replace(TINY, rounding="two_roundings")
    module, model = made(lambda x: quantised(sums(x), STEP, "half_away"), config)
    np.testing.assert_array_equal(weft.load(model, "fsim").run(values())["y"], wanted_of("half_away"))
    assert not rounded_apart(module, "accel", "cpu", config)
