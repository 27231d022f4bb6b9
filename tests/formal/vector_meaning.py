"""What ``docs/isa.md`` says that a VECTOR does in each lane, as Amaranth values without a pipeline.

The product comes from outside. ``test_vector_meaning.py`` holds all of it against the functional simulator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Const, Mux, Value
from weft.hw.isa import IMMEDIATE_BITS, VectorOp
from weft.roundings import FIRST_PLACES, HALF_AWAY, HALF_EVEN, HALF_UP, TWO_ROUNDINGS

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
    """Of a REQUANTISE; ``rounding``: whether it rounds in the way that the core has beside half up."""

    zero_point: Bits
    low: Bits
    high: Bits
    left_shift: Bits
    rounding: Bits = 0


def factors(op: VectorOp, operands: Operands, rounding: str = HALF_UP) -> tuple[Bits, Bits]:
    """The two numbers whose product an operation asks for, on a core with such a ``rounding``; it has no use of them if
    it is none that multiplies."""
    if op is not VectorOp.REQUANTISE:
        return low(operands.a, 32), low(operands.b, IMMEDIATE_BITS)
    multiplier = low(operands.multiplier, 32 if rounding == TWO_ROUNDINGS else IMMEDIATE_BITS)
    return low(operands.a + operands.b, 32), multiplier


def result(op: VectorOp, operands: Operands, product: Bits, limits: Limits, rounding: str = HALF_UP) -> Bits:
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
            rounded = halves_up(product, operands.shift)
            if rounding != HALF_UP:
                rounded = Mux(limits.rounding, ROUNDED[rounding](product, operands.shift), rounded)
            return requantised(rounded, limits)
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
    what the last place says. A shift has six bits; one of 0 rounds nothing."""
    amount = shift[:6].as_unsigned()
    before = product >> Mux(amount == 0, 0, amount - 1).as_unsigned()[:6]
    return Mux(amount == 0, product, (before + 1) >> 1)


def halves_away(product: Bits, shift: Bits) -> Bits:
    """Of its magnitude halves up: away from 0."""
    size = halves_up(abs(product), shift)
    return Mux(product < 0, -size, size)


def halves_even(product: Bits, shift: Bits) -> Bits:
    """Halves up, but where exactly a half is left and that gives an odd number."""
    amount = shift[:6].as_unsigned()
    up = halves_up(product, shift)
    half = (product << 1) & ((Const(2, len(product) + 2) << amount) - 1) == Const(1, len(product) + 2) << amount
    return Mux((amount != 0) & half & up[0], up - 1, up)


def twice(product: Bits, shift: Bits) -> Bits:
    """To a multiple of ``2**31``, halves up, and that away from 0; a shift of up to 31 rounds once, halves up."""
    first = (product + (1 << FIRST_PLACES - 1)) >> FIRST_PLACES
    left = (shift[:6].as_unsigned() - FIRST_PLACES).as_unsigned()[:6]
    return Mux(shift[5], halves_away(first, left), halves_up(product, shift))


ROUNDED = {HALF_AWAY: halves_away, HALF_EVEN: halves_even, TWO_ROUNDINGS: twice}
"""``product / 2**shift`` in each way that a core may have beside half up, but in float32."""


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
