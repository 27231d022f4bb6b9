"""Functions of floats, of scalars or vectors. In single precision exponential and hyperbolic tangent are polynomials,
which all targets share; the rest, and all in double precision, each target has its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import llvmlite.ir as ll

from ..loops.polynomials import EXP, EXP_LARGEST, EXP_SMALLEST, LOG2, LOG2_HIGH, LOG2_LOW, TANH, TANH_SMALL
from .llvm_types import DOUBLE, FLOAT, I32, Value, constant, intrinsic, lanes_of, with_lanes

EXACT = {"floor": "llvm.floor", "ceil": "llvm.ceil", "round": "llvm.roundeven", "sqrt": "llvm.sqrt"}


OtherFunction: TypeAlias = Callable[[ll.IRBuilder, str, Sequence[Value]], Value]
"""Emits a function of the loop IR, by name, of floats or doubles."""


def emit_function(builder: ll.IRBuilder, name: str, arguments: Sequence[Value], otherwise: OtherFunction) -> Value:
    """The value of a function of the loop IR, for scalars or vectors; by ``otherwise`` where targets differ."""
    kind = arguments[0].type
    if name in EXACT:
        return intrinsic(builder, EXACT[name], kind, list(arguments))
    single = with_lanes(DOUBLE, lanes_of(arguments[0])) != kind
    if single and name == "exp":
        return _exp(builder, arguments[0])
    if single and name == "tanh":
        return _tanh(builder, arguments[0])
    return otherwise(builder, name, arguments)


def multiply_add(builder: ll.IRBuilder, a: Value, b: Value, c: Value) -> Value:
    """``a * b + c``: rounded once where the processor has an instruction for it, else twice. (``llvm.fma`` would then
    call the C library, once a lane.)"""
    return intrinsic(builder, "llvm.fmuladd", a.type, [a, b, c])


def _polynomial(builder: ll.IRBuilder, coefficients: Sequence[float], x: Value) -> Value:
    lanes = lanes_of(x)
    result = constant(FLOAT, coefficients[-1], lanes)
    for coefficient in reversed(coefficients[:-1]):
        result = multiply_add(builder, result, x, constant(FLOAT, coefficient, lanes))
    return result


def _exp(builder: ll.IRBuilder, x: Value) -> Value:
    """2**n * p(x - n log 2). The power is applied in two halves, so that denormal results come out too."""
    lanes = lanes_of(x)
    integer = with_lanes(I32, lanes)

    def number(value: float) -> Value:
        return constant(FLOAT, value, lanes)

    clamped = builder.select(builder.fcmp_ordered("<", x, number(EXP_SMALLEST)), number(EXP_SMALLEST), x)
    clamped = builder.select(
        builder.fcmp_ordered(">", clamped, number(EXP_LARGEST + 1)), number(EXP_LARGEST + 1), clamped
    )
    # nan must not reach the conversion to an integer; it comes back at the end.
    clamped = builder.select(builder.fcmp_unordered("uno", x, x), number(0.0), clamped)
    count = intrinsic(builder, "llvm.roundeven", x.type, [builder.fmul(clamped, number(1 / LOG2))])
    rest = multiply_add(builder, count, number(-LOG2_HIGH), clamped)
    rest = multiply_add(builder, count, number(-LOG2_LOW), rest)
    value = _polynomial(builder, EXP, rest)
    power = builder.fptosi(count, integer)
    half = builder.ashr(power, constant(I32, 1, lanes))
    for part in (half, builder.sub(power, half)):
        bits = builder.shl(builder.add(part, constant(I32, 127, lanes)), constant(I32, 23, lanes))
        value = builder.fmul(value, builder.bitcast(bits, x.type))
    return builder.select(builder.fcmp_unordered("uno", x, x), x, value)


def _tanh(builder: ll.IRBuilder, x: Value) -> Value:
    """x * p(x * x) near 0, and 1 - 2 / (exp(2 |x|) + 1) with the sign of x elsewhere."""
    lanes = lanes_of(x)
    size = intrinsic(builder, "llvm.fabs", x.type, [x])
    near = builder.fmul(x, _polynomial(builder, TANH, builder.fmul(x, x)))
    one, two = constant(FLOAT, 1.0, lanes), constant(FLOAT, 2.0, lanes)
    far = builder.fsub(one, builder.fdiv(two, builder.fadd(_exp(builder, builder.fmul(size, two)), one)))
    far = intrinsic(builder, "llvm.copysign", x.type, [far, x])
    return builder.select(builder.fcmp_ordered("<", size, constant(FLOAT, TANH_SMALL, lanes)), near, far)
