"""Bilinear interpolation by whole factors on the core: exact, without a step of the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import weft
from onnx.reference import ReferenceEvaluator
from weft.api import integer_graph
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import Module, calls, evaluate
from weft.compiler.model import CompiledModel
from weft.compiler.passes.cleanup import fold_constants
from weft.compiler.passes.manager import PassManager
from weft.compiler.passes.resized import resized
from weft.compiler.passes.simplify import simplify

from benchmarks.zoo.placement_graph import QuantisedGraph

Array = np.ndarray[Any, Any]
STEP = 0.05


def _model(
    mode: str, factors: tuple[float, float], size: tuple[int, int], channels: int = 16, kind: str = "linear"
) -> onnx.ModelProto:
    g = QuantisedGraph(1)
    x = g.pair(
        g.op("Relu", g.conv(g.pair(g.input("x", 1, channels, *size), 0.03, -10), channels, channels)), 0.02, -128
    )
    scales = g.constant([1, 1, *factors], np.float32)
    y = g.op("Resize", x, "", scales, coordinate_transformation_mode=mode, mode=kind)
    return g.model(g.pair(g.conv(g.pair(y, 0.02, -101), channels, 8), STEP))


def _row(factor: float, length: int) -> onnx.ModelProto:
    g = QuantisedGraph(1)
    x = g.pair(g.input("x", 2, 16, length), 0.02, -10)
    y = g.op("Resize", x, "", g.constant([1, 1, factor], np.float32), mode="linear")
    return g.model(g.pair(y, STEP))


def _rewritten(model: onnx.ModelProto) -> Module:
    return PassManager([fold_constants, simplify, resized]).run(from_onnx(model))


def _products(module: Module) -> int:
    return sum(node.op == "nn.matmul" for node in calls(module.main.body))


CASES = [
    ("half_pixel", (2, 2), (6, 5)), ("asymmetric", (2, 2), (6, 5)), ("half_pixel", (3, 3), (4, 4)),
    ("pytorch_half_pixel", (4, 2), (3, 4)), ("asymmetric", (3, 4), (3, 4)), ("half_pixel", (7, 2), (3, 2)),
    ("half_pixel", (2, 2), (2, 9)), ("half_pixel", (1, 2), (4, 5)), ("half_pixel", (3, 1), (4, 5)),
    ("half_pixel", (0.5, 0.5), (4, 6)), ("half_pixel", (0.25, 2), (8, 3)), ("asymmetric", (0.5, 1), (6, 3)),
    ("asymmetric", (2, 1 / 3), (4, 6)),
]  # fmt: skip


@pytest.mark.parametrize(("mode", "factors", "size"), CASES)
def test_phases_on_the_core(mode: str, factors: tuple[float, float], size: tuple[int, int]) -> None:
    model = _model(mode, factors, size)
    compiled = weft.compile(model, target="accel", config="tiny")
    assert isinstance(compiled, CompiledModel)
    assert all(layer.device == "core" for layer in compiled.layers if layer.macs)
    assert not any(not {"quantise", "dequantise", "reshape", "transpose", "gather"}.issuperset(layer.operators)
                   for layer in compiled.layers if layer.device != "core")  # fmt: skip
    x = {"x": np.random.default_rng(2).normal(0, 1, (1, 16, *size)).astype(np.float32)}
    (found,) = weft.load(compiled, device="fsim").run(x).values()
    (exact,) = evaluate(integer_graph(model, compiled), x).values()
    np.testing.assert_array_equal(found, exact)
    (reference,) = ReferenceEvaluator(model).run(None, x)
    assert np.abs(found - reference).max() <= STEP * 1.01


@pytest.mark.parametrize(("mode", "factors", "size"), [*CASES, ("half_pixel", (6, 7), (2, 3))])
def test_the_same_values(mode: str, factors: tuple[float, float], size: tuple[int, int]) -> None:
    g = QuantisedGraph(1)
    x = g.pair(g.input("x", 2, 3, *size), 0.02, -10)
    scales = g.constant([1, 1, *factors], np.float32)
    model = g.model(g.op("Resize", x, "", scales, coordinate_transformation_mode=mode, mode="linear"))
    rewritten = _rewritten(model)
    assert not any(node.op == "nn.matmul" for node in calls(rewritten.main.body))
    given = {"x": np.random.default_rng(3).normal(0, 1, (2, 3, *size)).astype(np.float32)}
    (wanted,), (found,) = ReferenceEvaluator(model).run(None, given), evaluate(rewritten, given).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "model",
    [
        _model("align_corners", (2, 2), (4, 4)), _model("half_pixel", (2, 2), (4, 4), kind="cubic"),
        _model("half_pixel", (1.5, 2), (4, 4)), _model("half_pixel", (8, 8), (2, 2)),
        _model("half_pixel", (1, 1.5), (4, 4)), _model("half_pixel", (0.4, 0.4), (5, 5)),
        _model("half_pixel", (0.5, 1.5), (4, 4)),
    ],
)  # fmt: skip
def test_other_interpolations_stay(model: onnx.ModelProto) -> None:
    """Also the one axis of two that could be done: the core would hand its sums to the host for the other."""
    before = PassManager([fold_constants, simplify]).run(from_onnx(model))
    count, left = (
        sum(node.op == "nn.matmul" for node in calls(each.main.body)) for each in (before, _rewritten(model))
    )
    assert count == left > 0


def test_an_image_of_floats_stays() -> None:
    g = QuantisedGraph(1)
    scales = g.constant([1, 1, 2, 2], np.float32)
    x = g.op("Sigmoid", g.pair(g.input("x", 1, 4, 4, 4), 0.02))
    y = g.op("Resize", x, "", scales, mode="linear", coordinate_transformation_mode="half_pixel")
    assert sum(node.op == "nn.matmul" for node in calls(_rewritten(g.model(g.pair(y, 0.02))).main.body)) == 2


def test_an_interpolation_that_is_a_result() -> None:
    g = QuantisedGraph(4)
    x = g.pair(g.conv(g.pair(g.input("x", 1, 16, 5, 4), 0.03), 16, 5, 1), 0.05)
    scales = g.constant([1, 1, 4, 4], np.float32)
    y = g.op("Resize", x, "", scales, mode="linear", coordinate_transformation_mode="half_pixel")
    model = g.model(y)
    compiled = weft.compile(model, target="accel", config="tiny")
    assert isinstance(compiled, CompiledModel)
    assert all(layer.device == "core" for layer in compiled.layers if layer.macs)
    given = {"x": np.random.default_rng(2).normal(0, 1, (1, 16, 5, 4)).astype(np.float32)}
    (found,) = weft.load(compiled, device="fsim").run(given).values()
    (reference,) = ReferenceEvaluator(model).run(None, given)
    tie = np.abs(found - reference) > 1e-5  # a quantise before it, next to a tie
    assert np.mean(tie) < 0.02


@pytest.mark.parametrize(("factor", "length"), [(2, 9), (3, 4), (0.5, 8), (0.25, 12)])
def test_rows_without_height(factor: float, length: int) -> None:
    model = _row(factor, length)
    assert not any(node.op == "nn.matmul" for node in calls(_rewritten(model).main.body))
    compiled = weft.compile(model, target="accel", config="tiny")
    assert isinstance(compiled, CompiledModel)
    assert sum(layer.macs for layer in compiled.layers) == sum(
        layer.macs for layer in compiled.layers if layer.device == "core"
    )
    given = {"x": np.random.default_rng(2).normal(0, 1, (2, 16, length)).astype(np.float32)}
    (found,) = weft.load(compiled, device="fsim").run(given).values()
    (reference,) = ReferenceEvaluator(model).run(None, given)
    assert np.abs(found - reference).max() <= STEP * 1.01


def test_a_matrix_that_only_looks_like_an_interpolation_stays() -> None:
    g = QuantisedGraph(1)
    x = g.pair(g.input("x", 1, 4, 4, 4), 0.02)
    half = np.kron(np.eye(2), np.full((2, 1), 0.5)).astype(np.float32)
    half[0, 0] = 0.75
    y = g.op("MatMul", x, g.constant(half, np.float32))
    assert not any(node.op == "nn.conv2d" for node in calls(_rewritten(g.model(g.pair(y, 0.02))).main.body))
