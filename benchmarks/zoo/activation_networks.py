"""Quantised networks whose layers end in long activations: few multiplications, kernels of many vector operations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx

from benchmarks.core import decode
from benchmarks.core.tokens import FORM
from benchmarks.zoo.quantised_build import Net
from benchmarks.zoo.quantised_forms import quantised

STEP_LAYERS = 4


def detection_head(act: Callable[[Net, str], str]) -> onnx.ModelProto:
    """Three scales of a detector's neck and head for 32 x 32 pixels of 16 channels: residual blocks of 1x1
    convolutions, then two branches a scale for boxes and classes; ``act`` behind each but the last."""
    net = Net()

    def layer(x: str, channels: int, kernel: int = 1, stride: int = 1) -> str:
        return act(net, net.conv(x, channels, kernel, strides=[stride, stride]))

    x, found = net.input("x", (1, 16, 32, 32)), []
    for scale in range(3):
        x = layer(x, 32, 3, 2) if scale else layer(x, 32)
        for _ in range(2):
            x = net.node("Add", x, layer(layer(x, 16), 32))
        branches = [layer(layer(x, 32), 32) for _ in range(2)]
        found += [net.conv(branch, channels, 1) for branch, channels in zip(branches, (12, 5), strict=True)]
    return quantised(model := net.model(*found), net.batches(model), FORM)


def decode_step() -> onnx.ModelProto:
    """One token of a small language model (`decode`)."""
    source, batches = decode.decoder(STEP_LAYERS)
    return quantised(source, batches, FORM)


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "head_silu": lambda: detection_head(lambda net, x: net.swish(x)),
    "head_leaky_relu": lambda: detection_head(lambda net, x: net.node("LeakyRelu", x, alpha=0.1)),
    "decode_step": decode_step,
}


def write(name: str, folder: Path) -> Path:
    """The file of a network, written into a folder."""
    path = folder / f"{name}.onnx"
    onnx.save(NETWORKS[name](), path)
    return path
