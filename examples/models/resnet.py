"""ResNet-18 and ResNet-50 (v1.5: a bottleneck's stride is on its 3x3 convolution), as in He et al., 2015."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from .network import Activation, Feature, NetworkBuilder

STAGE_CHANNELS = (64, 128, 256, 512)  # of the 3x3 convolutions; each stage after the first halves the size
BLOCKS_18 = (2, 2, 2, 2)
BLOCKS_50 = (3, 4, 6, 3)
BOTTLENECK_EXPANSION = 4
BRANCH_GAIN = 0.5  # of the last normalisation of a residual branch

Block = Callable[[NetworkBuilder, str, Feature, int, int], Feature]


def resnet18(network: NetworkBuilder) -> onnx.ModelProto:
    return _resnet(network, BLOCKS_18, _basic_block)


def resnet50(network: NetworkBuilder) -> onnx.ModelProto:
    return _resnet(network, BLOCKS_50, _bottleneck)


def _resnet(network: NetworkBuilder, blocks: tuple[int, ...], block: Block) -> onnx.ModelProto:
    value = network.convolution(
        "conv1", network.image, network.channels(64), 7, norm="bn1", stride=2, activation=Activation.RELU
    )
    value = network.max_pool("maxpool", value)
    for stage, (channels, count) in enumerate(zip(STAGE_CHANNELS, blocks, strict=True), start=1):
        for index in range(count):
            stride = 2 if index == 0 and stage > 1 else 1
            value = block(network, f"layer{stage}.{index}", value, network.channels(channels), stride)
    return network.classifier("fc", value)


def _basic_block(network: NetworkBuilder, name: str, source: Feature, channels: int, stride: int) -> Feature:
    """Two 3x3 convolutions, the first with the stride."""
    value = network.convolution(
        f"{name}.conv1", source, channels, 3, norm=f"{name}.bn1", stride=stride, activation=Activation.RELU
    )
    value = network.convolution(f"{name}.conv2", value, channels, 3, norm=f"{name}.bn2", gain=BRANCH_GAIN)
    return _residual(network, name, source, value, stride)


def _bottleneck(network: NetworkBuilder, name: str, source: Feature, channels: int, stride: int) -> Feature:
    """1x1 to fewer channels, 3x3 with the stride, 1x1 to four times as many."""
    relu = Activation.RELU
    value = network.convolution(f"{name}.conv1", source, channels, 1, norm=f"{name}.bn1", activation=relu)
    value = network.convolution(f"{name}.conv2", value, channels, 3, norm=f"{name}.bn2", stride=stride, activation=relu)
    outputs = channels * BOTTLENECK_EXPANSION
    value = network.convolution(f"{name}.conv3", value, outputs, 1, norm=f"{name}.bn3", gain=BRANCH_GAIN)
    return _residual(network, name, source, value, stride)


def _residual(network: NetworkBuilder, name: str, source: Feature, branch: Feature, stride: int) -> Feature:
    """ReLU of branch + shortcut; the shortcut is a 1x1 convolution where the shape changes."""
    shortcut = source
    if stride != 1 or source.channels != branch.channels:
        shortcut = network.convolution(
            f"{name}.downsample.0", source, branch.channels, 1, norm=f"{name}.downsample.1", stride=stride
        )
    total = network.add(f"{name}.add", branch, shortcut)
    return network.activation(f"{name}.relu", total, Activation.RELU)
