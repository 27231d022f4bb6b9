"""Activation functions, written in elementwise operators. Those that are not here are read through the functions by
which ONNX defines them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ...graph import Expr
from .node import CONVERTERS, Converted, Converter, Node, converter
from .quantised import dequantised, qlinear_unary, quantised


class Formula:
    """Operators on values of one type, with numbers for constants."""

    def __init__(self, node: Node, x: Expr) -> None:
        self.node, self.x = node, x

    def __call__(self, op: str, *args: Expr | float) -> Expr:
        operands = [arg if isinstance(arg, Expr) else self.node.like(arg, self.x) for arg in args]
        return self.node.call(f"nn.{op}", *operands)

    def where(self, condition: Expr, x: Expr | float, y: Expr | float) -> Expr:
        operands = [arg if isinstance(arg, Expr) else self.node.like(arg, self.x) for arg in (x, y)]
        return self.node.call("nn.where", condition, *operands)


def leaky_relu(f: Formula, x: Expr, alpha: float) -> Expr:
    return f.where(f("less", x, 0), f("multiply", x, alpha), x)


def elu(f: Formula, x: Expr, alpha: float) -> Expr:
    return f.where(f("less", x, 0), f("multiply", f("subtract", f("exp", f("minimum", x, 0)), 1), alpha), x)


def _celu(f: Formula, x: Expr, alpha: float) -> Expr:
    inner = f("subtract", f("exp", f("divide", f("minimum", x, 0), alpha)), 1)
    return f("add", f("maximum", x, 0), f("multiply", inner, alpha))


def _selu(f: Formula, x: Expr, alpha: float, gamma: float) -> Expr:
    return f("multiply", elu(f, x, alpha), gamma)


def softplus(f: Formula, x: Expr) -> Expr:
    """log(1 + exp(x)), without overflow."""
    small = f("exp", f("negative", f("abs", x)))
    return f("add", f("maximum", x, 0), f("log", f("add", small, 1)))


def hard_sigmoid(f: Formula, x: Expr, alpha: float, beta: float) -> Expr:
    return f("minimum", f("maximum", f("add", f("multiply", x, alpha), beta), 0), 1)


def _gelu(f: Formula, x: Expr, approximate: bool) -> Expr:
    if approximate:
        cubed = f("multiply", f("multiply", f("multiply", x, x), x), 0.044715)
        inner = f("tanh", f("multiply", f("add", x, cubed), math.sqrt(2 / math.pi)))
    else:
        inner = f("erf", f("multiply", x, math.sqrt(0.5)))
    return f("multiply", f("multiply", x, 0.5), f("add", inner, 1))


def gelu(node: Node, x: Expr, *, approximate: bool) -> Expr:
    """x times the share of a normal distribution below it, exact or by a hyperbolic tangent."""
    return node.in_float32(x, lambda wide: _gelu(Formula(node, wide), wide, approximate))


def swish(node: Node, x: Expr, alpha: float = 1.0) -> Expr:
    """x * sigmoid(alpha * x)"""
    scaled = x if alpha == 1 else node.call("nn.multiply", x, node.like(alpha, x))
    return node.call("nn.multiply", x, node.call("nn.sigmoid", scaled))


def _shrink(f: Formula, x: Expr, limit: float, bias: float) -> Expr:
    above = f.where(f("less", limit, x), f("subtract", x, bias), 0)
    return f.where(f("less", x, -limit), f("add", x, bias), above)


_FORMULAS: dict[str, Callable[[Node, Formula, Expr], Expr]] = {
    "LeakyRelu": lambda n, f, x: leaky_relu(f, x, n.number("alpha", 0.01)),
    "Elu": lambda n, f, x: elu(f, x, n.number("alpha", 1.0)),
    "Celu": lambda n, f, x: _celu(f, x, n.number("alpha", 1.0)),
    "Selu": lambda n, f, x: _selu(
        f, x, n.number("alpha", 1.67326319217681884765625), n.number("gamma", 1.05070102214813232421875)
    ),
    "Softplus": lambda n, f, x: softplus(f, x),
    "Softsign": lambda n, f, x: f("divide", x, f("add", f("abs", x), 1)),
    "HardSigmoid": lambda n, f, x: hard_sigmoid(f, x, n.number("alpha", 0.2), n.number("beta", 0.5)),
    "HardSwish": lambda n, f, x: f("multiply", x, hard_sigmoid(f, x, 1 / 6, 0.5)),
    "Mish": lambda n, f, x: f("multiply", x, f("tanh", softplus(f, x))),
    "Swish": lambda n, f, x: swish(n, x, n.number("alpha", 1.0)),
    "ThresholdedRelu": lambda n, f, x: f.where(f("less", n.number("alpha", 1.0), x), x, 0),
    "Shrink": lambda n, f, x: _shrink(f, x, n.number("lambd", 0.5), n.number("bias", 0.0)),
    "Gelu": lambda n, f, x: _gelu(f, x, n.string("approximate", "none") == "tanh"),
}


def _activation(formula: Callable[[Node, Formula, Expr], Expr]) -> Converter:
    def convert(node: Node) -> Converted:
        return node.in_float32(node.input(0), lambda x: formula(node, Formula(node, x), x))

    return convert


for _name, _formula in _FORMULAS.items():
    CONVERTERS[_name] = _activation(_formula)


def fused_activation(node: Node, x: Expr, params: Sequence[float]) -> Expr:
    """The function that attribute ``activation`` of a product names, with its parameters; ``x`` where there is none."""
    name = node.string("activation", "")
    wanted = {"": 0, "Relu": 0, "Sigmoid": 0, "Tanh": 0, "LeakyRelu": 1, "Clip": 2, "HardSigmoid": 2}.get(name)
    if wanted is None:
        raise node.error(f"activation {name!r} is not known")
    if len(params) < wanted:
        raise node.error(f"activation {name} has {len(params)} parameters, but needs {wanted}")
    f = Formula(node, x)
    if name == "LeakyRelu":
        return leaky_relu(f, x, params[0])
    if name == "HardSigmoid":
        return hard_sigmoid(f, x, params[0], params[1])
    if name == "Clip":
        return node.call("nn.clip", x, low=params[0], high=params[1])
    if name == "Relu":
        return node.call("nn.clip", x, low=0.0)
    return f(name.lower(), x) if name else x


CONVERTERS["QLinearLeakyRelu"] = qlinear_unary(
    lambda node, x: leaky_relu(Formula(node, x), x, node.number("alpha", 0.01))
)


@converter("PRelu")
def _prelu(node: Node) -> Converted:
    x, slope = node.input(0), node.input(1)
    if node.opset < 7 and len(slope.shape) == 1 and len(x.shape) > 1:  # one slope a channel
        slope = node.reshape(slope, (*slope.shape, *(1 for _ in x.shape[2:])))
    return node.call("nn.where", node.call("nn.less", x, node.like(0, x)), node.call("nn.multiply", x, slope), x)


def _over_axes(node: Node, x: Expr, default: int, apply: Callable[[Expr, int], Expr]) -> Expr:
    """``apply(x, axis)``; before opset 13 over all axes from ``axis`` on."""
    opset = node.integer("opset", 13) if node.op.startswith("QLinear") else node.opset
    rank = len(x.shape)
    if rank == 0:
        return node.reshape(apply(node.reshape(x, (1,)), 0), ())
    axis = node.axis(rank, 1 if opset < 13 else default)
    if opset >= 13 or axis == rank - 1:
        return apply(x, axis)
    flat = node.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
    return node.reshape(apply(flat, 1), x.shape)


def softmax(node: Node, x: Expr, axis: int) -> Expr:
    return node.call("nn.softmax", x, axis=axis)


def log_softmax(node: Node, x: Expr, axis: int) -> Expr:
    """x - max - log(sum(exp(x - max)))"""
    centred = node.call("nn.subtract", x, node.call("nn.reduce_max", x, axes=(axis,), keepdims=True))
    total = node.call("nn.reduce_sum", node.call("nn.exp", centred), axes=(axis,), keepdims=True)
    return node.call("nn.subtract", centred, node.call("nn.log", total))


def hardmax(node: Node, x: Expr, axis: int) -> Expr:
    """1 at the first largest element along the axis, 0 elsewhere."""
    best = node.call("nn.arg_max", x, axis=axis, keepdims=True)
    places = np.arange(x.shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(x.shape))])
    return node.cast(node.call("nn.equal", node.like(places, "int64"), best), x.dtype)


@converter("Softmax")
def _softmax(node: Node) -> Converted:
    return _over_axes(node, node.input(0), -1, lambda x, axis: softmax(node, x, axis))


@converter("LogSoftmax")
def _log_softmax(node: Node) -> Converted:
    return _over_axes(
        node, node.input(0), -1, lambda x, axis: node.in_float32(x, lambda wide: log_softmax(node, wide, axis))
    )


@converter("Hardmax")
def _hardmax(node: Node) -> Converted:
    return _over_axes(node, node.input(0), -1, lambda x, axis: hardmax(node, x, axis))


@converter("QLinearSoftmax")
def _qlinear_softmax(node: Node) -> Converted:
    x = dequantised(node, 0, 1, 2)
    return quantised(node, _over_axes(node, x, -1, lambda value, axis: softmax(node, value, axis)), 3, 4)
