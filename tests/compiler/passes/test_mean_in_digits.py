"""Means of products that no quantise stands behind are found on the core."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import weft
from onnx.reference import ReferenceEvaluator
from weft.api import integer_graph
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import Constant, Function, TensorType, Var, call, calls, evaluate, evaluate_function
from weft.compiler.integers.describer import Describer
from weft.compiler.integers.form import Affine
from weft.compiler.model import CompiledModel
from weft.compiler.passes.mean_in_digits import mean_in_digits
from weft.compiler.passes.pipeline import PassOptions, run_passes
from weft.compiler.targets.accel.target import passes_to_integers
from weft.hw.config import load_config

from benchmarks.zoo.placement_graph import QuantisedGraph

Array = np.ndarray[Any, Any]
SHAPE = (1, 16, 6, 8)
STEP = 0.02


def _model(between: str, pooling: str, *, by_channel: bool = True) -> onnx.ModelProto:
    g = QuantisedGraph(3)
    y = g.conv(g.pair(g.input("x", *SHAPE), 0.03, -10), 16, 16, by_channel=by_channel)
    y = {
        "nothing": lambda: y, "relu": lambda: g.op("Relu", y),
        "negative": lambda: g.op("Neg", g.op("Relu", y)),
        "clip": lambda: g.op("Clip", y, g.constant(-0.1, np.float32), g.constant(1.2, np.float32)),
        "factors": lambda: g.op("Mul", g.op("Relu", y), g.constant(1.7, np.float32)),
        "signs": lambda: g.op("Mul", y, g.constant(np.linspace(-1, 1, 16).reshape(1, 16, 1, 1), np.float32)),
    }[between]()  # fmt: skip
    y = {
        "average": lambda: g.op("AveragePool", y, kernel_shape=[2, 2], strides=[2, 2]),
        "uneven": lambda: g.op("AveragePool", y, kernel_shape=[3, 3], pads=[1] * 4),
        "padded": lambda: g.op("AveragePool", y, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1),
        "global": lambda: g.op("GlobalAveragePool", y),
        "reduced": lambda: g.op("ReduceMean", y, g.constant([2, 3], np.int64), keepdims=0),
    }[pooling]()  # fmt: skip
    return g.model(g.pair(y, STEP))


def _input() -> dict[str, Array]:
    return {"x": np.random.default_rng(1).normal(0, 1, SHAPE).astype(np.float32)}


CASES = [
    ("nothing", "average"), ("relu", "average"), ("negative", "global"), ("clip", "average"), ("factors", "reduced"),
    ("signs", "uneven"), ("relu", "padded"), ("clip", "global"), ("nothing", "uneven"),
]  # fmt: skip


@pytest.mark.parametrize("by_channel", [True, False])
@pytest.mark.parametrize(("between", "pooling"), CASES)
def test_the_integers_of_a_mean_are_those_of_its_floats(between: str, pooling: str, by_channel: bool) -> None:
    model = _model(between, pooling, by_channel=by_channel)
    passes = passes_to_integers(load_config("tiny"), "products")
    module = run_passes(from_onnx(model), passes, PassOptions(), "to integers")
    host = {node.op.body.op for node in calls(module.main.body) if isinstance(node.op, Function)}
    assert host <= {"quantise", "dequantise"}
    (found,) = evaluate(module, _input()).values()
    (reference,) = ReferenceEvaluator(model).run(None, _input())
    far = np.abs(found - reference)
    assert far.max() <= STEP * 1.01
    assert np.mean(far > STEP / 2) < 0.1


@pytest.mark.parametrize(
    ("between", "pooling"), [("clip", "global"), pytest.param("factors", "average", marks=pytest.mark.long)]
)
def test_nothing_but_the_ends_is_on_the_host(between: str, pooling: str) -> None:
    model = _model(between, pooling)
    compiled = weft.compile(model, target="accel", config="tiny")
    assert isinstance(compiled, CompiledModel)
    operators = {name for layer in compiled.layers if layer.device != "core" for name in layer.operators}
    assert operators <= {"quantise", "dequantise", "reshape", "transpose", "slice", "pad"}
    (found,) = weft.load(compiled, device="fsim").run(_input()).values()
    (exact,) = evaluate(integer_graph(model, compiled), _input()).values()
    np.testing.assert_allclose(found, exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("depth", [1, 7, 600, 60_000])
@pytest.mark.parametrize(("low", "high"), [(-np.inf, np.inf), (0.0, np.inf), (-np.inf, 0.5)])
def test_digits_hold_every_sum(depth: int, low: float, high: float) -> None:
    """Of whole sums: in the least part that 16 bits allow, to half of it, up to the very ends."""
    random = np.random.default_rng(depth)
    weights = random.integers(-9, 10, (4, depth, 1, 1)).astype(np.int8)
    x = Var("x", TensorType((1, depth, 1, 2), "int8"))
    scale = np.array([0.3, -0.2, 0.1, 0.7]) / depth**0.5
    reach = 128.0 * np.abs(weights).sum((1, 2, 3))
    sums = call("conv2d", x, Constant(weights), pads=(0, 0, 0, 0))
    value = Affine(sums, np.zeros(4, np.int64), scale, random.normal(0, 0.1, 4), reach, (1, 4, 1, 2), low, high)
    node = call("nn.average_pool", Var("y", TensorType(value.shape, "float32")), kernel=(1, 2))
    found = mean_in_digits(node, Describer({id(node.args[0]): value}, {}, {}, core=True))
    assert isinstance(found, Affine)
    ends = [np.where(weights[:1].reshape(-1) > 0, high, low) for low, high in ((-128, 127), (127, -128))]
    for image in (*ends, random.integers(-128, 128, depth), np.zeros(depth)):
        given = np.stack([image, image], -1).astype(np.int8).reshape(x.shape)
        total = weights.reshape(4, -1).astype(np.int64) @ given.reshape(depth, 2)
        wanted = np.clip(total * scale[:, None] + value.offset[:, None], low, high).mean(1)
        accumulator = np.asarray(evaluate_function(Function((x,), found.accumulator), (given,))).reshape(-1)
        assert (np.abs(accumulator + found.correction) <= found.peak).all()
        parts = np.abs(scale) * max(1, 2.0 ** np.ceil(np.log2(2 * reach.max() / 65535)))
        assert (np.abs((accumulator + found.correction) * found.scale + found.offset - wanted) <= 1.01 * parts).all()
