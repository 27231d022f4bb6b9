"""Blocks of networks in which much data moves between products, in published sizes: name -> float model and data.

One block, or a pair that belongs together, with what stands before and behind it in its network. Weights are seeded.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from benchmarks.zoo.quantised_build import Net
from benchmarks.zoo.quantised_forms import Inputs

Builder = Callable[[Net], tuple[str, ...]]


def swin(net: Net) -> tuple[str, ...]:
    """Swin-T, third stage: a block, one whose windows are shifted by half a window, and the merging of patches."""
    side, width = 14, 384
    x = net.node("Transpose", net.conv(net.input("x", (1, width, side, side)), width, 1), perm=[0, 2, 3, 1])
    for shift in (0, 3):
        x = net.node("Add", x, _windows(net, net.layer_norm(x), 7, 12, shift))
        x = net.node("Add", x, net.dense(net.gelu(net.dense(net.layer_norm(x), 4 * width)), width))
    parts = []
    for row, column in ((0, 0), (1, 0), (0, 1), (1, 1)):
        ends, axes, steps = net.whole(side, side), net.whole(1, 2), net.whole(2, 2)
        parts.append(net.node("Slice", x, net.whole(row, column), ends, axes, steps))
    merged = net.layer_norm(net.node("Concat", *parts, axis=-1))
    return (net.dense(merged, 2 * width),)


def _windows(net: Net, x: str, window: int, heads: int, shift: int) -> str:
    """Attention within windows of (1, H, W, C), whose image is rolled by ``shift`` before and rolled back behind."""
    _, height, width, channels = net.shapes[x]
    tokens, across = window**2, (height // window, width // window)
    count = across[0] * across[1]
    x = _rolled(net, x, shift)
    x = net.reshape(x, 1, across[0], window, across[1], window, channels)
    x = net.reshape(net.node("Transpose", x, perm=[0, 1, 3, 2, 4, 5]), count, tokens, channels)
    parts = net.reshape(net.dense(x, 3 * channels), count, tokens, 3, heads, channels // heads)
    parts = net.node("Transpose", parts, perm=[2, 0, 3, 1, 4])
    query, key, value = (net.node("Gather", parts, net.constant(np.array(i, np.int64)), axis=0) for i in range(3))
    query = net.node("Mul", query, net.constant(np.float32((channels // heads) ** -0.5)))
    scores = net.node("MatMul", query, net.node("Transpose", key, perm=[0, 1, 3, 2]))
    scores = net.node("Add", scores, net.normal((1, heads, tokens, tokens), 0.2))
    if shift:
        mask = np.where(net.random.random((count, 1, tokens, tokens)) < 0.3, -100.0, 0.0)
        mask[..., 0] = 0
        scores = net.node("Add", scores, net.constant(mask))
    mixed = net.node("MatMul", net.node("Softmax", scores, axis=-1), value)
    mixed = net.reshape(net.node("Transpose", mixed, perm=[0, 2, 1, 3]), count, tokens, channels)
    y = net.reshape(net.dense(mixed, channels), 1, *across, window, window, channels)
    y = net.reshape(net.node("Transpose", y, perm=[0, 1, 3, 2, 4, 5]), 1, height, width, channels)
    return _rolled(net, y, -shift)


def _rolled(net: Net, x: str, shift: int) -> str:
    """(N, H, W, C) rolled up and to the left, as exporters write it."""
    for axis in (1, 2) if shift else ():
        pieces = [(shift, net.shapes[x][axis]), (0, shift % net.shapes[x][axis])] if shift > 0 else [
            (net.shapes[x][axis] + shift, net.shapes[x][axis]), (0, net.shapes[x][axis] + shift)
        ]  # fmt: skip
        parts = [net.node("Slice", x, net.whole(first), net.whole(last), net.whole(axis)) for first, last in pieces]
        x = net.node("Concat", *parts, axis=axis)
    return x


def mobilevit(net: Net) -> tuple[str, ...]:
    """MobileViT-S: its second block, two transformer layers of 192 on patches of 2 x 2."""
    channels, width, side, patch, heads = 128, 192, 16, 2, 4
    x = net.input("x", (1, channels, side, side))
    y = net.conv(net.swish(net.batch_norm(net.conv(x, channels, bias=False))), width, 1, bias=False)
    across = side // patch
    y = net.reshape(y, width * across, patch, across, patch)
    y = net.reshape(net.node("Transpose", y, perm=[0, 2, 1, 3]), 1, width, across**2, patch**2)
    y = net.reshape(net.node("Transpose", y, perm=[0, 3, 2, 1]), patch**2, across**2, width)
    for _ in range(2):
        y = net.node("Add", y, net.attention(net.layer_norm(y), heads))
        y = net.node("Add", y, net.dense(net.swish(net.dense(net.layer_norm(y), 2 * width)), width))
    y = net.reshape(net.layer_norm(y), 1, patch**2, across**2, width)
    y = net.reshape(net.node("Transpose", y, perm=[0, 3, 2, 1]), width * across, across, patch, patch)
    y = net.reshape(net.node("Transpose", y, perm=[0, 2, 1, 3]), 1, width, side, side)
    y = net.swish(net.batch_norm(net.conv(y, channels, 1, bias=False)))
    y = net.node("Concat", x, y, axis=1)
    return (net.swish(net.batch_norm(net.conv(y, channels, bias=False))),)


def convnext(net: Net) -> tuple[str, ...]:
    """ConvNeXt-T: two blocks of its third stage."""
    x = net.conv(net.input("x", (1, 384, 14, 14)), 384, 1)
    for _ in range(2):
        y = net.layer_norm(net.node("Transpose", net.conv(x, 384, 7, group=384), perm=[0, 2, 3, 1]))
        y = net.node("Mul", net.dense(net.gelu(net.dense(y, 4 * 384)), 384), net.normal((384,), 0.1, 0.5))
        x = net.node("Add", x, net.node("Transpose", y, perm=[0, 3, 1, 2]))
    return (x,)


def ghostnet(net: Net) -> tuple[str, ...]:
    """GhostNet: a bottleneck of 112 channels with squeeze and excite, whose halves are made by cheap operators."""
    x = net.node("Relu", net.conv(net.input("x", (1, 112, 14, 14)), 112, 1))

    def ghost(x: str, filters: int, bend: bool) -> str:
        def bent(y: str) -> str:
            return net.node("Relu", net.batch_norm(y)) if bend else net.batch_norm(y)

        first = bent(net.conv(x, filters // 2, 1, bias=False))
        cheap = bent(net.conv(first, filters // 2, group=filters // 2, bias=False))
        return net.node("Concat", first, cheap, axis=1)

    for _ in range(2):
        y = net.squeeze_excite(ghost(x, 672, bend=True), 168)
        x = net.node("Add", ghost(y, 112, bend=False), x)
    return (x,)


def crnn(net: Net) -> tuple[str, ...]:
    """CRNN: the last convolutions and one bidirectional LSTM of 256 over 26 steps."""
    x = net.node("Relu", net.batch_norm(net.conv(net.input("x", (1, 256, 4, 25)), 512, bias=False)))
    x = net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 1], pads=[0, 1, 0, 1])
    x = net.node("Relu", net.conv(x, 512, 2, pads=[0] * 4))
    steps = net.node("Transpose", net.node("Squeeze", x, net.whole(2)), perm=[2, 0, 1])
    states = net.node("Transpose", net.recurrent("LSTM", steps, 256, direction="bidirectional"), perm=[0, 2, 1, 3])
    return (net.dense(net.reshape(states, net.shapes[states][0], 512), 37),)


BLOCKS: dict[str, Builder] = {builder.__name__: builder for builder in (swin, mobilevit, convnext, ghostnet, crnn)}


def block(name: str) -> tuple[onnx.ModelProto, list[Inputs]]:
    """The float model of a name in `BLOCKS`, and data for it."""
    net = Net(seed=sorted(BLOCKS).index(name))
    model = net.model(*BLOCKS[name](net))
    return model, net.batches(model)
