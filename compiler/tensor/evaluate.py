"""Constant evaluation: what each operator gives on Python numbers, with the wrap-around of its type."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from .errors import IRError
from .ir import INTEGER_RANGES, BinOp, Cast, Const, DType, Expr, Number, Select, Var


def wrap(value: Number, dtype: DType) -> Number:
    """``value`` as it is held by ``dtype``: integers modulo the width, floats rounded to single precision."""
    if dtype == "float32":
        return float(struct.unpack("f", struct.pack("f", value))[0])
    if dtype == "bool":
        return bool(value)
    low, high = INTEGER_RANGES[dtype]
    return (int(value) - low) % (high - low + 1) + low


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


OPERATOR_VALUES: dict[str, Callable[[Number, Number], Number]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: int(a) // _divisor(b),
    "mod": lambda a, b: int(a) % _divisor(b),
    "min": min,
    "max": max,
    "shl": _shift_left,
    "shr": _shift_right,
    "and": lambda a, b: int(a) & int(b),
    "or": lambda a, b: int(a) | int(b),
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}


def evaluate(expr: Expr, values: Mapping[Var, int]) -> Number:
    """Value of an expression without loads; ``values`` gives every variable in it. IRError otherwise."""
    match expr:
        case Const(value):
            return value
        case Var(name):
            if expr not in values:
                raise IRError(f"variable {name!r} has no value")
            return values[expr]
        case BinOp(op, a, b):
            return wrap(OPERATOR_VALUES[op](evaluate(a, values), evaluate(b, values)), expr.dtype)
        case Select(cond, a, b):
            return evaluate(a if evaluate(cond, values) else b, values)
        case Cast(dtype, x):
            return wrap(evaluate(x, values), dtype)
    raise IRError(f"{type(expr).__name__} cannot be evaluated without memory")
