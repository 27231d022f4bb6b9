"""Conversions between types, and between addresses of one memory and generic ones."""

from __future__ import annotations

import numpy as np

from ..parser import Instruction
from ..state import LOCAL_WINDOW, SHARED_WINDOW, Lanes, State
from ..types import BITS, COMPUTED, STORED, Array, is_float, is_signed
from .registry import Compute, Step, flushed, operation, unknown

_WHOLE: dict[str, Compute] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


@operation("cvt", modifiers="rn rna ftz sat rni rzi rmi rpi relu")
def _convert(state: State, instruction: Instruction, counted: bool) -> Step:
    target, source = instruction.types
    modifiers, register = instruction.modifiers, instruction.operands[0]
    if "relu" in modifiers:
        raise unknown(instruction, "relu")
    if target.endswith("x2"):
        return _packed(state, instruction, target, source)
    value = state.operand(instruction.operands[1], source, instruction)
    way = next((_WHOLE[each] for each in modifiers if each in _WHOLE), None)
    saturate, flush = "sat" in modifiers, "ftz" in modifiers
    if is_float(source) and not is_float(target) and way is None:
        raise unknown(instruction, "without a way to round")
    if target == "tf32" and "rna" not in modifiers:
        raise unknown(instruction, "to tf32 without rna")
    wide = STORED[state.kernel.registers[register]]
    signed = np.dtype(f"i{wide.itemsize}")

    def run(lanes: Lanes) -> None:
        values = value(lanes)
        if flush:
            values = flushed(values)
        if is_float(source) and not is_float(target):
            assert way is not None
            result = integer_of(way(values.astype(np.float64)), source, target)
        elif is_float(target):
            if way is not None:
                values = way(values)
            result = float_of(values, target)
            if saturate:
                result = np.where(np.isnan(result), 0, np.clip(result, 0, 1)).astype(result.dtype)
            if flush:
                result = flushed(result)
        else:
            result = _narrowed(values, target) if saturate else values.astype(COMPUTED[target])
        if result.dtype.itemsize != wide.itemsize:  # as the sign says where the register is wider
            bits = result.view(STORED[BITS[target]]) if result.dtype.kind not in "iu" else result
            result = bits.astype(signed if is_signed(target) else wide)
        state.put(register, lanes, result)

    return run


def integer_of(whole: Array, source: str, target: str) -> Array:
    """Whole numbers in double precision as integers: the nearest that fits; nan as devices have it."""
    dtype = COMPUTED[target]
    ends = np.iinfo(dtype)
    nan = np.isnan(whole)
    below, above = whole <= float(ends.min), whole >= float(ends.max)
    inside = np.where(nan | below | above, 0.0, whole).astype(dtype)
    result = np.where(below, dtype.type(ends.min), np.where(above, dtype.type(ends.max), inside))
    odd = 1 << (BITS[target] - 1) if source == "f64" or BITS[target] == 64 else 0
    special = np.array([odd], STORED[BITS[target]]).view(dtype)
    found: Array = np.where(nan, special, result).astype(dtype)
    return found


def float_of(values: Array, target: str) -> Array:
    """Numbers as floats of a type, rounded once: to even at ties, but of tf32 away from zero."""
    if target == "tf32":
        bits = values.astype(np.float32).view(np.uint32)
        finite = np.isfinite(values)
        return np.where(finite, (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000), bits).view(np.float32)
    if values.dtype.kind in "iu" and BITS[target] == 16:
        values = values.astype(np.float64)
    return values.astype(COMPUTED[target])


def _narrowed(values: Array, target: str) -> Array:
    ends, source = np.iinfo(COMPUTED[target]), np.iinfo(values.dtype)
    low, high = max(ends.min, source.min), min(ends.max, source.max)
    return np.clip(values, values.dtype.type(low), values.dtype.type(high)).astype(COMPUTED[target])


def _packed(state: State, instruction: Instruction, target: str, source: str) -> Step:
    """Two floats as a pair of halves; the first is the upper one."""
    high, low = (state.operand(each, source, instruction) for each in instruction.operands[1:3])
    half = target.removesuffix("x2")

    def bits(values: Array) -> Array:
        return values.astype(COMPUTED[half]).view(np.uint16).astype(np.uint32)

    return lambda lanes: state.put(
        instruction.operands[0], lanes, (bits(high(lanes)) << np.uint32(16)) | bits(low(lanes))
    )


@operation("cvta", modifiers="to global shared local const param cta")
def _generic(state: State, instruction: Instruction, counted: bool) -> Step:
    modifiers = instruction.modifiers
    window = SHARED_WINDOW if "shared" in modifiers else LOCAL_WINDOW if "local" in modifiers else 0
    value = state.operand(instruction.operands[1], instruction.type, instruction)
    if window and BITS[instruction.type] != 64:
        raise unknown(instruction, "of 32 bits")
    step = np.uint64((-window if "to" in modifiers else window) & ((1 << 64) - 1))
    if not window:
        return lambda lanes: state.put(instruction.operands[0], lanes, value(lanes))
    return lambda lanes: state.put(instruction.operands[0], lanes, value(lanes) + step)
