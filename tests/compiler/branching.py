"""Random networks with branches: blocks, in the manner of Inception or of a residual sum, behind each other, or two
towers that meet at the end."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .onnx_models import FloatModel, quantise


def random_branches(seed: int, folder: Path, *, most_channels: int = 24, most_size: int = 10) -> Path:
    """The quantised network of a seed, in ``folder``."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(4, most_size + 1))
    network = _Network(rng, most_channels, FloatModel((1, 3, size, size), seed))
    if seed % 3 == 2:
        left, right = (network.chain("x", 3, int(rng.integers(2, 4))) for _ in range(2))
        joined = network.joined([left, right])
    else:
        joined = network.layer("x", 3, 1)
        for _ in range(int(rng.integers(1, 3))):
            joined = network.block(*joined)
    out = network.model.conv(*joined, int(rng.integers(4, most_channels + 1)), kernel=1)
    quantise(network.model.build(out), folder)
    return folder / "quantised.onnx"


class _Network:
    """Results are their names with their channels."""

    def __init__(self, rng: np.random.Generator, most_channels: int, model: FloatModel) -> None:
        self.rng, self.most_channels, self.model = rng, most_channels, model

    def layer(self, x: str, channels: int, kind: int) -> tuple[str, int]:
        if kind == 0:
            return self.model.op("MaxPool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1]), channels
        group = channels if kind == 3 else 1
        filters = channels if kind == 3 else int(self.rng.integers(1, self.most_channels + 1))
        result = self.model.conv(x, channels, filters, kernel=1 if kind == 1 else 3, group=group)
        return self.model.op("Relu", result), filters

    def chain(self, x: str, channels: int, count: int) -> tuple[str, int]:
        for _ in range(count):
            x, channels = self.layer(x, channels, int(self.rng.integers(0, 4)))
        return x, channels

    def block(self, x: str, channels: int) -> tuple[str, int]:
        """Branches of one to three layers each; one may be without any."""
        ends = [self.chain(x, channels, int(self.rng.integers(1, 4))) for _ in range(int(self.rng.integers(2, 5)))]
        return self.joined([*ends, (x, channels)] if self.rng.integers(2) else ends)

    def joined(self, ends: list[tuple[str, int]]) -> tuple[str, int]:
        """Side by side, or as a sum, for which each is brought to as many channels."""
        if self.rng.integers(2):
            return self.model.op("Concat", *(name for name, _ in ends), axis=1), sum(count for _, count in ends)
        filters = int(self.rng.integers(1, self.most_channels + 1))
        first, *others = [self.model.conv(name, count, filters, kernel=1) for name, count in ends]
        for other in others:
            first = self.model.op("Add", first, other)
        return first, filters
