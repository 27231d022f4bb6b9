"""Functions of floats on vectors. In single precision exponential and hyperbolic tangent are polynomials; the rest, and
all in double precision, goes through libm.

The polynomials are Chebyshev fits, made here in double precision when the module is loaded; their error is below one
unit in the last place of single precision, and rounding adds about as much again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import llvmlite.ir as ll
import numpy as np
import numpy.typing as npt
from numpy.polynomial import Chebyshev, Polynomial

from .llvm_types import DOUBLE, FLOAT, I32, Value, constant, declared, intrinsic, lanes_of, with_lanes

EXACT = {"floor": "llvm.floor", "ceil": "llvm.ceil", "round": "llvm.roundeven", "sqrt": "llvm.sqrt"}

_LOG2 = float(np.log(2.0))
_LOG2_HIGH = 0.693145751953125  # the 16 leading bits: multiples up to 2**8 are exact
_LOG2_LOW = _LOG2 - _LOG2_HIGH
_LARGEST, _SMALLEST = 88.72283935546875, -104.0  # beyond these exp is infinite, or 0


Array = npt.NDArray[np.float64]


def _fit(function: Callable[[Array], Array], low: float, high: float, degree: int) -> tuple[float, ...]:
    """Coefficients, constant first, of a polynomial that is ``function`` on ``low .. high``."""
    series = Chebyshev.interpolate(function, degree, [low, high])
    return tuple(float(value) for value in series.convert(kind=Polynomial).coef)


def _tanh_over_x(square: Array) -> Array:
    root = np.sqrt(np.maximum(square, 1e-30))
    return np.asarray(np.tanh(root) / root)


_EXP = _fit(np.exp, -_LOG2 / 2, _LOG2 / 2, 6)
_TANH_SMALL = 0.625
_TANH = _fit(_tanh_over_x, 0.0, _TANH_SMALL**2, 5)


def emit_function(builder: ll.IRBuilder, name: str, arguments: Sequence[Value]) -> Value:
    """The value of a function of the loop IR, for scalars or vectors."""
    kind = arguments[0].type
    if name in EXACT:
        return intrinsic(builder, EXACT[name], kind, list(arguments))
    if with_lanes(DOUBLE, lanes_of(arguments[0])) == kind:
        return _libm(builder, name, DOUBLE, arguments)
    if name == "exp":
        return _exp(builder, arguments[0])
    if name == "tanh":
        return _tanh(builder, arguments[0])
    return _libm(builder, f"{name}f", FLOAT, arguments)


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

    clamped = builder.select(builder.fcmp_ordered("<", x, number(_SMALLEST)), number(_SMALLEST), x)
    clamped = builder.select(builder.fcmp_ordered(">", clamped, number(_LARGEST + 1)), number(_LARGEST + 1), clamped)
    # nan must not reach the conversion to an integer; it comes back at the end.
    clamped = builder.select(builder.fcmp_unordered("uno", x, x), number(0.0), clamped)
    count = intrinsic(builder, "llvm.roundeven", x.type, [builder.fmul(clamped, number(1 / _LOG2))])
    rest = multiply_add(builder, count, number(-_LOG2_HIGH), clamped)
    rest = multiply_add(builder, count, number(-_LOG2_LOW), rest)
    value = _polynomial(builder, _EXP, rest)
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
    near = builder.fmul(x, _polynomial(builder, _TANH, builder.fmul(x, x)))
    one, two = constant(FLOAT, 1.0, lanes), constant(FLOAT, 2.0, lanes)
    far = builder.fsub(one, builder.fdiv(two, builder.fadd(_exp(builder, builder.fmul(size, two)), one)))
    far = intrinsic(builder, "llvm.copysign", x.type, [far, x])
    return builder.select(builder.fcmp_ordered("<", size, constant(FLOAT, _TANH_SMALL, lanes)), near, far)


def _libm(builder: ll.IRBuilder, name: str, kind: ll.Type, arguments: Sequence[Value]) -> Value:
    """A call of the C library, once a lane."""
    function = declared(builder.module, name, ll.FunctionType(kind, [kind] * len(arguments)))
    lanes = lanes_of(arguments[0])
    if not lanes:
        return builder.call(function, list(arguments))
    result = ll.Constant(arguments[0].type, ll.Undefined)
    for lane in range(lanes):
        place = ll.Constant(I32, lane)
        single = builder.call(function, [builder.extract_element(argument, place) for argument in arguments])
        result = builder.insert_element(result, single, place)
    return result
