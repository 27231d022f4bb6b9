"""From trained weights to a float ONNX model, and from that to a quantised one (QDQ form)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from network import CLASSES, Array, Parameters

OPSET = 17
IR_VERSION = 9  # the oldest that every supported onnxruntime reads


def float_model(parameters: Parameters, batch: int = 1) -> onnx.ModelProto:
    """The network: ``image`` (batch, 1, 8, 8) float -> ``logits`` (batch, 10) float."""
    nodes = [
        _convolution("conv1", "image"),
        helper.make_node("Relu", ["conv1"], ["relu1"], "relu1"),
        _convolution("conv2", "relu1"),
        helper.make_node("Relu", ["conv2"], ["relu2"], "relu2"),
        _convolution("conv3", "relu2"),
        helper.make_node("Add", ["conv3", "relu2"], ["residual"], "residual"),
        helper.make_node("Relu", ["residual"], ["relu3"], "relu3"),
        helper.make_node("MaxPool", ["relu3"], ["max_pool"], "max_pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["max_pool"], ["average_pool"], "average_pool"),
        helper.make_node("Flatten", ["average_pool"], ["features"], "flatten"),
        helper.make_node("Gemm", ["features", "dense.weight", "dense.bias"], ["logits"], "dense", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        inputs=[helper.make_tensor_value_info("image", TensorProto.FLOAT, [batch, 1, 8, 8])],
        outputs=[helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, CLASSES])],
        initializer=[numpy_helper.from_array(value, name) for name, value in parameters.items()],
    )
    model = helper.make_model(
        graph, producer_name="weft", opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def _convolution(name: str, source: str) -> onnx.NodeProto:
    """3x3, keeping the size; its weights are ``name.weight`` and ``name.bias``."""
    inputs = [source, f"{name}.weight", f"{name}.bias"]
    return helper.make_node("Conv", inputs, [name], name, kernel_shape=[3, 3], pads=[1, 1, 1, 1])


def quantise(model: onnx.ModelProto, images: Array, path: Path) -> None:
    """Write ``model`` to ``path`` with int8 activations (calibrated on ``images``) and int8 weights per channel."""
    with tempfile.TemporaryDirectory() as folder:
        typed_path = Path(folder) / "typed.onnx"
        quant_pre_process(model, typed_path, skip_optimization=True, skip_symbolic_shape=True)
        quantize_static(
            typed_path,
            path,
            _Images(images),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
        )


class _Images(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
    """Feeds ``images`` (N, 1, 8, 8) to the calibration, one at a time."""

    def __init__(self, images: Array) -> None:
        self._images: Iterator[Array] = iter(images)

    def get_next(self) -> dict[str, Array] | None:
        image = next(self._images, None)
        return None if image is None else {"image": image[np.newaxis]}
