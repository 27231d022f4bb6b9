"""Small networks of unlike kinds in every form that quantisers give them: where values are quantised, and by what.

Weights are drawn so that values keep their size, which one scale for all activations covers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from benchmarks.zoo.placement_graph import Array, QuantisedGraph


@dataclass(frozen=True)
class Form:
    """``everywhere``: the share of the values behind other operators that are quantised, too: 1 as onnxruntime does, 0
    as TensorRT's toolkits, which quantise what products read. ``shared``: the share of readers that take the pair of
    another reader. ``activation``: of `ACTIVATIONS`. ``float_head``: whether results are floats. ``kind``: of
    activations. ``weights``: int8, int4, int4 in blocks along the depth, or uint8 with a zero point. ``by_channel``:
    weights have a scale for each output. ``power_of_two``: all scales are."""

    everywhere: float = 1.0
    shared: float = 1.0
    activation: str = "Relu"
    float_head: bool = False
    kind: str = "int8"
    weights: str = "int8"
    by_channel: bool = True
    power_of_two: bool = False

    def __str__(self) -> str:
        placed = {0.0: "products only", 1.0: "everywhere"}.get(self.everywhere, f"{self.everywhere:g} at random")
        parts = [placed, "" if self.shared == 1 else "own pairs", self.activation]
        parts += ["float head" if self.float_head else "", self.kind, self.weights]
        parts += ["" if self.by_channel else "by tensor", "2**k" if self.power_of_two else ""]
        return " ".join(filter(None, parts))


def forms() -> list[Form]:
    """Those that are measured."""
    placed = itertools.product(ACTIVATIONS, ((1.0, 1.0), (0.0, 1.0), (0.0, 0.0)))
    found = [
        Form(everywhere, shared, activation, float_head=number % 2 == 1, kind=("int8", "uint8")[number // 2 % 2])
        for number, (activation, (everywhere, shared)) in enumerate(placed)
    ]
    for everywhere, weights, by_channel in itertools.product((1.0, 0.0), ("int8", "int4", "uint8"), (True, False)):
        if (weights, by_channel) != ("int8", True):
            found.append(Form(everywhere, weights=weights, by_channel=by_channel, float_head=everywhere == 0))
    found += [Form(everywhere, weights="int4 blocks", float_head=everywhere == 0) for everywhere in (1.0, 0.0)]
    found += [
        Form(everywhere, power_of_two=True, float_head=head) for everywhere in (1.0, 0.0) for head in (True, False)
    ]
    return found


def random_forms(seed: int) -> Iterator[Form]:
    """Forms in which every value is quantised or not, and every pair shared or not, at random."""
    random = np.random.default_rng(seed)
    while True:
        draw: Callable[..., Any] = random.choice
        yield Form(
            float(draw((0.2, 0.5, 0.8))), float(draw((0.0, 0.5, 1.0))), str(draw(list(ACTIVATIONS))),
            bool(draw(2)), str(draw(("int8", "uint8"))),
            str(draw(("int8", "int8", "int4", "int4 blocks", "uint8"))), bool(draw(2)), bool(draw(2)),
        )  # fmt: skip


_BLOCK = 4


class FormedGraph(QuantisedGraph):
    """A graph whose calls place quantisers as its form says."""

    def __init__(self, form: Form, seed: int) -> None:
        super().__init__(seed)
        self.form = form
        self.scale = 2.0**-4 if form.power_of_two else 0.05
        self.kinds: type = np.int8 if form.kind == "int8" else np.uint8
        self.zero = 0 if form.kind == "int8" else 128
        self.pairs: dict[str, str] = {}
        self.real: set[str] = set()

    def read(self, x: str) -> str:
        """What a product reads of ``x``."""
        if x in self.real:
            return x
        if x not in self.pairs or self.random.random() >= self.form.shared:
            self.pairs[x] = self.pair(x, self.scale, self.zero, self.kinds)
            self.real.add(self.pairs[x])
        return self.pairs[x]

    def made(self, x: str) -> str:
        """``x`` behind an operator that is no product."""
        return self.read(x) if self.random.random() < self.form.everywhere else x

    def drawn(self, *shape: int, axis: int = 0) -> str:
        form, size = self.form, float(np.prod(shape)) / shape[axis]
        count = shape[axis] if form.by_channel else 1
        low, high = (-7, 8) if form.weights.startswith("int4") else (-127, 128)
        values = self.random.integers(low, high, shape)
        step = 2 ** np.round(np.log2(1 / size**0.5 / high * 1.7)) if form.power_of_two else 1.7 / size**0.5 / high
        scales = step * np.ones(count) if form.power_of_two else step * self.random.uniform(0.7, 1.4, count)
        scales, zeros = scales.astype(np.float32), np.zeros(count, np.int64)
        if form.weights == "int4 blocks":
            return self._in_blocks(values, scales, axis)
        if not form.by_channel:
            scales, zeros = scales.reshape(()), zeros.reshape(())
        if form.weights == "int4":
            q, z = self.small(values, TensorProto.INT4), self.small(zeros, TensorProto.INT4)
        elif form.weights == "uint8":
            q, z = self.constant(values + 127, np.uint8), self.constant(zeros + 127, np.uint8)
        else:
            q, z = self.constant(values, np.int8), self.constant(zeros, np.int8)
        result: str = self.op("DequantizeLinear", q, self.constant(scales), z, axis=axis)
        return result

    def _in_blocks(self, values: Array, scales: Array, axis: int) -> str:
        """4-bit weights of which `_BLOCK` along the depth share a scale; ``scales``: about those of each output."""
        depth = 1 - axis
        blocks = [-(-size // _BLOCK) if place == depth else size for place, size in enumerate(values.shape)]
        aligned = scales.reshape([-1 if place == axis else 1 for place in range(values.ndim)])
        spread = (aligned * self.random.uniform(0.5, 1.3, blocks)).astype(np.float32)
        q, z = self.small(values, TensorProto.INT4), self.small(np.zeros(blocks, np.int64), TensorProto.INT4)
        result: str = self.op("DequantizeLinear", q, self.constant(spread), z, axis=depth, block_size=_BLOCK)
        return result

    def convolved(self, x: str, channels: int, filters: int, size: int = 3, group: int = 1, **attributes: Any) -> str:
        w = self.drawn(filters, channels // group, size, size)
        bias = self.constant(self.random.normal(0, 0.2, filters), np.float32)
        attributes.setdefault("pads", [size // 2] * 4)
        result: str = self.op("Conv", self.read(x), w, bias, group=group, **attributes)
        return result

    def multiplied(self, x: str, inputs: int, outputs: int) -> str:
        product = self.op("MatMul", self.read(x), self.drawn(inputs, outputs, axis=1))
        result: str = self.op("Add", product, self.constant(self.random.normal(0, 0.2, outputs), np.float32))
        return result

    def active(self, y: str) -> str:
        return self.made(ACTIVATIONS[self.form.activation](self, y))

    def added(self, a: str, b: str) -> str:
        return self.op("Add", self.made(a), self.made(b))  # type: ignore[no-any-return]

    def head(self, y: str) -> str:
        return y if self.form.float_head else self.read(y)


def _silu(g: FormedGraph, y: str) -> str:
    return g.op("Mul", y, g.op("Sigmoid", y))  # type: ignore[no-any-return]


def _gelu(g: FormedGraph, y: str) -> str:
    erf = g.op("Erf", g.op("Mul", y, g.constant(2**-0.5, np.float32)))
    shifted = g.op("Add", erf, g.constant(1, np.float32))
    return g.op("Mul", g.op("Mul", y, g.constant(0.5, np.float32)), shifted)  # type: ignore[no-any-return]


ACTIVATIONS: dict[str, Callable[[FormedGraph, str], str]] = {
    "Relu": lambda g, y: g.op("Relu", y),
    "Clip": lambda g, y: g.op("Clip", y, g.constant(0, np.float32), g.constant(6, np.float32)),
    "LeakyRelu": lambda g, y: g.op("LeakyRelu", y, alpha=0.1),
    "PRelu": lambda g, y: g.op("PRelu", y, g.constant(0.25, np.float32)),
    "SiLU": _silu,
    "GELU": _gelu,
    "HardSwish": lambda g, y: g.op("HardSwish", y),
    "Tanh": lambda g, y: g.op("Tanh", y),
    "Sigmoid": lambda g, y: g.op("Sigmoid", y),
}


def _plain(g: FormedGraph, x: str) -> list[str]:
    y = g.active(g.convolved(x, 8, 16))
    return [g.head(g.convolved(g.active(g.convolved(y, 16, 16, strides=[2, 2])), 16, 8, 1))]


def _residual(g: FormedGraph, x: str) -> list[str]:
    x = g.active(g.convolved(x, 8, 8))
    for _ in range(2):
        y = g.convolved(g.active(g.convolved(x, 8, 8)), 8, 8)
        x = g.active(g.added(y, x))
    return [g.head(x)]


def _bottleneck(g: FormedGraph, x: str) -> list[str]:
    y = g.active(g.convolved(x, 8, 4, 1))
    y = g.convolved(g.active(g.convolved(y, 4, 4)), 4, 16, 1)
    return [g.head(g.active(g.added(y, g.convolved(x, 8, 16, 1))))]


def _depthwise(g: FormedGraph, x: str) -> list[str]:
    y = g.active(g.convolved(x, 8, 16, 1))
    y = g.active(g.convolved(y, 16, 16, group=16))
    return [g.head(g.added(g.convolved(y, 16, 8, 1), x))]


def _grouped(g: FormedGraph, x: str) -> list[str]:
    return [g.head(g.active(g.convolved(g.active(g.convolved(x, 8, 8, group=2)), 8, 8, group=4)))]


def _squeezed(g: FormedGraph, x: str) -> list[str]:
    y = g.active(g.convolved(x, 8, 8))
    gate = g.made(g.op("GlobalAveragePool", g.made(y)))
    gate = g.active(g.convolved(gate, 8, 4, 1))
    gate = g.made(g.op("Sigmoid", g.convolved(gate, 4, 8, 1)))
    return [g.head(g.convolved(g.op("Mul", g.made(y), gate), 8, 8, 1))]


def _branches(g: FormedGraph, x: str) -> list[str]:
    parts = [g.active(g.convolved(x, 8, 8, size)) for size in (1, 3)]
    parts.append(g.made(g.op("MaxPool", g.made(x), kernel_shape=[3, 3], pads=[1] * 4)))
    return [g.head(g.convolved(g.op("Concat", *parts, axis=1), 24, 8, 1))]


def _upsampled(g: FormedGraph, x: str) -> list[str]:
    low = g.active(g.convolved(x, 8, 8, strides=[2, 2]))
    sizes = g.constant([1.0, 1.0, 2.0, 2.0], np.float32)
    up = g.op("Resize", g.made(low), "", sizes, mode="nearest")
    return [g.head(g.convolved(g.op("Concat", g.made(up), g.made(x), axis=1), 16, 8))]


def _two_heads(g: FormedGraph, x: str) -> list[str]:
    y = g.active(g.convolved(x, 8, 8))
    return [g.head(g.convolved(y, 8, 12, 1)), g.head(g.convolved(g.active(g.convolved(y, 8, 8)), 8, 4, 1))]


def _classifier(g: FormedGraph, x: str) -> list[str]:
    y = g.active(g.convolved(x, 8, 16, strides=[2, 2]))
    flat = g.op("Flatten", g.made(g.op("GlobalAveragePool", g.made(y))))
    return [g.head(g.multiplied(g.active(g.multiplied(flat, 16, 24)), 24, 10))]


def _tokens(g: FormedGraph, x: str) -> list[str]:
    rows = g.op("Reshape", x, g.constant([1, 8, 64], np.int64))
    rows = g.made(g.op("Transpose", rows, perm=[0, 2, 1]))
    y = g.multiplied(g.active(g.multiplied(rows, 8, 32)), 32, 8)
    return [g.head(g.added(y, rows))]


def _attention(g: FormedGraph, x: str) -> list[str]:
    rows = g.op("Transpose", g.op("Reshape", x, g.constant([1, 8, 64], np.int64)), perm=[0, 2, 1])
    q, k, v = (g.multiplied(rows, 8, 8) for _ in range(3))
    scores = g.op("MatMul", g.read(q), g.read(g.op("Transpose", g.made(k), perm=[0, 2, 1])))
    weights = g.op("Softmax", g.op("Mul", scores, g.constant(8**-0.5, np.float32)), axis=-1)
    mixed = g.op("MatMul", g.read(weights), g.read(v))
    return [g.head(g.multiplied(mixed, 8, 8))]


NETWORKS: dict[str, Callable[[FormedGraph, str], list[str]]] = {
    "plain": _plain, "residual": _residual, "bottleneck": _bottleneck, "depthwise": _depthwise, "grouped": _grouped,
    "squeezed": _squeezed, "branches": _branches, "upsampled": _upsampled, "two heads": _two_heads,
    "classifier": _classifier, "tokens": _tokens, "attention": _attention,
}  # fmt: skip
SHAPE = (1, 8, 8, 8)


def network(name: str, form: Form, seed: int = 0) -> onnx.ModelProto:
    """A network of `NETWORKS` in a form; its input is ``x``, of shape `SHAPE`."""
    g = FormedGraph(form, seed)
    return g.model(*NETWORKS[name](g, g.input("x", *SHAPE)))
