"""Products of activations of 16 bits run on the core byte by byte, where that is faster than floats on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import weft
from weft.api import integer_graph
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import calls, evaluate
from weft.compiler.model import CompiledModel
from weft.compiler.passes.wide_activations import wide_activations

from benchmarks.zoo.placement_graph import QuantisedGraph
from examples.precise import precise_session

TYPES: dict[str, type] = {"int16": np.int16, "uint16": np.uint16}
STEP, OUT_STEP = 1 / 4096, 1 / 512


def model(
    layer: str = "conv",
    kind: str = "int16",
    zero: int = 0,
    *,
    channels: int = 64,
    size: int = 16,
    weights: str = "int8",
) -> onnx.ModelProto:
    """One layer between pairs of 16 bits."""
    g = QuantisedGraph(3)
    shape = {"conv": (1, channels, size, size), "gemm": (size, channels), "flat": (1, channels, size, size),
             "turned": (1, channels, size, size // 2)}[layer]  # fmt: skip
    x = g.pair(g.input("x", *shape), STEP, zero, TYPES[kind])
    wide = int(np.prod(shape[1:])) if layer in ("flat", "turned") else channels
    taps = (3, 3) if layer == "conv" else ()
    largest = np.iinfo(weights).max
    drawn = g.random.integers(-largest, largest + 1, (48, wide, *taps)).astype(weights)
    scales = g.random.uniform(0.5, 1.5, 48) / largest / (wide * (9 if taps else 1)) ** 0.5
    w = g.op("DequantizeLinear", g.constant(drawn, np.dtype(weights)), g.constant(scales, np.float32),
             g.constant(np.zeros(48), np.dtype(weights)), axis=0)  # fmt: skip
    bias = g.constant(g.random.normal(0, 0.3, 48), np.float32)
    if layer == "conv":
        y = g.op("Conv", x, w, bias, pads=[1, 0, 0, 1], strides=[1, 2])
    else:
        x = g.op("Transpose", x, perm=[0, 2, 3, 1]) if layer == "turned" else x
        y = g.op("Gemm", g.op("Flatten", x) if len(shape) > 2 else x, w, bias, transB=1)
    return g.model(g.pair(g.op("Relu", y), OUT_STEP, zero // 2, TYPES[kind]))


def on_core(proto: onnx.ModelProto, core: str = "pynq") -> int:
    compiled = weft.compile(weft.from_onnx(proto.SerializeToString()), target="accel", config=core)
    assert isinstance(compiled, CompiledModel)
    return sum(layer.macs for layer in compiled.layers if layer.device == "core")


@pytest.mark.parametrize(("kind", "zero"), [("int16", 0), ("int16", -1234), ("uint16", 32768), ("uint16", 300)])
def test_the_two_sums_are_that_of_the_model(kind: str, zero: int) -> None:
    module = from_onnx(model(kind=kind, zero=zero).SerializeToString())
    after, _ = wide_activations.counted(module)
    products = [node for node in calls(after.main.body) if node.op == "nn.conv2d"]
    assert len(products) == 2
    for seed in range(3):
        inputs = {"x": np.random.default_rng(seed).uniform(-9, 9, (1, 64, 16, 16)).astype(np.float32)}
        (expected,), (found,) = (evaluate(each, inputs).values() for each in (module, after))
        np.testing.assert_allclose(found, expected, atol=1.01 * OUT_STEP)
        assert np.mean(found != expected) < 0.01


def test_moves_of_an_activation_are_those_of_its_bytes() -> None:
    module = from_onnx(model("turned", size=32).SerializeToString())
    after, matches = wide_activations.counted(module)
    assert matches == 1
    inputs = {"x": np.random.default_rng(4).uniform(-9, 9, (1, 64, 32, 16)).astype(np.float32)}
    (expected,), (found,) = (evaluate(each, inputs).values() for each in (module, after))
    np.testing.assert_allclose(found, expected, atol=1.01 * OUT_STEP)


def _behind(move: str) -> onnx.ModelProto:
    """A product of an activation of 16 bits to which a move adds elements."""
    g = QuantisedGraph(1)
    x = g.pair(g.input("x", 1, 64, 16, 16), STEP, 5, np.int16)
    if move == "concat":
        x = g.op("Concat", x, g.constant(np.full((1, 16, 16, 16), 1.5), np.float32), axis=1)
    else:
        edges = g.constant(np.array([0, 0, 1, 2, 0, 0, 2, 1]), np.int64)
        x = g.op("Pad", x, edges, g.constant(1.5 if move == "pad" else 0.0, np.float32))
    return g.model(g.pair(g.conv(x, 80 if move == "concat" else 64, 64, pads=[0, 1, 1, 0]), OUT_STEP, 0, np.int16))


@pytest.mark.parametrize(("move", "taken"), [("pad", False), ("concat", False), ("pad with zeros", True)])
def test_what_a_move_adds_is_in_the_sums_once(move: str, taken: bool) -> None:
    module = from_onnx(_behind(move).SerializeToString())
    after, matches = wide_activations.counted(module)
    assert bool(matches) == taken
    inputs = {"x": np.random.default_rng(5).uniform(-2, 2, (1, 64, 16, 16)).astype(np.float32)}
    (expected,), (found,) = (evaluate(each, inputs).values() for each in (module, after))
    np.testing.assert_allclose(found, expected, atol=1.01 * OUT_STEP)


@pytest.mark.parametrize("layer", ["conv", "flat"])
def test_a_layer_of_16_bits_runs_on_the_core(layer: str) -> None:
    proto = model(layer, "uint16", 30000, size=32 if layer == "flat" else 16)
    module = weft.from_onnx(proto.SerializeToString())
    loaded = weft.load(weft.compile(module, target="accel", config="pynq"))
    assert on_core(proto) > 0
    shape = tuple(each.dim_value for each in proto.graph.input[0].type.tensor_type.shape.dim)
    x = np.random.default_rng(1).uniform(-8, 8, shape).astype(np.float32)
    session = precise_session(proto.SerializeToString())
    (expected,) = session.run(None, {"x": x})
    (found,) = loaded.run({"x": x}).values()
    np.testing.assert_allclose(found, expected, atol=1.01 * OUT_STEP)


@pytest.mark.parametrize(
    "changed",
    [
        {"layer": "gemm"},  # too small for the host's turns
        {"channels": 4},  # more bytes cross than there are products for
        {"weights": "int16"},
    ],
)
def test_others_stay_on_the_host(changed: dict[str, Any]) -> None:
    module = from_onnx(model(**changed).SerializeToString())
    assert wide_activations.counted(module)[1] == 0


def test_a_small_core_leaves_them_to_the_host() -> None:
    assert on_core(model(), "tiny") == 0


def test_the_integer_graph_is_what_the_core_computes() -> None:
    module = weft.from_onnx(model().SerializeToString())
    x = {"x": np.random.default_rng(2).uniform(-8, 8, (1, 64, 16, 16)).astype(np.float32)}
    compiled = weft.compile(module, target="accel", config="pynq")
    assert isinstance(compiled, CompiledModel)
    (found,) = weft.load(compiled).run(x).values()
    (expected,) = evaluate(integer_graph(model().SerializeToString(), compiled), x).values()
    np.testing.assert_array_equal(found, expected)
