"""Networks for training, each written once for all engines, and the form in which weft takes them.

A network is a function of `Operators`, which each engine has in its own best form (`engines.py`). `WeftNetwork`
writes it down as ONNX, with seeded values of all parameters; the other engines start with the same values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import onnx

from benchmarks.zoo.quantised_build import Net

Array = npt.NDArray[Any]
T = Any
"""A value of an engine: images (N, C, H, W), in whatever order the engine likes; rows (N, C); tokens (N, T, C)."""

MOMENTUM_OF_STATISTICS = 0.9
EPSILON = 1e-5


class Operators(Protocol):
    """What networks are made of. Names are those of parameters."""

    def conv(self, name: str, x: T, filters: int, kernel: int, *, stride: int = 1, groups: int = 1) -> T:
        """A convolution without a bias that keeps the size at stride 1."""

    def norm(self, name: str, x: T) -> T:
        """Batch normalisation by the statistics of the batch; running statistics are kept up to date."""

    def relu(self, x: T, limit: float | None = None) -> T: ...

    def add(self, x: T, y: T) -> T: ...

    def max_pool(self, x: T, kernel: int, stride: int, pad: int) -> T: ...

    def mean_pool(self, x: T) -> T:
        """The mean of each channel, as rows."""

    def dense(self, name: str, x: T, outputs: int) -> T: ...

    def layer_norm(self, name: str, x: T) -> T: ...

    def gelu(self, x: T) -> T:
        """With erf."""

    def embedding(self, name: str, indices: T, count: int, width: int) -> T: ...

    def offsets(self, name: str, x: T) -> T:
        """One parameter for each token and channel, added to all of a batch."""

    def attention(self, query: T, key: T, value: T, heads: int) -> T:
        """Each token sees itself and those before it."""

    def rows(self, x: T) -> T:
        """Tokens of all sequences as rows."""


def digits(ops: Operators, x: T) -> T:
    """The network of examples/digits, with batch normalisation."""
    x = ops.relu(ops.norm("bn1", ops.conv("conv1", x, 16, 3)))
    y = ops.relu(ops.norm("bn2", ops.conv("conv2", x, 32, 3)))
    z = ops.norm("bn3", ops.conv("conv3", y, 32, 3))
    y = ops.max_pool(ops.relu(ops.add(y, z)), 2, 2, 0)
    return ops.dense("dense", ops.mean_pool(ops.relu(ops.norm("bn4", ops.conv("conv4", y, 64, 3)))), 10)


def resnet18(ops: Operators, x: T) -> T:
    x = ops.relu(ops.norm("bn1", ops.conv("conv1", x, 64, 7, stride=2)))
    x = ops.max_pool(x, 3, 2, 1)
    for stage, filters in enumerate((64, 128, 256, 512), 1):
        for block in range(2):
            name, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            y = ops.relu(ops.norm(f"{name}.bn1", ops.conv(f"{name}.conv1", x, filters, 3, stride=stride)))
            y = ops.norm(f"{name}.bn2", ops.conv(f"{name}.conv2", y, filters, 3))
            if stride > 1:
                x = ops.norm(f"{name}.down.bn", ops.conv(f"{name}.down", x, filters, 1, stride=stride))
            x = ops.relu(ops.add(y, x))
    return ops.dense("fc", ops.mean_pool(x), 1000)


V2_GROUPS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, filters, blocks, stride of the first of them."""


def mobilenet_v2(ops: Operators, x: T) -> T:
    def normed(name: str, x: T, filters: int, kernel: int, **attrs: int) -> T:
        return ops.norm(f"{name}.bn", ops.conv(name, x, filters, kernel, **attrs))

    x, channels, number = ops.relu(normed("features.0", x, 32, 3, stride=2), 6), 32, 0
    for expansion, filters, blocks, first in V2_GROUPS:
        for block in range(blocks):
            number += 1
            name, stride, wide, y = f"features.{number}", first if block == 0 else 1, channels * expansion, x
            if expansion > 1:
                y = ops.relu(normed(f"{name}.expand", y, wide, 1), 6)
            y = ops.relu(normed(f"{name}.depthwise", y, wide, 3, stride=stride, groups=wide), 6)
            y = normed(f"{name}.project", y, filters, 1)
            x, channels = ops.add(x, y) if stride == 1 and channels == filters else y, filters
    return ops.dense("fc", ops.mean_pool(ops.relu(normed("features.18", x, 1280, 1), 6)), 1000)


WIDTH, HEADS, LAYERS, TOKENS, WORDS = 256, 4, 4, 128, 256


def transformer(ops: Operators, indices: T) -> T:
    """Reads bytes, tells the next one: pre-norm, as GPT-2."""
    x = ops.offsets("position", ops.embedding("embedding", indices, WORDS, WIDTH))
    for layer in range(LAYERS):
        name = f"layer{layer}"
        y = ops.layer_norm(f"{name}.norm1", x)
        parts = [ops.dense(f"{name}.{part}", y, WIDTH) for part in ("query", "key", "value")]
        x = ops.add(x, ops.dense(f"{name}.mixed", ops.attention(*parts, HEADS), WIDTH))
        y = ops.gelu(ops.dense(f"{name}.up", ops.layer_norm(f"{name}.norm2", x), 4 * WIDTH))
        x = ops.add(x, ops.dense(f"{name}.down", y, WIDTH))
    return ops.rows(ops.dense("head", ops.layer_norm("norm", x), WORDS))


@dataclass(frozen=True)
class Workload:
    """``input``: the shape of a batch; of indices below ``words`` if there are any."""

    network: Callable[[Operators, T], T]
    input: tuple[int, ...]
    classes: int
    words: int = 0

    def batch(self, seed: int = 0) -> tuple[Array, Array]:
        """Data and labels."""
        draw = np.random.default_rng(seed)
        rows = math.prod(self.input) if self.words else self.input[0]
        labels = draw.integers(0, self.classes, rows)
        if self.words:
            return draw.integers(0, self.words, self.input), labels
        return draw.normal(size=self.input).astype(np.float32), labels


WORKLOADS = {
    "digits, batch 64": Workload(digits, (64, 1, 8, 8), 10),
    "resnet18 32x32, batch 8": Workload(resnet18, (8, 3, 32, 32), 1000),
    "resnet18 32x32, batch 32": Workload(resnet18, (32, 3, 32, 32), 1000),
    "mobilenet_v2 64x64, batch 8": Workload(mobilenet_v2, (8, 3, 64, 64), 1000),
    "transformer, 8 x 128 tokens": Workload(transformer, (8, TOKENS), WORDS, WORDS),
}


@dataclass
class WeftNetwork:
    """`Operators` that write ONNX. ``parameters``: their first values; ``statistics``: those of normalisations."""

    net: Net
    parameters: dict[str, Array] = field(default_factory=dict)
    statistics: list[tuple[str, str]] = field(default_factory=list)

    def _parameter(self, name: str, shape: Sequence[int], deviation: float, mean: float = 0.0) -> str:
        value = self.net.random.normal(mean, deviation, tuple(shape)).astype(np.float32)
        self.parameters[name] = value
        return self.net.constant(value, name)

    def _scale_and_shift(self, name: str, channels: Sequence[int]) -> tuple[str, str]:
        return self._parameter(f"{name}.scale", channels, 0.1, 1), self._parameter(f"{name}.shift", channels, 0.1)

    def conv(self, name: str, x: str, filters: int, kernel: int, *, stride: int = 1, groups: int = 1) -> str:
        inputs = self.net.shapes[x][1] // groups
        shape = (filters, inputs, kernel, kernel)
        w = self._parameter(f"{name}.weight", shape, (2 / (inputs * kernel * kernel)) ** 0.5)
        return self.net.node("Conv", x, w, strides=[stride] * 2, pads=[kernel // 2] * 4, group=groups)

    def norm(self, name: str, x: str) -> str:
        channels = (self.net.shapes[x][1],)
        scale, shift = (
            self._parameter(f"{name}.scale", channels, 0.1, 1),
            self._parameter(f"{name}.shift", channels, 0.1),
        )
        before = [self.net.input(f"{name}.{what}", channels) for what in ("mean", "variance")]
        y, *after = self.net.several("BatchNormalization", 3, x, scale, shift, *before, training_mode=1,
                                     momentum=MOMENTUM_OF_STATISTICS, epsilon=EPSILON)  # fmt: skip
        self.statistics += zip(before, after, strict=True)
        return y

    def relu(self, x: str, limit: float | None = None) -> str:
        if limit is None:
            return self.net.node("Relu", x)
        return self.net.node("Clip", x, self.net.constant(np.float32(0)), self.net.constant(np.float32(limit)))

    def add(self, x: str, y: str) -> str:
        return self.net.node("Add", x, y)

    def max_pool(self, x: str, kernel: int, stride: int, pad: int) -> str:
        return self.net.node("MaxPool", x, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)

    def mean_pool(self, x: str) -> str:
        return self.net.node("Flatten", self.net.node("GlobalAveragePool", x))

    def dense(self, name: str, x: str, outputs: int) -> str:
        inputs = self.net.shapes[x][-1]
        w = self._parameter(f"{name}.weight", (inputs, outputs), inputs**-0.5)
        return self.net.node("Add", self.net.node("MatMul", x, w), self._parameter(f"{name}.bias", (outputs,), 0.02))

    def layer_norm(self, name: str, x: str) -> str:
        channels = (self.net.shapes[x][-1],)
        scale, shift = (
            self._parameter(f"{name}.scale", channels, 0.1, 1),
            self._parameter(f"{name}.shift", channels, 0.1),
        )
        return self.net.node("LayerNormalization", x, scale, shift, axis=-1, epsilon=EPSILON)

    def gelu(self, x: str) -> str:
        return self.net.gelu(x)

    def embedding(self, name: str, indices: str, count: int, width: int) -> str:
        return self.net.node("Gather", self._parameter(f"{name}.weight", (count, width), 1.0), indices)

    def offsets(self, name: str, x: str) -> str:
        return self.net.node("Add", x, self._parameter(f"{name}.weight", self.net.shapes[x][1:], 0.02))

    def attention(self, query: str, key: str, value: str, heads: int) -> str:
        net = self.net
        batch, tokens, channels = net.shapes[query]
        q, k, v = (
            net.node("Transpose", net.reshape(each, batch, tokens, heads, channels // heads), perm=perm)
            for each, perm in ((query, [0, 2, 1, 3]), (key, [0, 2, 3, 1]), (value, [0, 2, 1, 3]))
        )
        scores = net.node("Mul", net.node("MatMul", q, k), net.constant(np.float32((channels // heads) ** -0.5)))
        hidden = np.triu(np.full((tokens, tokens), -1e9, np.float32), 1)
        mixed = net.node("MatMul", net.node("Softmax", net.node("Add", scores, net.constant(hidden)), axis=-1), v)
        return net.reshape(net.node("Transpose", mixed, perm=[0, 2, 1, 3]), batch, tokens, channels)

    def rows(self, x: str) -> str:
        return self.net.reshape(x, -1, self.net.shapes[x][-1])


def as_onnx(workload: Workload, seed: int = 0) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The network as ONNX, with an output ``next_...`` for each running statistic, and its parameters' first values."""
    written = WeftNetwork(Net(seed))
    net = written.net
    x = net.index_input("x", workload.input, workload.words) if workload.words else net.input("x", workload.input)
    scores = workload.network(written, x)
    following = []
    for before, after in written.statistics:
        net.nodes.append(onnx.helper.make_node("Identity", [after], [f"next_{before}"]))
        net.shapes[f"next_{before}"] = net.shapes[before]
        following.append(f"next_{before}")
    return net.model(scores, *following), written.parameters
