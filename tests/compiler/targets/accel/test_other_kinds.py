"""One tensor of another kind than 8 bits leaves its own layer to the host, not the model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
import weft
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from benchmarks.zoo.placement_graph import QuantisedGraph

from ...onnx_models import run_onnxruntime

Build = Callable[..., str]


def _small_weights(kind: int, low: int, high: int, by_channel: bool) -> Build:
    def build(g: QuantisedGraph, x: str) -> str:
        w = g.small(g.random.integers(low, high + 1, (6, 6, 3, 3)), kind)
        count = 6 if by_channel else 1
        scales = np.linspace(0.02, 0.05, count).astype(np.float32)
        zeros = np.full(count, 0 if low < 0 else 8)
        if not by_channel:
            scales, zeros = scales.reshape(()), zeros.reshape(())
        real = g.op("DequantizeLinear", w, g.constant(scales), g.small(zeros, kind), axis=0)
        return g.op("Conv", x, real, pads=[1] * 4)

    return build


def _weights_of_16_bits(g: QuantisedGraph, x: str) -> str:
    w = g.constant(g.random.integers(-30000, 30000, (6, 6, 3, 3)), np.int16)
    real = g.op("DequantizeLinear", w, g.constant(1e-5, np.float32), g.constant(0, np.int16))
    return g.op("Conv", x, real, pads=[1] * 4)


def _activation_of_16_bits(g: QuantisedGraph, x: str) -> str:
    return g.conv(g.pair(g.conv(x, 6, 6), 2e-4, 0, np.int16), 6, 6)


def _blocked(g: QuantisedGraph, x: str) -> str:
    w = g.small(g.random.integers(-8, 8, (6, 6, 3, 3)), TensorProto.INT4)
    scales = g.constant(g.random.uniform(0.02, 0.05, (6, 3, 3, 3)), np.float32)
    zeros = g.small(np.zeros((6, 3, 3, 3), int), TensorProto.INT4)
    return g.op("Conv", x, g.op("DequantizeLinear", w, scales, zeros, axis=1, block_size=2), pads=[1] * 4)


def _float16(g: QuantisedGraph, x: str) -> str:
    half = g.op("Cast", x, to=TensorProto.FLOAT16)
    s, z = g.constant(0.05, np.float16), g.constant(0, np.int8)
    real = g.op("DequantizeLinear", g.op("QuantizeLinear", half, s, z), s, z)
    w = g.op("DequantizeLinear", g.constant(g.random.integers(-99, 99, (6, 6, 1, 1)), np.int8),
             g.constant(0.004, np.float16), g.constant(0, np.int8))  # fmt: skip
    return g.op("Cast", g.op("Conv", real, w), to=TensorProto.FLOAT)


def _dynamic(g: QuantisedGraph, x: str) -> str:
    q, s, z = g.op("DynamicQuantizeLinear", x, results=3)
    w = g.constant(g.random.integers(-127, 128, (6, 6, 1, 1)), np.int8)
    product = g.op("ConvInteger", q, w, z)
    return g.op("Mul", g.op("Cast", product, to=TensorProto.FLOAT), g.op("Mul", s, g.constant(0.006, np.float32)))


KINDS: dict[str, tuple[Build, int]] = {
    "int4": (_small_weights(TensorProto.INT4, -8, 7, False), 3),
    "int4 by channel": (_small_weights(TensorProto.INT4, -8, 7, True), 3),
    "uint4": (_small_weights(TensorProto.UINT4, 0, 15, True), 3),
    "weights of 16 bits": (_weights_of_16_bits, 2),
    "activation of 16 bits": (_activation_of_16_bits, 2),
    "blocked": (_blocked, 2),
    "float16": (_float16, 2),
    "dynamic": (_dynamic, 2),
}
"""What stands between two layers of 8 bits, and how many layers at least the core has then."""


def _model(build: Build) -> onnx.ModelProto:
    g = QuantisedGraph(3)
    x = g.pair(g.conv(g.pair(g.input("x", 1, 4, 8, 8), 0.02), 4, 6), 0.02)
    x = g.pair(build(g, x), 0.03)
    return g.model(g.pair(g.op("Relu", g.conv(x, 6, 6)), 0.03))


@pytest.mark.parametrize("name", KINDS)
def test_the_other_layers_stay_on_the_core(name: str) -> None:
    build, wanted = KINDS[name]
    model = _model(build)
    compiled = weft.compile(model, target="accel", config="tiny")
    x = {"x": np.random.default_rng(0).normal(0, 1, (1, 4, 8, 8)).astype(np.float32)}
    (found,) = weft.load(compiled, device="fsim").run(x).values()
    (reference,) = ReferenceEvaluator(model).run(None, x)
    assert np.abs(found - reference).max() < 2.5 * 0.03  # two quantisers behind each other, a step each
    assert np.mean(found != reference) < 0.1
    assert sum(layer.device == "core" and layer.macs > 0 for layer in compiled.layers) >= wanted


@pytest.mark.parametrize("target", ["cpu", "accel"])
def test_boxes_are_chosen_on_the_host(target: str) -> None:
    g = QuantisedGraph(1)
    boxes = g.op("Abs", g.input("boxes", 2, 12, 4))
    scores = g.op("Sigmoid", g.input("scores", 2, 3, 12))
    limits = g.constant([3], np.int64), g.constant([0.4], np.float32), g.constant([0.5], np.float32)
    model = g.model(g.op("NonMaxSuppression", boxes, scores, *limits))
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    random = np.random.default_rng(0)
    inputs = {"boxes": random.random((2, 12, 4), np.float32), "scores": random.normal(size=(2, 3, 12)).astype("f4")}
    options = {"config": "tiny"} if target == "accel" else {}
    (found,) = weft.load(weft.compile(model, target=target, **options)).run(inputs).values()
    (wanted,) = ReferenceEvaluator(model).run(None, inputs)
    assert found.shape == (2 * 3 * 3, 3)
    np.testing.assert_array_equal(found[: len(wanted)], wanted)
    assert (found[len(wanted) :] == -1).all()


def _contrib(kind: str) -> onnx.ModelProto:
    """What onnxruntime's optimiser fuses, and what it fuses it from."""
    g = QuantisedGraph(6, opset=17)
    x = g.input("x", 2, 5, 24)
    w, scale = g.constant(g.random.integers(-127, 128, (24, 10)), np.int8), g.constant(g.random.random(10), np.float32)
    zeros, bias = g.constant(np.zeros(10), np.int8), g.constant(g.random.normal(size=10), np.float32)
    if kind == "DynamicQuantizeMatMul":
        y = g.op(kind, x, w, scale, zeros, bias, domain="com.microsoft")
        return g.model(y, domains=["com.microsoft"], shapes=[(2, 5, 10)])
    q, s, z = g.op("DynamicQuantizeLinear", x, results=3)
    if kind == "MatMulIntegerToFloat":
        y = g.op(kind, q, w, s, scale, z, zeros, bias, domain="com.microsoft")
        return g.model(y, domains=["com.microsoft"], shapes=[(2, 5, 10)])
    product = g.op("Cast", g.op("MatMulInteger", q, w, z), to=TensorProto.FLOAT)
    return g.model(g.op("Add", g.op("Mul", product, g.op("Mul", s, scale)), bias))


@pytest.mark.parametrize("kind", ["MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"])
@pytest.mark.parametrize("target", ["cpu", "accel", "cuda"])
def test_dynamic_products(kind: str, target: str) -> None:
    model = _contrib(kind)
    compiled = weft.compile(model, target=target, **({"config": "tiny"} if target == "accel" else {}))
    device = {"device": "emulated"} if target == "cuda" else {}
    x = {"x": np.random.default_rng(0).normal(1, 2, (2, 5, 24)).astype(np.float32)}
    (found,) = weft.load(compiled, **device).run(x).values()
    (wanted,) = run_onnxruntime(model, x)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)
    if target == "accel":
        assert sum(layer.macs for layer in compiled.layers if layer.device == "core") == 10 * 24 * 10


def test_a_dynamic_convolution_has_its_padding_right() -> None:
    g = QuantisedGraph()
    q, s, z = g.op("DynamicQuantizeLinear", g.input("x", 1, 6, 8, 8), results=3)
    w = g.constant(g.random.integers(-127, 128, (8, 3, 3, 3)), np.int8)
    product = g.op("ConvInteger", q, w, z, pads=[2, 1, 0, 1], strides=[2, 1], group=2)
    model = g.model(g.op("Mul", g.op("Cast", product, to=TensorProto.FLOAT), s))
    compiled = weft.compile(model, target="accel", config="tiny")
    x = {"x": np.random.default_rng(0).normal(1, 2, (1, 6, 8, 8)).astype(np.float32)}
    (found,) = weft.load(compiled, device="fsim").run(x).values()
    (wanted,) = ReferenceEvaluator(model).run(None, x)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-2)
    assert all(layer.device == "core" for layer in compiled.layers if layer.macs)


@pytest.mark.parametrize(("domain", "prefix"), [("com.amd.quark", "Extended"), ("com.vai.quantize", "Vitis")])
def test_quantisers_of_other_domains_are_those_of_onnx(domain: str, prefix: str) -> None:
    model = _model(_activation_of_16_bits)
    renamed = onnx.ModelProto()
    renamed.CopyFrom(model)
    renamed.opset_import.append(onnx.helper.make_opsetid(domain, 1))
    for node in renamed.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            node.op_type, node.domain = f"{prefix}{node.op_type}", domain
    x = {"x": np.random.default_rng(0).normal(0, 1, (1, 4, 8, 8)).astype(np.float32)}
    results = []
    for each in (model, renamed):
        compiled = weft.compile(each, target="accel", config="tiny")
        results += weft.load(compiled, device="fsim").run(x).values()
        assert sum(layer.device == "core" and layer.macs > 0 for layer in compiled.layers) >= 2
    np.testing.assert_array_equal(*results)
