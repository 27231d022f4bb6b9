"""Constant evaluation: what each operator and function gives on Python numbers, as its type holds it.

This is the meaning of the operators. The interpreter does the same on arrays, with the same functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from .errors import IRError
from .ir import DTYPES, FLOATS, INTEGER_RANGES, BinOp, Bits, Call, Cast, Const, DType, Expr, Number, Select, Var

NUMPY_TYPES: dict[DType, type[Any]] = {
    **{name: getattr(np, name) for name in DTYPES if name not in ("bool", "bfloat16")},
    "bool": np.bool_,
    "bfloat16": ml_dtypes.bfloat16,
}

ITEM_BYTES: dict[DType, int] = {dtype: np.dtype(kind).itemsize for dtype, kind in NUMPY_TYPES.items()}
"""Bytes of an element in memory."""

FUNCTION_VALUES: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "pow": np.power,
}
"""Each function in double precision, on numbers or arrays; its result is then rounded once."""


def wrap(value: Number, dtype: DType) -> Number:
    """``value`` as it is held by ``dtype``: integers modulo the width, floats rounded."""
    if dtype in FLOATS:
        with np.errstate(over="ignore"):
            return float(NUMPY_TYPES[dtype](value))
    if dtype == "bool":
        return bool(value)
    low, high = INTEGER_RANGES[dtype]
    return (int(value) - low) % (high - low + 1) + low


def convert(value: Number, source: DType, target: DType) -> Number:
    """``value`` of type ``source`` as ``Cast`` makes it a ``target``."""
    if source not in FLOATS or target in FLOATS or target == "bool":
        return wrap(value, target)
    low, high = INTEGER_RANGES[target]
    if math.isnan(value):
        return 0
    return low if value <= low else high if value >= high else int(value)


def _shift_left(a: Number, b: Number) -> Number:
    return int(a) << _shift_amount(b)


def _shift_right(a: Number, b: Number) -> Number:
    return int(a) >> _shift_amount(b)


def _shift_amount(b: Number) -> int:
    if not 0 <= b < 64:
        raise IRError(f"shift by {b}: the amount must be in 0..63")
    return int(b)


def _divisor(b: Number) -> int:
    if b == 0:
        raise IRError("division by zero")
    return int(b)


def _divide(a: Number, b: Number) -> Number:
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.float64(a) / np.float64(b))


def _smaller(a: Number, b: Number) -> Number:
    return a if a != a else b if b != b else min(a, b)


def _larger(a: Number, b: Number) -> Number:
    return a if a != a else b if b != b else max(a, b)


OPERATOR_VALUES: dict[str, Callable[[Number, Number], Number]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": _divide,
    "floordiv": lambda a, b: int(a) // _divisor(b),
    "mod": lambda a, b: int(a) % _divisor(b),
    "min": _smaller,
    "max": _larger,
    "shl": _shift_left,
    "shr": _shift_right,
    "and": lambda a, b: int(a) & int(b),
    "or": lambda a, b: int(a) | int(b),
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}


ARRAY_VALUES: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
"""The same on arrays, for the operators that NumPy has."""


def call_function(function: str, args: tuple[Number, ...], dtype: DType) -> Number:
    """Value of a function of ``FUNCTIONS`` as ``dtype`` holds it."""
    with np.errstate(all="ignore"):
        return wrap(float(FUNCTION_VALUES[function](*map(np.float64, args))), dtype)


def evaluate(expr: Expr, values: Mapping[Var, int]) -> Number:
    """Value of an expression without loads; ``values`` gives every variable in it. IRError otherwise."""
    match expr:
        case Const(value, dtype):
            return wrap(value, dtype) if dtype in FLOATS else value
        case Var(name):
            if expr not in values:
                raise IRError(f"variable {name!r} has no value")
            return values[expr]
        case BinOp(op, a, b):
            return wrap(OPERATOR_VALUES[op](evaluate(a, values), evaluate(b, values)), expr.dtype)
        case Select(cond, a, b):
            return evaluate(a if evaluate(cond, values) else b, values)
        case Cast(dtype, x):
            return convert(evaluate(x, values), x.dtype, dtype)
        case Bits(dtype, x):
            held = np.array(evaluate(x, values), NUMPY_TYPES[x.dtype])
            number: Number = held.view(NUMPY_TYPES[dtype]).item()
            return number
        case Call(function, args):
            return call_function(function, tuple(evaluate(arg, values) for arg in args), expr.dtype)
    raise IRError(f"{type(expr).__name__} cannot be evaluated without memory")


def fold_constants(expr: Expr) -> Const | None:
    """The constant that a node with constant operands is; None if it is no such node, or has no value."""
    match expr:
        case BinOp(_, Const(), Const()) | Cast(_, Const()):
            pass
        case Call(_, args) if all(isinstance(arg, Const) for arg in args):
            pass
        case _:
            return None
    try:
        return Const(evaluate(expr, {}), expr.dtype)
    except IRError:  # a division by zero may stand where it is never evaluated
        return None


def identity(op: str, dtype: DType) -> Const | None:
    """The value that changes no other under ``op``; None if there is none."""
    low, high = INTEGER_RANGES.get(dtype, (-math.inf, math.inf))
    values: dict[str, Number] = {"add": 0, "mul": 1, "min": high, "max": low, "or": 0}
    values["and"] = -1 if low < 0 else high
    if op not in values or (dtype in FLOATS and op in ("or", "and")):
        return None
    return Const(values[op], dtype)
