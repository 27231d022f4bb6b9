"""Steps of optimisers (ai.onnx.preview.training), tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable

from ...graph import Expr
from .node import CONVERTERS, Converted, Converter, Node

_DOMAIN = "ai.onnx.preview.training"
Update = Callable[["_Step", list[Expr]], list[Expr]]


class _Step:
    """Arithmetic of one step; numbers take the type of the tensor."""

    def __init__(self, node: Node, x: Expr) -> None:
        self.node, self.x = node, x
        self.rate, self.count = node.input(0), node.input(1)

    def __call__(self, op: str, *args: Expr | float) -> Expr:
        operands = [arg if isinstance(arg, Expr) else self.node.like(arg, self.x) for arg in args]
        return self.node.call(f"nn.{op}", *operands)

    def first(self) -> Expr:
        """Whether this is step 0."""
        return self.node.call("nn.equal", self.count, self.node.like(0, self.count))

    def with_decay(self, x: Expr, gradient: Expr, name: str = "norm_coefficient") -> Expr:
        """The gradient with that of the regularisation."""
        return self("add", self("multiply", x, self.node.number(name, 0.0)), gradient)


def _optimiser(states: int, update: Update) -> Converter:
    """Operands: rate, step, all tensors, all gradients, then each state of all tensors; results likewise."""

    def convert(node: Node) -> Converted:
        operands = [node.input(i) for i in range(2, len(node.inputs))]
        count = len(operands) // (2 + states)
        made = [update(_Step(node, operands[i]), operands[i::count]) for i in range(count)]
        return tuple(values[i] for i in range(1 + states) for values in made)

    return convert


def _adagrad(step: _Step, values: list[Expr]) -> list[Expr]:
    x, gradient, squares = values
    decay = step("multiply", step.node.cast(step.count, x.dtype), step.node.number("decay_factor", 0.0))
    rate = step("divide", step.rate, step("add", decay, 1))
    g = step.with_decay(x, gradient)
    squares = step("add", squares, step("multiply", g, g))
    adaptive = step("add", step("sqrt", squares), step.node.number("epsilon", 0.0))
    return [step("subtract", x, step("divide", step("multiply", rate, g), adaptive)), squares]


def _momentum(step: _Step, values: list[Expr]) -> list[Expr]:
    x, gradient, velocity = values
    node = step.node
    alpha = node.number("alpha", 0.0)
    g = step.with_decay(x, gradient)
    beta = step.node.call("nn.where", step.first(), node.like(1, x), node.like(node.number("beta", 0.0), x))
    velocity = step("add", step("multiply", velocity, alpha), step("multiply", g, beta))
    direction = velocity
    if node.string("mode", "standard") == "nesterov":
        direction = step("add", g, step("multiply", velocity, alpha))
    return [step("subtract", x, step("multiply", step.rate, direction)), velocity]


def _adam(step: _Step, values: list[Expr]) -> list[Expr]:
    x, gradient, mean, variance = values
    node = step.node
    alpha, beta = node.number("alpha", 0.9), node.number("beta", 0.999)
    g = step.with_decay(x, gradient)
    mean = step("add", step("multiply", mean, alpha), step("multiply", g, 1 - alpha))
    variance = step("add", step("multiply", variance, beta), step("multiply", step("multiply", g, g), 1 - beta))
    power = node.cast(step.count, x.dtype)

    def correction(factor: float) -> Expr:
        return step("subtract", 1, step("power", factor, power))

    corrected = step("divide", step("multiply", step.rate, step("sqrt", correction(beta))), correction(alpha))
    rate = node.call("nn.where", step.first(), step.rate, corrected)
    adaptive = step("add", step("sqrt", variance), node.number("epsilon", 0.0))
    result = step("subtract", x, step("divide", step("multiply", rate, mean), adaptive))
    return [step("multiply", result, 1 - node.number("norm_coefficient_post", 0.0)), mean, variance]


CONVERTERS[f"{_DOMAIN}.Adagrad"] = _optimiser(1, _adagrad)
CONVERTERS[f"{_DOMAIN}.Momentum"] = _optimiser(1, _momentum)
CONVERTERS[f"{_DOMAIN}.Adam"] = _optimiser(2, _adam)
