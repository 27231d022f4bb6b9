"""Functions of one number, the choice between two, and limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import tensor as te
from ..graph.chooser import Chooser
from ..graph.dtypes import FLOATS, INTEGERS, NUMBERS
from ..graph.dtypes import SIGNED as SIGNED_INTEGERS
from ..graph.ir import Array, Attrs, Call, Expr, TensorType
from ..graph.registry import Accuracy, call, register
from ..tensor import ir as tir
from ..tensor.view import Builder, NotLoweredError, View
from .elementwise_entry import FLOAT_ONLY, INTEGER_ONLY, SIGNED, Formula, elementwise, formula, function, zero
from .meanings import Meaning
from .reasons import INTEGER_HAS_NO_GRADIENT, NO_GRADIENT_YET, NOT_DIFFERENTIABLE
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


def _smooth(name: str, numpy: Meaning, doc: str, cost: int = 64, lower: Formula | None = None) -> None:
    """A function of floats that has a derivative."""
    rule = formula(lower or function(name), FLOAT_ONLY)
    register(elementwise(f"nn.{name}", "x", doc, types=broadcasting(FLOATS), numpy=numpy, lower=rule, cost=cost))


def _step(name: str, numpy: Meaning, doc: str) -> None:
    """A function of floats whose values are whole numbers."""
    register(elementwise(f"nn.{name}", "x", doc, types=broadcasting(FLOATS), numpy=numpy, accuracy=Accuracy.JUMPS,
                         lower=formula(function(name), FLOAT_ONLY)))  # fmt: skip


_smooth("exp", np.exp, "e to the power of x.", 16)
_smooth("log", np.log, "Natural logarithm; NaN below 0.")
_smooth("sqrt", np.sqrt, "Square root; NaN below 0.", 1)
_smooth("sin", np.sin, "Sine of x radians.")
_smooth("cos", np.cos, "Cosine of x radians.")
_smooth("tan", np.tan, "Tangent of x radians.")
_smooth("asin", np.arcsin, "Angle whose sine is x.")
_smooth("acos", np.arccos, "Angle whose cosine is x.")
_smooth("atan", np.arctan, "Angle whose tangent is x.")
_smooth("sinh", np.sinh, "Hyperbolic sine.", 16)
_smooth("cosh", np.cosh, "Hyperbolic cosine.", 16)
_smooth("tanh", np.tanh, "Hyperbolic tangent.", 16)
_smooth("asinh", np.arcsinh, "Inverse of sinh.")
_smooth("acosh", np.arccosh, "Inverse of cosh.")
_smooth("atanh", np.arctanh, "Inverse of tanh.")
_smooth("erf", lambda x: np.asarray(_erf(x), x.dtype),
        "The error function, 2/sqrt(pi) times the integral of exp(-t*t).")  # fmt: skip
_smooth("sigmoid", _sigmoid, "1 / (1 + exp(-x)).", 16, sigmoid)
_step("floor", np.floor, "The largest integer that is not above x.")
_step("ceil", np.ceil, "The smallest integer that is not below x.")
_step("round", np.rint, "The nearest integer, halves to even.")


def _unary(
    name: str, dtypes: tuple[str, ...], numpy: Meaning, of_elements: Formula, doc: str,
    lowered: tuple[tir.DType, ...] = (), result: str = "", **facts: Any,
) -> None:  # fmt: skip
    """An operator on one operand of a type of ``dtypes``, of which ``lowered`` become loops."""
    smooth = NO_GRADIENT_YET if "float32" in dtypes else INTEGER_HAS_NO_GRADIENT
    register(elementwise(
        f"nn.{name}", "x", doc, types=broadcasting(dtypes, result), numpy=numpy, lower=formula(of_elements, lowered),
        gradient=NOT_DIFFERENTIABLE if result else smooth, **facts,
    ))  # fmt: skip


_unary("abs", NUMBERS, np.abs, absolute, "Magnitude.", accuracy=Accuracy.EXACT)
_unary("negative", SIGNED_INTEGERS + FLOATS, np.negative, lambda x: -x, "-x.", SIGNED, accuracy=Accuracy.EXACT)
_unary("sign", NUMBERS, np.sign, sign, "-1, 0 or 1.", accuracy=Accuracy.JUMPS)
_unary("not", ("bool",), np.logical_not, _logical_not, "The other truth value.")
_unary("bitwise_not", INTEGERS, np.bitwise_not, bitwise_not, "Every bit inverted.", INTEGER_ONLY)
_unary("is_nan", FLOATS, np.isnan, lambda x: x.ne(x), "x is not a number.", FLOAT_ONLY, "bool",
       accuracy=Accuracy.JUMPS)  # fmt: skip
_unary("is_infinite", FLOATS, np.isinf, lambda x: absolute(x).eq(tir.Const(math.inf, x.dtype)), "x is inf or -inf.",
       FLOAT_ONLY, "bool", accuracy=Accuracy.JUMPS)  # fmt: skip

register(elementwise(
    "nn.clip", "x", "Limit to low..high; Relu is low = 0, high = inf.", types=broadcasting(FLOATS), numpy=_clip,
    lower=_lower_clip, defaults={"low": -math.inf, "high": math.inf}, accuracy=Accuracy.EXACT, draw=_draw_clip,
    sample=sample_of("nn.clip", (2, 3), low=-0.5, high=0.75),
))  # fmt: skip
register(elementwise(
    "nn.where", "condition x y", "x where the condition holds, y elsewhere.", types=_where_type,
    numpy=lambda condition, x, y: np.asarray(np.where(condition, x, y)), lower=formula(tir.select),
    accuracy=Accuracy.EXACT, sample=_sample_where, draw=_draw_where,
))  # fmt: skip
