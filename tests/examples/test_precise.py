"""Whoever judges by onnxruntime asks for a session that is exact on every processor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
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
