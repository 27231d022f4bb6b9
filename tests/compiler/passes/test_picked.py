"""What stands between a function of a product and the next quantise, and only picks elements: a largest of windows, a
move. The function runs on the core all the same, since quantising keeps the order of numbers."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
import weft
from onnx import TensorProto, helper, numpy_helper
from weft.compiler.compile import prepared
from weft.compiler.graph import evaluate
from weft.compiler.model import CompiledModel
from weft.compiler.targets.registry import find_target
from weft.compiler.targets.target import target_options

from examples.precise import precise_session

FUNCTIONS: dict[str, list[tuple[str, dict[str, float]]]] = {
    "leaky ReLU": [("LeakyRelu", {"alpha": 0.2})],
    "leaky ReLU, clipped from below": [("LeakyRelu", {"alpha": 0.2}), ("Max", {})],
    "sigmoid": [("Sigmoid", {})],
    "hard swish": [("HardSwish", {})],
    "SiLU": [("Sigmoid", {}), ("Mul", {})],
}
PICKS = {
    "max_pool": ("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "max_pool, padded": ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "global": ("GlobalMaxPool", {}),
    "transpose": ("Transpose", {"perm": [0, 1, 3, 2]}),
    "two": ("MaxPool", {"kernel_shape": [2, 2]}),
}


def model(function: str, pick: str, kind: str) -> onnx.ModelProto:
    """A product, a function of it, what picks of that, and one quantise behind all; then another product."""
    generator = np.random.default_rng(0)
    zero = np.array(3, kind)
    constants = {
        "s": np.float32(0.02), "z": zero, "ws": np.float32(0.01), "wz": np.int8(0), "so": np.float32(0.03), "zo": zero,
        "floor": np.float32(-0.4), "w": generator.integers(-127, 128, (16, 16, 3, 3)).astype(np.int8),
        "w2": (100 * np.eye(16, dtype=np.int8)).reshape(16, 16, 1, 1),  # hands each channel on
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["dw"]),
        helper.make_node("Conv", ["d", "dw"], ["y"], pads=[1, 1, 1, 1]),
    ]
    value = "y"
    for operator, attributes in FUNCTIONS[function]:
        operands = {"Max": [value, "floor"], "Mul": [value, "y"]}.get(operator, [value])
        nodes.append(helper.make_node(operator, operands, [f"{value}_"], **attributes))
        value += "_"
    for _ in range(2 if pick == "two" else 1):
        operator, given = PICKS[pick]
        nodes.append(helper.make_node(operator, [value], [f"{value}_"], **given))
        value += "_"
    nodes += [
        helper.make_node("QuantizeLinear", [value, "so", "zo"], ["q1"]),
        helper.make_node("DequantizeLinear", ["q1", "so", "zo"], ["d1"]),
        helper.make_node("DequantizeLinear", ["w2", "ws", "wz"], ["dw2"]),
        helper.make_node("Conv", ["d1", "dw2"], ["e"]),
        helper.make_node("QuantizeLinear", ["e", "so", "zo"], ["q2"]),
        helper.make_node("DequantizeLinear", ["q2", "so", "zo"], ["out"]),
    ]
    x, out = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
              for name, shape in (("x", [1, 16, 10, 10]), ("out", None)))  # fmt: skip
    made = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "picked", [x], [out], made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def as_written() -> onnxruntime.SessionOptions:
    """Node by node: its optimiser does not take a constant that is two zero points."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("pick", PICKS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_floats_between_two_products(function: str, pick: str, kind: str) -> None:
    given = model(function, pick, kind)
    target = find_target("accel")
    module = prepared(weft.from_onnx(given), target, target_options(target, {"config": "tiny"}))
    compiled = weft.compile(module, "tiny")
    assert isinstance(compiled, CompiledModel)
    floats = [layer.operators for layer in compiled.layers if "nn.max_pool" in layer.operators]
    assert not floats, floats
    quantised = [layer for layer in compiled.layers if "quantise" in layer.operators]
    assert len(quantised) == 1, "one quantise, of the input"
    x = np.random.default_rng(1).standard_normal((1, 16, 10, 10)).astype(np.float32)
    found = weft.load(compiled, "fsim").run({"x": x})["out"]
    np.testing.assert_array_equal(found, evaluate(module, {"x": x})["out"])
    (wanted,) = precise_session(given.SerializeToString(), as_written()).run(None, {"x": x})
    apart = np.abs(found - wanted) / np.float32(0.03)
    assert apart.max() <= 1.01  # what a table of a function may be off by
