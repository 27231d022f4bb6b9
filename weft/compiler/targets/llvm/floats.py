"""Floats of every width in registers. Those of 16 bits are computed in single precision and rounded after each step.

Rounding the single-precision result of one addition, product, quotient or square root again gives what rounding the
exact result once would give, since 24 bits are at least 2 * 11 + 2 (Figueroa, "When is double rounding innocuous?",
1995).
"""

from __future__ import annotations

import llvmlite.ir as ll

from ...tensor.ir import DType
from .llvm_types import DOUBLE, FLOAT, HALF, I16, I32, Value, constant, lanes_of, with_lanes

HALVES: tuple[DType, ...] = ("float16", "bfloat16")
_QUIET = 0x00400000  # the bit that keeps a nan a nan when its lower half is cut off


def from_memory(builder: ll.IRBuilder, value: Value, dtype: DType) -> Value:
    """What was loaded, as it is held in a register."""
    lanes = lanes_of(value)
    if dtype == "float16":
        return builder.fpext(value, with_lanes(FLOAT, lanes))
    if dtype == "bfloat16":
        bits = builder.zext(value, with_lanes(I32, lanes))
        return builder.bitcast(builder.shl(bits, constant(I32, 16, lanes)), with_lanes(FLOAT, lanes))
    return value


def to_memory(builder: ll.IRBuilder, value: Value, dtype: DType) -> Value:
    """What is to be stored, of a value that is rounded to its type already."""
    lanes = lanes_of(value)
    if dtype == "float16":
        return builder.fptrunc(value, with_lanes(HALF, lanes))
    if dtype == "bfloat16":
        bits = builder.bitcast(value, with_lanes(I32, lanes))
        return builder.trunc(builder.lshr(bits, constant(I32, 16, lanes)), with_lanes(I16, lanes))
    return value


def rounded(builder: ll.IRBuilder, value: Value, dtype: DType) -> Value:
    """A float32 rounded to what ``dtype`` holds, ties to even; floats of other widths as they are."""
    lanes = lanes_of(value)
    if dtype == "float16":
        return builder.fpext(builder.fptrunc(value, with_lanes(HALF, lanes)), value.type)
    if dtype == "bfloat16":
        integer = with_lanes(I32, lanes)
        bits = builder.bitcast(value, integer)
        odd = builder.and_(builder.lshr(bits, constant(I32, 16, lanes)), constant(I32, 1, lanes))
        up = builder.add(bits, builder.add(odd, constant(I32, 0x7FFF, lanes)))
        nan = builder.fcmp_unordered("uno", value, value)
        chosen = builder.select(nan, builder.or_(bits, constant(I32, _QUIET, lanes)), up)
        return builder.bitcast(builder.and_(chosen, constant(I32, -65536, lanes)), value.type)
    return value


def convert_float(builder: ll.IRBuilder, value: Value, source: DType, target: DType) -> Value:
    """A float of one type as another, rounded once (a double to bfloat16 by way of float32, as ml_dtypes does)."""
    lanes = lanes_of(value)
    if target == "float64":
        return builder.fpext(value, with_lanes(DOUBLE, lanes)) if source != "float64" else value
    if source != "float64":
        return rounded(builder, value, target)
    if target == "float16":
        return rounded(builder, _to_odd(builder, value), target)
    return rounded(builder, builder.fptrunc(value, with_lanes(FLOAT, lanes)), target)


def _to_odd(builder: ll.IRBuilder, value: Value) -> Value:
    """A double as a float32 that still tells on which side of a tie it was: inexact ones get an odd last bit."""
    lanes = lanes_of(value)
    kind, integer = with_lanes(FLOAT, lanes), with_lanes(I32, lanes)
    near = builder.fptrunc(value, kind)
    back = builder.fpext(near, value.type)
    exact = builder.fcmp_unordered("==", back, value)
    magnitudes = [builder.select(builder.fcmp_ordered("<", x, constant(DOUBLE, 0.0, lanes)), builder.fneg(x), x)
                  for x in (back, value)]  # fmt: skip
    bits = builder.bitcast(near, integer)
    beyond = builder.zext(builder.fcmp_ordered(">", *magnitudes), integer)
    odd = builder.or_(builder.sub(bits, beyond), constant(I32, 1, lanes))
    return builder.bitcast(builder.select(exact, bits, odd), kind)
