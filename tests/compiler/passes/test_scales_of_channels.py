"""Activations with a scale for each channel: their products run on the core."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import weft
from onnx.reference import ReferenceEvaluator
from weft.compiler.frontends import from_onnx
from weft.compiler.model import CompiledModel
from weft.compiler.passes.scales_of_channels import scales_of_channels

from benchmarks.zoo.placement_graph import QuantisedGraph

STEP = 0.05
GROUPS = {"conv": 1, "groups": 4, "depthwise": 16}


def _model(kind: str, dtype: type = np.int8, zeros: object = 3, axis: int = 1) -> onnx.ModelProto:
    g = QuantisedGraph(21)
    x = g.input("x", *((3, 16) if kind == "gemm" else (1, 16, 7, 16)))
    scale = g.constant(g.random.uniform(0.5, 2, 16) / 40, np.float32)
    zero = g.constant(np.broadcast_to(np.asarray(zeros), 16), dtype)
    x = g.op("QuantizeLinear", x, scale, zero, axis=axis)
    x = g.op("DequantizeLinear", x, scale, zero, axis=axis)
    if kind == "gemm":
        y = g.op("Gemm", x, g.weights(20, 16), g.constant(g.random.normal(0, 0.3, 20), np.float32), transB=1)
    else:
        y = g.conv(x, 16, 32, group=GROUPS[kind], pads=[1, 0, 2, 1])
    return g.model(g.pair(y, STEP))


@pytest.mark.parametrize(("dtype", "zero"), [(np.int8, 3), (np.uint8, 140)])
@pytest.mark.parametrize("kind", [*GROUPS, "gemm"])
def test_the_core_multiplies(kind: str, dtype: type, zero: int) -> None:
    model = _model(kind, dtype, zero)
    compiled = weft.compile(model, target="accel", config="tiny")
    assert isinstance(compiled, CompiledModel)
    assert any(layer.macs for layer in compiled.layers)
    assert all(layer.device == "core" for layer in compiled.layers if layer.macs)
    shape = from_onnx(model).main.params[0].shape
    x = {"x": np.random.default_rng(0).normal(0, 1.5, shape).astype(np.float32)}
    (found,) = weft.load(compiled, device="fsim").run(x).values()
    (wanted,) = ReferenceEvaluator(model).run(None, x)
    assert np.abs(wanted / STEP).mean() > 5
    assert np.abs(found - wanted).max() <= STEP * 1.01
    assert (found != wanted).mean() < 0.03


def test_others_stay() -> None:
    zeros = np.arange(16)
    for model in (_model("conv", zeros=zeros), _model("conv", axis=3), _model("conv", np.int16)):
        assert scales_of_channels.counted(from_onnx(model))[1] == 0
