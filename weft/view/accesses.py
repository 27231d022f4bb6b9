"""Which entries of which memory an instruction reads and writes, as the engines' loop registers stand when it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..hw.config import LOOP_LEVELS, CoreConfig
from ..hw.isa import TAP_COLUMNS, TAP_ROWS, Engine, Gemm, Instruction, Load, Loop, Store, Vector
from ..hw.memories import Memory
from ..sim.dma import granules, transfer_of
from ..sim.loops import affine

Entries = slice | npt.NDArray[np.int64]
Level = tuple[int, int, int, int]
"""Extent, and the strides of ``dst``, ``a`` and ``b``."""

Shape = tuple[tuple[int, int], ...]
"""Extents and strides."""

IDLE_LEVEL: Level = (1, 0, 0, 0)


class Access(NamedTuple):
    """``entries`` of a memory (of DRAM: granules of the window). ``kind``: ``"read"``, ``"write"``, or ``"update"``
    where what is there is also read."""

    memory: Memory
    entries: Entries
    kind: str


def nests(instructions: Sequence[Instruction]) -> list[tuple[Level, ...]]:
    """For each instruction the loop levels that it runs, outermost first; none for what runs no loops."""
    levels: dict[Engine, list[Level]] = {}
    result: list[tuple[Level, ...]] = []
    for instruction in instructions:
        own = levels.setdefault(instruction.engine, [IDLE_LEVEL] * LOOP_LEVELS)
        if isinstance(instruction, Loop):
            own[instruction.level] = (
                instruction.extent, instruction.dst_stride, instruction.a_stride, instruction.b_stride,
            )  # fmt: skip
        runs = isinstance(instruction, Gemm | Vector)
        result.append(tuple(reversed(own[: instruction.levels])) if runs else ())  # type: ignore[attr-defined]
    return result


def accesses(config: CoreConfig, instruction: Instruction, nest: tuple[Level, ...]) -> Iterator[Access]:
    """What one instruction touches. ``nest``: as `nests` says."""
    match instruction:
        case Gemm():
            taps: Shape = ()
            if instruction.depthwise:
                taps = ((TAP_ROWS, instruction.row_pitch), (TAP_COLUMNS, instruction.column_pitch))
            yield Access(Memory.INP, _entries(instruction.src, (*_shape(nest, 2), *taps)), "read")
            yield Access(Memory.WGT, _entries(instruction.wgt, _shape(nest, 3)), "read")
            kind = "write" if instruction.zero else "update"
            yield Access(Memory.ACC, _entries(instruction.dst, _shape(nest, 1)), kind)
        case Vector():
            yield Access(Memory.ACC, _entries(instruction.a, _shape(nest, 2)), "read")
            if instruction.b_entries:
                shape = (*_shape(nest, 3), (instruction.b_entries, 1))
                yield Access(Memory.ACC, _entries(instruction.b, shape), "read")
            accumulates = instruction.op.identity is not None and not instruction.zero
            kind = "update" if accumulates else "write"
            if instruction.table_entries:
                table = instruction.table_entries
                yield Access(Memory.TAB, slice(table.start, table.stop), "read")
            yield Access(instruction.target.memory, _entries(instruction.dst, _shape(nest, 1)), kind)
        case Load() | Store():
            transfer = transfer_of(config, instruction)
            loads = isinstance(instruction, Load)
            inside = slice(transfer.index, transfer.index + transfer.entries)
            yield Access(transfer.memory, inside, "write" if loads else "read")
            if transfer.bytes:
                yield Access(Memory.DRAM, granules(config, transfer), "read" if loads else "write")


def _shape(nest: tuple[Level, ...], operand: int) -> Shape:
    return tuple((level[0], level[operand]) for level in nest if level[0] > 1 and level[operand])


def _entries(base: int, shape: Shape) -> Entries:
    offsets = _offsets(shape)
    return offsets + base if isinstance(offsets, np.ndarray) else slice(base, base + offsets)


@lru_cache(maxsize=4096)
def _offsets(shape: Shape) -> npt.NDArray[np.int64] | int:
    """The distinct offsets of a nest; how many there are, where they follow each other."""
    offsets = np.unique(affine(0, [extent for extent, _ in shape], [stride for _, stride in shape]))
    return len(offsets) if int(offsets[-1]) + 1 == len(offsets) else offsets
