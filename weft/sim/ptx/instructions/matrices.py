"""Tensor cores: matrices that the lanes of a warp hold together, after the PTX manual's "Warp level matrix
instructions".

In words of 4 bytes all types lie the same way. Of lane 4 g + t, register by register: A has (g, t), (g + 8, t),
(g, t + 4), (g + 8, t + 4); B, by columns, has (g, t), (g, t + 4); C and D have elements (g, 2 t), (g, 2 t + 1) and the
same of row g + 8. Floats are added in single precision and rounded once an instruction.
"""

from __future__ import annotations

import re

import numpy as np

from ..counts import Traffic, wavefronts
from ..parser import WARP, Instruction
from ..state import Lanes, Operand, State
from ..types import BITS, COMPUTED, Array
from .registry import Step, one_of, operation, registers_of, unknown

_TYPES = ("s8", "u8", "f16", "bf16", "tf32")
_SHAPES = ("m8n8k16", "m16n8k4", "m16n8k8", "m16n8k16", "m16n8k32")


@operation("mma", modifiers=f"sync aligned row col satfinite {' '.join(_SHAPES)}")
def _multiply(state: State, instruction: Instruction, counted: bool) -> Step:
    shape = one_of(instruction, _SHAPES)
    rows, depth = (int(each) for each in re.findall(r"m(\d+)n8k(\d+)", shape)[0])
    result, left, right, addend = instruction.types
    words = depth * BITS[left] // 32 // 4  # registers of 4 words beside each other
    layout = [each for each in instruction.modifiers if each in ("row", "col")]
    allowed = left in _TYPES and right in _TYPES and layout == ["row", "col"] and words in (1, 2) and result == addend
    if not allowed or (result == "f16" and left != "f16") or (rows == 8 and left not in ("s8", "u8")):
        raise unknown(instruction, "in this form")
    parts = [registers_of(each) for each in instruction.operands]
    halves = rows // 8
    sizes = [len(each) for each in parts]
    per_row = 1 if result == "f16" else 2
    if sizes != [halves * per_row, halves * words, words, halves * per_row]:
        raise unknown(instruction, "with so many registers")
    kind = "b32" if result == "f16" else result
    a, b = ([state.operand(each, "u32", instruction) for each in part] for part in parts[1:3])
    c = [state.operand(each, kind, instruction) for each in parts[3]]
    saturates = "satfinite" in instruction.modifiers

    def fragment(sources: list[Operand], lanes: Lanes, warps: int) -> Array:
        """(warps, registers, 8, 4)."""
        return np.stack([state.full(each(lanes), lanes).reshape(warps, 8, 4) for each in sources], 1)

    def floats(matrix: Array, name: str) -> Array:
        if name == "tf32":  # what a float has beyond is not looked at
            matrix = matrix & np.uint32(0xFFFFE000)
        values: Array = np.ascontiguousarray(matrix).view(COMPUTED[name]).astype(np.float32)
        return values

    def run(lanes: Lanes) -> None:
        warps = state.whole_warps(lanes, instruction)
        first = fragment(a, lanes, warps).reshape(warps, words, halves, 8, 4).transpose(0, 2, 3, 1, 4)
        second = fragment(b, lanes, warps).transpose(0, 2, 1, 3)
        product = floats(first.reshape(warps, rows, 4 * words), left) @ floats(
            second.reshape(warps, 8, 4 * words), right
        ).transpose(0, 2, 1)  # exact for bytes: below 2**24
        held = fragment(c, lanes, warps)
        if result == "f16":
            total = np.ascontiguousarray(held).view(np.float16).reshape(warps, rows, 8)
        else:
            total = held.reshape(warps, halves, 2, 8, 4).transpose(0, 1, 3, 4, 2).reshape(warps, rows, 8)
        if result == "s32":
            wide = total.astype(np.int64) + product.astype(np.int64)
            done = (np.clip(wide, -(1 << 31), (1 << 31) - 1) if saturates else wide).astype(np.int32)
        else:
            done = (total.astype(np.float32) + product).astype(total.dtype)
        if result == "f16":
            packed: Array = np.ascontiguousarray(done.reshape(warps, halves, 8, 8)).view(np.uint32)
            columns: Array = packed.transpose(0, 2, 3, 1).reshape(warps * WARP, halves)
        else:
            apart = done.reshape(warps, halves, 8, 4, 2).transpose(0, 2, 3, 1, 4)
            columns = apart.reshape(warps * WARP, halves * 2)
        for number, register in enumerate(parts[0]):
            state.put(register, lanes, np.ascontiguousarray(columns[:, number]))

    return run


@operation("ldmatrix", modifiers="sync aligned m8n8 x1 x2 x4 trans shared cta")
def _load(state: State, instruction: Instruction, counted: bool) -> Step:
    registers = registers_of(instruction.operands[0])
    number, turned = len(registers), "trans" in instruction.modifiers
    if f"x{number}" not in instruction.modifiers or instruction.type != "b16" or "shared" not in instruction.modifiers:
        raise unknown(instruction, "in this form")
    address = state.address(instruction.operands[1], instruction)

    def run(lanes: Lanes) -> None:
        warps = state.whole_warps(lanes, instruction)
        addresses = state.full(address(lanes), lanes).reshape(warps, WARP)[:, : 8 * number].reshape(-1)
        readers = state.numbers(lanes).reshape(warps, WARP)[:, : 8 * number].reshape(-1)
        places = state.shared_places(addresses, 16, readers, instruction)
        state.watch("shared", "read", places, 16, readers, instruction)
        if counted:
            traffic = wavefronts(places.reshape(warps, 8 * number), 16)
            state.counts.wavefronts.setdefault(instruction.text, Traffic()).add(traffic)
        rows = state.shared[places[:, None] + np.arange(16)].reshape(warps, number, 8, 16)
        for place, register in enumerate(registers):
            matrix = np.ascontiguousarray(rows[:, place]).view(np.uint16)
            if turned:
                matrix = matrix.transpose(0, 2, 1)
            state.put(register, lanes, np.ascontiguousarray(matrix.reshape(warps, 8, 8)).view(np.uint32).reshape(-1))

    return run
