"""Functions of one number, the choice between two, and limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import tensor as te
from ..graph.chooser import Chooser
from ..graph.dtypes import FLOATS, INTEGERS, NUMBERS
from ..graph.dtypes import SIGNED as SIGNED_INTEGERS
from ..graph.ir import Array, Attrs, Call, Expr, TensorType
from ..graph.registry import Accuracy, Gradient, Role, Unsupported, call, register
from ..integers import arithmetic
from ..tensor import ir as tir
from ..tensor.view import Builder, NotLoweredError, View
from .build import nn
from .derivatives import like, of_operand, reciprocal, square, times, where
from .elementwise_entry import FLOAT_ONLY, INTEGER_ONLY, SIGNED, Formula, elementwise, formula, function, zero
from .meanings import Meaning
from .reasons import INTEGER_HAS_NO_GRADIENT, PIECEWISE_CONSTANT
from .samples import sample_of, variable
from .type_rules import broadcast_shape, broadcasting, require, require_dtype


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)), x.dtype)


def sigmoid(x: tir.Expr) -> tir.Expr:
    return 1.0 / (te.exp(-x) + 1.0)


def sign(x: tir.Expr) -> tir.Expr:
    if x.dtype not in SIGNED:
        return x.ne(zero(x)).astype(x.dtype)
    one, minus = tir.Const(1, x.dtype), tir.Const(-1, x.dtype)
    return tir.select(x > zero(x), one, tir.select(x < zero(x), minus, x))  # nan stays nan


def absolute(x: tir.Expr) -> tir.Expr:
    return x if x.dtype not in SIGNED else tir.select(x < zero(x), zero(x) - x, x + zero(x))


def bitwise_not(x: tir.Expr) -> tir.Expr:
    low, high = tir.INTEGER_RANGES[x.dtype]
    return tir.Const(-1 if low < 0 else high, x.dtype) - x


def _logical_not(x: tir.Expr) -> tir.Expr:
    return x.eq(tir.Const(False, "bool"))


_erf = np.frompyfunc(math.erf, 1, 1)


def _clip(x: Array, low: float, high: float) -> Array:
    return np.asarray(np.clip(x, x.dtype.type(low), x.dtype.type(high)))


def _lower_clip(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, low, high = operands[0], float(call.attr("low")), float(call.attr("high"))
    if x.dtype not in tir.FLOATS:
        raise NotLoweredError(f"{call.op} of {x.dtype}")

    def read(index: tuple[tir.Expr, ...]) -> tir.Expr:
        value = x[index]
        value = tir.maximum(value, low) if low > -math.inf else value
        return tir.minimum(value, high) if high < math.inf else value

    return View(call.shape, x.dtype, read)


def _draw_clip(choose: Chooser) -> Expr:
    low = float(choose.whole(-2, 1))
    return call("nn.clip", choose.operand(lambda node: True, FLOATS), low=low, high=low + choose.whole(0, 3))


def _where_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    condition, x, y = operands
    require_dtype(condition, "the condition", "bool")
    require(x.dtype == y.dtype, f"the choices differ in type: {x} and {y}")
    return TensorType(broadcast_shape(condition, x, y), x.dtype)


def _sample_where(dtype: str) -> Call:
    return call("nn.where", variable("bool", 2, 3, name="c"), variable(dtype, 2, 3), variable(dtype, 3, name="y"))


def _draw_where(choose: Chooser) -> Expr:
    condition, x = choose.operand(lambda node: True, ("bool",)), choose.operand(lambda node: True)
    return call("nn.where", condition, x, choose.like(x))


def _where_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    condition, zero = node.args[0], like(upstream, 0)
    return None, nn.where(condition, upstream, zero), nn.where(condition, zero, upstream)


def _clip_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    """1 inside of the limits; 0 outside, and at them."""
    x, low, high = node.args[0], node.attr("low"), node.attr("high")
    if low > -math.inf:
        upstream = where(nn.less(like(x, low), x), upstream)
    if high < math.inf:
        upstream = where(nn.less(x, like(x, high)), upstream)
    return (upstream,)


def _plus(x: Expr, number: float) -> Expr:
    return nn.add(x, like(x, number))


def _one_minus(x: Expr) -> Expr:
    return nn.subtract(like(x, 1), x)


def _smooth(
    name: str, numpy: Meaning, doc: str, derivative: Callable[[Expr, Expr], Expr], cost: int = 64,
    lower: Formula | None = None, role: Role | None = None,
) -> None:  # fmt: skip
    """A function of floats; ``derivative``: from its operand and its result."""
    rule = formula(lower or function(name), FLOAT_ONLY)
    register(elementwise(f"nn.{name}", "x", doc, types=broadcasting(FLOATS), numpy=numpy, lower=rule, cost=cost,
                         gradient=of_operand(derivative), role=role))  # fmt: skip


def _step(name: str, numpy: Meaning, doc: str) -> None:
    """A function of floats whose values are whole numbers."""
    register(elementwise(f"nn.{name}", "x", doc, types=broadcasting(FLOATS), numpy=numpy, accuracy=Accuracy.JUMPS,
                         lower=formula(function(name), FLOAT_ONLY), gradient=PIECEWISE_CONSTANT))  # fmt: skip


_smooth("exp", np.exp, "e to the power of x.", lambda x, y: y, 16)
_smooth("log", np.log, "Natural logarithm; NaN below 0.", lambda x, y: reciprocal(x))
_smooth("sqrt", np.sqrt, "Square root; NaN below 0.", lambda x, y: nn.divide(like(x, 0.5), y), 1,
        role=Role.ROOT)  # fmt: skip
_smooth("sin", np.sin, "Sine of x radians.", lambda x, y: nn.cos(x))
_smooth("cos", np.cos, "Cosine of x radians.", lambda x, y: nn.negative(nn.sin(x)))
_smooth("tan", np.tan, "Tangent of x radians.", lambda x, y: _plus(square(y), 1))
_smooth("asin", np.arcsin, "Angle whose sine is x.", lambda x, y: reciprocal(nn.sqrt(_one_minus(square(x)))))
_smooth("acos", np.arccos, "Angle whose cosine is x.",
        lambda x, y: nn.negative(reciprocal(nn.sqrt(_one_minus(square(x))))))  # fmt: skip
_smooth("atan", np.arctan, "Angle whose tangent is x.", lambda x, y: reciprocal(_plus(square(x), 1)))
_smooth("sinh", np.sinh, "Hyperbolic sine.", lambda x, y: nn.cosh(x), 16)
_smooth("cosh", np.cosh, "Hyperbolic cosine.", lambda x, y: nn.sinh(x), 16)
_smooth("tanh", np.tanh, "Hyperbolic tangent.", lambda x, y: _one_minus(square(y)), 16)
_smooth("asinh", np.arcsinh, "Inverse of sinh.", lambda x, y: reciprocal(nn.sqrt(_plus(square(x), 1))))
_smooth("acosh", np.arccosh, "Inverse of cosh.", lambda x, y: reciprocal(nn.sqrt(_plus(square(x), -1))))
_smooth("atanh", np.arctanh, "Inverse of tanh.", lambda x, y: reciprocal(_one_minus(square(x))))
_smooth("erf", lambda x: np.asarray(_erf(x), x.dtype),
        "The error function, 2/sqrt(pi) times the integral of exp(-t*t).",
        lambda x, y: times(nn.exp(nn.negative(square(x))), 2 / math.sqrt(math.pi)))  # fmt: skip
_smooth("sigmoid", _sigmoid, "1 / (1 + exp(-x)).", lambda x, y: nn.multiply(y, _one_minus(y)), 16, sigmoid)
_step("floor", np.floor, "The largest integer that is not above x.")
_step("ceil", np.ceil, "The smallest integer that is not below x.")
_step("round", np.rint, "The nearest integer, halves to even.")


def _unary(
    name: str, dtypes: tuple[str, ...], numpy: Meaning, of_elements: Formula, doc: str,
    lowered: tuple[tir.DType, ...] = (), result: str = "",
    gradient: Gradient | Unsupported = INTEGER_HAS_NO_GRADIENT, **facts: Any,
) -> None:  # fmt: skip
    """An operator on one operand of a type of ``dtypes``, of which ``lowered`` become loops."""
    register(elementwise(
        f"nn.{name}", "x", doc, types=broadcasting(dtypes, result), numpy=numpy, lower=formula(of_elements, lowered),
        gradient=gradient, **facts,
    ))  # fmt: skip


_unary("abs", NUMBERS, np.abs, absolute, "Magnitude.", accuracy=Accuracy.EXACT,
       gradient=of_operand(lambda x, y: nn.sign(x)))  # fmt: skip
_unary("negative", SIGNED_INTEGERS + FLOATS, np.negative, lambda x: -x, "-x.", SIGNED, accuracy=Accuracy.EXACT,
       gradient=lambda upstream, node: (nn.negative(upstream),), integer=arithmetic.opposite)  # fmt: skip
_unary("sign", NUMBERS, np.sign, sign, "-1, 0 or 1.", accuracy=Accuracy.JUMPS, gradient=PIECEWISE_CONSTANT)
_unary("not", ("bool",), np.logical_not, _logical_not, "The other truth value.")
_unary("bitwise_not", INTEGERS, np.bitwise_not, bitwise_not, "Every bit inverted.", INTEGER_ONLY)
_unary("is_nan", FLOATS, np.isnan, lambda x: x.ne(x), "x is not a number.", FLOAT_ONLY, "bool",
       accuracy=Accuracy.JUMPS, gradient=PIECEWISE_CONSTANT)  # fmt: skip
_unary("is_infinite", FLOATS, np.isinf, lambda x: absolute(x).eq(tir.Const(math.inf, x.dtype)), "x is inf or -inf.",
       FLOAT_ONLY, "bool", accuracy=Accuracy.JUMPS, gradient=PIECEWISE_CONSTANT)  # fmt: skip

register(elementwise(
    "nn.clip", "x", "Limit to low..high; Relu is low = 0, high = inf.", types=broadcasting(FLOATS), numpy=_clip,
    lower=_lower_clip, defaults={"low": -math.inf, "high": math.inf}, accuracy=Accuracy.EXACT, draw=_draw_clip,
    sample=sample_of("nn.clip", (2, 3), low=-0.5, high=0.75), gradient=_clip_gradient,
    role=Role.CLAMP, integer=arithmetic.clamped,
))  # fmt: skip
register(elementwise(
    "nn.where", "condition x y", "x where the condition holds, y elsewhere.", types=_where_type,
    numpy=lambda condition, x, y: np.asarray(np.where(condition, x, y)), lower=formula(tir.select),
    accuracy=Accuracy.EXACT, sample=_sample_where, draw=_draw_where, gradient=_where_gradient,
))  # fmt: skip
