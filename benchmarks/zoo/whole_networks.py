"""Networks of their published sizes that nobody tuned the core for: name -> float model and data for it.

Weights are random from a seed, so that nothing is downloaded; cycles depend on shapes alone. Small networks of the same
kinds are in `quantised_networks`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx

from benchmarks.zoo.quantised_build import Net
from benchmarks.zoo.quantised_forms import Inputs

Bend = Callable[[Net, str], str]


@dataclass(frozen=True)
class Architecture:
    """``build`` adds the nodes and says the outputs; ``source``: where its shapes come from; ``seed``: of its weights,
    which stay as they are when another network comes."""

    build: Callable[[Net], tuple[str, ...]]
    source: str
    seed: int


def _relu(net: Net, x: str) -> str:
    return net.node("Relu", x)


def _normalised(
    net: Net, x: str, filters: int, kernel: int = 1, stride: int = 1, groups: int = 1, bend: Bend | None = None
) -> str:
    """A convolution without bias, a batch normalisation and a function."""
    y = net.batch_norm(net.conv(x, filters, kernel, strides=[stride] * 2, group=groups, bias=False))
    return y if bend is None else bend(net, y)


def _inverted_residual(
    net: Net, x: str, expanded: int, filters: int, kernel: int, stride: int, bend: Bend, squeezed: int, *, hard: bool
) -> str:
    """1x1 expansion (none where it would not expand), depthwise, squeeze and excite through ``squeezed`` channels
    (none where 0), 1x1 projection; a shortcut where the shape is kept."""
    inputs = net.shapes[x][1]
    y = x if expanded == inputs else _normalised(net, x, expanded, bend=bend)
    y = _normalised(net, y, expanded, kernel, stride, expanded, bend)
    if squeezed:
        y = net.squeeze_excite(y, squeezed, hard=hard)
    y = _normalised(net, y, filters)
    return net.node("Add", x, y) if stride == 1 and inputs == filters else y


def _classifier(net: Net, x: str, classes: int) -> tuple[str, ...]:
    return (net.dense(net.node("Flatten", net.node("GlobalAveragePool", x)), classes),)


MOBILENET_V3_SMALL = (  # kernel, expanded and output channels, squeeze and excite, hard swish, stride
    (3, 16, 16, True, False, 2), (3, 72, 24, False, False, 2), (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2), (5, 240, 40, True, True, 1), (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1), (5, 144, 48, True, True, 1), (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1), (5, 576, 96, True, True, 1),
)  # fmt: skip


def mobilenet_v3_small(net: Net) -> tuple[str, ...]:
    x = _normalised(net, net.input("x", (1, 3, 224, 224)), 16, 3, 2, bend=Net.hard_swish)
    for kernel, expanded, filters, squeezes, hard_swish, stride in MOBILENET_V3_SMALL:
        bend: Bend = Net.hard_swish if hard_swish else _relu
        squeezed = max(8, (expanded // 4 + 4) // 8 * 8) if squeezes else 0
        x = _inverted_residual(net, x, expanded, filters, kernel, stride, bend, squeezed, hard=True)
    x = net.node("GlobalAveragePool", _normalised(net, x, 576, bend=Net.hard_swish))
    return (net.dense(net.hard_swish(net.dense(net.node("Flatten", x), 1024)), 1000),)


EFFICIENTNET_B0 = (  # expansion, output channels, blocks, stride of the first block, kernel
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)  # fmt: skip


def efficientnet_b0(net: Net) -> tuple[str, ...]:
    x = _normalised(net, net.input("x", (1, 3, 224, 224)), 32, 3, 2, bend=Net.swish)
    for expansion, filters, blocks, first_stride, kernel in EFFICIENTNET_B0:
        for block in range(blocks):
            inputs, stride = net.shapes[x][1], first_stride if block == 0 else 1
            x = _inverted_residual(
                net, x, inputs * expansion, filters, kernel, stride, Net.swish, inputs // 4, hard=False
            )
    return _classifier(net, _normalised(net, x, 1280, bend=Net.swish), 1000)


REGNET_Y_400MF = ((48, 1), (104, 3), (208, 6), (440, 6))  # channels, blocks, of which the first halves the picture


def regnet_y_400mf(net: Net) -> tuple[str, ...]:
    x = _normalised(net, net.input("x", (1, 3, 224, 224)), 32, 3, 2, bend=_relu)
    for filters, blocks in REGNET_Y_400MF:
        for block in range(blocks):
            inputs, stride = net.shapes[x][1], 2 if block == 0 else 1
            y = _normalised(net, x, filters, bend=_relu)
            y = _normalised(net, y, filters, 3, stride, filters // 8, _relu)
            y = _normalised(net, net.squeeze_excite(y, round(inputs / 4), hard=False), filters)
            shortcut = x if block else _normalised(net, x, filters, 1, stride)
            x = _relu(net, net.node("Add", shortcut, y))
    return _classifier(net, x, 1000)


SHUFFLENET_V2 = ((116, 4), (232, 8), (464, 4))  # output channels, units, of which the first halves the picture


def shufflenet_v2(net: Net) -> tuple[str, ...]:
    def branch(x: str, filters: int, stride: int) -> str:
        y = _normalised(net, x, filters, bend=_relu)
        return _normalised(net, _normalised(net, y, filters, 3, stride, filters), filters, bend=_relu)

    x = _normalised(net, net.input("x", (1, 3, 224, 224)), 24, 3, 2, bend=_relu)
    x = net.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for filters, units in SHUFFLENET_V2:
        half = filters // 2
        kept = _normalised(net, x, net.shapes[x][1], 3, 2, net.shapes[x][1])
        x = net.node("Concat", _normalised(net, kept, half, bend=_relu), branch(x, half, 2), axis=1)
        for _ in range(units - 1):
            kept, other = net.split(net.shuffle(x, 2), 1, (half, half))
            x = net.node("Concat", kept, branch(other, half, 1), axis=1)
        x = net.shuffle(x, 2)
    return _classifier(net, _normalised(net, x, 1024, bend=_relu), 1000)


def vit(net: Net) -> tuple[str, ...]:
    patches = net.conv(net.input("x", (1, 3, 224, 224)), 192, 16, strides=[16, 16], pads=[0] * 4)
    x = net.node("Transpose", net.reshape(patches, 1, 192, 196), perm=[0, 2, 1])
    x = net.node("Concat", net.normal((1, 1, 192), 0.5), x, axis=1)
    x = net.node("Add", x, net.normal((1, 197, 192), 0.2))
    for _ in range(4):
        x = net.node("Add", x, net.attention(net.layer_norm(x), 3))
        x = net.node("Add", x, net.dense(net.gelu(net.dense(net.layer_norm(x), 768)), 192))
    first = net.node("Gather", net.layer_norm(x), net.constant(np.array(0, np.int64)), axis=1)
    return (net.dense(first, 1000),)


def mlp_mixer(net: Net, width: int = 512, layers: int = 2) -> tuple[str, ...]:
    """MLP-Mixer S/16 on 196 tokens, whose ``width`` is 512; 256 of them between tokens, four times the width between
    channels."""
    patches = net.conv(net.input("x", (1, 3, 224, 224)), width, 16, strides=[16, 16], pads=[0] * 4)
    x = net.node("Transpose", net.reshape(patches, 1, width, 196), perm=[0, 2, 1])
    for _ in range(layers):
        turned = net.node("Transpose", net.layer_norm(x), perm=[0, 2, 1])
        mixed = net.dense(net.gelu(net.dense(turned, 256)), 196)
        x = net.node("Add", x, net.node("Transpose", mixed, perm=[0, 2, 1]))
        x = net.node("Add", x, net.dense(net.gelu(net.dense(net.layer_norm(x), 4 * width)), width))
    return (net.dense(net.mean(net.layer_norm(x), [1], 0), 1000),)


def bert_encoder(
    net: Net, *, words: int, length: int, width: int, hidden: int, layers: int, heads: int
) -> str:  # fmt: skip
    """BERT's rows of tokens, (1, length, width), of the words' numbers and their kinds."""
    found = net.node("Gather", net.normal((words, width)), net.index_input("ids", (1, length), words))
    kinds = net.node("Gather", net.normal((2, width)), net.index_input("types", (1, length), 2))
    x = net.layer_norm(net.node("Add", net.node("Add", found, kinds), net.normal((1, length, width), 0.3)))
    for _ in range(layers):
        x = net.layer_norm(net.node("Add", x, net.attention(x, heads)))
        x = net.layer_norm(net.node("Add", x, net.dense(net.gelu(net.dense(x, hidden)), width)))
    return x


def bert_classifier(net: Net, *, width: int, **sizes: int) -> tuple[str, ...]:
    """`bert_encoder`, and three classes by the first token's row."""
    x = bert_encoder(net, width=width, **sizes)
    first = net.node("Gather", x, net.constant(np.array(0, np.int64)), axis=1)
    return (net.dense(net.node("Tanh", net.dense(first, width)), 3),)


def bert_tiny(net: Net) -> tuple[str, ...]:
    return (bert_encoder(net, words=30522, length=128, width=128, hidden=512, layers=2, heads=2),)


def lstm_keywords(net: Net) -> tuple[str, ...]:
    states = net.recurrent("LSTM", net.input("x", (49, 1, 40)), 128)
    last = net.node("Slice", states, net.whole(-1), net.whole(2**31), net.whole(0))
    return (net.dense(net.reshape(last, 1, 128), 12),)


def audio_m5(net: Net) -> tuple[str, ...]:
    x, pads = net.input("x", (1, 1, 8000)), [0, 0]
    for filters, kernel, stride in ((128, 80, 4), (128, 3, 1), (256, 3, 1), (512, 3, 1)):
        x = net.node("Relu", net.batch_norm(net.conv(x, filters, kernel, strides=[stride], pads=pads)))
        x, pads = net.node("MaxPool", x, kernel_shape=[4], strides=[4]), [1, 1]
    return _classifier(net, x, 10)


def unet(net: Net) -> tuple[str, ...]:
    def block(x: str, filters: int) -> str:
        return _normalised(net, _normalised(net, x, filters, 3, bend=_relu), filters, 3, bend=_relu)

    x = block(net.input("x", (1, 3, 128, 128)), 32)
    skipped = [x]
    for filters in (64, 128, 256):
        x = block(net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), filters)
        skipped.append(x)
    for filters, other in zip((128, 64, 32), skipped[-2::-1], strict=True):
        x = block(net.node("Concat", net.deconv(x, filters, strides=[2, 2]), other, axis=1), filters)
    return (net.conv(x, 2, 1),)


def super_resolution(net: Net) -> tuple[str, ...]:
    x = net.input("x", (1, 1, 224, 224))
    for filters, kernel in ((64, 5), (64, 3), (32, 3)):
        x = net.node("Relu", net.conv(x, filters, kernel))
    return (net.node("DepthToSpace", net.conv(x, 9), blocksize=3, mode="CRD"),)


def tiny_anomaly(net: Net) -> tuple[str, ...]:
    x = net.input("x", (1, 640))
    for size in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        x = net.node("Relu", net.batch_norm(net.dense(x, size)))
    return (net.dense(x, 640),)


def tiny_keywords(net: Net) -> tuple[str, ...]:
    x = net.conv(net.input("x", (1, 1, 49, 10)), 64, (10, 4), strides=[2, 2], pads=[4, 1, 5, 1], bias=False)
    x = net.node("Relu", net.batch_norm(x))
    for _ in range(4):
        x = _normalised(net, _normalised(net, x, 64, 3, groups=64, bend=_relu), 64, bend=_relu)
    return (net.node("Softmax", *_classifier(net, x, 12), axis=-1),)


def tiny_images(net: Net) -> tuple[str, ...]:
    x = _normalised(net, net.input("x", (1, 3, 32, 32)), 16, 3, bend=_relu)
    for filters, stride in ((16, 1), (32, 2), (64, 2)):
        y = _normalised(net, _normalised(net, x, filters, 3, stride, bend=_relu), filters, 3)
        x = x if stride == 1 else net.conv(x, filters, 1, strides=[stride] * 2)
        x = net.node("Relu", net.node("Add", x, y))
    return (net.node("Softmax", *_classifier(net, x, 10), axis=-1),)


def tiny_persons(net: Net) -> tuple[str, ...]:
    x = _normalised(net, net.input("x", (1, 3, 96, 96)), 8, 3, 2, bend=_relu)
    plan = ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5, (256, 2), (256, 1))
    for filters, stride in plan:
        channels = net.shapes[x][1]
        x = _normalised(net, _normalised(net, x, channels, 3, stride, channels, _relu), filters, bend=_relu)
    return (net.node("Softmax", *_classifier(net, x, 2), axis=-1),)


_TINY = "MLPerf Tiny"
ARCHITECTURES: dict[str, Architecture] = {
    each.build.__name__: each
    for each in (
        Architecture(mobilenet_v3_small, "MobileNetV3-Small, Howard et al., 2019", 4),
        Architecture(efficientnet_b0, "EfficientNet-B0, Tan and Le, 2019", 2),
        Architecture(regnet_y_400mf, "RegNetY-400MF, Radosavovic et al., 2020: groups of 8 channels", 13),
        Architecture(shufflenet_v2, "ShuffleNetV2 1.0x, Ma et al., 2018", 5),
        Architecture(vit, "4 layers as those of DeiT-Ti (width 192, 3 heads), Touvron et al., 2021; 197 tokens", 12),
        Architecture(mlp_mixer, "2 of the 8 layers of MLP-Mixer S/16, Tolstikhin et al., 2021; 196 tokens", 11),
        Architecture(bert_tiny, "BERT-Tiny (2 layers, width 128, 2 heads), Turc et al., 2019; 128 tokens", 1),
        Architecture(lstm_keywords, "an LSTM of 128 states over 49 frames of 40 features, as in Zhang et al., 2017", 3),
        Architecture(audio_m5, "M5, Dai et al., 2017: 8000 samples", 0),
        Architecture(unet, "U-Net, Ronneberger et al., 2015, 32 to 256 channels, padded; 128x128", 10),
        Architecture(super_resolution, "sub-pixel network of the ONNX model zoo, factor 3; 224x224", 5),
        Architecture(tiny_anomaly, _TINY, 6), Architecture(tiny_keywords, _TINY, 8),
        Architecture(tiny_images, _TINY, 7), Architecture(tiny_persons, _TINY, 9),
    )
}  # fmt: skip


def float_network(name: str) -> tuple[onnx.ModelProto, list[Inputs]]:
    """The float model of a name in `ARCHITECTURES`, and data for it."""
    architecture = ARCHITECTURES[name]
    net = Net(seed=architecture.seed)
    model = net.model(*architecture.build(net))
    return model, net.batches(model)
