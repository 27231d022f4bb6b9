"""Means, sums and maxima over pictures that no quantise stands behind: the core makes them, the host gets numbers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import weft
from onnx.reference import ReferenceEvaluator
from weft.api import integer_graph
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import calls, evaluate
from weft.compiler.model import CompiledModel

from benchmarks.zoo.placement_graph import QuantisedGraph

STEP = 0.05


def _model(kind: str, follows: str, zero: int = -128) -> onnx.ModelProto:
    g = QuantisedGraph(3)
    y = g.pair(g.conv(g.pair(g.input("x", 1, 16, 8, 6), 0.03), 16, 16), 0.02, zero)
    axes = g.constant([2, 3], np.int64)
    match kind:
        case "pool":
            m = g.op("GlobalAveragePool", y)
        case "windows":
            m = g.op("AveragePool", y, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1)
        case _:
            m = g.op(kind, y, axes, keepdims=1)
    match follows:
        case "nothing":
            return g.model(m)
        case "softmax":
            return g.model(g.pair(g.op("Softmax", m, axis=1), 1 / 256, -128))
        case "gate":
            gate = g.pair(g.op("Sigmoid", m), 1 / 256, -128)
            return g.model(g.pair(g.op("Mul", y, gate), STEP))
    raise ValueError(follows)


@pytest.mark.parametrize("zero", [-128, 5])
@pytest.mark.parametrize("follows", ["nothing", "softmax", "gate"])
@pytest.mark.parametrize("kind", ["pool", "ReduceMean", "ReduceSum", "ReduceMax"])
def test_the_host_reads_no_picture(kind: str, follows: str, zero: int) -> None:
    model = _model(kind, follows, zero)
    compiled = weft.compile(model, target="accel", config="tiny")
    assert isinstance(compiled, CompiledModel)
    for layer in compiled.layers:
        if layer.device != "core":
            assert not any("pool" in op or "reduce" in op for op in layer.operators), layer.operators
    x = {"x": np.random.default_rng(1).normal(0, 1, (1, 16, 8, 6)).astype(np.float32)}
    (found,) = weft.load(compiled, device="fsim").run(x).values()
    (exact,) = evaluate(integer_graph(model, compiled), x).values()
    np.testing.assert_allclose(found, exact, rtol=1e-6, atol=1e-6)
    (reference,) = ReferenceEvaluator(model).run(None, x)
    step = {"nothing": 0.02 / 40 if "Max" not in kind else 0.02, "softmax": 1 / 256, "gate": STEP}[follows]
    assert np.abs(found - reference).max() <= step * (1.01 if kind != "ReduceSum" else 49)


def test_a_sum_of_few_values_stays_where_it_is_read() -> None:
    model = _model("windows", "nothing")
    compiled = weft.compile(model, target="accel", config="tiny")
    graph = integer_graph(model, compiled)
    assert not any(node.op == "sum_pool" for node in calls(graph.main.body))
    x = {"x": np.random.default_rng(1).normal(0, 1, from_onnx(model).main.params[0].shape).astype(np.float32)}
    (found,) = weft.load(compiled, device="fsim").run(x).values()
    (reference,) = ReferenceEvaluator(model).run(None, x)
    assert np.abs(found - reference).max() <= 0.02


@pytest.mark.parametrize("kind", ["ReduceMean", "ReduceMax"])
def test_over_channels_the_host_reduces(kind: str) -> None:
    """The core would need the picture in another order."""
    g = QuantisedGraph(3)
    y = g.pair(g.conv(g.pair(g.input("x", 1, 16, 8, 6), 0.03), 16, 16), 0.02)
    model = g.model(g.op("Sin", g.op(kind, y, g.constant([1], np.int64), keepdims=1)))
    compiled = weft.compile(model, target="accel", config="tiny")
    assert isinstance(compiled, CompiledModel)
    assert any("reduce" in op for layer in compiled.layers if layer.device != "core" for op in layer.operators)
