"""Factors of sums that are rounded in float32."""

from __future__ import annotations

import numpy as np
from weft.compiler.graph import Attrs, Call, Constant, Function, Module, TensorType, Var, call
from weft.compiler.graph.visit import topological_order
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
