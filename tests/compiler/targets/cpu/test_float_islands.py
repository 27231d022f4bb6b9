"""Quantised models with floats between their integers: on the CPU, and on the core with those floats on the host."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import weft
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

SHAPE = (1, 8, 13, 13)


class Calibration(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, random: np.random.Generator) -> None:
        self.left = iter([{"x": random.normal(size=SHAPE).astype(np.float32)} for _ in range(3)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.left, None)


ISLANDS = {
    "resize": [helper.make_node("Resize", ["a", "", "scales"], ["b"], mode="linear")],
    "normalisation": [helper.make_node("InstanceNormalization", ["a", "gain", "shift"], ["b"])],
    "gate": [helper.make_node("Softmax", ["a"], ["s"], axis=1), helper.make_node("Mul", ["a", "s"], ["b"])],
}


def quantised_model(island: list[onnx.NodeProto], folder: Path) -> Path:
    """Two quantised convolutions with floats between them."""
    random = np.random.default_rng(3)
    constants = {
        "first": random.normal(0, 0.2, (16, 8, 3, 3)), "second": random.normal(0, 0.2, (8, 16, 3, 3)),
        "scales": np.array([1, 1, 2.3, 1.7]), "gain": np.ones(16), "shift": np.zeros(16),
    }  # fmt: skip
    nodes = [helper.make_node("Conv", ["x", "first"], ["a"], pads=[1] * 4), *island,
             helper.make_node("Conv", ["b", "second"], ["y"], pads=[1] * 4)]  # fmt: skip
    graph = helper.make_graph(
        nodes, "island", [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "float.onnx")
    quantize_static(folder / "float.onnx", folder / "quantised.onnx", Calibration(random),
                    quant_format=QuantFormat.QDQ, op_types_to_quantize=["Conv"])  # fmt: skip
    return folder / "quantised.onnx"


@pytest.mark.parametrize("island", ISLANDS)
def test_floats_differ_by_one_step_of_the_next_integers_at_most(island: str, tmp_path: Path) -> None:
    path = quantised_model(ISLANDS[island], tmp_path)
    x = np.random.default_rng(4).normal(size=SHAPE).astype(np.float32)
    (cpu,), (core,) = (
        weft.load(weft.compile(path, target=target)).run({"x": x}).values() for target in ("cpu", "accel")
    )
    spread = float(np.ptp(core))
    assert np.abs(cpu - core).max() <= 0.05 * spread
    assert np.mean(cpu != core) < 1e-2
