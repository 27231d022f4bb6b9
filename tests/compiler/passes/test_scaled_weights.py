"""Quantised weights that the model multiplies by constants, or divides: their products run on the core all the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import weft
from onnx.reference import ReferenceEvaluator
from weft.api import integer_graph
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import Call, Constant, call, evaluate
from weft.compiler.graph.evaluate import static_value
from weft.compiler.integers.form import Refusal
from weft.compiler.integers.static_weights import Weights, static_weights
from weft.compiler.model import CompiledModel

from benchmarks.zoo.placement_graph import QuantisedGraph

Array = np.ndarray[Any, Any]
STEP, CHANNELS = 0.05, 20
KINDS = {
    "conv": ((1, 16, 5, 4), (CHANNELS, 16, 3, 3), 0),
    "depthwise": ((1, CHANNELS, 5, 4), (CHANNELS, 1, 3, 3), 0),
    "gemm": ((3, 32), (CHANNELS, 32), 0),
    "matmul": ((2, 3, 32), (32, CHANNELS), 1),
}
"""The shapes of the input and of the weights, and the weights' axis of output channels."""


def _scaled(g: QuantisedGraph, weights: str, by: str, shape: tuple[int, ...], axis: int) -> str:
    channels = [size if place == axis else 1 for place, size in enumerate(shape)]
    signs = g.random.choice([-1, 1], channels)
    factors = (signs * g.random.uniform(0.5, 2, channels)).astype(np.float32)
    match by:
        case "a channel":
            factors.reshape(-1)[3] = 0
            return str(g.op("Mul", g.constant(factors), weights))
        case "a quotient a channel":
            return str(g.op("Div", weights, g.constant(factors)))
        case "a scalar":
            return str(g.op("Mul", weights, g.constant(-1.3, np.float32)))
        case "integers":
            integers = g.constant(g.random.integers(1, 127, channels), np.int8)
            factor = g.op("DequantizeLinear", integers, g.constant(1 / 64, np.float32), g.constant(0, np.int8))
            return str(g.op("Mul", factor, weights))
        case "an input":
            inputs = [size if place == 1 - axis else 1 for place, size in enumerate(shape)]
            return str(g.op("Mul", weights, g.constant(g.random.uniform(0.5, 2, inputs), np.float32)))
    raise AssertionError(by)


def _model(kind: str, by: str) -> onnx.ModelProto:
    g = QuantisedGraph(7)
    given, shape, axis = KINDS[kind]
    x = g.pair(g.input("x", *given), 0.03, -10)
    step = 1 / (60 * (np.prod(shape) / CHANNELS) ** 0.5)
    integers = g.constant(g.random.integers(-127, 128, shape), np.int8)
    w = g.op("DequantizeLinear", integers, g.constant(step, np.float32), g.constant(0, np.int8))
    w = _scaled(g, w, by, shape, axis)
    if kind == "gemm":
        y = g.op("Gemm", x, w, g.constant(g.random.normal(0, 0.3, CHANNELS), np.float32), transB=1)
    elif kind == "matmul":
        y = g.op("MatMul", x, w)
    else:
        y = g.op("Conv", x, w, pads=[1] * 4, group=CHANNELS if kind == "depthwise" else 1)
    return g.model(g.pair(y, STEP))


@pytest.mark.parametrize("by", ["a channel", "a quotient a channel", "a scalar", "integers", "an input"])
@pytest.mark.parametrize("kind", KINDS)
def test_products_with_scaled_weights_run_on_the_core(kind: str, by: str) -> None:
    model = _model(kind, by)
    compiled = weft.compile(model, target="accel", config="tiny")
    assert isinstance(compiled, CompiledModel)
    assert any(layer.macs for layer in compiled.layers)
    assert all(layer.device == "core" for layer in compiled.layers if layer.macs)
    source = from_onnx(model)
    x = {"x": np.random.default_rng(0).normal(0, 1, source.main.params[0].shape).astype(np.float32)}
    (found,) = weft.load(compiled, device="fsim").run(x).values()
    (exact,) = evaluate(integer_graph(model, compiled), x).values()
    np.testing.assert_array_equal(found, exact)
    (reference,) = ReferenceEvaluator(model).run(None, x)
    assert 5 < np.abs(reference / STEP).mean() < 100
    assert np.abs(found - reference).max() <= STEP * 1.01
    assert by == "an input" or (found != reference).mean() < 0.02  # that takes a second, finer product


def _times(factor: Array, op: str = "nn.multiply", *, turned: bool = False) -> Call:
    w = np.array([[1, -3, 7], [5, 0, -128]], np.int8)
    parts = Constant(w), Constant(np.float32([0.5, 0.25])), Constant(np.zeros(2, np.int8))
    operands = call("dequantise", *parts, axis=0), Constant(factor.astype(np.float32))
    return call(op, *(reversed(operands) if turned else operands))


def test_the_constant_is_in_the_scale() -> None:
    for node in (
        _times(np.array([[3], [-2]])), _times(np.array(-0.7), turned=True), _times(np.array([[0], [4]])),
        _times(np.array([[3], [-2]]), "nn.divide"),
    ):  # fmt: skip
        found = static_weights(node, "x")
        assert isinstance(found, Weights)
        assert np.abs(found.centred).max() <= 128
        np.testing.assert_allclose(found.centred * found.scale[:, None], static_value(node), rtol=1e-6)


def test_an_input_that_the_constant_drops() -> None:
    found = static_weights(_times(np.array([1, 1, 0])), "x")
    assert isinstance(found, Weights)
    np.testing.assert_array_equal(found.centred, [[1, -3, 0], [5, 0, 0]])
    np.testing.assert_allclose(found.scale, [0.5, 0.25])


def test_what_is_no_factor_of_the_scales() -> None:
    for node in (
        _times(np.array([[3], [2]]), "nn.divide", turned=True),  # a constant over weights
        _times(np.array([[3], [0]]), "nn.divide"),
        _times(np.array([[3], [np.inf]])),
        _times(np.ones((2, 2, 3))),  # weights that are repeated
        _times(np.array(1), "nn.add"),
    ):
        assert isinstance(static_weights(node, "x"), Refusal)
