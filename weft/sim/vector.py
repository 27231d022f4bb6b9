"""VECTOR instructions on NumPy: as many micro-ops at a time as do not read each other's results."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..hw.config import TABLE_ENTRIES, CoreConfig
from ..hw.isa import IMMEDIATE_BITS, Vector, VectorOp, VectorTarget
from ..hw.memories import Memory
from ..roundings import FLOAT32, TWO_ROUNDINGS, nudged
from .accumulate import accumulate
from .loops import Indices, LoopNest
from .state import Int8, Int32, Memories

BLOCK = 1024
"""Micro-ops looked at together; a block is cut where one of them reads what an earlier one wrote."""

Int64 = npt.NDArray[np.int64]

_ACCUMULATE: dict[VectorOp, np.ufunc] = {
    VectorOp.MAC: np.add,
    VectorOp.SUM: np.add,
    VectorOp.MIN_ACCUMULATE: np.minimum,
    VectorOp.MAX_ACCUMULATE: np.maximum,
}


@dataclass(frozen=True)
class VectorAccess:
    """Entries that a VECTOR touched: read from ``acc``, written to its target."""

    read: Indices
    written: Indices


def run_vector(memories: Memories, nest: LoopNest, instruction: Vector) -> tuple[VectorAccess, int | None]:
    """Execute all micro-ops; returns what they touched and, when one is out of range, its place (it has no effect)."""
    config = memories.config
    dst_depth = config.depth(instruction.target.memory)
    b_entries = instruction.b_entries
    reads: list[Indices] = []
    writes: list[Indices] = []
    bad: int | None = None
    for begin in range(0, nest.count, BLOCK):
        d, a, b, first = nest.part(begin, min(begin + BLOCK, nest.count))
        d, a, b = d + instruction.dst, a + instruction.a, b + instruction.b
        outside = (d >= dst_depth) | (a >= config.acc_depth)
        if b_entries:
            outside |= (b < 0) | (b + b_entries > config.acc_depth)
        count = len(d)
        if outside.any():
            count = int(np.argmax(outside))
            bad = begin + count
        sources = np.stack([a, *(b + i for i in range(b_entries))], axis=1)[:count]
        start = 0
        while start < count:
            to_acc = instruction.target is VectorTarget.ACC
            stop = start + _independent(d[start:count], sources[start:]) if to_acc else count
            part = slice(start, stop)
            _run_part(memories, instruction, d[part], a[part], b[part], first[part])
            start = stop
        reads.append(np.unique(sources))
        writes.append(np.unique(d[:count]))
        if bad is not None:
            break
    return VectorAccess(np.concatenate(reads), np.concatenate(writes)), bad


def _independent(written: Indices, sources: Indices) -> int:
    """How many micro-ops from the first on read nothing that an earlier one of them writes (at least 1)."""
    never = len(written)
    first_write = np.full(int(max(written.max(), sources.max())) + 1, never, np.int64)
    first_write[written[::-1]] = np.arange(never - 1, -1, -1)
    late = (first_write[sources] < np.arange(never)[:, None]).any(axis=1)
    return int(np.argmax(late)) if late.any() else never


def _run_part(
    memories: Memories, instruction: Vector, dst: Indices, a: Indices, b: Indices, first: npt.NDArray[np.bool_]
) -> None:
    acc = memories.acc
    left = acc[a].astype(np.int64)
    right: Int64 | int
    if instruction.b_immediate:
        right = instruction.b
    elif instruction.b_entries == 1:
        right = acc[b].astype(np.int64)
    else:
        right = 0
    if instruction.op.identity is not None:
        term = left * _signed25(right) if instruction.op is VectorOp.MAC else left
        start = first if instruction.zero else None
        accumulate(acc, dst, wrap32(term), start, _ACCUMULATE[instruction.op], instruction.op.identity)
        return
    if instruction.op is VectorOp.REQUANTISE:
        result = requantise(memories.config, instruction, acc[a], acc[b], acc[b + 1], acc[b + 2])
    else:
        result = wrap32(_binary(instruction.op, left, right))
    if entries := instruction.table_entries:
        result = through_table(memories.array(Memory.TAB)[entries.start : entries.stop], result)
    # NumPy assigns repeated indices in order: the last micro-op stays.
    target = memories.array(instruction.target.memory)
    target[dst] = result.astype(target.dtype)


def _binary(op: VectorOp, left: Int64, right: Int64 | int) -> Int64:
    result: Int64
    match op:
        case VectorOp.ADD:
            result = left + right
        case VectorOp.SUB:
            result = left - right
        case VectorOp.MIN:
            result = np.minimum(left, right)
        case VectorOp.MAX:
            result = np.maximum(left, right)
        case VectorOp.MUL:
            result = left * _signed25(right)
        case VectorOp.SHR:
            amount = np.broadcast_to(np.asarray(right, np.int64), left.shape)
            shifted_left = np.where(amount < -31, 0, left << np.clip(-amount, 0, 31))
            result = np.where(amount >= 0, left >> np.clip(amount, 0, 31), shifted_left)
        case _:
            raise ValueError(f"{op.name} has no two-operand form")
    return result


def requantise(
    config: CoreConfig, instruction: Vector, value: Int32, bias: Int32, multiplier: Int32, shift: Int32
) -> Int32:
    """``docs/isa.md``, REQUANTISE: rounded half up, or in the mode that the core has; then clamp and shift left."""
    biased = wrap32(value.astype(np.int64) + bias).astype(np.int64)
    wide = multiplier.astype(np.int64)
    factor = wide if config.rounding == TWO_ROUNDINGS else np.asarray(_signed25(wide))
    amount = (shift & 63).astype(np.int64)
    if instruction.rounding and config.rounding == FLOAT32:
        product = biased.astype(np.float32) * factor.astype(np.float32)
        rounded = np.rint(np.ldexp(product.astype(np.float64), -np.minimum(amount, 62))).astype(np.int64)
    else:
        exact = biased * factor
        if instruction.rounding:
            exact = np.where(amount > 0, nudged(config.rounding, exact, amount), exact)
        rounds = (amount > 0).astype(np.int64)
        rounded = ((exact >> (amount - rounds)) + rounds) >> rounds
    clamped = np.minimum(np.maximum(rounded + instruction.zero_point, instruction.low), instruction.high)
    return wrap32(clamped << instruction.left_shift)


def through_table(table: Int8 | Int32, result: Int32) -> Int32:
    """``docs/isa.md``, "Tables": of each lane's column of a table the entry that the low 8 bits of its result name."""
    return np.take_along_axis(table, result & TABLE_ENTRIES - 1, axis=0).astype(np.int32)


def _signed25(value: Int64 | int) -> Int64 | int:
    """Low 25 bits, sign-extended."""
    unused = 64 - IMMEDIATE_BITS
    return (value << unused) >> unused if isinstance(value, np.ndarray) else value


def wrap32(value: Int64) -> Int32:
    """Low 32 bits as a signed integer."""
    return value.astype(np.int32)
