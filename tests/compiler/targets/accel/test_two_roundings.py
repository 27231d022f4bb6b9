"""Layers whose sums a core rounds twice, as LiteRT's reference kernels do: their integers are those of processors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import weft
from weft.compiler.graph import Call, Constant, Expr, call
from weft.hw.config import TINY
from weft.verify import verify

from tests.compiler.targets.accel.rounded_layers import made, values

CORES = [replace(TINY, name="twice", rounding="two_roundings", **more) for more in ({}, {"batch": 2}, {"tables": 2})]


def quantised(x: Expr, scale: float, rounding: str = "two_roundings", zero: int = 3) -> Call:
    constants = Constant(np.float32(scale)), Constant(np.int8(zero))
    return call("dequantise", call("quantise", x, *constants, rounding=rounding), *constants)


def convolution(x: Expr, rounding: str = "two_roundings") -> Call:
    """Of few products, as the first rounding moves small sums furthest."""
    random = np.random.default_rng(0)
    values = random.integers(-3, 4, (12, x.shape[1], 1, 1)).astype(np.int8)
    scales = Constant(random.uniform(0.1, 0.6, 12).astype(np.float32))
    weights = call("dequantise", Constant(values), scales, Constant(np.zeros(12, np.int8)), axis=0)
    return quantised(call("nn.conv2d", quantised(x, 0.5), weights), 1.0, rounding)


def away(x: Expr) -> Call:
    """The reference of a dense layer: scales that make halves."""
    values = np.random.default_rng(0).integers(-3, 4, (12, x.shape[1], 1, 1)).astype(np.int8)
    weights = call("dequantise", Constant(values), Constant(np.float32(0.25)), Constant(np.int8(0)))
    return quantised(call("nn.conv2d", quantised(x, 0.5), weights), 1.0, "half_away")


def gate(x: Expr) -> Call:
    value = convolution(x)
    return quantised(call("nn.multiply", value, value), 19.0)


def mean(x: Expr) -> Call:
    return quantised(call("nn.reduce_mean", convolution(x), axes=(2, 3), keepdims=True), 0.3)


LAYERS: list[Callable[[Expr], Call]] = [convolution, away, gate, mean]


@pytest.mark.parametrize("body", LAYERS)
@pytest.mark.parametrize("config", CORES, ids=lambda core: f"{core.batch}-{core.tables}")
def test_a_core_has_the_integers_of_processors(config: weft.CoreConfig, body: Callable[[Expr], Call]) -> None:
    module, model = made(body, config)
    wanted = weft.load(weft.compile(module, target="cpu")).run(values())["y"]
    assert len(np.unique(wanted)) > 8
    np.testing.assert_array_equal(weft.load(model, "fsim").run(values())["y"], wanted)
    assert verify(model).proved
    plain = weft.load(weft.compile(module, replace(config, rounding="half_up")), "fsim").run(values())["y"]
    assert np.any(plain != wanted)  # so that these cases tell one rounding from the other


@pytest.mark.parametrize("body", [convolution, mean])
def test_the_rtl_rounds_so(body: Callable[[Expr], Call]) -> None:
    module, model = made(body, CORES[0])
    np.testing.assert_array_equal(
        weft.load(model, "rtl").run(values())["y"], weft.load(weft.compile(module, target="cpu")).run(values())["y"]
    )
