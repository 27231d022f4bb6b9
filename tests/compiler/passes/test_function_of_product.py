"""Elementwise functions between a product and the next quantise: the product stays on the core, results are one step
from the floats' at most."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
import weft
from onnx.reference import ReferenceEvaluator
from weft.compiler.model import CompiledModel
from weft.hw.config import named_config

from benchmarks.zoo.placement_graph import QuantisedGraph

Follow = Callable[[Any, str], str]
MACS = 6 * 6 * 9 * 63


def _gelu(g: Any, y: str) -> str:
    erf = g.op("Erf", g.op("Mul", y, g.constant(2**-0.5, np.float32)))
    half = g.op("Mul", y, g.constant(0.5, np.float32))
    return g.op("Mul", half, g.op("Add", erf, g.constant(1, np.float32)))


def _prelu(g: Any, y: str, slopes: list[float]) -> str:
    return g.op("PRelu", y, g.constant(np.array(slopes).reshape(6, 1, 1), np.float32))


LINES: dict[str, Follow] = {
    "leaky": lambda g, y: g.op("LeakyRelu", y, alpha=0.1),
    "leaky, steep": lambda g, y: g.op("LeakyRelu", y, alpha=1.5),
    "leaky, rising on both sides": lambda g, y: g.op("LeakyRelu", y, alpha=-0.3),
    "absolute": lambda g, y: g.op("Abs", y),
    "by channel": lambda g, y: _prelu(g, y, [0.1, 0.2, 0.3, 0.25, 1.25, 0.01]),
    "larger of a part": lambda g, y: g.op("Max", y, g.op("Mul", y, g.constant(0.2, np.float32))),
}
TABLES: dict[str, Follow] = {
    "silu": lambda g, y: g.op("Mul", y, g.op("Sigmoid", y)),
    "gelu": _gelu,
    "sigmoid": lambda g, y: g.op("Sigmoid", y),
    "tanh": lambda g, y: g.op("Tanh", y),
    "elu": lambda g, y: g.op("Elu", y),
    "hard swish": lambda g, y: g.op("HardSwish", y),
    "mish": lambda g, y: g.op("Mish", y),
    "signs by channel": lambda g, y: _prelu(g, y, [0.1, -0.2, 0.3, -0.25, 1.25, 0.01]),
}


def _model(follow: Follow, kind: type, zero: int, step: float = 0.02) -> onnx.ModelProto:
    g = QuantisedGraph(5)
    y = g.conv(g.pair(g.input("x", 1, 6, 9, 7), 0.02, 7), 6, 6)
    return g.model(g.pair(follow(g, y), step, zero, kind))


def _checked(model: onnx.ModelProto, config: Any, step: float, differ: float) -> CompiledModel:
    compiled = weft.compile(model, target="accel", config=config)
    assert isinstance(compiled, CompiledModel)
    assert sum(layer.macs for layer in compiled.layers if layer.device == "core") == MACS
    assert sum(layer.macs for layer in compiled.layers) == MACS
    x = {"x": np.random.default_rng(0).normal(0, 1.5, (1, 6, 9, 7)).astype(np.float32)}
    (found,) = weft.load(compiled, device="fsim").run(x).values()
    (wanted,) = ReferenceEvaluator(model).run(None, x)
    assert np.abs(found - wanted).max() < 1.01 * step
    assert np.mean(np.abs(found - wanted) > step / 2) <= differ
    return compiled


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize(("kind", "zero"), [(np.int8, -30), (np.uint8, 0), (np.uint8, 255)])
def test_two_lines_are_exact(name: str, kind: type, zero: int) -> None:
    compiled = _checked(_model(LINES[name], kind, zero), "tiny", 0.02, 0.003)
    assert not any("table" in layer.reason for layer in compiled.layers)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("tables", [0, 1])
def test_other_functions_are_tables(name: str, tables: int) -> None:
    config = replace(named_config("tiny"), tables=tables)
    compiled = _checked(_model(TABLES[name], np.int8, -60, 0.03), config, 0.03, 0.35)
    # Of small tensors these are ramps on a core without tables. Slopes of 0.01 and 1.25 are too much for one scale.
    assert not any("as a table" in layer.reason for layer in compiled.layers)


def test_where_eight_bits_are_too_few_the_host_gets_the_sums() -> None:
    model = _model(lambda g, y: g.op("Sin", g.op("Mul", y, g.constant(40, np.float32))), np.int8, 0, 0.01)
    _checked(model, "tiny", 0.01, 0.02)


def test_a_function_of_two_sums_is_none() -> None:
    g = QuantisedGraph(5)
    x = g.pair(g.input("x", 1, 6, 9, 7), 0.02, 7)
    y = g.op("Mul", g.conv(x, 6, 6), g.op("Sigmoid", g.conv(x, 6, 6)))
    model = g.model(g.pair(y, 0.02))
    compiled = weft.compile(model, target="accel", config="tiny")
    inputs = {"x": np.random.default_rng(0).normal(0, 1.5, (1, 6, 9, 7)).astype(np.float32)}
    (found,) = weft.load(compiled, device="fsim").run(inputs).values()
    (wanted,) = ReferenceEvaluator(model).run(None, inputs)
    assert np.abs(found - wanted).max() < 1.01 * 0.02
    assert sum(layer.macs for layer in compiled.layers if layer.device == "core") == 2 * MACS
