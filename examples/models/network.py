"""A float network, node by node: each method adds what one line of an architecture says.

Tensors are (1, C, S, S). Every convolution is followed by a batch normalisation whose statistics are not known yet
(`batch_norm.measured` fills them in). Names are those of torchvision, so that a layer is easy to find in a report.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[np.float32]

OPSET = 17
IR_VERSION = 9  # the oldest that every supported onnxruntime reads
CLASSES = 1000
CHANNEL_STEP = 8  # scaled channel counts are multiples of this
DETAIL = 0.3  # of the energy of a filter; the rest is its smooth window
SHIFT = 0.5  # mean of a normalisation's shift, in deviations: about 30 % of what a ReLU puts out is zero


class ModelRequestError(ValueError):
    """A network that cannot be built as asked for."""


class Activation(Enum):
    NONE = "none"
    RELU = "relu"
    RELU6 = "relu6"


@dataclass(frozen=True)
class Feature:
    """A tensor (1, channels, size, size) of the network."""

    name: str
    channels: int
    size: int


class NetworkBuilder:
    """Collects nodes and seeded weights.

    ``size`` is the image's height and width; ``width`` scales every channel count but the image's and the classes'.
    """

    def __init__(self, name: str, size: int = 224, width: float = 1.0, seed: int = 0) -> None:
        if size < 32 or size % 32:
            raise ModelRequestError(f"{name}: the image size must be a positive multiple of 32, not {size}")
        if not 0 < width <= 2:
            raise ModelRequestError(f"{name}: the width must be above 0 and at most 2, not {width:g}")
        self.name = name
        self.width = width
        self.image = Feature("image", 3, size)
        self._generator = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, Array] = {}

    def channels(self, count: int) -> int:
        """``count`` of the full network, scaled to this one's width."""
        return count if self.width == 1 else max(1, round(count * self.width / CHANNEL_STEP)) * CHANNEL_STEP

    def convolution(
        self,
        name: str,
        source: Feature,
        channels: int,
        kernel: int,
        *,
        norm: str,
        stride: int = 1,
        groups: int = 1,
        activation: Activation = Activation.NONE,
        gain: float = 1.0,
    ) -> Feature:
        """Convolution (no bias, padded to keep the size at stride 1), batch normalisation ``norm``, activation.

        ``channels`` is the final count of outputs. ``gain`` scales the normalised output: below 1 at the end of a
        residual branch, so that the sum of many branches keeps its variance, as in a trained network.
        """
        inputs = source.channels // groups
        weight = self._filters(channels, inputs, kernel)
        padding = kernel // 2
        attributes: dict[str, Any] = {
            "kernel_shape": [kernel] * 2,
            "strides": [stride] * 2,
            "pads": [padding] * 4,
            "group": groups,
        }
        size = (source.size + 2 * padding - kernel) // stride + 1
        result = self._node("Conv", name, [source.name, self._store(f"{name}.weight", weight)], **attributes)
        result = self._node("BatchNormalization", norm, [result, *self._normalisation(norm, channels, gain)])
        return self.activation(f"{name}.{activation.value}", Feature(result, channels, size), activation)

    def activation(self, name: str, source: Feature, activation: Activation) -> Feature:
        if activation is Activation.NONE:
            return source
        if activation is Activation.RELU:
            return self._like(source, self._node("Relu", name, [source.name]))
        limits = [self._store("relu6.low", np.float32(0)), self._store("relu6.high", np.float32(6))]
        return self._like(source, self._node("Clip", name, [source.name, *limits]))

    def add(self, name: str, left: Feature, right: Feature) -> Feature:
        return self._like(left, self._node("Add", name, [left.name, right.name]))

    def max_pool(self, name: str, source: Feature) -> Feature:
        """3x3, stride 2, padded by one: halves the size."""
        result = self._node("MaxPool", name, [source.name], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        return Feature(result, source.channels, (source.size - 1) // 2 + 1)

    def classifier(self, name: str, source: Feature) -> onnx.ModelProto:
        """Global average, flatten, dense layer of 1000 classes; ends the network and returns it, checked."""
        features = self._node("GlobalAveragePool", "avgpool", [source.name])
        features = self._node("Flatten", "flatten", [features])
        weight = self._normal((CLASSES, source.channels), math.sqrt(1 / source.channels))
        operands = [
            self._store(f"{name}.weight", weight),
            self._store(f"{name}.bias", np.zeros(CLASSES, np.float32)),
        ]
        self._nodes.append(helper.make_node("Gemm", [features, *operands], ["logits"], name, transB=1))
        image_shape = [1, self.image.channels, self.image.size, self.image.size]
        graph = helper.make_graph(
            self._nodes,
            self.name,
            inputs=[helper.make_tensor_value_info(self.image.name, TensorProto.FLOAT, image_shape)],
            outputs=[helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, CLASSES])],
            initializer=[numpy_helper.from_array(value, key) for key, value in self._weights.items()],
        )
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, producer_name="weft", opset_imports=opsets, ir_version=IR_VERSION)
        onnx.checker.check_model(model, full_check=True)
        return model

    def _filters(self, channels: int, inputs: int, kernel: int) -> Array:
        """(channels, inputs, kernel, kernel) with He's variance: a smooth window of either sign, and detail.

        Trained filters look like this, depthwise ones above all. Purely random ones mostly answer to the finest
        detail, so that each layer would raise quantisation noise over the signal.
        """
        if kernel == 1:
            return self._normal((channels, inputs, 1, 1), math.sqrt(2 / inputs))
        binomial = np.array([math.comb(kernel - 1, index) for index in range(kernel)])
        window = np.outer(binomial, binomial)
        window = window / np.sqrt(np.mean(window**2))
        weight = self._normal((channels, inputs, 1, 1), 1)
        if inputs == 1:  # a depthwise filter whose window is nearly zero has nothing but detail
            weight = np.sign(weight)
        detail = self._normal((channels, inputs, kernel, kernel), 1)
        mixed = math.sqrt(1 - DETAIL) * weight * window + math.sqrt(DETAIL) * detail
        filters: Array = (math.sqrt(2 / (inputs * kernel * kernel)) * mixed).astype(np.float32)
        return filters

    def _normalisation(self, norm: str, channels: int, gain: float) -> list[str]:
        """Scale and shift with the spread of trained ones (no channel is off), and statistics still to be measured."""
        scale = gain * np.clip(1 + 0.25 * self._normal(channels, 1), 0.4, 2)
        return [
            self._store(f"{norm}.weight", scale),
            self._store(f"{norm}.bias", gain * (SHIFT + self._normal(channels, 0.2))),
            self._store(f"{norm}.running_mean", np.zeros(channels, np.float32)),
            self._store(f"{norm}.running_var", np.ones(channels, np.float32)),
        ]

    def _normal(self, shape: int | tuple[int, ...], deviation: float) -> Array:
        values: Array = (deviation * self._generator.standard_normal(shape, np.float32)).astype(np.float32)
        return values

    def _store(self, name: str, value: Array | np.float32) -> str:
        self._weights[name] = np.asarray(value, np.float32)
        return name

    def _node(self, operator: str, name: str, inputs: list[str], **attributes: Any) -> str:
        self._nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    @staticmethod
    def _like(source: Feature, name: str) -> Feature:
        return Feature(name, source.channels, source.size)
