"""Whole quantised networks as LiteRT files, with random weights: the four of MLPerf Tiny and others of their kinds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from benchmarks.zoo.litert_cases import SAME, VALID, Case, Maker
from benchmarks.zoo.litert_models import options

RELU, RELU6 = 1, 3


class Network:
    """Layer by layer; each returns the number of its result. Weights are as large as keeps results near 1."""

    def __init__(self, name: str, dtype: str = "int8") -> None:
        self.make, self.dtype = Maker(name), dtype
        self.shapes: dict[int, tuple[int, ...]] = {}

    def _near(self, tensor: int) -> float:
        return float(self.make.net._tensors[tensor].quantization.scale[0])

    def input(self, *shape: int) -> int:
        tensor = self.make.input(shape, self.dtype, 0.0157)
        self.shapes[tensor] = shape
        return tensor

    def result(self, shape: Sequence[int], activation: int = 0, like: int | None = None) -> int:
        """A tensor for results near 1; of a rectifier, which are not negative."""
        least = -128 if self.dtype == "int8" else 0
        if like is not None:
            found = self.make.net._tensors[like].quantization
            given = {"scale": found.scale[0], "zero": int(found.zeroPoint[0])}
        elif activation:
            given = {"scale": self.make.scale(0.018), "zero": least}
        else:
            given = {"scale": self.make.scale(0.03), "zero": least + 128 + int(self.make.rng.integers(-9, 10))}
        tensor = self.make.output(shape, self.dtype, like=given)
        self.shapes[tensor] = tuple(shape)
        return tensor

    def conv(self, x: int, channels: int, kernel: int = 3, stride: int = 1, activation: int = RELU) -> int:
        n, h, w, c = self.shapes[x]
        shape = (channels, kernel, kernel, c)
        weights, bias = self._weights(x, shape, channels, 0, kernel * kernel * c)
        y = self.result((n, -(-h // stride), -(-w // stride), channels), activation)
        made = options(
            "Conv2DOptions", padding=SAME, strideH=stride, strideW=stride, fusedActivationFunction=activation
        )
        self.make.net.op("CONV_2D", [x, weights, bias], [y], made, 3)
        return y

    def depthwise(self, x: int, kernel: int = 3, stride: int = 1, activation: int = RELU6) -> int:
        n, h, w, c = self.shapes[x]
        weights, bias = self._weights(x, (1, kernel, kernel, c), c, 3, kernel * kernel)
        y = self.result((n, -(-h // stride), -(-w // stride), c), activation)
        made = options("DepthwiseConv2DOptions", padding=SAME, strideH=stride, strideW=stride, depthMultiplier=1,
                       fusedActivationFunction=activation)  # fmt: skip
        self.make.net.op("DEPTHWISE_CONV_2D", [x, weights, bias], [y], made, 3)
        return y

    def _weights(self, x: int, shape: Sequence[int], channels: int, axis: int, depth: int) -> tuple[int, int]:
        per_channel = channels if self.dtype == "int8" else None
        weights, scale = self.make.weights(shape, self.dtype, per_channel, axis, 1.6 / 74 / math.sqrt(depth))
        unit = np.float32(self._near(x)) * scale
        real = self.make.rng.normal(size=channels) * 0.2
        bias = self.make.net.tensor((channels,), "int32", unit, 0, data=np.rint(real / unit).astype(np.int32))
        return weights, bias

    def add(self, a: int, b: int, activation: int = 0) -> int:
        y = self.result(self.shapes[a], activation)
        self.make.net.op("ADD", [a, b], [y], options("AddOptions", fusedActivationFunction=activation), 2)
        return y

    def pool(self, op: str, x: int, size: int, stride: int | None = None) -> int:
        n, h, w, c = self.shapes[x]
        step = stride or size
        y = self.result((n, (h - size) // step + 1, (w - size) // step + 1, c), like=x)
        made = options("Pool2DOptions", padding=VALID, strideH=step, strideW=step, filterHeight=size, filterWidth=size)
        self.make.net.op(op, [x], [y], made, 2)
        return y

    def mean(self, x: int) -> int:
        y = self.result((self.shapes[x][0], self.shapes[x][3]), like=x)
        axes = self.make.numbers((1, 2))
        self.make.net.op("MEAN", [x, axes], [y], options("ReducerOptions", keepDims=False), 2)
        return y

    def flat(self, x: int) -> int:
        y = self.result((1, math.prod(self.shapes[x])), like=x)
        shape = self.make.numbers(self.shapes[y])
        self.make.net.op("RESHAPE", [x, shape], [y], options("ReshapeOptions", newShape=self.shapes[y]))
        return y

    def dense(self, x: int, channels: int, activation: int = 0) -> int:
        rows, depth = self.shapes[x]
        weights, bias = self._weights(x, (channels, depth), channels, 0, depth)
        y = self.result((rows, channels), activation)
        made = options("FullyConnectedOptions", fusedActivationFunction=activation)
        self.make.net.op("FULLY_CONNECTED", [x, weights, bias], [y], made, 12 if self.dtype == "int8" else 4)
        return y

    def softmax(self, x: int) -> int:
        least = -128 if self.dtype == "int8" else 0
        y = self.make.output(self.shapes[x], self.dtype, like={"scale": 1 / 256, "zero": least})
        self.make.net.op("SOFTMAX", [x], [y], options("SoftmaxOptions", beta=1.0), 2)
        return y

    def function(self, op: str, x: int) -> int:
        y = self.result(self.shapes[x])
        self.make.net.op(op, [x], [y], None, 1)
        return y

    def twice(self, x: int) -> int:
        n, h, w, c = self.shapes[x]
        y = self.result((n, 2 * h, 2 * w, c), like=x)
        size = self.make.numbers((2 * h, 2 * w))
        self.make.net.op("RESIZE_BILINEAR", [x, size], [y], options("ResizeBilinearOptions", halfPixelCenters=True), 3)
        return y

    def concat(self, *parts: int) -> int:
        """All in the scale of a new tensor, by QUANTIZE, as converters write it."""
        n, h, w, _ = self.shapes[parts[0]]
        y = self.result((n, h, w, sum(self.shapes[part][3] for part in parts)))
        given = []
        for part in parts:
            given.append(self.result(self.shapes[part], like=y))
            self.make.net.op("QUANTIZE", [part], [given[-1]], options("QuantizeOptions"), 2)
        self.make.net.op("CONCATENATION", given, [y], options("ConcatenationOptions", axis=3), 2)
        return y

    def finish(self, *outputs: int) -> Case:
        return Case(self.make.name, self.make.net.finish(self.make.inputs, outputs), tuple(self.make.arrays))


def image_classification() -> Case:
    """MLPerf Tiny's ResNet-8 on 32 x 32 pixels."""
    net = Network("resnet8")
    x = net.conv(net.input(1, 32, 32, 3), 16)
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        inner = net.conv(net.conv(x, channels, 3, stride), channels, activation=0)
        x = net.add(inner, x if stride == 1 else net.conv(x, channels, 1, stride, 0), RELU)
    return net.finish(net.softmax(net.dense(net.flat(net.pool("AVERAGE_POOL_2D", x, 8)), 10)))


def keyword_spotting() -> Case:
    """MLPerf Tiny's DS-CNN on 49 frames of 10 coefficients."""
    net = Network("ds_cnn")
    x = net.conv(net.input(1, 49, 10, 1), 64, 4, 2)
    for _ in range(4):
        x = net.conv(net.depthwise(x, activation=RELU), 64, 1)
    return net.finish(net.softmax(net.dense(net.flat(net.pool("AVERAGE_POOL_2D", x, 5)), 12)))


def anomaly_detection() -> Case:
    """MLPerf Tiny's autoencoder of 640 numbers."""
    net = Network("autoencoder")
    x = net.input(1, 640)
    for size in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        x = net.dense(x, size, RELU)
    return net.finish(net.dense(x, 640))


def person_detection(dtype: str = "int8", pixels: int = 96) -> Case:
    """MLPerf Tiny's MobileNetV1, a quarter wide."""
    return _mobilenet_v1(Network(f"mobilenet_v1 {dtype}", dtype), pixels, 8, 2)


def mobilenet_v1() -> Case:
    """MobileNetV1 as published, for 224 x 224 pixels and 1,000 classes."""
    return _mobilenet_v1(Network("mobilenet_v1 1.0 224"), 224, 32, 1000)


def _mobilenet_v1(net: Network, pixels: int, channels: int, classes: int) -> Case:
    x = net.conv(net.input(1, pixels, pixels, 3), channels, 3, 2, RELU6)
    for times, stride in (
        (2, 1), (4, 2), (4, 1), (8, 2), (8, 1), (16, 2), *((16, 1),) * 5, (32, 2), (32, 1),
    ):  # fmt: skip
        x = net.conv(net.depthwise(x, 3, stride), times * channels, 1, 1, RELU6)
    return net.finish(net.softmax(net.dense(net.flat(net.pool("AVERAGE_POOL_2D", x, pixels // 32)), classes)))


def mobilenet_v2() -> Case:
    """MobileNetV2 as published, for 224 x 224 pixels and 1,000 classes."""
    net = Network("mobilenet_v2 1.0 224")
    x = net.conv(net.input(1, 224, 224, 3), 32, 3, 2, RELU6)
    for expansion, channels, blocks, first_stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for stride in (first_stride, *(1,) * (blocks - 1)):
            wide = net.conv(x, expansion * net.shapes[x][3], 1, 1, RELU6) if expansion > 1 else x
            narrow = net.conv(net.depthwise(wide, 3, stride), channels, 1, 1, 0)
            x = net.add(narrow, x) if net.shapes[narrow] == net.shapes[x] else narrow
    return net.finish(net.softmax(net.dense(net.mean(net.conv(x, 1280, 1, 1, RELU6)), 1000)))


def inverted_residuals() -> Case:
    """MobileNetV2's blocks, a mean at the end."""
    net = Network("mobilenet_v2")
    x = net.conv(net.input(1, 64, 64, 3), 8, 3, 2, RELU6)
    for channels, stride in ((8, 1), (16, 2), (16, 1), (24, 2), (24, 1), (32, 2), (32, 1)):
        wide = net.conv(x, 6 * net.shapes[x][3], 1, 1, RELU6)
        narrow = net.conv(net.depthwise(wide, 3, stride), channels, 1, 1, 0)
        x = net.add(narrow, x) if net.shapes[narrow] == net.shapes[x] else narrow
    return net.finish(net.softmax(net.dense(net.mean(net.conv(x, 64, 1)), 10)))


def hard_swishes() -> Case:
    """MobileNetV3's first blocks."""
    net = Network("mobilenet_v3")
    x = net.function("HARD_SWISH", net.conv(net.input(1, 48, 48, 3), 16, 3, 2, 0))
    for channels in (16, 24, 24):
        wide = net.function("HARD_SWISH", net.conv(x, 48, 1, 1, 0))
        x = net.conv(net.function("HARD_SWISH", net.depthwise(wide, 5, 1, 0)), channels, 1, 1, 0)
    return net.finish(net.dense(net.mean(x), 10))


def segmentation() -> Case:
    """An encoder and a decoder with a concatenation, resized between."""
    net = Network("unet")
    first = net.conv(net.input(1, 32, 32, 3), 8)
    second = net.conv(net.pool("MAX_POOL_2D", first, 2), 16)
    third = net.conv(net.pool("AVERAGE_POOL_2D", second, 2), 24)
    up = net.conv(net.concat(net.twice(third), second), 16)
    return net.finish(net.function("LOGISTIC", net.conv(net.concat(net.twice(up), first), 2, 1, 1, 0)))


def inception() -> Case:
    """Branches of several windows, joined."""
    net = Network("inception")
    x = net.conv(net.input(1, 24, 24, 3), 16)
    for _ in range(3):
        small, middle = net.conv(x, 8, 1), net.conv(net.conv(x, 8, 1), 12, 3)
        x = net.concat(small, middle, net.conv(net.conv(x, 4, 1), 6, 5))
    return net.finish(net.dense(net.mean(x), 10))


def digits() -> Case:
    """LeNet, of uint8."""
    net = Network("lenet uint8", "uint8")
    x = net.pool("MAX_POOL_2D", net.conv(net.input(1, 28, 28, 1), 6, 5), 2)
    x = net.pool("AVERAGE_POOL_2D", net.conv(x, 16, 5), 2)
    return net.finish(net.softmax(net.dense(net.dense(net.dense(net.flat(x), 120, RELU), 84, RELU), 10)))


NETWORKS: tuple[Callable[[], Case], ...] = (
    image_classification, keyword_spotting, anomaly_detection, person_detection, inverted_residuals, hard_swishes,
    segmentation, inception, digits, lambda: person_detection("uint8", 64), lambda: person_detection("int8", 128),
)  # fmt: skip


def networks() -> Iterator[Case]:
    for network in NETWORKS:
        yield network()
