"""Networks of the families that people run on CPUs, in published sizes: name -> float model and data for it.

Deep stacks of equal blocks are cut to a few: a ratio of times does not depend on how often a block stands there.
Weights are seeded, nothing is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx

from benchmarks.zoo.quantised_build import Net
from benchmarks.zoo.whole_networks import bert_classifier, efficientnet_b0, mlp_mixer, vit

Builder = Callable[[Net], tuple[str, ...]]


def vgg(net: Net) -> tuple[str, ...]:
    """Plain: 3x3 convolutions and poolings, as VGG-11, with a smaller head."""
    x = net.input("x", (1, 3, 112, 112))
    for filters, count in ((64, 1), (128, 1), (256, 2), (512, 2), (512, 2)):
        for _ in range(count):
            x = net.node("Relu", net.conv(x, filters))
        x = net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.node("Relu", net.dense(net.node("Flatten", x), 1024))
    return (net.dense(x, 1000),)


def resnext(net: Net) -> tuple[str, ...]:
    """Grouped: ResNeXt-50 (32 groups), two blocks a stage."""
    x = net.node("Relu", _normed(net, net.input("x", (1, 3, 160, 160)), 64, 7, strides=[2, 2]))
    x = net.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for number, filters in enumerate((128, 256, 512, 1024)):
        for stride in (2 if number else 1, 1):
            y = net.node("Relu", _normed(net, x, filters, 1))
            y = net.node("Relu", _normed(net, y, filters, 3, group=32, strides=[stride] * 2))
            y = _normed(net, y, filters * 2, 1)
            if net.shapes[x] != net.shapes[y]:
                x = _normed(net, x, filters * 2, 1, strides=[stride] * 2)
            x = net.node("Relu", net.node("Add", y, x))
    return _classified(net, x)


def densenet(net: Net) -> tuple[str, ...]:
    """Dense: the blocks of DenseNet-121, fewer layers in each."""
    x = net.node("Relu", _normed(net, net.input("x", (1, 3, 160, 160)), 64, 7, strides=[2, 2]))
    x = net.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for number, layers in enumerate((4, 6, 8, 6)):
        if number:
            x = net.conv(net.node("Relu", net.batch_norm(x)), net.shapes[x][1] // 2, 1, bias=False)
            x = net.node("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
        for _ in range(layers):
            y = net.conv(net.node("Relu", net.batch_norm(x)), 128, 1, bias=False)
            y = net.conv(net.node("Relu", net.batch_norm(y)), 32, 3, bias=False)
            x = net.node("Concat", x, y, axis=1)
    return _classified(net, net.node("Relu", net.batch_norm(x)))


def googlenet(net: Net) -> tuple[str, ...]:
    """Inception: GoogLeNet."""
    x = net.node("Relu", _normed(net, net.input("x", (1, 3, 224, 224)), 64, 7, strides=[2, 2]))
    x = net.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])
    x = net.node("Relu", _normed(net, net.node("Relu", _normed(net, x, 64, 1)), 192, 3))
    modules: Sequence[Sequence[int]] = (
        (), (64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64), (), (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64), (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128), (), (256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128),
    )  # fmt: skip
    for module in modules:
        if not module:
            x = net.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])
            continue
        a, b1, b2, c1, c2, d = module
        pooled = net.node("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4)
        parts = [
            _normed(net, x, a, 1), _normed(net, net.node("Relu", _normed(net, x, b1, 1)), b2, 3),
            _normed(net, net.node("Relu", _normed(net, x, c1, 1)), c2, 3), _normed(net, pooled, d, 1),
        ]  # fmt: skip
        x = net.node("Concat", *(net.node("Relu", part) for part in parts), axis=1)
    return _classified(net, x)


def squeezenet(net: Net) -> tuple[str, ...]:
    """Squeeze and expand: SqueezeNet 1.1."""
    x = net.node("Relu", net.conv(net.input("x", (1, 3, 224, 224)), 64, strides=[2, 2], pads=[0] * 4))
    for number, narrow in enumerate((16, 16, 32, 32, 48, 48, 64)):
        if number in (0, 2, 4):
            x = net.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2])
        x = net.node("Relu", net.conv(x, narrow, 1))
        x = net.node("Concat", *(net.node("Relu", net.conv(x, narrow * 4, kernel)) for kernel in (1, 3)), axis=1)
    x = net.node("GlobalAveragePool", net.node("Relu", net.conv(x, 1000, 1)))
    return (net.node("Flatten", x),)


def shufflenet(net: Net) -> tuple[str, ...]:
    """Shuffle: ShuffleNet V2 1.0."""
    x = net.node("Relu", _normed(net, net.input("x", (1, 3, 224, 224)), 24, strides=[2, 2]))
    x = net.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)

    def branch(y: str, filters: int, stride: int) -> str:
        y = net.node("Relu", _normed(net, y, filters, 1))
        y = _normed(net, y, filters, 3, group=filters, strides=[stride] * 2)
        return net.node("Relu", _normed(net, y, filters, 1))

    for filters, count in ((58, 4), (116, 8), (232, 4)):
        for number in range(count):
            if number:
                left, right = net.split(x, 1, (filters, filters))
            else:
                channels = net.shapes[x][1]
                left = _normed(net, x, channels, 3, group=channels, strides=[2, 2])
                left, right = net.node("Relu", _normed(net, left, filters, 1)), x
            x = net.shuffle(net.node("Concat", left, branch(right, filters, 1 if number else 2), axis=1), 2)
    return _classified(net, net.node("Relu", _normed(net, x, 1024, 1)))


def unet(net: Net) -> tuple[str, ...]:
    """Encoder and decoder with transposed convolutions."""
    x, kept = net.input("x", (1, 3, 128, 128)), []
    for filters in (32, 64, 128, 256):
        if kept:
            x = net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
        for _ in range(2):
            x = net.node("Relu", _normed(net, x, filters))
        kept.append(x)
    for other in kept[-2::-1]:
        filters = net.shapes[other][1]
        x = net.node("Concat", net.deconv(x, filters, 2, strides=[2, 2]), other, axis=1)
        for _ in range(2):
            x = net.node("Relu", _normed(net, x, filters))
    return (net.conv(x, 2, 1),)


def detector(net: Net) -> tuple[str, ...]:
    """A detector with three scales, upsampling and heads that are put together."""
    x, scales = net.swish(_normed(net, net.input("x", (1, 3, 256, 256)), 16, strides=[2, 2])), []
    for filters in (32, 64, 128, 256):
        x = net.swish(_normed(net, x, filters, strides=[2, 2]))
        left = net.swish(_normed(net, x, filters // 2, 1))
        right = net.swish(_normed(net, x, filters // 2, 1))
        bent = net.swish(_normed(net, net.swish(_normed(net, right, filters // 2, 1)), filters // 2))
        right = net.node("Add", right, bent)
        x = net.swish(_normed(net, net.node("Concat", left, right, axis=1), filters, 1))
        scales.append(x)
    pooled = net.swish(_normed(net, x, 128, 1))
    pools = [pooled, *(net.node("MaxPool", pooled, kernel_shape=[k, k], pads=[k // 2] * 4) for k in (5, 9))]
    scales[-1] = net.swish(_normed(net, net.node("Concat", *pools, axis=1), 256, 1))
    heads, above = [], ""
    for scale in scales[:0:-1]:
        filters = net.shapes[scale][1]
        if above:
            up = net.resize(net.swish(_normed(net, above, filters, 1)), 2.0, mode="nearest",
                            coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
            scale = net.swish(_normed(net, net.node("Concat", up, scale, axis=1), filters))
        above = scale
        head = net.conv(net.swish(_normed(net, scale, 64)), 85, 1)
        heads.append(net.reshape(head, 1, 85, -1))
    rows = net.node("Transpose", net.node("Concat", *heads, axis=2), perm=[0, 2, 1])
    box, rest = net.split(rows, 2, (4, 81))
    return (net.node("Concat", box, net.node("Sigmoid", rest), axis=2),)


def mixer(net: Net) -> tuple[str, ...]:
    """Mixer-S/16 (196 tokens), narrower: 256 channels, four layers."""
    return mlp_mixer(net, width=256, layers=4)


def bert(net: Net) -> tuple[str, ...]:
    """BERT-Mini: 128 tokens of 256, four layers."""
    return bert_classifier(net, words=4000, length=128, width=256, hidden=1024, layers=4, heads=4)


def lstm(net: Net) -> tuple[str, ...]:
    """Two layers of LSTM over 50 steps."""
    x = net.input("x", (50, 1, 64))
    for _ in range(2):
        states = net.recurrent("LSTM", x, 128)
        x = net.reshape(states, 50, 1, 128)
    last = net.node("Gather", x, net.constant(np.array(49, np.int64)), axis=0)
    return (net.dense(last, 32),)


def tcn(net: Net) -> tuple[str, ...]:
    """Dilated causal convolutions over 1,024 steps."""
    x = net.conv(net.input("x", (1, 32, 1024)), 64, 1)
    for dilation in (1, 2, 4, 8, 16, 32):
        y = x
        for _ in range(2):
            y = net.node("Relu", _normed(net, y, 64, 3, dilations=[dilation], pads=[2 * dilation, 0]))
        x = net.node("Relu", net.node("Add", x, y))
    return (net.conv(x, 16, 1),)


def video(net: Net) -> tuple[str, ...]:
    """3-D: residual blocks over 16 frames."""
    x = net.node("Relu", _normed(net, net.input("x", (1, 3, 16, 56, 56)), 32, (3, 7, 7), strides=[1, 2, 2]))
    for filters, stride in ((32, 1), (64, 2), (128, 2)):
        y = net.node("Relu", _normed(net, x, filters, 3, strides=[stride] * 3))
        y = _normed(net, y, filters, 3)
        if stride > 1:
            x = _normed(net, x, filters, 1, strides=[stride] * 3)
        x = net.node("Relu", net.node("Add", y, x))
    return _classified(net, x)


def _normed(net: Net, x: str, filters: int, kernel: int | Sequence[int] = 3, **attrs: object) -> str:
    return net.batch_norm(net.conv(x, filters, kernel, bias=False, **attrs))


def _classified(net: Net, x: str) -> tuple[str, ...]:
    return (net.dense(net.node("Flatten", net.node("GlobalAveragePool", x)), 1000),)


NETWORKS: dict[str, Builder] = {
    builder.__name__: builder
    for builder in (
        vgg, resnext, densenet, googlenet, squeezenet, shufflenet, unet, detector, vit, mixer, bert, lstm, tcn, video,
    )
} | {"efficientnet": efficientnet_b0}  # fmt: skip


def network(name: str) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
    """The float model of a name in `NETWORKS`, and data for it."""
    net = Net(seed=sorted(NETWORKS).index(name))
    model = net.model(*NETWORKS[name](net))
    return model, net.batches(model)
