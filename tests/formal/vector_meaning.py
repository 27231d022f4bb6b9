"""What ``docs/isa.md`` says that a VECTOR does in each lane, as Amaranth values without a pipeline.

The product comes from outside. ``test_vector_meaning.py`` holds all of it against the functional simulator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Const, Mux, Value
from weft.hw.isa import IMMEDIATE_BITS, VectorOp

Bits = Any
"""An Amaranth value."""


@dataclass(frozen=True)
class Operands:
    """Of one lane: ``a``, ``b`` (or the bias), ``multiplier`` and ``shift`` as their entries hold them, and ``old``:
    what ``acc[dst]`` holds, or the identity."""

    a: Bits
    b: Bits
    multiplier: Bits
    shift: Bits
    old: Bits


@dataclass(frozen=True)
class Limits:
    """Of a REQUANTISE."""

    zero_point: Bits
    low: Bits
    high: Bits
    left_shift: Bits


def factors(op: VectorOp, operands: Operands, multiplier_bits: int = IMMEDIATE_BITS) -> tuple[Bits, Bits]:
    """The two numbers whose product an operation asks for; it has no use of them if it is none that multiplies."""
    if op is VectorOp.REQUANTISE:
        return low(operands.a + operands.b, 32), low(operands.multiplier, multiplier_bits)
    return low(operands.a, 32), low(operands.b, IMMEDIATE_BITS)


def result(op: VectorOp, operands: Operands, product: Bits, limits: Limits) -> Bits:
    """The result of a lane, 32 bits; ``product``: exact, of :func:`factors`."""
    a, b, old = operands.a, operands.b, operands.old
    match op:
        case VectorOp.ADD:
            return low(a + b, 32)
        case VectorOp.SUB:
            return low(a - b, 32)
        case VectorOp.MUL:
            return low(product, 32)
        case VectorOp.MIN:
            return Mux(a < b, a, b)
        case VectorOp.MAX:
            return Mux(a > b, a, b)
        case VectorOp.SHR:
            return _shifted(a, b)
        case VectorOp.REQUANTISE:
            return requantised(halves_up(product, operands.shift), limits)
        case VectorOp.MAC:
            return low(old + product, 32)
        case VectorOp.SUM:
            return low(old + a, 32)
        case VectorOp.MIN_ACCUMULATE:
            return Mux(old < a, old, a)
        case VectorOp.MAX_ACCUMULATE:
            return Mux(old > a, old, a)


def _shifted(a: Bits, b: Bits) -> Bits:
    right = a >> Mux(b > 31, 31, b).as_unsigned()[:5]
    left = Mux(b < -31, 0, low(a << low(-b, 5).as_unsigned(), 32))
    return Mux(b >= 0, right, left)


def halves_up(product: Bits, shift: Bits) -> Bits:
    """``product / 2**shift`` rounded half up, ``(product + 2**(shift - 1)) >> shift``: one place less, then a half is
    what the last place says. A shift has six bits, and 63 counts as 62; one of 0 rounds nothing."""
    amount = Mux(shift[:6] == 63, 62, shift[:6])
    before = product >> Mux(amount == 0, 0, amount - 1).as_unsigned()[:6]
    return Mux(amount == 0, product, (before + 1) >> 1)


def requantised(rounded: Bits, limits: Limits) -> Bits:
    """The zero point, the limits (``high`` counts where they cross) and the shift to the left."""
    value = rounded + limits.zero_point
    raised = Mux(value < limits.low, limits.low, value)
    clamped = low(Mux(raised > limits.high, limits.high, raised), 32)
    return low(clamped << limits.left_shift, 32)


def low(value: Bits, bits: int) -> Bits:
    """The lowest bits as a signed number."""
    wide = Value.cast(value)
    if len(wide) < bits:
        wide = Cat(wide, (wide[-1] if wide.shape().signed else Const(0, 1)).replicate(bits - len(wide)))
    return wide[:bits].as_signed()
