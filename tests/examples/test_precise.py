"""Whoever judges by onnxruntime asks for a session that is exact on every processor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from examples.precise import precise_session

ROOT = Path(__file__).parent.parent.parent
MAKES_ITS_OWN = {
    "examples/precise.py": "is where sessions are made",
    "benchmarks/compiling/first.py": "has the time of a whole process taken, with all that it imports",
}
CALLED = "Inference{}(".format("Session")  # so that this file is not found


def test_sessions_are_made_in_one_place() -> None:
    kept = {"build", ".venv", "findings", "dist"}
    files = [path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] not in kept]
    making = {str(path.relative_to(ROOT)) for path in files if CALLED in path.read_text()}
    assert making == set(MAKES_ITS_OWN), "ask examples.precise for a session"
    assert 'entry("session.x64quantprecision", "1")' in (ROOT / "benchmarks/compiling/first.py").read_text()


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_pairs_of_products_do_not_saturate(kind: type) -> None:
    """255 * 127 * 2 is beyond 16 bits, in which pairs are added on processors without VNNI."""
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    x = np.full((4, 64), high if kind is np.uint8 else low, kind)
    weights = np.full((64, 16), -128, np.int8)
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("MatMulInteger", ["x", "w"], ["y"])], "pairs",
            [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
            [helper.make_tensor_value_info("y", TensorProto.INT32, None)], [numpy_helper.from_array(weights, "w")],
        ), opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
    )  # fmt: skip
    (found,) = precise_session(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(found, x.astype(np.int32) @ weights.astype(np.int32))


def test_an_optimiser_is_not_needed_for_that() -> None:
    """Two products share their weights, which another node reads as they are."""
    random = np.random.default_rng(0)
    weights = random.integers(-128, 128, (6, 4, 3, 3)).astype(np.int8)
    constants = {
        "w": weights, "wz": random.integers(-9, 9, 6).astype(np.int8), "ws": np.full(6, 0.0009, np.float32),
        "s": np.float32(1), "z": np.uint8(131),
    }  # fmt: skip
    nodes = [
        helper.make_node("QLinearConv", ["x", "s", "z", "w", "ws", "wz", "s", "z"], ["y"]),
        helper.make_node("QLinearConv", ["x", "s", "z", "w", "ws", "wz", "s", "z"], ["again"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["plain"], axis=0),
    ]
    x = random.integers(0, 256, (1, 4, 9, 8)).astype(np.uint8)
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [info("x", TensorProto.UINT8, x.shape)],
        [*(info(name, TensorProto.UINT8, None) for name in ("y", "again")), info("plain", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    y, again, plain = precise_session(model, options).run(None, {"x": x})
    wide = weights.astype(np.int64) - constants["wz"][:, None, None, None]
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.int64) - 131, (3, 3), (2, 3))
    sums = np.einsum("nchwij,ocij->nohw", windows, wide)
    wanted = np.clip(np.rint(sums.astype(np.float32) * np.float32(0.0009)) + 131, 0, 255)
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(again, wanted)
    np.testing.assert_allclose(plain, wide * 0.0009, rtol=1e-6)
