"""exp by the instruction for powers of two that NVIDIA's GPUs have."""

from __future__ import annotations

import math

import llvmlite.ir as ll
import numpy as np

from ..llvm.llvm_types import FLOAT, I32, Value, constant, declared, intrinsic, lanes_of

LOG2_E = float(np.float32(math.log2(math.e)))
LOG2_E_REST = math.log2(math.e) - LOG2_E

SMALLEST, LARGEST = -104.0, 89.0
"""Below and above, results are 0 and infinite in single precision; between them nothing on the way is infinite."""


def emit_exp(builder: ll.IRBuilder, x: Value) -> Value:
    """exp(x) = 2**y * (1 - b log 2), y the product x log2 e as it is rounded, b by how much it is too large. The
    instruction (ex2.approx) is exact to 2**-22.5 (PTX ISA, ex2), the rest is less; nan goes through."""
    lanes = lanes_of(x)

    def number(value: float) -> Value:
        return constant(FLOAT, value, lanes)

    def fma(a: Value, b: Value, c: Value) -> Value:
        return intrinsic(builder, "llvm.fma", a.type, [a, b, c])

    x = intrinsic(builder, "llvm.maximum", x.type, [x, number(SMALLEST)])
    x = intrinsic(builder, "llvm.minimum", x.type, [x, number(LARGEST)])
    product = builder.fmul(x, number(LOG2_E))
    beyond = fma(x, number(-LOG2_E), product)
    beyond = fma(x, number(-LOG2_E_REST), beyond)
    return builder.fmul(_power_of_two(builder, product, lanes), fma(beyond, number(-math.log(2)), number(1.0)))


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
