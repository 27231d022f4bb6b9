"""Bits: logic, shifts, fields, permutations, and moves between registers."""

from __future__ import annotations

import numpy as np

from ..parser import Instruction
from ..state import Lanes, State
from ..types import BITS, COMPUTED, STORED, Array, is_float, is_signed
from .registry import Compute, Step, computed, operation, registers_of, unknown

_LOGIC: dict[str, Compute] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


@operation(*_LOGIC)
def _logic(state: State, instruction: Instruction, counted: bool) -> Step:
    return computed(state, instruction, _LOGIC[instruction.operation])


@operation("not")
def _not(state: State, instruction: Instruction, counted: bool) -> Step:
    return computed(state, instruction, np.invert)


@operation("lop3")
def _lop3(state: State, instruction: Instruction, counted: bool) -> Step:
    a, b, c = (state.operand(each, "b32", instruction) for each in instruction.operands[1:4])
    table = int(instruction.operands[4], 0)

    def run(lanes: Lanes) -> None:
        values = (a(lanes), b(lanes), c(lanes))
        result = np.zeros(1, np.uint32)
        for row in range(8):
            if table >> row & 1:
                x, y, z = (each if row >> bit & 1 else ~each for each, bit in zip(values, (2, 1, 0), strict=True))
                result = result | (x & y & z)
        state.put(instruction.operands[0], lanes, result)

    return run


@operation("shl", "shr")
def _shift(state: State, instruction: Instruction, counted: bool) -> Step:
    kind = instruction.type
    if is_float(kind) or kind == "pred":
        raise unknown(instruction, kind)
    bits, dtype = BITS[kind], COMPUTED[kind]
    source, count = state.operand(instruction.operands[1], kind, instruction), instruction.operands[2]
    steps = state.operand(count, "u32", instruction)
    left = instruction.operation == "shl"

    def run(lanes: Lanes) -> None:
        values, by = source(lanes), steps(lanes)
        within = np.minimum(by, bits - 1).astype(dtype)
        shifted = values << within if left else values >> within
        if left or not is_signed(kind):
            shifted = np.where(by < bits, shifted, dtype.type(0))
        state.put(instruction.operands[0], lanes, shifted.astype(dtype))

    return run


@operation("shf", modifiers="l r wrap clamp")
def _funnel(state: State, instruction: Instruction, counted: bool) -> Step:
    a, b, c = (state.operand(each, "u32", instruction) for each in instruction.operands[1:])
    left, wrap = "l" in instruction.modifiers, "wrap" in instruction.modifiers

    def run(lanes: Lanes) -> None:
        both = a(lanes).astype(np.uint64) | (b(lanes).astype(np.uint64) << np.uint64(32))
        by = (c(lanes) & np.uint32(31) if wrap else np.minimum(c(lanes), np.uint32(32))).astype(np.uint64)
        result = (both << by) >> np.uint64(32) if left else both >> by
        state.put(instruction.operands[0], lanes, result.astype(np.uint32))

    return run


def _mask(count: Array) -> Array:
    """So many ones, of 64 bits."""
    ones = np.minimum(count, 63).astype(np.uint64)
    return np.where(count >= 64, ~np.uint64(0), (np.uint64(1) << ones) - np.uint64(1))


@operation("bfe")
def _extract(state: State, instruction: Instruction, counted: bool) -> Step:
    kind = instruction.type
    bits, signed = BITS[kind], is_signed(kind)
    source = state.operand(instruction.operands[1], f"u{bits}", instruction)
    first, length = (state.operand(each, "u32", instruction) for each in instruction.operands[2:4])

    def run(lanes: Lanes) -> None:
        values = source(lanes).astype(np.uint64)
        start, count = first(lanes) & np.uint32(255), length(lanes) & np.uint32(255)
        field = np.where(start < bits, values >> np.minimum(start, 63).astype(np.uint64), np.uint64(0)) & _mask(count)
        if signed:
            top = np.minimum(start + count - np.uint32(1), np.uint32(bits - 1)).astype(np.uint64)
            sign = (values >> top) & np.uint64(1)
            inside = np.minimum(count, bits - np.minimum(start, bits))
            field = np.where((count > 0) & (sign > 0), field | ~_mask(inside), field)
        state.put(instruction.operands[0], lanes, field.astype(STORED[bits]))

    return run


@operation("bfi")
def _insert(state: State, instruction: Instruction, counted: bool) -> Step:
    bits = BITS[instruction.type]
    field, into = (state.operand(each, f"u{bits}", instruction) for each in instruction.operands[1:3])
    first, length = (state.operand(each, "u32", instruction) for each in instruction.operands[3:5])

    def run(lanes: Lanes) -> None:
        start, count = first(lanes) & np.uint32(255), length(lanes) & np.uint32(255)
        by = np.minimum(start, 63).astype(np.uint64)
        mask = np.where(start < bits, _mask(count) << by, np.uint64(0))
        moved = field(lanes).astype(np.uint64) << by
        result = (into(lanes).astype(np.uint64) & ~mask) | (moved & mask)
        state.put(instruction.operands[0], lanes, result.astype(STORED[bits]))

    return run


@operation("clz", "popc", "brev", "bfind", modifiers="shiftamt")
def _counted_bits(state: State, instruction: Instruction, counted: bool) -> Step:
    kind, name = instruction.type, instruction.operation
    bits = BITS[kind]
    if "shiftamt" in instruction.modifiers:
        raise unknown(instruction, "shiftamt")
    source = state.operand(instruction.operands[1], f"u{bits}", instruction)

    def leading(values: Array) -> Array:
        zeros = np.full(values.shape, bits, np.uint32)
        for bit in range(bits):
            is_set = values >> values.dtype.type(bit) & values.dtype.type(1) > 0
            zeros = np.where(is_set, np.uint32(bits - 1 - bit), zeros)
        return zeros

    def run(lanes: Lanes) -> None:
        values = source(lanes)
        if name == "popc":
            result = np.bitwise_count(values).astype(np.uint32)
        elif name == "clz":
            result = leading(values)
        elif name == "bfind":
            if is_signed(kind):
                values = np.where(values >> values.dtype.type(bits - 1) > 0, ~values, values)
            zeros = leading(values)
            result = np.where(zeros == bits, ~np.uint32(0), np.uint32(bits - 1) - zeros)
        else:
            result = np.zeros(values.shape, values.dtype)
            for bit in range(bits):
                one = (values >> values.dtype.type(bit)) & values.dtype.type(1)
                result = result | (one << values.dtype.type(bits - 1 - bit))
        state.put(instruction.operands[0], lanes, result)

    return run


@operation("prmt")
def _permute(state: State, instruction: Instruction, counted: bool) -> Step:
    a, b, c = (state.operand(each, "u32", instruction) for each in instruction.operands[1:])

    def run(lanes: Lanes) -> None:
        both = a(lanes).astype(np.uint64) | (b(lanes).astype(np.uint64) << np.uint64(32))
        choice, result = c(lanes), np.zeros(1, np.uint32)
        for place in range(4):
            chosen = (choice >> np.uint32(4 * place)) & np.uint32(15)
            byte = (both >> ((chosen & np.uint32(7)).astype(np.uint64) * np.uint64(8))) & np.uint64(255)
            sign = np.where(byte & np.uint64(128), np.uint64(255), np.uint64(0))
            byte = np.where(chosen & np.uint32(8), sign, byte)
            result = result | (byte.astype(np.uint32) << np.uint32(8 * place))
        state.put(instruction.operands[0], lanes, result)

    return run


@operation("mov")
def _move(state: State, instruction: Instruction, counted: bool) -> Step:
    target, source = instruction.operands
    kind = instruction.type
    bits = BITS[kind]
    if target[0] == "{":
        parts = registers_of(target)
        each = bits // len(parts)
        whole = state.operand(source, f"u{bits}", instruction)

        def apart(lanes: Lanes) -> None:
            values = whole(lanes)
            for place, register in enumerate(parts):
                state.put(register, lanes, (values >> values.dtype.type(place * each)).astype(STORED[each]))

        return apart
    if source[0] == "{":
        each = bits // len(registers_of(source))
        wide = STORED[bits]
        sources = [state.operand(part, f"u{each}", instruction) for part in registers_of(source)]

        def together(lanes: Lanes) -> None:
            values = sources[0](lanes).astype(wide)
            for place, part in enumerate(sources[1:], 1):
                values = values | (part(lanes).astype(wide) << wide.type(place * each))
            state.put(target, lanes, values)

        return together
    value = state.operand(source, kind, instruction)
    return lambda lanes: state.put(target, lanes, value(lanes))
