"""Sums of products that the host needs as floats leave the core as digits of 8 bits, exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import weft
from onnx.reference import ReferenceEvaluator
from weft.compiler.graph import Call, Constant, Span, Var, call, calls, evaluate_function
from weft.compiler.graph.ir import Function, TensorType
from weft.compiler.integers.form import Affine
from weft.compiler.passes.hand_over import bounds_of, handed_over

from benchmarks.zoo.placement_graph import QuantisedGraph


def _affine(w: np.ndarray[Any, Any], zero: int) -> Affine:
    x = Var("x", TensorType((1, w.shape[1], 3, 3), "int8"))
    node = call("conv2d", x, Constant(w), pads=(0, 0, 0, 0), pad_value=zero, span=Span(("conv",), "y"))
    sums = w.astype(np.int64).sum((1, 2, 3))
    channels = len(w)
    return Affine(node, -zero * sums, np.linspace(1, 2, channels) * 2.0**-10, np.linspace(-1, 1, channels),
                  np.abs(w.astype(np.int64)).sum((1, 2, 3)) * 255.0, node.shape)  # fmt: skip


@pytest.mark.parametrize(("channels", "digits"), [(1, 1), (2, 2), (300, 3), (40_000, 4)])
def test_every_sum_is_its_digits(channels: int, digits: int) -> None:
    random = np.random.default_rng(channels)
    large = channels > 1
    w = random.integers(-100 if large else 0, 101 if large else 1, (5, channels, 1, 1)).astype(np.int8)
    w[0], w[1] = (100, -100) if large else (0, 0)
    for zero in (-128, 127, 3):
        x = _affine(w, zero)
        real = handed_over(x, "conv", Span(("conv",), "y"))
        assert isinstance(real, Call)
        param = x.accumulator.args[0]
        assert isinstance(param, Var)
        images = [np.full(param.shape, value, np.int8) for value in (-128, 127, zero)]
        images += [random.integers(-128, 128, param.shape).astype(np.int8) for _ in range(3)]
        low, high = bounds_of(x)
        for image in images:
            found = evaluate_function(Function((param,), real), (image,))
            exact = np.einsum("oc,nchw->nohw", w[:, :, 0, 0].astype(np.int64), image.astype(np.int64) - zero)
            assert (low.reshape(-1, 1, 1) <= exact).all()
            assert (exact <= high.reshape(-1, 1, 1)).all()
            wanted = exact.astype(np.float32) * x.scale.reshape(-1, 1, 1).astype(np.float32)
            wanted += x.offset.reshape(-1, 1, 1).astype(np.float32)
            np.testing.assert_array_equal(found, wanted)
    assert sum(node.op == "requantise" for node in calls(real)) == digits


FOLLOWS: dict[str, Callable[[Any, str, str], str]] = {
    "nothing": lambda g, y, x: y,
    "softmax": lambda g, y, x: g.op("Softmax", y, axis=1),
    "sine": lambda g, y, x: g.pair(g.op("Sin", y), 0.01),
    "identity in floats": lambda g, y, x: g.pair(g.op("Relu", g.op("Add", y, x)), 0.03),
    "normalisation": lambda g, y, x: g.pair(
        g.op("InstanceNormalization", y, g.constant(np.ones(6, np.float32)), g.constant(np.zeros(6, np.float32))), 0.03
    ),
}


def _model(follows: Callable[[Any, str, str], str], kind: str) -> onnx.ModelProto:
    g = QuantisedGraph(2)
    x = g.op("Relu", g.input("x", 1, 6, 9, 7))
    q = g.pair(x, 0.02, -100)
    if kind == "matmul":
        rows = g.pair(g.op("Transpose", x, perm=[0, 1, 3, 2]), 0.02)
        means = g.op("ReduceMean", x, g.constant([3], np.int64), keepdims=1)
        return g.model(follows(g, g.op("MatMul", q, rows), g.op("Mul", means, g.constant(np.ones((1, 9)), np.float32))))
    y = g.conv(q, 6, 6, group=6 if kind == "depthwise" else 1)
    return g.model(follows(g, y, x))


@pytest.mark.parametrize("follows", FOLLOWS)
@pytest.mark.parametrize("kind", ["conv", "depthwise", "matmul"])
def test_the_product_is_on_the_core_whatever_follows(kind: str, follows: str) -> None:
    model = _model(FOLLOWS[follows], kind)
    compiled = weft.compile(model, target="accel", config="tiny")
    assert all(layer.device == "core" for layer in compiled.layers if layer.macs)
    products = 6 * 9 * 9 * 7 if kind == "matmul" else 63 * 9 * 6 * (1 if kind == "depthwise" else 6)
    assert sum(layer.macs for layer in compiled.layers) == products
    x = {"x": np.random.default_rng(0).normal(0, 1, (1, 6, 9, 7)).astype(np.float32)}
    (found,) = weft.load(compiled, device="fsim").run(x).values()
    (reference,) = ReferenceEvaluator(model).run(None, x)
    step = {"sine": 0.01}.get(follows, 0.03) * 1.01 if follows not in ("nothing", "softmax") else 1e-5
    assert np.abs(found - reference).max() <= step
