"""What docs/integers.md promises of single layers: away from exact ties, their integers are those of the float operator
in exact fractions, followed by quantisation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from weft.compiler.graph import (
    Array,
    Attrs,
    Call,
    Constant,
    Expr,
    Function,
    Module,
    TensorType,
    Var,
    call,
    calls,
    evaluate,
)
from weft.compiler.passes import PassManager, integer_passes

Generator = np.random.Generator
NEAR, NEAREST = 2.0**-13, 2.0**-16
"""How near to a tie a result may be rounded the other way, in its last digit: biases have 2**-14, factors 24 bits."""


@dataclass(frozen=True)
class Real:
    """A value of the float graph: its expression, and its numbers as fractions."""

    expr: Expr
    exact: Array


class Layer:
    """A layer that grows by calls, in the graph and in fractions."""

    def __init__(self, seed: int, kind: str) -> None:
        self.generator = np.random.default_rng((seed, *kind.encode()))
        self.inputs: dict[str, Array] = {}
        self.params: list[Var] = []

    def scale(self, low: float = -5.0, high: float = -2.0) -> np.float32:
        return np.float32(np.exp(self.generator.uniform(low, high)))

    def integers(self, *shape: int) -> Array:
        return self.generator.integers(-128, 128, shape).astype(np.int8)

    def real(self, *shape: int, scale: np.float32 | None = None) -> Real:
        """An input of 8 bits."""
        name, scale = f"x{len(self.params)}", scale or self.scale()
        zero = int(self.generator.choice([0, self.generator.integers(-128, 128)]))
        self.inputs[name] = self.integers(*shape)
        self.params.append(Var(name, TensorType(shape, "int8")))
        expr = call("dequantise", self.params[-1], Constant(scale), Constant(np.int8(zero)))
        return Real(expr, fractions(self.inputs[name].astype(int) - zero) * Fraction(float(scale)))

    def weights(self, *shape: int) -> Real:
        """Constants of 8 bits, with a scale for each of the first axis."""
        values = np.clip(self.integers(*shape), -127, 127)
        scales = np.exp(self.generator.uniform(-6, -4, shape[0])).astype(np.float32)
        expr = call("dequantise", Constant(values), Constant(scales), Constant(np.zeros(shape[0], np.int8)), axis=0)
        return Real(expr, fractions(values) * fractions(scales).reshape(-1, *(1,) * (len(shape) - 1)))

    def numbers(self, *shape: int, size: float = 1.0) -> Real:
        """Constants that are not quantised."""
        values = (self.generator.normal(0, size, shape)).astype(np.float32)
        return Real(Constant(values), fractions(values))


def fractions(values: Array) -> Array:
    return np.vectorize(lambda value: Fraction(float(value)), otypes=[object])(values)


def dense(layer: Layer) -> Real:
    c, k = (int(each) for each in layer.generator.integers(1, 40, 2))
    x, w, b = layer.real(30, c), layer.weights(k, c), layer.numbers(k)
    return Real(call("nn.add", call("nn.dense", x.expr, w.expr), b.expr), x.exact @ w.exact.T + b.exact)


def bias_of_a_value(layer: Layer) -> Real:
    """A bias that is added to what is 8 bits already, as behind a product that the model quantises."""
    x, b = layer.real(2, 16, 5, 1), layer.numbers(16, 1, 1)
    return Real(call("nn.add", x.expr, b.expr), x.exact + b.exact)


def factors_and_offsets(layer: Layer) -> Real:
    """A batch normalisation as constants behind a convolution."""
    c, k = (int(each) for each in layer.generator.integers(1, 12, 2))
    x, w = layer.real(1, c, 12, 9), layer.weights(k, c, 1, 1)
    factor, offset = layer.numbers(k, 1, 1), layer.numbers(k, 1, 1)
    product = call("nn.conv2d", x.expr, w.expr)
    y = call("nn.add", call("nn.multiply", product, factor.expr), offset.expr)
    sums = np.tensordot(w.exact[:, :, 0, 0], x.exact[0], 1)[None]
    return Real(y, sums * factor.exact + offset.exact)


def scaled(layer: Layer) -> Real:
    x, factor, offset = layer.real(2, 9, 4, 2), layer.numbers(9, 1, 1), layer.numbers(9, 1, 1)
    y = call("nn.add", call("nn.multiply", x.expr, factor.expr), offset.expr)
    return Real(y, x.exact * factor.exact + offset.exact)


def product(layer: Layer) -> Real:
    a, b = layer.real(2, 7, 4, 4), layer.real(2, 7, 4, 4)
    return Real(call("nn.multiply", a.expr, b.expr), a.exact * b.exact)


def average(layer: Layer) -> Real:
    x = layer.real(2, 8, 6, 6)
    windows = np.stack([x.exact[:, :, i : i + 5 : 2, j : j + 5 : 2] for i in (0, 1) for j in (0, 1)])
    return Real(call("nn.average_pool", x.expr, kernel=(2, 2), strides=(2, 2)), windows.sum(0) / 4)


def sum_of_two(layer: Layer) -> Real:
    scale = layer.scale()
    a, b = (layer.real(2, 7, 4, 4, scale=np.float32(scale * each)) for each in (1, layer.generator.uniform(0.25, 2)))
    return Real(call("nn.add", a.expr, b.expr), a.exact + b.exact)


KINDS: dict[str, Callable[[Layer], Real]] = {
    kind.__name__: kind
    for kind in (dense, bias_of_a_value, factors_and_offsets, scaled, product, average, sum_of_two)
}  # fmt: skip


def found_and_exact(kind: str, seed: int, clip: bool) -> tuple[Array, Array]:
    """The integers of a random layer, and its exact digits (before they are rounded), within the clamp."""
    layer = Layer(seed, kind)
    y = KINDS[kind](layer)
    widest = float(np.max(np.abs(y.exact)))
    scale, zero = (
        np.float32(max(widest, 1e-3) / layer.generator.uniform(80, 160)),
        int(layer.generator.integers(-20, 20)),
    )
    expr = call("nn.clip", y.expr, low=0.0) if clip else y.expr
    result = call("quantise", expr, Constant(scale), Constant(np.int8(zero)))
    main = Function(tuple(layer.params), result, Attrs({"name": "main", "outputs": ("y",)}))
    module = PassManager(integer_passes()).run(Module(main))
    assert not any(function.host_reason for function in module.functions), "computed in floats"
    assert all(node.op not in ("quantise", "nn.add") for node in all_calls(module))
    (found,) = evaluate(module, layer.inputs).values()
    digits = y.exact / Fraction(float(scale))
    return found.astype(int), np.maximum(digits, 0) + zero if clip else digits + zero


def all_calls(module: Module) -> list[Call]:
    return [node for function in module.functions for node in calls(function.body)]


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_away_from_ties_a_layer_is_exact(kind: str, clip: bool) -> None:
    tie = NEAREST if kind in ("product", "average") else NEAR
    near = elements = 0
    for seed in range(12):
        found, exact = found_and_exact(kind, seed, clip)
        wanted = np.vectorize(lambda value: min(max(round(value), -128), 127), otypes=[object])(exact)
        to_tie = np.vectorize(lambda value: float(abs(value % 1 - Fraction(1, 2))), otypes=[float])(exact)
        wrong = (found != wanted) & (to_tie > tie)
        assert not wrong.any(), (seed, found[wrong], [float(each) for each in exact[wrong]])
        assert np.abs(found - wanted).max() <= 1
        near += int(np.count_nonzero((to_tie > tie) & (to_tie < 1 / 64)))
        elements += wanted.size
    assert near > elements / 200  # coarser roundings would be seen
