"""A quantised network of which the core lacks some operators, between those that it has."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from examples.models.images import images
from examples.models.quantise import quantise

Array = npt.NDArray[Any]

CHANNELS, CLASSES, CALIBRATION_IMAGES, TURN = 64, 10, 8, 0.1


def mixed_model(path: Path, size: int, *, sampled: bool) -> None:
    """Write the network for images (1, 3, size, size): convolutions with a GELU (erf), a residual, a softmax over
    channels as a gate, and a resize between them. ``sampled``: also a turn of the image by grid sampling, for which
    there is no kernel on any target."""
    network = _Network()
    stem = network.node("Relu", network.convolution("stem", "image", 3, CHANNELS, stride=2))
    value = network.gelu("gelu", network.convolution("conv1", stem, CHANNELS, CHANNELS))
    value = network.convolution("conv2", value, CHANNELS, CHANNELS)
    value = network.node("Relu", network.node("Add", value, stem))
    if sampled:
        value = network.node("GridSample", value, network.turning_grid("grid", size // 2), align_corners=0)
    value = network.convolution("conv3", value, CHANNELS, CHANNELS, stride=2)
    value = network.node("Mul", value, network.node("Softmax", value, axis=1))
    value = network.convolution("conv4", value, CHANNELS, CHANNELS)
    scales = network.constant("scales", np.array([1, 1, 2, 2], np.float32))
    value = network.node("Resize", value, "", scales, mode="nearest", nearest_mode="floor")
    value = network.node("Relu", network.convolution("conv5", value, CHANNELS, CHANNELS))
    value = network.node("Flatten", network.node("GlobalAveragePool", value))
    weights = network.normal("dense.weight", (CLASSES, CHANNELS), 1 / CHANNELS)
    network.nodes.append(helper.make_node("Gemm", [value, weights], ["scores"], "dense", transB=1))
    quantise(network.model(size), images(CALIBRATION_IMAGES, size, 2), path, form="qdq", activations="int8")


class _Network:
    """Collects nodes and seeded weights."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._generator = np.random.default_rng(0)

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"{operator.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    def constant(self, name: str, value: Array) -> str:
        self._constants.append(numpy_helper.from_array(value, name))
        return name

    def normal(self, name: str, shape: tuple[int, ...], variance: float) -> str:
        return self.constant(name, (self._generator.standard_normal(shape) * math.sqrt(variance)).astype(np.float32))

    def convolution(self, name: str, source: str, channels: int, filters: int, stride: int = 1) -> str:
        """3x3, padded, with a bias."""
        weights = self.normal(f"{name}.weight", (filters, channels, 3, 3), 2 / (9 * channels))
        bias = self.normal(f"{name}.bias", (filters,), 0.01)
        self.nodes.append(
            helper.make_node("Conv", [source, weights, bias], [name], name, pads=[1] * 4, strides=[stride] * 2)
        )
        return name

    def gelu(self, name: str, x: str) -> str:
        """``x / 2 * (1 + erf(x / sqrt(2)))``, as exporters write it."""
        root, one, half = (
            self.constant(f"{name}.{what}", np.float32(value))
            for what, value in (("root", math.sqrt(2)), ("one", 1.0), ("half", 0.5))
        )  # fmt: skip
        bent = self.node("Add", self.node("Erf", self.node("Div", x, root)), one)
        return self.node("Mul", self.node("Mul", x, bent), half)

    def turning_grid(self, name: str, size: int) -> str:
        """Places (1, size, size, 2) that turn an image by ``TURN``."""
        axis = (np.arange(size) * 2 + 1) / size - 1
        y, x = np.meshgrid(axis, axis, indexing="ij")
        cosine, sine = math.cos(TURN), math.sin(TURN)
        grid = np.stack([cosine * x - sine * y, sine * x + cosine * y], axis=-1)
        return self.constant(name, grid[None].astype(np.float32))

    def model(self, size: int) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes, "mixed", [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, size, size])],
            [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, CLASSES])], self._constants,
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.checker.check_model(model, full_check=True)
        return model
