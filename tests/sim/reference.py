"""The micro-ops of ``docs/isa.md``, one at a time on Python integers: what the fast simulator is judged by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product

import numpy as np
import numpy.typing as npt
from weft.hw.config import CoreConfig
from weft.hw.isa import Gemm, Vector, VectorOp, VectorTarget
from weft.hw.memories import Memory
from weft.sim.loops import LoopLevel
from weft.sim.state import Memories


def wrap(value: int, bits: int = 32) -> int:
    """Low bits of ``value`` as a signed number."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def iterations(levels: Sequence[LoopLevel]) -> Iterator[tuple[int, int, int, bool]]:
    """Offsets (dst, a, b) and "first of its reduction" of each micro-op; ``levels[0]`` is the innermost."""
    outermost_first = list(reversed(levels))
    for point in product(*(range(level.extent) for level in outermost_first)):
        pairs = list(zip(point, outermost_first, strict=True))
        yield (
            sum(i * level.dst_stride for i, level in pairs),
            sum(i * level.a_stride for i, level in pairs),
            sum(i * level.b_stride for i, level in pairs),
            all(i == 0 for i, level in pairs if level.dst_stride == 0),
        )


def inp_lane(config: CoreConfig, row: int, channel: int) -> int:
    block, within = divmod(channel, config.sub_block)
    return (block * config.batch + row) * config.sub_block + within


def gemm(memories: Memories, levels: Sequence[LoopLevel], instruction: Gemm) -> int | None:
    """Run a GEMM; returns the place of a micro-op with an index out of range."""
    config = memories.config
    for place, (d, a, b, first) in enumerate(iterations(levels[: instruction.levels])):
        dst, src, wgt = instruction.dst + d, instruction.src + a, instruction.wgt + b
        last = src + 2 * (instruction.row_pitch + instruction.column_pitch) if instruction.depthwise else src
        if dst >= config.acc_depth or last >= config.inp_depth or wgt >= config.wgt_depth:
            return place
        if instruction.zero and first:
            memories.acc[dst] = 0
        if instruction.depthwise:
            for k in range(config.block_in):
                total = 0
                for kh, kw in product(range(3), range(3)):
                    value = memories.inp[src + kh * instruction.row_pitch + kw * instruction.column_pitch, k]
                    total += int(value) * int(memories.wgt[wgt, (4 * kh + kw) * config.block_in + k])
                memories.acc[dst, k] = wrap(int(memories.acc[dst, k]) + total)
            continue
        for row in range(config.batch):
            for out in range(config.block_out):
                total = sum(
                    int(memories.inp[src, inp_lane(config, row, k)]) * int(memories.wgt[wgt, out * config.block_in + k])
                    for k in range(config.block_in)
                )
                lane = inp_lane(config, row, out)
                memories.acc[dst, lane] = wrap(int(memories.acc[dst, lane]) + total)
    return None


def in_24_bits(value: Fraction) -> Fraction:
    """The nearest number of so many significant bits; in the middle between two the one that is even."""
    unit = Fraction(1)
    while abs(value) >= unit * 2**24:
        unit *= 2
    return round(value / unit) * unit


def vector_lane(
    config: CoreConfig, instruction: Vector, a: int, b: int, d: int, shift: int = 0, multiplier: int = 0
) -> int:
    """One lane of a VECTOR; for REQUANTISE ``b`` is the bias."""
    match instruction.op:
        case VectorOp.ADD:
            return wrap(a + b)
        case VectorOp.SUB:
            return wrap(a - b)
        case VectorOp.MUL:
            return wrap(a * wrap(b, 25))
        case VectorOp.MIN:
            return min(a, b)
        case VectorOp.MAX:
            return max(a, b)
        case VectorOp.SHR:
            if b >= 0:
                return a >> min(b, 31)
            return wrap(a << -b) if -b <= 31 else 0
        case VectorOp.REQUANTISE:
            twice = config.rounding == "two_roundings"
            scaled = wrap(a + b) * wrap(multiplier, 32 if twice else 25)
            amount = shift & 63
            rounded = (scaled + (1 << amount - 1)) >> amount if amount else scaled
            if instruction.rounding and twice:
                first = min(amount, 31)
                high = (scaled + (1 << first - 1)) >> first if first else scaled
                rest = amount - first
                away = (abs(high) + (1 << rest - 1)) >> rest if rest else abs(high)
                rounded = -away if high < 0 else away
            elif instruction.rounding and config.rounding == "half_even":
                rounded = round(Fraction(scaled, 2**amount))
            elif instruction.rounding and config.rounding == "half_away":
                size = (abs(scaled) + (1 << amount - 1)) >> amount if amount else abs(scaled)
                rounded = -size if scaled < 0 else size
            elif instruction.rounding:
                exact = in_24_bits(Fraction(wrap(a + b))) * wrap(multiplier, 25)
                rounded = round(in_24_bits(exact) / 2**amount)  # halves to even
            clamped = min(max(rounded + instruction.zero_point, instruction.low), instruction.high)
            return wrap(clamped << instruction.left_shift)
        case VectorOp.MAC:
            return wrap(d + a * wrap(b, 25))
        case VectorOp.SUM:
            return wrap(d + a)
        case VectorOp.MIN_ACCUMULATE:
            return min(d, a)
        case VectorOp.MAX_ACCUMULATE:
            return max(d, a)
    raise AssertionError(instruction.op)


IDENTITY = {
    VectorOp.MAC: 0,
    VectorOp.SUM: 0,
    VectorOp.MIN_ACCUMULATE: 2**31 - 1,
    VectorOp.MAX_ACCUMULATE: -(2**31),
}


def vector(memories: Memories, levels: Sequence[LoopLevel], instruction: Vector) -> int | None:
    """Run a VECTOR; returns the place of a micro-op with an index out of range."""
    config = memories.config
    op = instruction.op
    uses_b = not instruction.b_immediate and op not in (
        VectorOp.SUM,
        VectorOp.MIN_ACCUMULATE,
        VectorOp.MAX_ACCUMULATE,
    )
    for place, (d, ao, bo, first) in enumerate(iterations(levels[: instruction.levels])):
        dst, a, b = instruction.dst + d, instruction.a + ao, instruction.b + bo
        last_b = b + (2 if op is VectorOp.REQUANTISE else 0)
        depth = config.depth(instruction.target.memory)
        if dst >= depth or a >= config.acc_depth or (uses_b and not (b >= 0 and last_b < config.acc_depth)):
            return place
        entries: npt.NDArray[np.int32] = memories.acc.copy()
        for lane in range(config.lanes):
            old = IDENTITY.get(op, 0) if instruction.zero and first else int(entries[dst % config.acc_depth, lane])
            right = int(entries[b, lane]) if uses_b else instruction.b
            shift = int(entries[last_b, lane]) if op is VectorOp.REQUANTISE else 0
            multiplier = int(entries[b + 1, lane]) if op is VectorOp.REQUANTISE else 0
            result = vector_lane(config, instruction, int(entries[a, lane]), right, old, shift, multiplier)
            if instruction.table:
                entry = 256 * (instruction.table - 1) + result % 256
                result = int(memories.array(Memory.TAB)[entry, lane])
            match instruction.target:
                case VectorTarget.ACC:
                    memories.acc[dst, lane] = result
                case VectorTarget.OUT:
                    memories.out[dst, lane] = wrap(result, 8)
                case VectorTarget.INP:
                    memories.inp[dst, lane] = wrap(result, 8)
                case VectorTarget.TAB:
                    memories.array(Memory.TAB)[dst, lane] = wrap(result, 8)
    return None
