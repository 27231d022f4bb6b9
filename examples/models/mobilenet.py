"""MobileNetV1 (Howard et al., 2017) and MobileNetV2 (Sandler et al., 2018)."""

from __future__ import annotations

import onnx

from .network import Activation, Feature, NetworkBuilder

V1_FIRST_CHANNELS = 32
V1_BLOCKS = (  # (output channels, stride) of a depthwise 3x3 and a pointwise 1x1 convolution
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    (512, 1),
    (512, 1),
    (512, 1),
    (512, 1),
    (512, 1),
    (1024, 2),
    (1024, 1),
)

V2_FIRST_CHANNELS = 32
V2_LAST_CHANNELS = 1280
V2_GROUPS = (  # (expansion, output channels, blocks, stride of the first block)
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
BRANCH_GAIN = 0.5  # of the projection of a block with a shortcut


def mobilenet_v1(network: NetworkBuilder) -> onnx.ModelProto:
    """With ReLU; the original's ReLU6 came with later versions of its code."""
    relu = Activation.RELU
    first = network.channels(V1_FIRST_CHANNELS)
    value = network.convolution("conv0", network.image, first, 3, norm="bn0", stride=2, activation=relu)
    for index, (channels, stride) in enumerate(V1_BLOCKS, start=1):
        name = f"block{index}"
        value = _depthwise(network, f"{name}.depthwise", value, stride, relu)
        value = network.convolution(
            f"{name}.pointwise", value, network.channels(channels), 1, norm=f"{name}.pointwise.bn", activation=relu
        )
    return network.classifier("fc", value)


def mobilenet_v2(network: NetworkBuilder) -> onnx.ModelProto:
    relu6 = Activation.RELU6
    first = network.channels(V2_FIRST_CHANNELS)
    value = network.convolution("features.0", network.image, first, 3, norm="features.0.bn", stride=2, activation=relu6)
    index = 0
    for expansion, channels, blocks, first_stride in V2_GROUPS:
        for block in range(blocks):
            index += 1
            stride = first_stride if block == 0 else 1
            value = _inverted_residual(
                network, f"features.{index}", value, network.channels(channels), stride, expansion
            )
    last, name = network.channels(V2_LAST_CHANNELS), f"features.{index + 1}"
    value = network.convolution(name, value, last, 1, norm=f"{name}.bn", activation=relu6)
    return network.classifier("classifier", value)


def _depthwise(network: NetworkBuilder, name: str, source: Feature, stride: int, activation: Activation) -> Feature:
    channels = source.channels
    return network.convolution(
        name, source, channels, 3, norm=f"{name}.bn", stride=stride, groups=channels, activation=activation
    )


def _inverted_residual(
    network: NetworkBuilder, name: str, source: Feature, channels: int, stride: int, expansion: int
) -> Feature:
    """1x1 expansion, depthwise 3x3 with the stride, linear 1x1 projection; a shortcut where the shape is kept."""
    value = source
    if expansion != 1:
        value = network.convolution(
            f"{name}.expand", value, source.channels * expansion, 1, norm=f"{name}.expand.bn",
            activation=Activation.RELU6,
        )  # fmt: skip
    value = _depthwise(network, f"{name}.depthwise", value, stride, Activation.RELU6)
    has_shortcut = stride == 1 and source.channels == channels
    gain = BRANCH_GAIN if has_shortcut else 1.0
    value = network.convolution(f"{name}.project", value, channels, 1, norm=f"{name}.project.bn", gain=gain)
    return network.add(f"{name}.add", value, source) if has_shortcut else value
