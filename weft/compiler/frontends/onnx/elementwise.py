"""Arithmetic, comparison, logic and casts."""

from __future__ import annotations

import functools
import math

import numpy as np

from ...graph import Call, Constant, Expr
from ...graph.dtypes import FLOATS
from .node import CONVERTERS, Converted, Converter, Node, converter
from .types import dtype_name


def old_broadcast(node: Node, a: Expr, b: Expr) -> Expr:
    """``b`` for opsets before 7, where broadcasting is asked for and may start at an axis."""
    if node.opset >= 7 or not node.integer("broadcast", 0) or "axis" not in node.attrs:
        return b
    axis = node.axis(len(a.shape), 0)
    return node.reshape(b, (*b.shape, *(1 for _ in range(len(a.shape) - axis - len(b.shape)))))


def _binary(op: str, *, swapped: bool = False, inverted: bool = False) -> Converter:
    def convert(node: Node) -> Converted:
        a = node.input(0)
        b = old_broadcast(node, a, node.input(1))
        result = node.call(op, b, a) if swapped else node.call(op, a, b)
        return node.call("nn.not", result) if inverted else result

    return convert


BINARY = {
    "Add": "nn.add", "Mul": "nn.multiply", "Sub": "nn.subtract", "Div": "nn.divide", "Pow": "nn.power",
    "Equal": "nn.equal", "Less": "nn.less", "LessOrEqual": "nn.less_equal", "And": "nn.and", "Or": "nn.or",
    "Xor": "nn.xor", "BitwiseAnd": "nn.bitwise_and", "BitwiseOr": "nn.bitwise_or", "BitwiseXor": "nn.bitwise_xor",
}  # fmt: skip
"""ONNX's operators of two operands, and ours."""

for _onnx, _ours in BINARY.items():
    CONVERTERS[_onnx] = _binary(_ours)
CONVERTERS["Greater"] = _binary("nn.less", swapped=True)
CONVERTERS["GreaterOrEqual"] = _binary("nn.less_equal", swapped=True)


def _unary(op: str) -> Converter:
    def convert(node: Node) -> Converted:
        return node.call(op, node.input(0))

    return convert


UNARY = {
    "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin",
    "Acos": "acos", "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh", "Tanh": "tanh", "Asinh": "asinh",
    "Acosh": "acosh", "Atanh": "atanh", "Erf": "erf", "Sigmoid": "sigmoid", "Floor": "floor", "Ceil": "ceil",
    "Round": "round", "Abs": "abs", "Neg": "negative", "Sign": "sign", "Not": "not", "BitwiseNot": "bitwise_not",
    "IsNaN": "is_nan",
}  # fmt: skip
"""ONNX's operators of one operand, and ours in ``nn``."""

for _onnx, _ours in UNARY.items():
    CONVERTERS[_onnx] = _unary(f"nn.{_ours}")


@converter("Reciprocal")
def _reciprocal(node: Node) -> Converted:
    return node.call("nn.divide", node.like(1, node.input(0)), node.input(0))


@converter("IsInf")
def _is_infinite(node: Node) -> Converted:
    x = node.input(0)
    infinite: Expr = node.call("nn.is_infinite", x)
    for name, op in (("detect_positive", "negative"), ("detect_negative", "positive")):
        if not node.integer(name, 1):
            pair = (x, node.like(0, x)) if op == "negative" else (node.like(0, x), x)
            infinite = node.call("nn.and", infinite, node.call("nn.less", *pair))
    return infinite


@converter("Mod")
def _modulo(node: Node) -> Converted:
    return node.call("nn.modulo", node.input(0), node.input(1), truncated=bool(node.integer("fmod", 0)))


@converter("BitShift")
def _bit_shift(node: Node) -> Converted:
    op = {"LEFT": "nn.shift_left", "RIGHT": "nn.shift_right"}.get(node.string("direction", ""))
    if op is None:
        raise node.error("attribute 'direction' must be LEFT or RIGHT")
    return node.call(op, node.input(0), node.input(1))


def _many(op: str) -> Converter:
    def convert(node: Node) -> Converted:
        return functools.reduce(lambda a, b: node.call(op, a, b), node.tensors)

    return convert


for _onnx, _ours in {"Sum": "nn.add", "Max": "nn.maximum", "Min": "nn.minimum"}.items():
    CONVERTERS[_onnx] = _many(_ours)


@converter("Mean")
def _mean(node: Node) -> Converted:
    total = functools.reduce(lambda a, b: node.call("nn.add", a, b), node.tensors)
    return node.call("nn.divide", total, node.like(len(node.inputs), total))


@converter("Where")
def _where(node: Node) -> Converted:
    return node.call("nn.where", *node.tensors)


@converter("Relu")
def _relu(node: Node) -> Converted:
    x = node.input(0)
    return node.call("nn.clip", x, low=0.0) if x.dtype in FLOATS else node.call("nn.maximum", x, node.like(0, x))


@converter("Clip")
def _clip(node: Node) -> Converted:
    x = node.input(0)
    bounds = [_bound(node, name, index) for index, name in ((1, "min"), (2, "max"))]
    if x.dtype in FLOATS and not any(isinstance(bound, Expr) for bound in bounds):
        low, high = bounds
        return node.call("nn.clip", x, low=-math.inf if low is None else low, high=math.inf if high is None else high)
    result: Expr = x
    for op, bound in zip(("nn.maximum", "nn.minimum"), bounds, strict=True):
        if bound is not None:
            result = node.call(op, result, bound if isinstance(bound, Expr) else node.like(bound, x))
    return result


def _bound(node: Node, name: str, index: int) -> float | Expr | None:
    """A limit of Clip: a number where it is known, an expression where it is computed, ``None`` where there is none."""
    if not node.has(index):
        return node.number(name, 0.0) if name in node.attrs else None
    known = real_constant(node, index)
    if known is None:
        return node.reshape(node.input(index), ())
    if node.input(0).dtype not in FLOATS:
        return Constant(known.reshape(()))
    return float(known.reshape(-1)[0])


def real_constant(node: Node, index: int) -> np.ndarray | None:
    """A scalar operand that may be quantised itself; ``None`` when it is not known."""
    match node.input(index):
        case Call(op="dequantise", args=(Constant() as q, Constant() as scale, Constant() as zero)):
            return (q.value.astype(np.int64) - zero.value) * scale.value
    return node.scope.static_value(node.input(index))


@converter("Cast")
def _cast(node: Node) -> Converted:
    x, to = node.input(0), dtype_name(node.integer("to", 0))
    return cast(node, x, to)


def cast(node: Node, x: Expr, to: str) -> Expr:
    """``x`` in another type, with the attributes of a Cast."""
    if x in node.scope.reading.whole and to == "float32":
        return node.scope.reading.whole[x]
    if x.dtype == to:
        return x
    saturate = bool(node.integer("saturate", 1))
    return node.call("nn.cast", x, to=to, saturate=saturate, rounding=node.string("round_mode", "up"))


@converter("CastLike")
def _cast_like(node: Node) -> Converted:
    return cast(node, node.input(0), node.input(1).dtype)


@converter("BitCast")
def _bit_cast(node: Node) -> Converted:
    x, to = node.input(0), dtype_name(node.integer("to", 0))
    return x if x.dtype == to else node.call("nn.bitcast", x, to=to)


@converter("ai.onnx.ml.Binarizer")
def _binarizer(node: Node) -> Converted:
    x = node.input(0)
    return node.cast(node.call("nn.less", node.like(node.number("threshold", 0.0), x), x), x.dtype)


@converter("Identity")
def _identity(node: Node) -> Converted:
    return node.value(0)
