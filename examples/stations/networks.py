"""A residual and a depthwise network, as graphs that are built layer by layer; batch normalisations measure the batch
while they train, and hold what was measured afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import weft
from weft.compiler.graph import Array, Attrs, Constant, Expr, Function, Module, Span, TensorType, Tuple, Var
from weft.compiler.graph.visit import respan
from weft.compiler.operators import contract, nn

from examples.stations.shapes import CLASSES, SIZE

Parameters = dict[str, Array]


class Network:
    """Collects layers. ``parameters``: values by name; a name without one gets zeros here and an entry in ``missing``.
    ``statistics``: mean and variance of each normalisation; those of the batch if there are none, which are outputs
    then. ``spread``: factors of normalisations start between 2 ** -spread and 2 ** spread."""

    def __init__(
        self, parameters: Mapping[str, Array], statistics: Mapping[str, Array] | None, spread: float = 0
    ) -> None:  # fmt: skip
        self.parameters, self.statistics, self.spread = parameters, statistics, spread
        self.missing: dict[str, weft.train.Initial | Array] = {}
        self.measured: dict[str, Expr] = {}
        self.generator = np.random.default_rng(0)

    def convolution(
        self, name: str, x: Expr, outputs: int, kernel: int = 3, *, stride: int = 1, groups: int = 1, relu: bool = True
    ) -> Expr:  # fmt: skip
        """Convolution, batch normalisation, and a ReLU unless it is turned off."""
        shape = outputs, x.shape[1] // groups, kernel, kernel
        weight = self._parameter(f"{name}.weight", weft.train.he(shape))
        y = nn.conv2d(x, weight, strides=(stride, stride), pads=(kernel // 2,) * 4, groups=groups)
        y = self._normalised(name, y)
        y = nn.clip(y, low=0.0) if relu else y
        return _named(y, name)

    def classifier(self, x: Expr) -> Expr:
        """Scores (N, classes) of the mean over the image."""
        features = nn.reduce_mean(x, axes=(2, 3))
        weight = self._parameter("dense.weight", weft.train.glorot((CLASSES, x.shape[1])))
        bias = self._parameter("dense.bias", np.zeros(CLASSES, np.float32))
        return _named(nn.add(nn.dense(features, weight), bias), "logits")

    def _normalised(self, name: str, x: Expr) -> Expr:
        channels = x.shape[1]
        factors = 2 ** self.generator.uniform(-self.spread, self.spread, channels)
        gamma = self._parameter(f"{name}.gamma", factors.astype(np.float32))
        beta = self._parameter(f"{name}.beta", np.zeros(channels, np.float32))
        if self.statistics is None:
            mean: Expr = nn.reduce_mean(x, axes=(0, 2, 3))
            centred = nn.subtract(x, contract.reshape(mean, shape=(1, channels, 1, 1)))
            variance: Expr = nn.reduce_mean(nn.multiply(centred, centred), axes=(0, 2, 3))
            self.measured |= {f"{name}.mean": mean, f"{name}.variance": variance}
        else:
            mean, variance = (Constant(self.statistics[f"{name}.{what}"]) for what in ("mean", "variance"))
        return nn.batch_norm(x, gamma, beta, mean, variance)

    def _parameter(self, name: str, initial: weft.train.Initial | Array) -> Constant:
        if name not in self.parameters:
            self.missing[name] = initial
            return Constant(np.zeros(initial.shape, np.float32), name)
        return Constant(self.parameters[name], name)


def _named(value: Expr, name: str) -> Expr:
    return respan(value, Span((name,), name))


Body = Callable[[Network, Expr], Expr]


def residual(network: Network, image: Expr) -> Expr:
    """Three stages of a block each, as in a small ResNet (He et al., 2015)."""
    x = network.convolution("stem", image, 16, stride=2)
    for stage, channels in enumerate((16, 32, 64), start=1):
        stride = 1 if stage == 1 else 2
        branch = network.convolution(f"block{stage}.conv1", x, channels, stride=stride)
        branch = network.convolution(f"block{stage}.conv2", branch, channels, relu=False)
        if stride > 1:
            x = network.convolution(f"block{stage}.shortcut", x, channels, 1, stride=stride, relu=False)
        x = _named(nn.clip(nn.add(branch, x), low=0.0), f"block{stage}")
    return network.classifier(x)


def depthwise(network: Network, image: Expr) -> Expr:
    """Inverted residuals: wide depthwise convolutions between narrow sums, as in MobileNetV2 (Sandler et al., 2018)."""
    x = network.convolution("stem", image, 16, stride=2)
    for block, (channels, stride) in enumerate(BLOCKS, start=1):
        wide = EXPANSION * x.shape[1]
        y = network.convolution(f"block{block}.expand", x, wide, 1)
        y = network.convolution(f"block{block}.depthwise", y, wide, stride=stride, groups=wide)
        y = network.convolution(f"block{block}.project", y, channels, 1, relu=False)
        x = _named(nn.add(y, x), f"block{block}") if y.shape == x.shape else y
    return network.classifier(network.convolution("last", x, 96, 1))


EXPANSION = 4
BLOCKS = (16, 1), (24, 2), (24, 1), (24, 1), (40, 1), (40, 1), (64, 2), (64, 1)
"""Channels and stride of the depthwise network's blocks."""


def initial_parameters(body: Body, seed: int, spread: float) -> Parameters:
    """Where a training starts."""
    network = Network({}, None, spread)
    _module(network, body, 1)
    return weft.train.initialised(network.missing, seed=seed)


def training_form(body: Body, parameters: Parameters, batch: int) -> Module:
    """The network as it trains: it has the statistics of the batch, which are outputs beside ``logits``."""
    return _module(Network(parameters, None), body, batch)


def inference_form(body: Body, parameters: Mapping[str, Array], statistics: Mapping[str, Array], batch: int) -> Module:
    """The network as it is used."""
    return _module(Network(parameters, statistics), body, batch)


def _module(network: Network, body: Body, batch: int) -> Module:
    image = Var("image", TensorType((batch, 3, SIZE, SIZE), "float32"))
    logits = body(network, image)
    outputs = {"logits": logits, **network.measured}
    result = logits if len(outputs) == 1 else Tuple(tuple(outputs.values()))
    return Module(Function((image,), result, Attrs({"name": "main", "outputs": tuple(outputs)})))
