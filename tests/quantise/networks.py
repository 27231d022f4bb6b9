"""Float networks that show one thing each, as modules of the graph IR."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from weft.compiler.graph import Array, Attrs, Constant, Expr, Function, Module, TensorType, Tuple, Var
from weft.compiler.operators import contract, nn

SIZE = 6


class Weights:
    """Seeded constants, each with a name."""

    def __init__(self, seed: int = 0) -> None:
        self.generator = np.random.default_rng(seed)
        self.count = 0

    def __call__(self, *shape: int, name: str = "") -> Constant:
        self.count += 1
        value = self.generator.normal(size=shape) / np.sqrt(max(1, np.prod(shape[1:])))
        return Constant(value.astype(np.float32), name or f"w{self.count}")


def image(channels: int = 3) -> Var:
    return Var("x", TensorType((1, channels, SIZE, SIZE), "float32"))


def module_of(*results: Expr, params: tuple[Var, ...]) -> Module:
    names = tuple(f"y{number}" for number in range(len(results)))
    body = results[0] if len(results) == 1 else Tuple(results)
    return Module(Function(params, body, Attrs({"name": "main", "outputs": names})))


def relu(x: Expr) -> Expr:
    return nn.clip(x, low=0.0, high=float("inf"))


def convolution(x: Expr, w: Weights, outputs: int, kernel: int = 3, groups: int = 1) -> Expr:
    pads = (kernel // 2,) * 4
    inputs = x.shape[1] // groups
    return nn.add(nn.conv2d(x, w(outputs, inputs, kernel, kernel), pads=pads, groups=groups), w(1, outputs, 1, 1))


def plain() -> Module:
    w, x = Weights(), image()
    y = relu(convolution(relu(convolution(x, w, 8)), w, 8))
    pooled = contract.reshape(nn.average_pool(y, kernel=(SIZE, SIZE)), shape=(1, 8))
    return module_of(nn.add(nn.dense(pooled, w(5, 8)), w(5)), params=(x,))


def residual() -> Module:
    w, x = Weights(1), image(4)
    y = relu(nn.add(convolution(relu(convolution(x, w, 4)), w, 4), x))
    return module_of(nn.max_pool(y, kernel=(2, 2), strides=(2, 2)), params=(x,))


def depthwise() -> Module:
    w, x = Weights(2), image(4)
    y = nn.clip(convolution(x, w, 8, 1), low=0.0, high=6.0)
    y = nn.clip(convolution(y, w, 8, 3, groups=8), low=0.0, high=6.0)
    return module_of(nn.add(convolution(y, w, 4, 1), x), params=(x,))


def squeeze_excite() -> Module:
    """With swish, which is one function of one value."""
    w, x = Weights(3), image(4)
    y = convolution(x, w, 8)
    y = nn.multiply(y, nn.sigmoid(y))
    pooled = nn.reduce_mean(y, axes=(2, 3), keepdims=True)
    gate = nn.sigmoid(convolution(relu(convolution(pooled, w, 2, 1)), w, 8, 1))
    return module_of(convolution(nn.multiply(y, gate), w, 4, 1), params=(x,))


def branches() -> Module:
    """Two branches of other ranges, one behind the other in the channels."""
    w, x = Weights(4), image(4)
    both = contract.concat(relu(convolution(x, w, 4)), nn.max_pool(x, kernel=(3, 3), pads=(1, 1, 1, 1)), axis=1)
    return module_of(relu(convolution(both, w, 4, 1)), params=(x,))


def attention() -> Module:
    """One head over 6 tokens of width 8, behind a layer normalisation and before another, with GELU; as ONNX files are
    read, products of stacks with weights are products of rows."""
    w, x = Weights(5), Var("x", TensorType((1, 6, 8), "float32"))

    def normalised(value: Expr) -> Expr:
        centred = nn.subtract(value, nn.reduce_mean(value, axes=(2,), keepdims=True))
        variance = nn.reduce_mean(nn.multiply(centred, centred), axes=(2,), keepdims=True)
        unit = nn.divide(centred, nn.sqrt(nn.add(variance, Constant(np.array(1e-5, np.float32)))))
        return nn.add(nn.multiply(unit, w(8)), w(8))

    def linear(value: Expr, outputs: int) -> Expr:
        rows = nn.dense(contract.reshape(value, shape=(6, value.shape[2])), w(outputs, value.shape[2]))
        return nn.add(contract.reshape(rows, shape=(1, 6, outputs)), w(outputs))

    y = normalised(x)
    query, key, value = (linear(y, 8) for _ in range(3))
    root = Constant(np.array(8**-0.5, np.float32))
    scores = nn.multiply(nn.matmul(query, contract.transpose(key, perm=(0, 2, 1))), root)
    y = nn.add(linear(nn.matmul(nn.softmax(scores, axis=2), value), 8), x)
    hidden = linear(normalised(y), 16)
    half, root = (Constant(np.array(number, np.float32)) for number in (0.5, 2**-0.5))
    one = Constant(np.array(1.0, np.float32))
    gelu = nn.multiply(nn.multiply(hidden, half), nn.add(nn.erf(nn.multiply(hidden, root)), one))
    return module_of(nn.add(linear(gelu, 8), y), params=(x,))


def two_outputs() -> Module:
    w, x = Weights(6), image(4)
    y = convolution(x, w, 4)
    return module_of(relu(y), nn.softmax(contract.reshape(y, shape=(1, 4 * SIZE * SIZE)), axis=1), params=(x,))


NETWORKS: dict[str, Callable[[], Module]] = {
    each.__name__: each
    for each in (plain, residual, depthwise, squeeze_excite, branches, attention, two_outputs)
}  # fmt: skip


def examples(module: Module, count: int = 8, seed: int = 0) -> list[dict[str, Array]]:
    generator = np.random.default_rng(seed)
    return [
        {param.name: generator.normal(size=param.type.shape).astype(np.float32) for param in module.main.params}
        for _ in range(count)
    ]


def random_network(seed: int) -> Module:
    """Layers of the kinds that convolutional networks are made of, in any order, with branches that join again."""
    w, x = Weights(seed), image(int(np.random.default_rng(seed).integers(1, 7)))
    generator = w.generator
    values: list[Expr] = [x]

    def like(value: Expr) -> list[Expr]:
        return [other for other in values if other.shape == value.shape]

    def drawn() -> Expr:
        value = values[int(generator.integers(max(0, len(values) - 3), len(values)))]
        channels = value.shape[1]
        match int(generator.integers(0, 13)):
            case 0 | 1 | 2:
                return convolution(value, w, int(generator.integers(1, 20)), int(generator.choice([1, 3, 5])))
            case 3:
                return convolution(value, w, channels, 3, groups=channels)
            case 4:
                return relu(value)
            case 5:
                return nn.clip(value, low=-1.0, high=1.5)
            case 6:
                return nn.multiply(value, nn.sigmoid(value))
            case 7:
                return nn.add(nn.multiply(value, w(1, channels, 1, 1)), w(1, channels, 1, 1))
            case 8:
                same = like(value)
                return nn.add(value, same[int(generator.integers(len(same)))])
            case 9:
                return contract.concat(value, like(value)[0], axis=1)
            case 10:
                return nn.max_pool(value, kernel=(3, 3), pads=(1, 1, 1, 1))
            case 11:
                pooled = nn.reduce_mean(value, axes=(2, 3), keepdims=True)
                return nn.multiply(value, nn.sigmoid(convolution(pooled, w, channels, 1)))
        return nn.subtract(nn.tanh(value), w(1))

    for _ in range(int(generator.integers(4, 10))):
        values.append(drawn())
    last = values[-1]
    features = contract.reshape(nn.average_pool(last, kernel=(SIZE, SIZE)), shape=(1, last.shape[1]))
    return module_of(nn.dense(features, w(4, last.shape[1])), relu(values[-2]), params=(x,))
