"""Factors of sums that are rounded in float32."""

from __future__ import annotations

import numpy as np
import weft
from weft.compiler.graph import Attrs, Call, Constant, Function, Module, TensorType, Var, call, evaluate
from weft.compiler.graph.visit import topological_order
from weft.compiler.passes.float32_by_integers import by_integers
from weft.compiler.passes.manager import PassManager
from weft.compiler.passes.pipeline import integer_passes

F = np.float32


def scale_of(sx: np.float32, sw: np.float32, sy: np.float32) -> np.float32:
    """The scale of the one requantise that a dense layer with these scales becomes."""
    x = Var("x", TensorType((1, 4), "int8"))
    zero = Constant(np.array(0, np.int8))
    real = call("dequantise", x, Constant(np.array(sx)), zero)
    weights = call("dequantise", Constant(np.ones((3, 4), np.int8)), Constant(np.array(sw)), zero)
    result = call("quantise", call("nn.dense", real, weights), Constant(np.array(sy)), zero, rounding="float32")
    module = PassManager(integer_passes()).run(Module(Function((x,), result, Attrs({"outputs": ("y",)}))))
    calls = [node for node in topological_order(module.main.body) if isinstance(node, Call)]
    (found,) = (node for node in calls if node.op == "requantise_float32")
    scale = found.args[2]
    assert isinstance(scale, Constant)
    assert len(set(scale.value.tolist())) == 1
    return F(scale.value[0])


def test_the_factor_is_rounded_where_scales_are_multiplied_and_where_they_are_divided() -> None:
    """As XNNPACK has it; in a quarter of all cases the exact factor's float32 is another number."""
    rng = np.random.default_rng(0)
    other = 0
    for sx, sw, sy in rng.uniform(0.01, 0.1, (20, 3)).astype(F):
        wanted = F(sx * sw) / sy
        assert scale_of(sx, sw, sy) == wanted
        other += wanted != F(float(sx) * float(sw) / float(sy))
    assert other > 2


def test_a_scale_is_a_multiplier_and_a_shift() -> None:
    """On sums of every size, halves among them, and for every scale; also where a processor computes it."""
    rng = np.random.default_rng(0)
    channels = 400
    exponents = rng.uniform(-60, 30, channels)
    scale = (rng.choice((-1, 1), channels) * 2.0**exponents).astype(F)
    scale[: channels // 2] = 2.0 ** np.rint(exponents[: channels // 2])
    scale[:3] = 0, np.inf, F(2.0**-149)
    sums = (rng.choice((-1, 1), (60, channels)) * 2.0 ** rng.uniform(0, 31, (60, channels))).astype(np.int64)
    wanted_size = np.rint((2 * rng.integers(0, 99, (30, channels)) + 1) / 2 / np.maximum(np.abs(scale), 1e-30))
    sums[:30] = np.clip(wanted_size + rng.integers(-1, 2, (30, channels)), -(2**31), 2**31 - 1)
    data, x = {"x": sums.astype(np.int32)}, Var("x", TensorType((60, channels), "int32"))
    bias = Constant(rng.integers(-9, 9, channels).astype(np.int32))
    node = call("requantise_float32", x, bias, Constant(scale), zero_point=-5, low=-100, high=90)
    by = by_integers(node)
    assert isinstance(by, Call)
    assert by.op == "requantise"
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = evaluate(module_of(x, node), data)["y"]
    assert len(np.unique(wanted)) > 150
    np.testing.assert_array_equal(evaluate(module_of(x, by), data)["y"], wanted)
    np.testing.assert_array_equal(weft.load(weft.compile(module_of(x, by), target="cpu")).run(data)["y"], wanted)


def module_of(x: Var, result: Call) -> Module:
    return Module(Function((x,), result, Attrs({"outputs": ("y",)})), stage="integer")
