"""Functions of floats, of scalars or vectors. In single precision exp, tanh, log, erf and pow are polynomials, which
targets share but where they have an instruction; the rest, and all in double precision, each target has its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import llvmlite.ir as ll
import numpy as np

from ..loops.polynomials import (
    ERF_LARGEST,
    EXP,
    EXP2,
    EXP_LARGEST,
    EXP_REST,
    EXP_SMALLEST,
    EXP_STEPS,
    EXP_TINY,
    LOG,
    LOG2,
    LOG2_ATANH,
    LOG2_HIGH,
    LOG2_LOW,
    LOG_ERFC,
    SQRT_HALF,
    TANH,
    TANH_SMALL,
    WHOLE,
)
from .llvm_types import DOUBLE, FLOAT, I32, I64, Value, constant, intrinsic, lanes_of, with_lanes

EXACT = {"floor": "llvm.floor", "ceil": "llvm.ceil", "round": "llvm.roundeven", "sqrt": "llvm.sqrt"}


OtherFunction: TypeAlias = Callable[[ll.IRBuilder, str, Sequence[Value]], Value]
"""Emits a function of the loop IR, by name, of floats or doubles."""


Exponential: TypeAlias = Callable[[ll.IRBuilder, Value], Value]
"""Emits exp of floats."""


def emit_function(
    builder: ll.IRBuilder, name: str, arguments: Sequence[Value], otherwise: OtherFunction, exponential: Exponential
) -> Value:
    """The value of a function of the loop IR, for scalars or vectors; by ``otherwise`` where targets differ. exp in
    single precision, and what needs it, is by ``exponential``."""
    kind = arguments[0].type
    if name in EXACT:
        return intrinsic(builder, EXACT[name], kind, list(arguments))
    single = with_lanes(DOUBLE, lanes_of(arguments[0])) != kind
    if single and name == "exp":
        return exponential(builder, *arguments)
    if single and name == "tanh":
        return _tanh(builder, arguments[0], exponential)
    if single and name in _POLYNOMIAL:
        return _POLYNOMIAL[name](builder, *arguments)
    return otherwise(builder, name, arguments)


def multiply_add(builder: ll.IRBuilder, a: Value, b: Value, c: Value) -> Value:
    """``a * b + c``: rounded once where the processor has an instruction for it, else twice. (``llvm.fma`` would then
    call the C library, once a lane.)"""
    return intrinsic(builder, "llvm.fmuladd", a.type, [a, b, c])


def _polynomial(builder: ll.IRBuilder, coefficients: Sequence[float], x: Value, kind: ll.Type = FLOAT) -> Value:
    lanes = lanes_of(x)
    result = constant(kind, coefficients[-1], lanes)
    for coefficient in reversed(coefficients[:-1]):
        result = multiply_add(builder, result, x, constant(kind, coefficient, lanes))
    return result


def polynomial_exp(builder: ll.IRBuilder, x: Value) -> Value:
    """2**n * p(x - n log 2). nan goes through: its power is any number."""
    lanes = lanes_of(x)
    lowest, highest = _float(EXP_SMALLEST, lanes), _float(EXP_LARGEST, lanes)
    clamped = builder.select(builder.fcmp_ordered("<", x, lowest), lowest, x)
    clamped = builder.select(builder.fcmp_ordered(">", clamped, highest), highest, clamped)
    tiny = builder.fcmp_ordered("<", clamped, _float(EXP_TINY, lanes))
    offset = builder.select(tiny, constant(I32, 126 + EXP_STEPS << 23, lanes), constant(I32, 126 << 23, lanes))
    value = _scaled_power(builder, clamped, offset)
    return builder.select(tiny, builder.fmul(value, _float(2.0**-EXP_STEPS, lanes)), value)


def _scaled_power(builder: ll.IRBuilder, x: Value, offset: Value) -> Value:
    """exp(x) times a power of two: ``offset`` holds the bits of half of that. All powers must be normal numbers."""
    lanes = lanes_of(x)

    def number(value: float) -> Value:
        return constant(FLOAT, value, lanes)

    shifted = multiply_add(builder, x, number(1 / LOG2), number(WHOLE))
    count = builder.fsub(shifted, number(WHOLE))
    rest = multiply_add(builder, count, number(-LOG2_HIGH), x)
    rest = multiply_add(builder, count, number(-LOG2_LOW), rest)
    bits = builder.shl(builder.bitcast(shifted, with_lanes(I32, lanes)), constant(I32, 23, lanes))
    scale = builder.bitcast(builder.add(bits, offset), x.type)
    return builder.fmul(_polynomial(builder, [2 * each for each in EXP], rest), scale)


def _tanh(builder: ll.IRBuilder, x: Value, exponential: Exponential) -> Value:
    """x * p(x * x) near 0, and 1 - 2 / (exp(2 |x|) + 1) with the sign of x elsewhere."""
    lanes = lanes_of(x)
    size = intrinsic(builder, "llvm.fabs", x.type, [x])
    near = builder.fmul(x, _polynomial(builder, TANH, builder.fmul(x, x)))
    one, two = constant(FLOAT, 1.0, lanes), constant(FLOAT, 2.0, lanes)
    far = builder.fsub(one, builder.fdiv(two, builder.fadd(exponential(builder, builder.fmul(size, two)), one)))
    far = intrinsic(builder, "llvm.copysign", x.type, [far, x])
    return builder.select(builder.fcmp_ordered("<", size, constant(FLOAT, TANH_SMALL, lanes)), near, far)


def _erf(builder: ll.IRBuilder, x: Value) -> Value:
    """1 - exp(-t) of a polynomial t, with the sign of x: one way for all x, so that no lane computes two. Its power of
    two has few bits, and needs no guards; nan goes through."""
    lanes = lanes_of(x)
    integer = with_lanes(I32, lanes)

    def number(value: float) -> Value:
        return constant(FLOAT, value, lanes)

    size = intrinsic(builder, "llvm.fabs", x.type, [x])
    size = builder.select(builder.fcmp_ordered(">", size, number(ERF_LARGEST)), number(ERF_LARGEST), size)
    t = multiply_add(builder, size, _polynomial(builder, LOG_ERFC, size), size)
    shifted = multiply_add(builder, t, number(-1 / LOG2), number(WHOLE))
    rest = multiply_add(builder, builder.fsub(shifted, number(WHOLE)), number(-LOG2), builder.fneg(t))
    power = multiply_add(builder, builder.fmul(rest, rest), _polynomial(builder, EXP_REST, rest), rest)
    bits = builder.shl(builder.bitcast(shifted, integer), constant(I32, 23, lanes))
    scale = builder.bitcast(builder.add(bits, constant(I32, 127 << 23, lanes)), x.type)
    value = multiply_add(builder, builder.fneg(scale), power, builder.fsub(number(1.0), scale))
    return intrinsic(builder, "llvm.copysign", x.type, [value, x])


def _log(builder: ll.IRBuilder, x: Value) -> Value:
    """n log 2 + log(1 + f). Numbers below the normal ones are made larger first."""
    lanes = lanes_of(x)
    integer = with_lanes(I32, lanes)

    def number(value: float) -> Value:
        return constant(FLOAT, value, lanes)

    small = builder.fcmp_ordered("<", x, number(2.0**-126))
    normal = builder.select(small, builder.fmul(x, number(2.0**23)), x)
    # 1 + f begins at sqrt(1/2): so many steps of the last place are moved from there to the next power of two.
    start = int.from_bytes(np.float32(SQRT_HALF).tobytes(), "little")
    bits = builder.sub(builder.bitcast(normal, integer), constant(I32, start, lanes))
    power = builder.sitofp(builder.ashr(bits, constant(I32, 23, lanes)), x.type)
    power = builder.fsub(power, builder.select(small, number(23.0), number(0.0)))
    mantissa = builder.add(builder.and_(bits, constant(I32, 0x7FFFFF, lanes)), constant(I32, start, lanes))
    f = builder.fsub(builder.bitcast(mantissa, x.type), number(1.0))
    square = builder.fmul(f, f)
    rest = builder.fmul(builder.fmul(square, f), _polynomial(builder, LOG, f))
    rest = multiply_add(builder, power, number(LOG2_LOW), rest)
    rest = multiply_add(builder, square, number(-0.5), rest)
    value = multiply_add(builder, power, number(LOG2_HIGH), builder.fadd(f, rest))
    value = builder.select(builder.fcmp_ordered("==", x, number(math.inf)), x, value)
    value = builder.select(builder.fcmp_ordered("==", x, number(0.0)), number(-math.inf), value)
    return builder.select(builder.fcmp_unordered("<", x, number(0.0)), number(math.nan), value)


def _pow(builder: ll.IRBuilder, x: Value, y: Value) -> Value:
    """2**(y log2 |x|), in double precision and rounded once; the sign and what is no number as in C."""
    lanes = lanes_of(x)
    kind, integer = with_lanes(DOUBLE, lanes), with_lanes(I64, lanes)

    def number(value: float) -> Value:
        return constant(DOUBLE, value, lanes)

    def whole(value: int) -> Value:
        return constant(I64, value, lanes)

    size = builder.fpext(intrinsic(builder, "llvm.fabs", x.type, [x]), kind)
    start = int.from_bytes(np.float64(SQRT_HALF).tobytes(), "little")
    bits = builder.sub(builder.bitcast(size, integer), whole(start))
    count = builder.sitofp(builder.trunc(builder.ashr(bits, whole(52)), with_lanes(I32, lanes)), kind)
    mantissa = builder.bitcast(builder.add(builder.and_(bits, whole((1 << 52) - 1)), whole(start)), kind)
    s = builder.fdiv(builder.fsub(mantissa, number(1.0)), builder.fadd(mantissa, number(1.0)))
    log = multiply_add(builder, _polynomial(builder, LOG2_ATANH, builder.fmul(s, s), DOUBLE), s, count)
    log = builder.select(builder.fcmp_ordered("==", size, number(0.0)), number(-math.inf), log)
    log = builder.select(builder.fcmp_ordered("==", size, number(math.inf)), number(math.inf), log)
    exponent = builder.fmul(builder.fpext(y, kind), log)
    # 1 to any power, and any number to the power of 0; nan must not reach the conversion to an integer.
    one = builder.or_(builder.fcmp_ordered("==", size, number(1.0)), builder.fcmp_ordered("==", y, _float(0.0, lanes)))
    nan = builder.fcmp_unordered("uno", exponent, exponent)
    exponent = builder.select(builder.or_(one, nan), number(0.0), exponent)
    exponent = builder.select(builder.fcmp_ordered("<", exponent, number(-300.0)), number(-300.0), exponent)
    exponent = builder.select(builder.fcmp_ordered(">", exponent, number(300.0)), number(300.0), exponent)
    near = intrinsic(builder, "llvm.roundeven", kind, [exponent])
    power = _polynomial(builder, EXP2, builder.fsub(exponent, near), DOUBLE)
    steps = builder.zext(builder.add(builder.fptosi(near, with_lanes(I32, lanes)), constant(I32, 1023, lanes)), integer)
    power = builder.fmul(power, builder.bitcast(builder.shl(steps, whole(52)), kind))
    value = builder.fptrunc(power, x.type)
    return _signed_power(builder, x, y, value)


def _signed_power(builder: ll.IRBuilder, x: Value, y: Value, value: Value) -> Value:
    """|x|**y with the sign of x where y is odd; nan of a negative number where y is not whole, and of nan."""
    lanes = lanes_of(x)
    half = builder.fmul(y, _float(0.5, lanes))
    is_whole = builder.fcmp_ordered("==", intrinsic(builder, "llvm.floor", y.type, [y]), y)
    is_even = builder.fcmp_ordered("==", intrinsic(builder, "llvm.floor", y.type, [half]), half)
    odd = builder.and_(is_whole, builder.not_(is_even))
    value = builder.select(odd, intrinsic(builder, "llvm.copysign", x.type, [value, x]), value)
    negative = builder.and_(
        builder.fcmp_ordered("<", x, _float(0.0, lanes)), builder.fcmp_ordered(">", x, _float(-math.inf, lanes))
    )
    nan = builder.or_(builder.fcmp_unordered("uno", x, y), builder.and_(negative, builder.not_(is_whole)))
    value = builder.select(nan, _float(math.nan, lanes), value)
    one = builder.or_(
        builder.fcmp_ordered("==", x, _float(1.0, lanes)), builder.fcmp_ordered("==", y, _float(0.0, lanes))
    )
    return builder.select(one, _float(1.0, lanes), value)


def _float(value: float, lanes: int) -> Value:
    return constant(FLOAT, value, lanes)


_POLYNOMIAL: dict[str, Callable[..., Value]] = {"erf": _erf, "log": _log, "pow": _pow}
