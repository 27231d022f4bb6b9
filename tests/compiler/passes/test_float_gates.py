"""Pictures times gates that no quantise stands behind are multiplied on the core."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import weft
from onnx.reference import ReferenceEvaluator
from weft.api import integer_graph
from weft.compiler.graph import calls, evaluate
from weft.compiler.model import CompiledModel

from benchmarks.zoo.placement_graph import QuantisedGraph

SHAPE = (1, 16, 7, 6)


def _model(gate: str, zero: int = -128, step: float = 0.02, first: bool = False) -> onnx.ModelProto:
    g = QuantisedGraph(3)
    y = g.pair(g.conv(g.pair(g.input("x", *SHAPE), 0.03), 16, 16), 0.02, zero)
    mean = g.op("GlobalAveragePool", y)
    sums = g.conv(g.pair(mean, 0.01, -100), 16, 16, 1)
    number = {
        "mean": lambda: mean, "sigmoid of a mean": lambda: g.op("Sigmoid", mean),
        "sigmoid of a product": lambda: g.op("Sigmoid", sums), "product": lambda: sums,
        "hard sigmoid": lambda: g.op("HardSigmoid", sums), "tanh": lambda: g.op("Tanh", g.op("Neg", sums)),
        "of all channels": lambda: g.op("Softmax", sums, axis=1),
    }[gate]()  # fmt: skip
    return g.model(g.pair(g.op("Mul", number, y) if first else g.op("Mul", y, number), step, zero))


@pytest.mark.parametrize("zero", [-128, 17])
@pytest.mark.parametrize(
    "gate", ["mean", "sigmoid of a mean", "sigmoid of a product", "product", "hard sigmoid", "tanh"]
)
def test_the_picture_stays_on_the_core(gate: str, zero: int) -> None:
    model = _model(gate, zero, first=zero > 0)
    compiled = weft.compile(model, target="accel", config="tiny")
    assert isinstance(compiled, CompiledModel)
    result = [layer for layer in compiled.layers if any("Mul" in node for node in layer.nodes)]
    assert any(layer.device == "core" for layer in result)
    for layer in compiled.layers:
        if layer.device != "core" and layer.shape == SHAPE and "nn.multiply" in layer.operators:
            raise AssertionError(layer)
    x = {"x": np.random.default_rng(1).normal(0, 1, SHAPE).astype(np.float32)}
    (found,) = weft.load(compiled, device="fsim").run(x).values()
    (exact,) = evaluate(integer_graph(model, compiled), x).values()
    np.testing.assert_allclose(found, exact, rtol=1e-6, atol=1e-6)
    (reference,) = ReferenceEvaluator(model).run(None, x)
    far = np.abs(found - reference)
    assert far.max() <= 0.0201
    assert np.mean(far > 1e-5) < 0.02


@pytest.mark.parametrize("model", [_model("mean", step=1e-6), _model("of all channels")])
def test_steps_that_are_too_fine_and_ranges_that_are_not_known_stay(model: onnx.ModelProto) -> None:
    compiled = weft.compile(model, target="accel", config="tiny")
    assert not any(node.op == "multiply" for node in calls(integer_graph(model, compiled).main.body))
