"""exp by the instruction for powers of two that NVIDIA's GPUs have."""

from __future__ import annotations

import math

import llvmlite.ir as ll
import numpy as np

from ..llvm.llvm_types import FLOAT, I32, Value, constant, declared, intrinsic, lanes_of

LOG2_E = math.log2(math.e)
LOG_2 = float(np.float32(math.log(2)))
LOG_2_REST = math.log(2) - LOG_2

SMALLEST, LARGEST = -104.0, 88.72283935546875
"""Results of what is smaller are 0. The largest is the first whose result is infinite: its product with log2 e is
rounded to 128, which is less than it, so that nothing is taken from what is infinite."""


def emit_exp(builder: ll.IRBuilder, x: Value) -> Value:
    """exp(x) = 2**y (1 + b), y the product x log2 e as it is rounded, b = x - y log 2 what that left. The
    instruction (ex2.approx) is exact to 2**-22.5 (PTX ISA, ex2), the rest is less; nan goes through."""
    lanes = lanes_of(x)

    def number(value: float) -> Value:
        return constant(FLOAT, value, lanes)

    def fma(a: Value, b: Value, c: Value) -> Value:
        return intrinsic(builder, "llvm.fma", a.type, [a, b, c])

    x = intrinsic(builder, "llvm.maximum", x.type, [x, number(SMALLEST)])
    x = intrinsic(builder, "llvm.minimum", x.type, [x, number(LARGEST)])
    product = builder.fmul(x, number(LOG2_E))
    left = fma(product, number(-LOG_2_REST), fma(product, number(-LOG_2), x))
    power = _power_of_two(builder, product, lanes)
    return fma(power, left, power)


def _power_of_two(builder: ll.IRBuilder, x: Value, lanes: int) -> Value:
    """Of a scalar; of vectors, one lane after another."""
    if not lanes:
        name, kind = "llvm.nvvm.ex2.approx.f", ll.FunctionType(FLOAT, [FLOAT])
        return builder.call(declared(builder.module, name, kind), [x])
    result: Value = ll.Constant(x.type, ll.Undefined)
    for lane in range(lanes):
        place = ll.Constant(I32, lane)
        result = builder.insert_element(result, _power_of_two(builder, builder.extract_element(x, place), 0), place)
    return result
