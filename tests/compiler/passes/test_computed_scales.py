"""Products of activations that are dequantised with a scale of the run: the core multiplies their integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import weft
from onnx.reference import ReferenceEvaluator
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import Module, calls, evaluate
from weft.compiler.model import CompiledModel
from weft.compiler.passes.computed_scales import computed_scales
from weft.compiler.passes.simplify import simplify

from benchmarks.zoo.placement_graph import QuantisedGraph

Array = np.ndarray[Any, Any]
SHAPES = {"conv": (1, 16, 7, 6), "padded": (1, 16, 7, 6), "depthwise": (1, 16, 7, 6), "gemm": (3, 24),
          "flat": (2, 6, 3, 2)}  # fmt: skip


def _layer(g: QuantisedGraph, kind: str, x: str) -> str:
    if kind in ("gemm", "flat"):
        depth = int(np.prod(SHAPES[kind][1:]))
        x = g.op("Flatten", x) if kind == "flat" else x
        return str(g.op("Gemm", x, g.weights(20, depth), g.constant(g.random.normal(0, 0.3, 20), np.float32), transB=1))
    if kind == "padded":
        x = g.op("Pad", x, g.constant([0, 0, 2, 0, 0, 0, 1, 1]))
    return g.conv(x, 16, 16, group=16 if kind == "depthwise" else 1, pads=[1, 0, 1, 2])


def _dynamic(kind: str, dtype: str = "uint8") -> onnx.ModelProto:
    """A layer of a tensor that is quantised over its own range; int8: about 0."""
    g = QuantisedGraph(11)
    x = g.input("x", *SHAPES[kind])
    if dtype == "uint8":
        q, scale, zero = g.op("DynamicQuantizeLinear", x, results=3)
    else:
        largest = g.op("ReduceMax", g.op("Abs", x), keepdims=0)
        scale = g.op("Div", largest, g.constant(127, np.float32))
        zero = g.constant(0, np.int8)
        q = g.op("QuantizeLinear", x, scale, zero)
    return g.model(_layer(g, kind, g.op("DequantizeLinear", q, scale, zero)))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("kind", SHAPES)
def test_the_core_multiplies(kind: str, dtype: str) -> None:
    model = _dynamic(kind, dtype)
    compiled = weft.compile(model, target="accel", config="tiny")
    assert isinstance(compiled, CompiledModel)
    assert any(layer.macs for layer in compiled.layers)
    assert all(layer.device == "core" for layer in compiled.layers if layer.macs)
    for low, high in ((-1, 2), (3, 5), (-4, -1), (0, 0)):
        x = {"x": np.random.default_rng(1).uniform(low, high, SHAPES[kind]).astype(np.float32)}
        if not high and dtype == "int8":
            continue  # 0 / 0
        (found,) = weft.load(compiled, device="fsim").run(x).values()
        (wanted,) = ReferenceEvaluator(model).run(None, x)
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5 * max(1, np.abs(wanted).max()))


def _ready(model: onnx.ModelProto) -> Module:
    return simplify.counted(from_onnx(model))[0]


def test_the_zero_point_is_taken_off_where_it_is_a_value() -> None:
    for dtype, corrected in (("uint8", 1), ("int8", 0)):
        module = _ready(_dynamic("padded", dtype))
        after, matches = computed_scales.counted(module)
        assert matches == 1
        ops = [[str(node.op) for node in calls(each.main.body)] for each in (module, after)]
        assert ops[1].count("nn.subtract") - ops[0].count("nn.subtract") == 2 * corrected
        x = {"x": np.random.default_rng(2).uniform(-1, 3, SHAPES["padded"]).astype(np.float32)}
        (wanted,), (found,) = (evaluate(each, x).values() for each in (module, after))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("what", ["a scale a channel", "known", "float weights", "a fill", "16 bits"])
def test_others_stay(what: str) -> None:
    g = QuantisedGraph(12)
    x = g.input("x", 1, 16, 5, 5)
    scale = g.input("scale", *((16,) if what == "a scale a channel" else ()))
    zero = g.constant(np.zeros(16 if what == "a scale a channel" else ()), np.int16 if what == "16 bits" else np.int8)
    scale = g.constant(0.03, np.float32) if what == "known" else scale
    y = g.op("DequantizeLinear", g.op("QuantizeLinear", x, scale, zero), scale, zero)
    if what == "a fill":
        y = g.op("Pad", y, g.constant([0, 0, 1, 1, 0, 0, 1, 1]), g.constant(0.5, np.float32))
    weights = g.constant(g.random.normal(0, 1, (8, 16, 1, 1)), np.float32)
    model = g.model(g.op("Conv", y, weights if what == "float weights" else g.weights(8, 16, 1, 1)))
    if what == "known":
        del model.graph.input[1:]
    assert computed_scales.counted(_ready(model))[1] == 0
