"""Small exports of the kinds of networks that people quantise: name -> float model and data for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from benchmarks.zoo.quantised_build import Net
from benchmarks.zoo.whole_networks import bert_classifier

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
    return bert_classifier(net, words=100, length=12, width=32, hidden=64, layers=2, heads=4)


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


def causal_convolutions(net: Net) -> tuple[str, ...]:
    """Two layers a block, one cut behind its padding, one padded in front."""
    x = net.input("x", (1, 6, 50))
    for filters, dilation in ((16, 1), (24, 2), (24, 4)):
        reach = 2 * dilation
        y = net.conv(x, filters, 3, dilations=[dilation], pads=[reach] * 2)
        y = net.node("Relu", net.node("Slice", y, net.whole(0), net.whole(-reach), net.whole(2)))
        y = net.node("Pad", y, net.whole(0, 0, reach, 0, 0, 0))
        y = net.node("Relu", net.conv(y, filters, 3, dilations=[dilation], pads=[0, 0]))
        x = net.node("Relu", net.node("Add", y, x if net.shapes[x][1] == filters else net.conv(x, filters, 1)))
    return (net.dense(net.node("Gather", x, net.constant(np.array(-1, np.int64)), axis=2), 5),)


def gated_convolutions(net: Net) -> tuple[str, ...]:
    x, skips = net.conv(net.input("x", (1, 1, 64)), 16, 1), ""
    for dilation in (1, 2, 4):
        y = net.conv(net.node("Pad", x, net.whole(0, 0, dilation, 0, 0, 0)), 32, 2, dilations=[dilation], pads=[0, 0])
        left, right = net.split(y, 1, (16, 16))
        y = net.node("Mul", net.node("Tanh", left), net.node("Sigmoid", right))
        skip = net.conv(y, 24, 1)
        x, skips = net.node("Add", x, net.conv(y, 16, 1)), net.node("Add", skips, skip) if skips else skip
    return (net.node("LogSoftmax", net.conv(net.node("Relu", skips), 16, 1), axis=1),)


def convnext_block(net: Net) -> tuple[str, ...]:
    x = net.conv(net.input("x", (1, 3, 32, 32)), 24, 4, strides=[4, 4], pads=[0] * 4)
    for _ in range(2):
        y = net.layer_norm(net.node("Transpose", net.conv(x, 24, 7, group=24), perm=[0, 2, 3, 1]))
        y = net.node("Mul", net.dense(net.gelu(net.dense(y, 96)), 24), net.normal((24,), 0.1, 0.5))
        x = net.node("Add", x, net.node("Transpose", y, perm=[0, 3, 1, 2]))
    return (net.dense(net.layer_norm(net.node("Flatten", net.node("GlobalAveragePool", x))), 10),)


def gru_keyword_spotter(net: Net) -> tuple[str, ...]:
    x = net.conv(net.input("x", (1, 1, 40, 20)), 16, (5, 20), strides=[2, 1], pads=[2, 0, 2, 0])
    frames = net.node("Transpose", net.node("Squeeze", net.node("Relu", x), net.whole(3)), perm=[2, 0, 1])
    w, r = net.normal((1, 36, 16), 0.25), net.normal((1, 36, 12), 0.3)
    states, last = net.several("GRU", 2, frames, w, r, net.normal((1, 72), 0.1), hidden_size=12)
    return net.dense(net.node("Squeeze", last, net.whole(0)), 8), states


def image_generator(net: Net) -> tuple[str, ...]:
    x = net.reshape(net.dense(net.input("z", (1, 20)), 512), 1, 32, 4, 4)
    for filters in (24, 16):
        x = net.deconv(net.node("Relu", net.batch_norm(x)), filters, 4, strides=[2, 2], pads=[1] * 4, bias=False)
    x = net.node("Relu", net.batch_norm(x))
    return (net.node("Tanh", net.deconv(x, 3, 5, strides=[2, 2], pads=[2] * 4, output_padding=[1, 1])),)


def feature_pyramid(net: Net) -> tuple[str, ...]:
    """A detector's head on three scales: boxes and scores."""
    fine = net.node("Relu", net.conv(net.input("x", (1, 3, 32, 32)), 16, strides=[4, 4]))
    middle = net.node("Relu", net.conv(fine, 24, strides=[2, 2]))
    coarse = net.node("Relu", net.conv(middle, 32, strides=[2, 2]))
    levels = [net.conv(coarse, 16, 1)]
    for each in (middle, fine):
        levels.append(net.node("Add", net.conv(each, 16, 1), net.resize(levels[-1], 2.0, mode="nearest")))
    boxes, scores = [], []
    for level in levels:
        x = net.node("Relu", net.conv(level, 16))
        for found, each in ((boxes, 4), (scores, 3)):
            found.append(net.reshape(net.node("Transpose", net.conv(x, 2 * each), perm=[0, 2, 3, 1]), 1, -1, each))
    places, sizes = net.split(net.node("Concat", *boxes, axis=1), 2, (2, 2))
    places = net.node("Add", places, net.normal(net.shapes[places]))
    sizes = net.node("Mul", net.node("Exp", sizes), net.normal(net.shapes[sizes], 0.1, 1))
    joined = net.node("Concat", *scores, axis=1)
    return net.node("Concat", places, sizes, axis=2), net.node("Softmax", joined, axis=2)


def unet_3d(net: Net) -> tuple[str, ...]:
    a = net.node("Relu", net.batch_norm(net.conv(net.input("x", (1, 1, 4, 12, 12)), 8)))
    b = net.node("Relu", net.conv(net.node("MaxPool", a, kernel_shape=[2] * 3, strides=[2] * 3), 16))
    c = net.node("Concat", net.deconv(b, 8, 2, strides=[2] * 3), a, axis=1)
    return (net.node("Sigmoid", net.conv(net.node("Relu", net.conv(c, 8)), 2, 1)),)


def windowed_attention(net: Net) -> tuple[str, ...]:
    """Attention within windows of an image that is rolled by half a window, with a bias and a mask."""
    side, window, width, heads = 8, 4, 24, 3
    tokens, windows = window**2, (side // window) ** 2
    x = net.conv(net.input("x", (1, 3, 32, 32)), width, 4, strides=[4, 4], pads=[0] * 4)
    y = net.node("Transpose", x, perm=[0, 2, 3, 1])
    for axis in (1, 2):
        parts = [
            net.node("Slice", y, net.whole(first), net.whole(last), net.whole(axis)) for first, last in ((2, 8), (0, 2))
        ]
        y = net.node("Concat", *parts, axis=axis)
    y = net.reshape(net.layer_norm(y), 1, side // window, window, side // window, window, width)
    y = net.reshape(net.node("Transpose", y, perm=[0, 1, 3, 2, 4, 5]), windows, tokens, width)
    parts = net.reshape(net.dense(y, 3 * width), windows, tokens, 3, heads, width // heads)
    parts = net.node("Transpose", parts, perm=[2, 0, 3, 1, 4])
    query, key, value = (net.node("Gather", parts, net.constant(np.array(i, np.int64)), axis=0) for i in range(3))
    scores = net.node("MatMul", query, net.node("Transpose", key, perm=[0, 1, 3, 2]))
    scores = net.node("Add", scores, net.normal((1, heads, tokens, tokens), 0.2))
    mask = np.where(net.random.random((windows, 1, tokens, tokens)) < 0.3, -100.0, 0.0)
    mask[..., 0] = 0
    mixed = net.node("MatMul", net.node("Softmax", net.node("Add", scores, net.constant(mask)), axis=-1), value)
    mixed = net.reshape(net.node("Transpose", mixed, perm=[0, 2, 1, 3]), windows, tokens, width)
    return (net.dense(net.mean(net.node("Add", y, net.dense(mixed, width)), [1], 0), 10),)


def gated_by_place_and_channel(net: Net) -> tuple[str, ...]:
    x = net.node("Relu", net.conv(net.input("x", (1, 3, 16, 16)), 24))
    down, up = net.normal((6, 24, 1, 1), 0.2), net.normal((24, 6, 1, 1), 0.4)
    gates = [
        net.node("Conv", net.node("Relu", net.node("Conv", net.node(pool, x), down)), up)
        for pool in ("GlobalAveragePool", "GlobalMaxPool")
    ]
    x = net.node("Mul", x, net.node("Sigmoid", net.node("Add", *gates)))
    largest = net.node("MaxPool", net.node("Transpose", x, perm=[0, 2, 3, 1]), kernel_shape=[1, 24])
    places = net.node("Concat", net.node("Transpose", largest, perm=[0, 3, 1, 2]), net.mean(x, [1]), axis=1)
    x = net.node("Mul", x, net.node("Sigmoid", net.conv(places, 1, 7, bias=False)))
    return (net.dense(net.node("Flatten", net.node("GlobalAveragePool", x)), 10),)


def dilated_pyramid(net: Net) -> tuple[str, ...]:
    x = net.node("Relu", net.conv(net.input("x", (1, 3, 26, 26)), 24, strides=[2, 2]))
    parts = [net.node("Relu", net.conv(x, 16, 3, dilations=[d, d], pads=[d] * 4)) for d in (1, 2, 4, 6)]
    pooled = net.node("Relu", net.conv(net.node("GlobalAveragePool", x), 16, 1))
    parts.append(net.node("Resize", pooled, "", "", net.whole(1, 16, 13, 13), mode="linear"))
    x = net.conv(net.node("Concat", *parts, axis=1), 6, 1)
    x = net.node("Resize", x, "", "", net.whole(1, 6, 26, 26), mode="linear",
                 coordinate_transformation_mode="align_corners")  # fmt: skip
    return net.node("ArgMax", x, axis=1, keepdims=0), net.node("Softmax", x, axis=1)


def parallel_branches(net: Net) -> tuple[str, ...]:
    x = net.node("Relu", net.conv(net.input("x", (1, 3, 16, 16)), 16))
    for _ in range(2):
        wide, narrow = (net.batch_norm(net.conv(x, 16, kernel, bias=False)) for kernel in (3, 1))
        x = net.node("Relu", net.node("Add", net.node("Add", wide, narrow), net.batch_norm(x)))
    return (net.dense(net.node("Flatten", net.node("GlobalAveragePool", x)), 10),)


def decoder_block(net: Net) -> tuple[str, ...]:
    """Causal attention with turned queries and keys, root mean squares and a gated layer."""
    tokens, width, heads = 10, 32, 4
    angles = np.arange(tokens)[:, None] / 10 ** np.arange(4)
    turns = [net.constant(np.tile(turn(angles), 2)) for turn in (np.cos, np.sin)]

    def scaled(x: str) -> str:
        mean = net.mean(net.node("Pow", x, net.constant(np.float32(2))), [-1])
        root = net.node("Sqrt", net.node("Add", mean, net.constant(np.float32(1e-5))))
        return net.node("Mul", net.node("Mul", x, net.node("Reciprocal", root)), net.normal((width,), 0.1, 1))

    def product(x: str, outputs: int) -> str:
        return net.node("MatMul", x, net.normal((net.shapes[x][-1], outputs), net.shapes[x][-1] ** -0.5))

    def heads_of(x: str) -> str:
        split = net.reshape(product(x, width), 1, tokens, heads, width // heads)
        return net.node("Transpose", split, perm=[0, 2, 1, 3])

    def turned(x: str) -> str:
        left, right = net.split(x, 3, (4, 4))
        other = net.node("Concat", net.node("Neg", right), left, axis=-1)
        return net.node("Add", net.node("Mul", x, turns[0]), net.node("Mul", other, turns[1]))

    x = net.node("Gather", net.normal((60, width)), net.index_input("ids", (1, tokens), 60))
    y = scaled(x)
    query, key, value = turned(heads_of(y)), turned(heads_of(y)), heads_of(y)
    scores = net.node("MatMul", query, net.node("Transpose", key, perm=[0, 1, 3, 2]))
    scores = net.node("Add", scores, net.constant(np.triu(np.full((tokens, tokens), -30.0), 1)))
    mixed = net.node("Transpose", net.node("MatMul", net.node("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3])
    x = net.node("Add", x, product(net.reshape(mixed, 1, tokens, width), width))
    y = scaled(x)
    x = net.node("Add", x, product(net.node("Mul", net.swish(product(y, 64)), product(y, 64)), width))
    return (product(scaled(x), 60),)


NETWORKS: dict[str, Builder] = {
    builder.__name__.replace("_", "-"): builder
    for builder in (
        mobilenet_v3_block, efficientnet_block, unet, super_resolution, audio_net, lstm_keyword_spotter, gru_tagger,
        vit_block, bert_tiny, shufflenet_block, densenet_block, inception_block, video_net, anomaly_autoencoder,
        keyword_ds_cnn, yolo_head, prelu_net, dynamic_batch, segmentation, causal_convolutions, gated_convolutions,
        convnext_block, gru_keyword_spotter, image_generator, feature_pyramid, unet_3d, windowed_attention,
        gated_by_place_and_channel, dilated_pyramid, parallel_branches, decoder_block,
    )
}  # fmt: skip


def network(name: str, opset: int = 17) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
    """The float model of a name in `NETWORKS`, and data for it."""
    net = Net(seed=sorted(NETWORKS).index(name), opset=opset)
    model = net.model(*NETWORKS[name](net))
    return model, net.batches(model)
