"""Small exports of the kinds of networks that people quantise: name -> float model and data for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from quantised_build import Net

Builder = Callable[[Net], tuple[str, ...]]


def mobilenet_v3_block(net: Net) -> tuple[str, ...]:
    x = net.hard_swish(net.conv(net.input("x", (1, 3, 24, 24)), 16, strides=[2, 2]))
    y = net.node("Relu", net.conv(net.node("Relu", net.conv(x, 32, 1)), 32, group=32))
    x = net.node("Add", x, net.conv(net.squeeze_excite(y), 16, 1))
    y = net.hard_swish(net.conv(x, 40, 5, group=1, strides=[2, 2]))
    y = net.hard_swish(net.conv(net.node("GlobalAveragePool", net.squeeze_excite(y)), 48, 1))
    return (net.dense(net.node("Flatten", y), 10),)


def efficientnet_block(net: Net) -> tuple[str, ...]:
    x = net.swish(net.batch_norm(net.conv(net.input("x", (1, 3, 20, 20)), 16, strides=[2, 2], bias=False)))
    y = net.swish(net.batch_norm(net.conv(x, 48, 1, bias=False)))
    y = net.swish(net.batch_norm(net.conv(y, 48, 3, group=48, bias=False)))
    y = net.batch_norm(net.conv(net.squeeze_excite(y, hard=False), 16, 1, bias=False))
    x = net.swish(net.conv(net.node("Add", x, y), 64, 1))
    return (net.dense(net.node("Flatten", net.node("GlobalAveragePool", x)), 10),)


def unet(net: Net) -> tuple[str, ...]:
    a = net.node("Relu", net.conv(net.input("x", (1, 3, 16, 16)), 8))
    b = net.node("Relu", net.conv(net.node("MaxPool", a, kernel_shape=[2, 2], strides=[2, 2]), 16))
    c = net.node("Relu", net.conv(net.node("MaxPool", b, kernel_shape=[2, 2], strides=[2, 2]), 32))
    d = net.node("Concat", net.deconv(c, 16, strides=[2, 2]), b, axis=1)
    e = net.deconv(net.node("Relu", net.conv(d, 16)), 8, 3, strides=[2, 2], pads=[1] * 4, output_padding=[1, 1])
    f = net.node("Relu", net.conv(net.node("Add", e, a), 8))
    return (net.conv(f, 2, 1),)


def super_resolution(net: Net) -> tuple[str, ...]:
    x = net.node("Relu", net.conv(net.input("x", (1, 1, 12, 12)), 16, 5))
    x = net.node("Add", x, net.conv(net.node("Relu", net.conv(x, 16)), 16))
    x = net.node("DepthToSpace", net.conv(x, 36), blocksize=3, mode="CRD")
    return (net.conv(x, 1),)


def audio_net(net: Net) -> tuple[str, ...]:
    x = net.node("Relu", net.conv(net.input("x", (1, 4, 64)), 16, 9, strides=[2]))
    x = net.node("MaxPool", x, kernel_shape=[2], strides=[2])
    x = net.node("Relu", net.conv(x, 24, 3, dilations=[2], pads=[2, 2]))
    x = net.node("Add", x, net.node("Relu", net.conv(x, 24, 3, group=24)))
    return (net.dense(net.node("Flatten", net.node("GlobalAveragePool", x)), 6),)


def lstm_keyword_spotter(net: Net) -> tuple[str, ...]:
    x = net.node("Relu", net.conv(net.input("x", (1, 10, 24)), 16, 3))
    states = net.recurrent("LSTM", net.node("Transpose", x, perm=[2, 0, 1]), 12)
    last = net.node("Slice", states, net.whole(-1), net.whole(2**31), net.whole(0))
    return (net.dense(net.reshape(last, 1, 12), 5),)


def gru_tagger(net: Net) -> tuple[str, ...]:
    table = net.normal((50, 16))
    x = net.node("Gather", table, net.index_input("tokens", (1, 12), 50))
    states = net.recurrent("GRU", net.node("Transpose", x, perm=[1, 0, 2]), 8, direction="bidirectional",
                           linear_before_reset=1)  # fmt: skip
    rows = net.reshape(net.node("Transpose", states, perm=[0, 2, 1, 3]), 12, 16)
    return (net.node("ArgMax", net.dense(rows, 7), axis=1, keepdims=0),)


def vit_block(net: Net) -> tuple[str, ...]:
    patches = net.conv(net.input("x", (1, 3, 16, 16)), 32, 4, strides=[4, 4], pads=[0] * 4)
    x = net.node("Transpose", net.reshape(patches, 1, 32, 16), perm=[0, 2, 1])
    x = net.node("Concat", net.normal((1, 1, 32), 0.5), x, axis=1)
    x = net.node("Add", x, net.normal((1, 17, 32), 0.2))
    x = net.node("Add", x, net.attention(net.layer_norm(x), 2))
    x = net.node("Add", x, net.dense(net.gelu(net.dense(net.layer_norm(x), 64)), 32))
    first = net.node("Gather", net.layer_norm(x), net.constant(np.array(0, np.int64)), axis=1)
    return (net.dense(first, 10),)


def bert_tiny(net: Net) -> tuple[str, ...]:
    words = net.node("Gather", net.normal((100, 32)), net.index_input("ids", (1, 12), 100))
    kinds = net.node("Gather", net.normal((2, 32)), net.index_input("types", (1, 12), 2))
    x = net.layer_norm(net.node("Add", net.node("Add", words, kinds), net.normal((1, 12, 32), 0.3)))
    for _ in range(2):
        x = net.layer_norm(net.node("Add", x, net.attention(x, 4)))
        x = net.layer_norm(net.node("Add", x, net.dense(net.gelu(net.dense(x, 64)), 32)))
    first = net.node("Gather", x, net.constant(np.array(0, np.int64)), axis=1)
    return (net.dense(net.node("Tanh", net.dense(first, 32)), 3),)


def shufflenet_block(net: Net) -> tuple[str, ...]:
    x = net.node("Relu", net.conv(net.input("x", (1, 3, 16, 16)), 32, strides=[2, 2]))
    left, right = net.split(x, 1, (16, 16))
    right = net.conv(net.node("Relu", net.conv(right, 16, 1)), 16, group=16)
    x = net.shuffle(net.node("Concat", left, net.node("Relu", net.conv(right, 16, 1)), axis=1), 2)
    x = net.shuffle(net.node("Relu", net.conv(x, 48, 1, group=4)), 4)
    return (net.dense(net.node("Flatten", net.node("GlobalAveragePool", net.conv(x, 32, group=2))), 10),)


def densenet_block(net: Net) -> tuple[str, ...]:
    x = net.conv(net.input("x", (1, 3, 12, 12)), 16)
    for _ in range(3):
        y = net.conv(net.node("Relu", net.batch_norm(x)), 12)
        x = net.node("Concat", x, y, axis=1)
    x = net.conv(net.node("Relu", net.batch_norm(x)), 24, 1)
    x = net.node("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.node("GlobalAveragePool", net.node("Relu", net.batch_norm(x)))
    return (net.dense(net.node("Flatten", x), 10),)


def inception_block(net: Net) -> tuple[str, ...]:
    x = net.node("Relu", net.conv(net.input("x", (1, 3, 12, 12)), 24))
    parts = [
        net.node("Relu", net.conv(x, 12, 1)), net.node("Relu", net.conv(net.conv(x, 8, 1), 16)),
        net.node("Relu", net.conv(net.conv(x, 8, (1, 5)), 10, (5, 1))),
        net.conv(net.node("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=0), 8, 1),
        net.node("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4),
    ]  # fmt: skip
    x = net.node("Concat", *parts, axis=1)
    return (net.node("Softmax", net.dense(net.node("Flatten", net.node("GlobalAveragePool", x)), 10), axis=1),)


def video_net(net: Net) -> tuple[str, ...]:
    x = net.node("Relu", net.conv(net.input("x", (1, 2, 6, 10, 10)), 8))
    x = net.node("MaxPool", x, kernel_shape=[1, 2, 2], strides=[1, 2, 2])
    x = net.node("Relu", net.conv(x, 16, 3, strides=[2, 1, 1]))
    x = net.node("Add", x, net.conv(x, 16, 1))
    return (net.dense(net.node("Flatten", net.node("GlobalAveragePool", x)), 4),)


def anomaly_autoencoder(net: Net) -> tuple[str, ...]:
    x = net.input("x", (1, 640))
    for size in (128, 128, 8, 128):
        x = net.node("Relu", net.batch_norm(net.dense(x, size)))
    return (net.dense(x, 640),)


def keyword_ds_cnn(net: Net) -> tuple[str, ...]:
    x = net.input("x", (1, 1, 49, 10))
    x = net.node("Relu", net.batch_norm(net.conv(x, 64, (10, 4), strides=[2, 2], pads=[4, 1, 5, 1])))
    for _ in range(2):
        x = net.node("Relu", net.batch_norm(net.conv(x, 64, 3, group=64)))
        x = net.node("Relu", net.batch_norm(net.conv(x, 64, 1)))
    height, width = net.shapes[x][2:]
    x = net.node("AveragePool", x, kernel_shape=[height, width])
    return (net.node("Softmax", net.dense(net.reshape(x, 1, 64), 12), axis=-1),)


def yolo_head(net: Net) -> tuple[str, ...]:
    a = net.node("LeakyRelu", net.conv(net.input("x", (1, 3, 16, 16)), 16, strides=[2, 2]), alpha=0.1)
    b = net.node("LeakyRelu", net.conv(a, 32, strides=[2, 2]), alpha=0.1)
    up = net.resize(net.conv(b, 16, 1), 2.0, mode="nearest", coordinate_transformation_mode="asymmetric",
                    nearest_mode="floor")  # fmt: skip
    small = net.conv(b, 18, 1)
    large = net.conv(net.swish(net.conv(net.node("Concat", up, a, axis=1), 16)), 18, 1)
    rows = [
        net.reshape(net.node("Transpose", net.reshape(each, 1, 3, 6, *net.shapes[each][2:]), perm=[0, 1, 3, 4, 2]),
                    1, -1, 6) for each in (small, large)
    ]  # fmt: skip
    return (net.node("Sigmoid", net.node("Concat", *rows, axis=1)),)


def prelu_net(net: Net) -> tuple[str, ...]:
    x = net.node("PRelu", net.conv(net.input("x", (1, 3, 14, 14)), 16), net.constant(np.full((16, 1, 1), 0.2)))
    x = net.node("LeakyRelu", net.conv(x, 16, strides=[2, 2]), alpha=0.01)
    x = net.node("PRelu", net.node("Sub", net.conv(x, 16), x), net.normal((16, 1, 1), 0.1, 0.25))
    return (net.dense(net.node("Flatten", net.node("GlobalMaxPool", x)), 5),)


def dynamic_batch(net: Net) -> tuple[str, ...]:
    x = net.node("Relu", net.conv(net.input("x", ("N", 3, 12, 12)), 16, strides=[2, 2]))
    x = net.node("Relu", net.node("Add", x, net.conv(x, 16)))
    return (net.dense(net.node("Flatten", net.node("GlobalAveragePool", x)), 10),)


def segmentation(net: Net) -> tuple[str, ...]:
    x = net.node("Relu", net.conv(net.input("x", (1, 3, 16, 16)), 16, strides=[2, 2]))
    wide = net.node("Relu", net.conv(x, 16, 3, dilations=[2, 2], pads=[2] * 4))
    pooled = net.resize(net.node("Relu", net.conv(net.node("GlobalAveragePool", x), 8, 1)), 8.0, mode="nearest")
    x = net.conv(net.node("Concat", wide, pooled, axis=1), 5, 1)
    x = net.resize(x, 2.0, mode="linear", coordinate_transformation_mode="half_pixel")
    return (net.node("ArgMax", x, axis=1, keepdims=0),)


NETWORKS: dict[str, Builder] = {
    builder.__name__.replace("_", "-"): builder
    for builder in (
        mobilenet_v3_block, efficientnet_block, unet, super_resolution, audio_net, lstm_keyword_spotter, gru_tagger,
        vit_block, bert_tiny, shufflenet_block, densenet_block, inception_block, video_net, anomaly_autoencoder,
        keyword_ds_cnn, yolo_head, prelu_net, dynamic_batch, segmentation,
    )
}  # fmt: skip


def network(name: str, opset: int = 17) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
    """The float model of a name in `NETWORKS`, and data for it."""
    net = Net(seed=sorted(NETWORKS).index(name), opset=opset)
    model = net.model(*NETWORKS[name](net))
    return model, net.batches(model)
