"""Products with weights of several scales in an output channel run on the core: 4 bits in blocks, a scale an input."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import weft
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator
from weft.api import integer_graph
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import Call, Constant, Span, Var, call, calls, evaluate, evaluate_function
from weft.compiler.graph.ir import Function, TensorType
from weft.compiler.integers.form import Integers, Refusal
from weft.compiler.integers.static_weights import Weights, static_weights, two_digits
from weft.compiler.integers.two_digits import product_of_two
from weft.compiler.model import CompiledModel

from benchmarks.zoo.placement_graph import QuantisedGraph

Array = np.ndarray[Any, Any]
STEP = 0.05


def _model(kind: str, scales: str, follows: str) -> onnx.ModelProto:
    g, block, depth = QuantisedGraph(5), 16, 48
    shape = {"conv": (1, depth, 5, 4), "depthwise": (1, depth, 5, 4), "gemm": (3, depth), "matmul": (2, 3, depth)}[kind]
    x = g.pair(g.input("x", *shape), 0.03, -10)
    weights, axis = {
        "conv": ((20, depth, 3, 3), 1), "depthwise": ((depth, 1, 3, 3), 2), "gemm": ((20, depth), 1),
        "matmul": ((depth, 20), 0),
    }[kind]  # fmt: skip
    block = 2 if kind == "depthwise" else block
    blocks = tuple(-(-size // block) if place == axis else size for place, size in enumerate(weights))
    size = (1 if kind == "depthwise" else depth) * (9 if len(weights) == 4 else 1)
    drawn = g.random.uniform(0.5, 1.5, blocks) if scales == "any" else 2.0 ** g.random.integers(-2, 3, blocks)
    w = g.op(
        "DequantizeLinear", g.small(g.random.integers(-7, 8, weights), TensorProto.INT4),
        g.constant(drawn / size**0.5 / 5, np.float32), axis=axis, block_size=block,
    )  # fmt: skip
    if kind == "gemm":
        y = g.op("Gemm", x, w, g.constant(g.random.normal(0, 0.3, 20), np.float32), transB=1)
    else:
        attributes = {"pads": [1] * 4, "group": depth if kind == "depthwise" else 1} if len(weights) == 4 else {}
        y = g.op("Conv" if attributes else "MatMul", x, w, **attributes)
    follow = {
        "quantised": lambda: g.pair(g.op("Relu", y), STEP),
        "table": lambda: g.pair(g.op("Mul", y, g.op("Sigmoid", y)), STEP),
        "floats": lambda: y,
    }
    return g.model(follow[follows]())


def _of_few_bits(kind: str) -> onnx.ModelProto:
    """Rows of 8 bits and the weights of onnxruntime's tools for a few bits."""
    g, depth, outputs, block = QuantisedGraph(6), 64, 20, 16
    x = g.pair(g.input("x", 3, depth), 0.03, -10)
    blocks = depth // block
    packed = g.constant(g.random.integers(0, 256, (outputs, blocks, block // 2)), np.uint8)
    scales = g.constant(g.random.uniform(0.5, 1.5, outputs * blocks) / 40, np.float32)
    operands = [x, packed, scales]
    if kind == "zero points":
        operands.append(g.constant(g.random.integers(0, 256, outputs * blocks // 2), np.uint8))
    y = g.op("MatMulNBits", *operands, domain="com.microsoft", K=depth, N=outputs, bits=4, block_size=block)
    return g.model(g.pair(y, STEP), domains=["com.microsoft"], shapes=[(3, outputs)])


def _on_the_core(model: onnx.ModelProto) -> tuple[CompiledModel, Array, dict[str, Array]]:
    """The compiled model, what the simulated core gives and for what: it is what its integers give."""
    compiled = weft.compile(model, target="accel", config="tiny")
    assert isinstance(compiled, CompiledModel)
    assert all(layer.device == "core" for layer in compiled.layers if layer.macs)
    source = from_onnx(model)
    x = {"x": np.random.default_rng(0).normal(0, 1, source.main.params[0].shape).astype(np.float32)}
    (found,) = weft.load(compiled, device="fsim").run(x).values()
    (exact,) = evaluate(integer_graph(model, compiled), x).values()
    np.testing.assert_allclose(found, exact, rtol=1e-6, atol=1e-6)
    return compiled, found, x


@pytest.mark.parametrize("follows", ["quantised", "table", "floats"])
@pytest.mark.parametrize("kind", ["conv", "depthwise", "gemm", "matmul"])
def test_weights_in_blocks_are_two_products_of_the_core(kind: str, follows: str) -> None:
    model = _model(kind, "any", follows)
    compiled, found, x = _on_the_core(model)
    products = {"conv": 20 * 20 * 9 * 48, "depthwise": 20 * 9 * 48, "gemm": 3 * 20 * 48, "matmul": 6 * 20 * 48}[kind]
    assert sum(layer.macs for layer in compiled.layers) == products
    (reference,) = ReferenceEvaluator(model).run(None, x)
    assert np.abs(found - reference).max() <= (STEP / 8 if follows == "floats" else STEP * 1.01)


@pytest.mark.parametrize("kind", ["conv", "gemm"])
def test_scales_that_are_multiples_of_one_need_one_product(kind: str) -> None:
    model = _model(kind, "powers of two", "floats")
    compiled, found, x = _on_the_core(model)
    assert sum(node.op == "conv2d" for node in calls(integer_graph(model, compiled).main.body)) <= 3  # its digits
    (reference,) = ReferenceEvaluator(model).run(None, x)
    np.testing.assert_allclose(found, reference, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["plain", "zero points"])
def test_weights_of_a_few_bits(kind: str) -> None:
    model = _of_few_bits(kind)
    _, found, x = _on_the_core(model)
    (reference,) = evaluate(from_onnx(model), x).values()
    assert np.abs(found - reference).max() <= STEP * 1.01


def _dequantised(w: Array, scales: Array, axis: int = 1, block: int = 0) -> Call:
    parts = Constant(w), Constant(scales.astype(np.float32)), Constant(np.zeros(scales.shape, w.dtype))
    return call("dequantise", *parts, axis=axis, block=block)


def test_one_unit_where_there_is_one() -> None:
    w = np.array([[1, -3, 7, 2], [5, 0, -6, 0]], np.int8)
    found = static_weights(_dequantised(w, np.array([[0.3, 0.2], [0.1, 1.0]]), block=2), "x")
    assert isinstance(found, Weights)
    np.testing.assert_allclose(found.centred * found.scale[:, None], w * [[0.3, 0.3, 0.2, 0.2], [0.1, 0.1, 1, 1]])
    assert np.abs(found.centred[0]).max() == 14
    # Whole multiples that need more than 8 bits, and scales that are none
    for scales in ([[0.3, 40.0], [1, 1]], [[0.3, 0.2], [0.1, 0.1 * np.pi]]):
        assert isinstance(static_weights(_dequantised(w, np.array(scales), block=2), "x"), Refusal)


@pytest.mark.parametrize(("depth", "digits"), [(1, 1), (40, 1), (700, 1), (6000, 2), (60_000, 2)])
@pytest.mark.parametrize("zero", [-128, 0, 127])
def test_the_fine_part_costs_a_quarter_of_a_step(depth: int, digits: int, zero: int) -> None:
    random = np.random.default_rng(depth)
    weights = random.integers(-8, 8, (4, depth)).astype(np.int8)
    weights[0], weights[1, 1:] = -8, 0
    values = weights * (scales := random.uniform(0.1, 2, (4, depth)).astype(np.float32))
    two = two_digits(_dequantised(weights[..., None], scales[..., None], block=1))
    assert two is not None
    coarse, fine = (Weights(each.centred.reshape(4, depth, 1, 1), each.scale, "") for each in two)
    sums = sum(each.centred[:, :, 0, 0] * each.scale[:, None] for each in (coarse, fine))
    assert (np.abs(sums - values) <= np.abs(values).max(1, keepdims=True) / 65_000).all()
    x = Var("x", TensorType((1, depth, 1, 1), "int8"))
    attrs = {"pads": (0, 0, 0, 0), "pad_value": zero}
    real = product_of_two(Integers(x, 0.5, zero), x, "conv2d", (coarse, fine), attrs, (1, 4, 1, 1), Span(("conv",)))
    assert real is not None
    assert sum(node.op == "requantise" for node in calls(real.accumulator)) >= digits
    step = np.sqrt(np.square(coarse.centred[:, :, 0, 0].astype(np.float64)).sum(1)) * coarse.scale * 0.5
    step = np.maximum(step, step[step > 0].min())
    images = [np.full(depth, value) for value in (-128, 127)] + [random.integers(-128, 128, depth) for _ in range(4)]
    images += [np.where(fine.centred[0, :, 0, 0] * sign > 0, -128, 127) for sign in (1, -1)]
    for image in images:
        given = image.astype(np.int8).reshape(1, depth, 1, 1)
        total = np.asarray(evaluate_function(Function((x,), real.accumulator), (given,))).reshape(-1)
        found = (total + real.correction) * real.scale
        assert (np.abs(total + real.correction) <= real.peak).all()
        assert (np.abs(found - sums @ (image - zero) * 0.5) <= np.maximum(step, coarse.scale) * 0.2501).all()
