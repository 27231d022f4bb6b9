"""Operators that compute each element from elements at the same index."""

from __future__ import annotations

import math
from collections.abc import Callable

from ... import tensor as te
from ...graph.ir import Call
from ...tensor import ir as tir
from .view import Builder, NotLoweredError, Rule, View, broadcast, element_type, register_rules

Formula = Callable[..., tir.Expr]
FLOAT_ONLY: tuple[tir.DType, ...] = ("float32",)
SIGNED: tuple[tir.DType, ...] = ("float32", "int8", "int32", "int64")
INTEGER_ONLY: tuple[tir.DType, ...] = ("int8", "uint8", "int32", "int64")


def elementwise(formula: Formula, dtypes: tuple[tir.DType, ...] = ()) -> Rule:
    """A rule that applies ``formula`` to the operands' elements; ``dtypes`` limits their types."""

    def rule(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
        for operand in operands:
            if dtypes and operand.dtype not in dtypes:
                raise NotLoweredError(f"{call.op} of {operand.dtype}")
        parts = [broadcast(operand, call.shape) for operand in operands]
        return View(call.shape, element_type(call.dtype), lambda index: formula(*(part[index] for part in parts)))

    return rule


def sigmoid(x: tir.Expr) -> tir.Expr:
    return 1.0 / (te.exp(-x) + 1.0)


def zero(x: tir.Expr) -> tir.Const:
    return tir.Const(0, x.dtype)


def sign(x: tir.Expr) -> tir.Expr:
    one, minus = tir.Const(1, x.dtype), tir.Const(-1, x.dtype)
    return tir.select(x > zero(x), one, tir.select(x < zero(x), minus, x))  # nan stays nan


def absolute(x: tir.Expr) -> tir.Expr:
    return x if x.dtype == "uint8" else tir.select(x < zero(x), zero(x) - x, x + zero(x))


def _clip(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, low, high = operands[0], float(call.attr("low")), float(call.attr("high"))
    if x.dtype != "float32":
        raise NotLoweredError(f"{call.op} of {x.dtype}")

    def read(index: tuple[tir.Expr, ...]) -> tir.Expr:
        value = x[index]
        value = tir.maximum(value, low) if low > -math.inf else value
        return tir.minimum(value, high) if high < math.inf else value

    return View(call.shape, x.dtype, read)


def _cast(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, target = operands[0], element_type(call.dtype)
    if x.dtype == "float32" and target not in ("float32", "bool"):
        raise NotLoweredError("NumPy leaves open what a float becomes that no integer can hold")
    return View(call.shape, target, lambda index: x[index].astype(target))


def _divide(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    if operands[0].dtype != "float32":
        raise NotLoweredError("a division by zero of integers stops the processor")
    return elementwise(lambda a, b: a / b)(builder, call, operands)


def _logical_not(x: tir.Expr) -> tir.Expr:
    return x.eq(tir.Const(False, "bool"))


RULES: dict[str, Rule] = {
    "nn.add": elementwise(lambda a, b: a + b),
    "nn.subtract": elementwise(lambda a, b: a - b),
    "nn.multiply": elementwise(lambda a, b: a * b),
    "nn.divide": _divide,
    "nn.minimum": elementwise(tir.minimum),
    "nn.maximum": elementwise(tir.maximum),
    "nn.equal": elementwise(lambda a, b: a.eq(b)),
    "nn.less": elementwise(lambda a, b: a < b),
    "nn.less_equal": elementwise(lambda a, b: a <= b),
    "nn.and": elementwise(lambda a, b: a & b),
    "nn.or": elementwise(lambda a, b: a | b),
    "nn.xor": elementwise(lambda a, b: a.ne(b)),
    "nn.not": elementwise(_logical_not),
    "nn.bitwise_and": elementwise(lambda a, b: a & b, INTEGER_ONLY),
    "nn.bitwise_or": elementwise(lambda a, b: a | b, INTEGER_ONLY),
    "nn.where": elementwise(tir.select),
    "nn.clip": _clip,
    "nn.cast": _cast,
    "nn.abs": elementwise(absolute),
    "nn.negative": elementwise(lambda x: -x, SIGNED),
    "nn.sign": elementwise(sign, SIGNED),
    "nn.sigmoid": elementwise(sigmoid, FLOAT_ONLY),
    "nn.is_nan": elementwise(lambda x: x.ne(x), FLOAT_ONLY),
    "nn.is_infinite": elementwise(lambda x: absolute(x).eq(tir.Const(math.inf, "float32")), FLOAT_ONLY),
    **{
        f"nn.{function.__name__}": elementwise(function, FLOAT_ONLY)
        for function in (te.exp, te.log, te.sqrt, te.tanh, te.erf, te.sin, te.cos, te.floor, te.ceil, te.round)
    },
    "nn.tan": elementwise(lambda x: te.sin(x) / te.cos(x), FLOAT_ONLY),
    "nn.power": elementwise(te.pow, FLOAT_ONLY),
}

register_rules(RULES)
