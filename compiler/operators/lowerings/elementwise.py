"""Operators that compute each element from elements at the same index."""

from __future__ import annotations

import math
from collections.abc import Callable

from ... import tensor as te
from ...graph.ir import Call
from ...tensor import ir as tir
from .view import Builder, NotLoweredError, Rule, View, broadcast, element_type, register_rules

Formula = Callable[..., tir.Expr]
FLOAT_ONLY = tir.FLOATS
INTEGER_ONLY = tuple(dtype for dtype in tir.INTEGER_RANGES if dtype != "bool")
SIGNED = (*tir.FLOATS, *(dtype for dtype in INTEGER_ONLY if tir.INTEGER_RANGES[dtype][0] < 0))


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
    if x.dtype not in SIGNED:
        return x.ne(zero(x)).astype(x.dtype)
    one, minus = tir.Const(1, x.dtype), tir.Const(-1, x.dtype)
    return tir.select(x > zero(x), one, tir.select(x < zero(x), minus, x))  # nan stays nan


def absolute(x: tir.Expr) -> tir.Expr:
    return x if x.dtype not in SIGNED else tir.select(x < zero(x), zero(x) - x, x + zero(x))


def _clip(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, low, high = operands[0], float(call.attr("low")), float(call.attr("high"))
    if x.dtype not in tir.FLOATS:
        raise NotLoweredError(f"{call.op} of {x.dtype}")

    def read(index: tuple[tir.Expr, ...]) -> tir.Expr:
        value = x[index]
        value = tir.maximum(value, low) if low > -math.inf else value
        return tir.minimum(value, high) if high < math.inf else value

    return View(call.shape, x.dtype, read)


def _cast(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, target = operands[0], element_type(call.dtype)
    return View(call.shape, target, lambda index: x[index].astype(target))


def _batch_norm(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    """In double precision, as the operator means it: with computed parameters it is rare."""
    x, *parameters = operands

    def read(index: tuple[tir.Expr, ...]) -> tir.Expr:
        gamma, beta, mean, variance = (each[(index[1],)].astype("float64") for each in parameters)
        factor = gamma / te.sqrt(variance + call.attr("epsilon"))
        return ((x[index].astype("float64") - mean) * factor + beta).astype(x.dtype)

    return View(call.shape, x.dtype, read)


def divide(a: tir.Expr, b: tir.Expr) -> tir.Expr:
    """Integers are divided towards zero; by zero gives 0."""
    if a.dtype in tir.FLOATS:
        return a / b
    divisor = tir.select(b.eq(zero(b)), tir.Const(1, b.dtype), b)
    quotient = a // divisor
    if a.dtype in SIGNED:
        up = (a % divisor).ne(zero(a)) & (a < zero(a)).ne(b < zero(b))
        quotient = quotient + up.astype(a.dtype)
    return tir.select(b.eq(zero(b)), zero(a), quotient)


def modulo(a: tir.Expr, b: tir.Expr) -> tir.Expr:
    """The remainder has the sign of the divisor; by zero gives 0."""
    return tir.select(b.eq(zero(b)), zero(a), a % tir.select(b.eq(zero(b)), tir.Const(1, b.dtype), b))


def _modulo(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    if call.attr("truncated"):
        raise NotLoweredError("a remainder of the sign of the dividend")
    return elementwise(modulo, INTEGER_ONLY)(builder, call, operands)


def _inside(a: tir.Expr, b: tir.Expr) -> tir.Expr:
    """Whether ``a`` can be shifted by ``b``."""
    low, high = tir.INTEGER_RANGES[a.dtype]
    return (b < tir.Const((high - low).bit_length(), b.dtype)) & (zero(b) <= b)


def shift_left(a: tir.Expr, b: tir.Expr) -> tir.Expr:
    inside = _inside(a, b)
    return tir.select(inside, a << tir.select(inside, b, zero(b)), zero(a))


def shift_right(a: tir.Expr, b: tir.Expr) -> tir.Expr:
    inside = _inside(a, b)
    beyond = tir.select(a < zero(a), bitwise_not(zero(a)), zero(a))
    return tir.select(inside, a >> tir.select(inside, b, zero(b)), beyond)


def bitwise_not(x: tir.Expr) -> tir.Expr:
    low, high = tir.INTEGER_RANGES[x.dtype]
    return tir.Const(-1 if low < 0 else high, x.dtype) - x


def function(name: str) -> Formula:
    return lambda *operands: tir.Call(name, operands)


def _logical_not(x: tir.Expr) -> tir.Expr:
    return x.eq(tir.Const(False, "bool"))


RULES: dict[str, Rule] = {
    "nn.add": elementwise(lambda a, b: a + b),
    "nn.subtract": elementwise(lambda a, b: a - b),
    "nn.multiply": elementwise(lambda a, b: a * b),
    "nn.divide": elementwise(divide),
    "nn.modulo": _modulo,
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
    "nn.bitwise_xor": elementwise(lambda a, b: (a | b) - (a & b), INTEGER_ONLY),
    "nn.bitwise_not": elementwise(bitwise_not, INTEGER_ONLY),
    "nn.shift_left": elementwise(shift_left, INTEGER_ONLY),
    "nn.shift_right": elementwise(shift_right, INTEGER_ONLY),
    "nn.where": elementwise(tir.select),
    "nn.clip": _clip,
    "nn.cast": _cast,
    "nn.batch_norm": _batch_norm,
    "nn.abs": elementwise(absolute),
    "nn.negative": elementwise(lambda x: -x, SIGNED),
    "nn.sign": elementwise(sign),
    "nn.sigmoid": elementwise(sigmoid, FLOAT_ONLY),
    "nn.is_nan": elementwise(lambda x: x.ne(x), FLOAT_ONLY),
    "nn.is_infinite": elementwise(lambda x: absolute(x).eq(tir.Const(math.inf, x.dtype)), FLOAT_ONLY),
    "nn.power": elementwise(function("pow"), FLOAT_ONLY),
    **{f"nn.{name}": elementwise(function(name), FLOAT_ONLY) for name in tir.FUNCTIONS if name != "pow"},
}

register_rules(RULES)
