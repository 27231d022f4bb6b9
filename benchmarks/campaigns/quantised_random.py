"""Random float models of what networks are made of. Model ``n`` depends on ``n`` and the seed alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from benchmarks.zoo.quantised_build import MisfitError, Net
from benchmarks.zoo.quantised_forms import Inputs

OPSETS = (13, 15, 17, 18, 21)
MAX_ELEMENTS = 6000
MOST_TRIES = 60
Draw = Callable[["Draws", str], str | None]
Drawn = tuple[tuple[Draw, int], ...]
"""What may come next, and how often."""


class Draws:
    """A model that grows; a draw that does not fit its operand gives None or raises MisfitError."""

    def __init__(self, *seeds: int) -> None:
        self.random = np.random.default_rng(seeds)
        self.net = Net(int(self.random.integers(1 << 30)), int(self.random.choice(OPSETS)))
        self.values: list[str] = []

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def pick(self, items: Any) -> Any:
        return items[int(self.random.integers(len(items)))]

    def start(self) -> None:
        pick = self.pick
        batch = 2 if self.chance(0.15) else 1
        match pick(("image", "image", "image", "row", "volume", "vector", "tokens")):
            case "image":
                shape = (batch, pick((1, 3, 4, 16, 20, 32)), pick((5, 8, 9, 12)), pick((5, 8, 11, 12)))
            case "row":
                shape = (batch, pick((2, 4, 16, 18)), pick((9, 16, 33)))
            case "volume":
                shape = (batch, pick((2, 4, 8)), pick((3, 4)), pick((4, 6)), pick((5, 6)))
            case "vector":
                shape = (batch, pick((5, 16, 40)))
            case "tokens":
                count, width = pick((20, 50)), pick((8, 16, 32))
                ids = self.net.index_input("ids", (batch, pick((5, 8))), count)
                self.values.append(self.net.node("Gather", self.net.normal((count, width)), ids))
                return
        self.values.append(self.net.input("x", shape))

    def rank(self, x: str) -> int:
        return len(self.net.shapes[x])

    def channels(self, x: str) -> int:
        return self.net.shapes[x][1]

    def divisor(self, number: int) -> int:
        return int(self.pick([d for d in range(1, number + 1) if number % d == 0]))

    def same_shape(self, x: str) -> str | None:
        others = [other for other in self.values if other != x and self.net.shapes[other] == self.net.shapes[x]]
        return self.pick(others) if others else None


def _spatial(d: Draws, x: str, least: int = 3) -> int:
    """How many axes a window has."""
    if not least <= d.rank(x) <= 5:
        raise MisfitError("no window")
    return d.rank(x) - 2


def draw_conv(d: Draws, x: str) -> str:
    axes = _spatial(d, x)
    channels = d.channels(x)
    group = d.pick((1, 1, 1, channels, d.divisor(channels)))
    filters = group * d.pick((1, 2)) if group > 1 else d.pick((3, 8, 16, 24, 40))
    attrs: dict[str, Any] = {"group": group, "bias": d.chance(0.8)}
    if d.chance(0.4):
        attrs["strides"] = [d.pick((1, 2, 3)) for _ in range(axes)]
    kernel = [d.pick((1, 2, 3, 3, 5)) for _ in range(axes)]
    match d.pick(("keep", "keep", "auto", "own", "dilated")):
        case "auto":
            attrs["auto_pad"] = d.pick(("SAME_UPPER", "SAME_LOWER", "VALID"))
        case "dilated":  # onnxruntime does not take it with auto_pad
            attrs["dilations"] = [d.pick((1, 2)) for _ in range(axes)]
        case "own":
            attrs["pads"] = [d.pick((0, 1, 2)) for _ in range(2 * axes)]
    return d.net.conv(x, filters, kernel, **attrs)


def draw_deconv(d: Draws, x: str) -> str:
    axes = _spatial(d, x)
    channels = d.channels(x)
    group = d.pick((1, 1, d.divisor(channels)))
    strides = [d.pick((1, 2, 2, 3)) for _ in range(axes)]
    attrs: dict[str, Any] = {"group": group, "strides": strides, "bias": d.chance(0.8)}
    kernel = [d.pick((1, 2, 3, 4)) for _ in range(axes)]
    if d.chance(0.2):  # onnxruntime and ONNX disagree about its size beside output_padding
        attrs["auto_pad"] = d.pick(("SAME_UPPER", "SAME_LOWER"))
        return d.net.deconv(x, group * d.pick((1, 3, 8)), kernel, **attrs)
    if d.chance(0.4):
        attrs["output_padding"] = [int(d.random.integers(0, stride)) for stride in strides]
    if d.chance(0.3):
        attrs["dilations"] = [d.pick((1, 2)) for _ in range(axes)]
    if d.chance(0.5):
        attrs["pads"] = [d.pick((0, 1)) for _ in range(2 * axes)]
    return d.net.deconv(x, group * d.pick((1, 3, 8)), kernel, **attrs)


def draw_pool(d: Draws, x: str) -> str:
    axes = _spatial(d, x)
    kind = d.pick(("MaxPool", "AveragePool"))
    kernel = [d.pick((2, 3)) for _ in range(axes)]
    attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": [d.pick((1, 2)) for _ in range(axes)]}
    if d.chance(0.5):
        attrs["pads"] = [1] * (2 * axes)
    if d.chance(0.25):
        attrs["ceil_mode"] = 1
    if kind == "AveragePool" and d.chance(0.5):
        attrs["count_include_pad"] = 1
    return d.net.node(kind, x, **attrs)


def _global_pool(d: Draws, x: str) -> str:
    _spatial(d, x)
    return d.net.node(d.pick(("GlobalAveragePool", "GlobalAveragePool", "GlobalMaxPool")), x)


def _reduce(d: Draws, x: str) -> str:
    axes = sorted({int(d.random.integers(1, d.rank(x))) for _ in range(2)})
    keep = int(d.chance(0.6))
    if not keep and d.rank(x) - len(axes) < 2:
        raise MisfitError("too few axes left")
    if d.chance(0.7):
        return d.net.mean(x, axes, keep)
    kind = d.pick(("ReduceMax", "ReduceSum"))
    if d.net.opset >= 18 or kind == "ReduceSum":
        return d.net.node(kind, x, d.net.whole(*axes), keepdims=keep)
    return d.net.node(kind, x, axes=axes, keepdims=keep)


def _batch_norm(d: Draws, x: str) -> str:
    _spatial(d, x)
    return d.net.batch_norm(x)


def _affine(d: Draws, x: str) -> str:
    """A factor, an offset, a divisor: one number, one a channel, or one an element of the last axis."""
    shape = d.pick(((), (1, d.channels(x), *(1,) * (d.rank(x) - 2)), (d.net.shapes[x][-1],)))
    values = d.random.uniform(0.3, 2, shape) * d.pick((1, 1, -1))
    constant = d.net.constant(values.astype(np.float32))
    kind = d.pick(("Add", "Mul", "Sub", "Div"))
    operands = [x, constant] if kind == "Div" or d.chance(0.7) else [constant, x]
    return d.net.node(kind, *operands)


def _binary(d: Draws, x: str) -> str | None:
    other = d.same_shape(x)
    if other is None:
        return None
    kind = d.pick(("Add", "Add", "Sub", "Mul", "Max", "Min"))
    return d.net.node(kind, x, other)


def draw_residual(d: Draws, x: str) -> str:
    """x plus or minus a convolution or a transposed convolution of it."""
    axes = _spatial(d, x)
    channels = d.channels(x)
    if d.chance(0.4):
        branch = d.net.deconv(x, channels, 3, strides=[1] * axes, pads=[1] * (2 * axes))
    else:
        branch = d.net.conv(x, channels, d.pick((1, 3)))
    operands = [x, branch] if d.chance(0.5) else [branch, x]
    total = d.net.node(d.pick(("Add", "Add", "Sub")), *operands)
    return d.net.node("Relu", total) if d.chance(0.6) else total


def _activation(d: Draws, x: str) -> str:
    net = d.net
    match d.pick(("Relu", "Relu", "Clip", "LeakyRelu", "PRelu", "Sigmoid", "Tanh", "HardSigmoid", "swish", "gelu",
                  "hard_swish", "Elu", "Softplus", "Abs", "Exp")):  # fmt: skip
        case "Clip":
            return net.node("Clip", x, net.constant(np.float32(-0.3)), net.constant(np.float32(1.2)))
        case "LeakyRelu":
            return net.node("LeakyRelu", x, alpha=float(d.pick((0.01, 0.1, 0.3))))
        case "PRelu":
            shape = (d.channels(x), *(1,) * (d.rank(x) - 2))
            return net.node("PRelu", x, net.normal(shape if d.chance(0.8) else (1,), 0.1, 0.2))
        case "swish":
            return net.swish(x)
        case "gelu":
            return net.gelu(x)
        case "hard_swish":
            return net.hard_swish(x)
        case "Exp":
            return net.node("Exp", net.node("Clip", x, "", net.constant(np.float32(1.5))))
        case kind:
            return net.node(kind, x)


def draw_squeeze_excite(d: Draws, x: str) -> str:
    _spatial(d, x)
    return d.net.squeeze_excite(x, hard=d.chance(0.5))


def _broadcast(d: Draws, x: str) -> str:
    """x with a tensor computed from it that has some axes of size 1."""
    axes = sorted({int(d.random.integers(1, d.rank(x))) for _ in range(2)})
    other = d.net.mean(x, axes, 1)
    operands = [x, other] if d.chance(0.7) else [other, x]
    return d.net.node(d.pick(("Add", "Mul", "Sub")), *operands)


def _slice(d: Draws, x: str) -> str:
    axis = int(d.random.integers(1, d.rank(x)))
    size = d.net.shapes[x][axis]
    start, step = int(d.random.integers(0, max(size // 2, 1))), d.pick((1, 1, 2))
    end = int(d.random.integers(start + 1, size + 1))
    operands = [d.net.whole(value) for value in (start, end, axis, step)]
    return d.net.node("Slice", x, *operands)


def _split_concat(d: Draws, x: str) -> str:
    axis = int(d.random.integers(1, d.rank(x)))
    size = d.net.shapes[x][axis]
    if size < 2:
        raise MisfitError("nothing to split")
    first = int(d.random.integers(1, size))
    parts = d.net.split(x, axis, (first, size - first))
    bent = d.net.node(d.pick(("Relu", "Sigmoid", "LeakyRelu")), parts[1])
    return d.net.node("Concat", bent, parts[0], axis=axis)


def _concat(d: Draws, x: str) -> str | None:
    other = d.same_shape(x)
    axis = 1 if d.chance(0.8) else int(d.random.integers(1, d.rank(x)))
    return None if other is None else d.net.node("Concat", x, other, axis=axis)


def _shuffle(d: Draws, x: str) -> str:
    _spatial(d, x)
    return d.net.shuffle(x, d.divisor(d.channels(x)))


def _depth_to_space(d: Draws, x: str) -> str:
    if d.rank(x) != 4:
        raise MisfitError("no image")
    block = d.pick((2, 3))
    if d.channels(x) % block**2 == 0:
        return d.net.node("DepthToSpace", x, blocksize=block, mode=d.pick(("DCR", "CRD")))
    if any(size % block for size in d.net.shapes[x][2:]):
        raise MisfitError("no whole blocks")
    return d.net.node("SpaceToDepth", x, blocksize=block)


def _resize(d: Draws, x: str) -> str:
    _spatial(d, x)
    attrs: dict[str, Any] = {"mode": d.pick(("nearest", "linear"))}
    attrs["coordinate_transformation_mode"] = d.pick(
        ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    )
    if attrs["mode"] == "nearest":
        attrs["nearest_mode"] = d.pick(("floor", "round_prefer_floor"))
    whole = attrs["coordinate_transformation_mode"] == "align_corners"  # else onnxruntime rounds the size first
    return d.net.resize(x, float(d.pick((2.0, 3.0) if whole else (2.0, 2.0, 3.0, 0.5, 1.5))), **attrs)


def _pad(d: Draws, x: str) -> str:
    _spatial(d, x)
    axes = d.rank(x) - 2
    half = [0, 0, *(d.pick((0, 1, 2)) for _ in range(axes))]
    other = [0, 0, *(d.pick((0, 1)) for _ in range(axes))]
    mode = d.pick(("constant", "constant", "reflect", "edge"))
    operands = [x, d.net.whole(*half, *other)]
    if mode == "constant" and d.chance(0.5):
        operands.append(d.net.constant(np.float32(d.pick((0.0, 0.25)))))
    return d.net.node("Pad", *operands, mode=mode)


def _transpose(d: Draws, x: str) -> str:
    perm = [0, *(int(axis) + 1 for axis in d.random.permutation(d.rank(x) - 1))]
    return d.net.node("Transpose", x, perm=perm)


def _reshape(d: Draws, x: str) -> str:
    n, *rest = d.net.shapes[x]
    size = math.prod(rest)
    if d.chance(0.3):
        return d.net.node("Flatten", x, axis=1)
    if d.chance(0.3):
        return d.net.node("Unsqueeze", x, d.net.whole(d.pick((1, 2))))
    first = d.divisor(size)
    return d.net.reshape(x, n, first, -1) if d.chance(0.5) else d.net.reshape(x, n, first, d.divisor(size // first), -1)


def _dense(d: Draws, x: str) -> str:
    return d.net.dense(x, d.pick((4, 10, 16, 24)))


def _attention(d: Draws, x: str) -> str:
    if d.rank(x) != 3:
        raise MisfitError("no sequence")
    return d.net.attention(x, d.divisor(d.net.shapes[x][-1]))


def _product(d: Draws, x: str) -> str:
    """x times its transpose."""
    if d.rank(x) < 3:
        raise MisfitError("no matrices")
    perm = list(range(d.rank(x)))
    perm[-2:] = perm[:-3:-1]
    return d.net.node("MatMul", x, d.net.node("Transpose", x, perm=perm))


def _normalise(d: Draws, x: str) -> str:
    if d.chance(0.5):
        return d.net.node("Softmax", x, axis=d.pick((1, -1)))
    return d.net.layer_norm(x)


def _recurrent(d: Draws, x: str) -> str:
    if d.rank(x) != 3:
        raise MisfitError("no sequence")
    n, steps, _ = d.net.shapes[x]
    kind, hidden = d.pick(("LSTM", "GRU", "RNN")), d.pick((4, 8))
    direction = d.pick(("forward", "reverse", "bidirectional"))
    states = d.net.recurrent(kind, d.net.node("Transpose", x, perm=[1, 0, 2]), hidden, direction=direction)
    return d.net.reshape(d.net.node("Transpose", states, perm=[2, 0, 1, 3]), n, steps, -1)


def _gather(d: Draws, x: str) -> str:
    axis = int(d.random.integers(1, d.rank(x)))
    indices = d.random.integers(0, d.net.shapes[x][axis], d.pick((2, 3, 5)))
    return d.net.node("Gather", x, d.net.constant(indices), axis=axis)


DRAWS: Drawn = (
    (draw_conv, 6), (draw_deconv, 3), (draw_pool, 2), (_global_pool, 1), (_reduce, 1), (_batch_norm, 2), (_affine, 2),
    (_binary, 3), (draw_residual, 3), (_activation, 4), (draw_squeeze_excite, 1), (_broadcast, 1), (_slice, 1),
    (_split_concat, 1), (_concat, 2), (_shuffle, 1), (_depth_to_space, 1), (_resize, 1), (_pad, 1), (_transpose, 1),
    (_reshape, 1), (_dense, 2), (_attention, 1), (_product, 1), (_normalise, 1), (_recurrent, 1), (_gather, 1),
)  # fmt: skip
"""All kinds."""


def grown(draws: Draws, kinds: Drawn, wanted: int) -> None:
    """Adds parts of these kinds until the model has more than ``wanted`` values; fewer if too many draws do not fit."""
    each = [draw for draw, weight in kinds for _ in range(weight)]
    for _ in range(MOST_TRIES):
        if len(draws.values) > wanted:
            return
        recent = draws.values[-1] if draws.chance(0.75) else draws.pick(draws.values)
        try:
            result = draws.pick(each)(draws, recent)
        except MisfitError:
            continue
        if result is not None and math.prod(draws.net.shapes[result]) <= MAX_ELEMENTS:
            draws.values.append(result)


def random_model(number: int, seed: int = 0, nodes: int = 5) -> tuple[onnx.ModelProto, list[Inputs]]:
    """A float model of about ``nodes`` parts, and data for it."""
    draws = Draws(seed, number)
    draws.start()
    grown(draws, DRAWS, int(draws.random.integers(2, nodes + 1)))
    outputs = [draws.values[-1]]
    if draws.chance(0.15) and len(draws.net.shapes[outputs[0]]) > 1:
        outputs = [draws.net.node("ArgMax", outputs[0], axis=1)]
    elif draws.chance(0.1) and len(draws.values) > 3:
        outputs.append(draws.values[-2])
    model = draws.net.model(*outputs)
    return model, draws.net.batches(model)
