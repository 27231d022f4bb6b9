"""GEMM instructions on NumPy: regular tiles as one matrix product, everything else micro-op by micro-op in blocks."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ..hw.config import CoreConfig
from ..hw.isa import TAP_COLUMNS, TAP_ROW_OUTPUTS, TAP_ROWS, Gemm
from .accumulate import accumulate
from .loops import Indices, LoopLevel, LoopNest, affine
from .state import Int32, Memories

BLOCK = 4096
"""Micro-ops at a time on the irregular path: bounds the memory of gathered operands."""

TILE_ELEMENTS = 1 << 22
"""Most elements of a gathered operand on the regular path."""

EXACT_FLOAT32 = 1024
"""Products of two int8 whose sum is still exact in float32: 1024 * 2**14 = 2**24."""


@dataclass(frozen=True)
class GemmAccess:
    """Entries that a GEMM touched."""

    acc: Indices
    inp: Indices
    wgt: Indices


def run_gemm(memories: Memories, nest: LoopNest, instruction: Gemm) -> tuple[GemmAccess, int | None]:
    """Execute all micro-ops; returns what they touched and, when one is out of range, its place (it has no effect)."""
    config = memories.config
    dst, src, wgt, zero = instruction.dst, instruction.src, instruction.wgt, bool(instruction.zero)
    if instruction.depthwise:
        offsets = np.array(instruction.src_offsets)
        return _run_blocks(memories, nest, dst, src, wgt, zero=zero, offsets=offsets)
    in_range = (
        nest.largest(dst, "dst") < config.acc_depth
        and nest.largest(src, "a") < config.inp_depth
        and nest.largest(wgt, "b") < config.wgt_depth
    )
    if in_range:
        access = _run_regular(memories, nest, dst, src, wgt, zero=zero)
        if access is not None:
            return access, None
    return _run_blocks(memories, nest, dst, src, wgt, zero=zero)


def _run_regular(memories: Memories, nest: LoopNest, dst: int, src: int, wgt: int, *, zero: bool) -> GemmAccess | None:
    """One matrix product for each iteration of the loops that move all three operands; ``None`` if that does not pay.

    Legal when no accumulator entry is reached by two iterations of the loops that move ``dst``.
    """
    levels = [level for level in nest.levels if level.extent > 1]
    reduction = [level for level in levels if not level.dst_stride]
    rows = [level for level in levels if level.dst_stride and not level.b_stride]
    columns = [level for level in levels if level.dst_stride and level.b_stride and not level.a_stride]
    outer = [level for level in levels if level.dst_stride and level.b_stride and level.a_stride]
    while _count(rows) * _count(reduction) * memories.config.inp_bytes > TILE_ELEMENTS:
        outer.append((rows or reduction).pop(0))
    if _count(outer) * 64 > nest.count:
        return None
    moving = [level for level in levels if level.dst_stride]
    acc_entries = _indices(dst, moving, "dst_stride")
    if acc_entries.size > memories.config.acc_depth or np.bincount(acc_entries).max() > 1:
        return None
    if zero:
        memories.acc[acc_entries] = 0
    bases = (_indices(0, outer, name).tolist() for name in ("dst_stride", "a_stride", "b_stride"))
    for dst_offset, src_offset, wgt_offset in zip(*bases, strict=True):
        _product(
            memories,
            _indices(dst + dst_offset, rows + columns, "dst_stride").reshape(_count(rows), _count(columns)),
            _indices(src + src_offset, rows + reduction, "a_stride").reshape(_count(rows), _count(reduction)),
            _indices(wgt + wgt_offset, columns + reduction, "b_stride").reshape(_count(columns), _count(reduction)),
        )
    used_inp = _indices(src, [level for level in levels if level.a_stride], "a_stride")
    used_wgt = _indices(wgt, [level for level in levels if level.b_stride], "b_stride")
    return GemmAccess(acc_entries, used_inp, used_wgt)


def _product(memories: Memories, dst: Indices, src: Indices, wgt: Indices) -> None:
    """``acc[dst[p, o]] += sum over r of inp[src[p, r]] x wgt[wgt[o, r]]``; ``dst`` has no duplicates."""
    config = memories.config
    (rows, terms), columns = src.shape, wgt.shape[0]
    depth = terms * config.block_in
    real: type[np.floating[Any]] = np.float32 if depth <= EXACT_FLOAT32 else np.float64
    left = _matrix_rows(config, memories.inp[src], config.block_in).swapaxes(1, 2)  # (rows, batch, terms, block_in)
    right = memories.wgt[wgt].reshape(columns, terms, config.block_out, config.block_in).swapaxes(1, 2)
    sums = left.astype(real).reshape(-1, depth) @ right.astype(real).reshape(-1, depth).T
    exact = sums.astype(np.int64).astype(np.int32).reshape(rows, config.batch, columns, config.block_out)
    memories.acc[dst] += _lanes(config, exact.swapaxes(1, 2))


def _run_blocks(
    memories: Memories,
    nest: LoopNest,
    dst: int,
    src: int,
    wgt: int,
    *,
    zero: bool,
    offsets: Indices | None = None,
) -> tuple[GemmAccess, int | None]:
    """Any indices, in order; stops before the first micro-op that is out of range.

    ``offsets``: where the entries of the taps lie from ``src`` on, of a depthwise GEMM.
    """
    config = memories.config
    reach = 0 if offsets is None else int(offsets.max())
    touched: list[GemmAccess] = []
    bad: int | None = None
    for start in range(0, nest.count, BLOCK):
        d, a, b, first = nest.part(start, min(start + BLOCK, nest.count))
        d, a, b = d + dst, a + src, b + wgt
        outside = (d >= config.acc_depth) | (a + reach >= config.inp_depth) | (b >= config.wgt_depth)
        if outside.any():
            stop = int(np.argmax(outside))
            bad = start + stop
            d, a, b, first = d[:stop], a[:stop], b[:stop], first[:stop]
        read = a if offsets is None else a[:, None] + offsets
        touched.append(GemmAccess(np.unique(d), np.unique(read), np.unique(b)))
        if offsets is None:
            left = _matrix_rows(config, memories.inp[a], config.block_in).astype(np.float32)
            right = memories.wgt[b].reshape(-1, config.block_out, config.block_in).astype(np.float32)
            sums = _lanes(config, np.matmul(left, right.swapaxes(1, 2)).astype(np.int32))
        else:
            sums = _tap_sums(config, memories.inp[read], memories.wgt[b])
        accumulate(memories.acc, d, sums, first if zero else None, np.add, 0)
        if bad is not None:
            break
    merged = GemmAccess(*(np.concatenate([getattr(part, name) for part in touched]) for name in ("acc", "inp", "wgt")))
    return merged, bad


def _tap_sums(config: CoreConfig, inputs: npt.NDArray[np.int8], weights: npt.NDArray[np.int8]) -> Int32:
    """Each channel's sum over nine taps, ``(count, block_in)``; ``inputs`` are ``(count, 9, block_in)``."""
    outputs = weights.reshape(-1, config.block_out, config.block_in)
    rows = [outputs[:, TAP_ROW_OUTPUTS * row :][:, :TAP_COLUMNS] for row in range(TAP_ROWS)]
    taps = np.concatenate(rows, axis=1).astype(np.int32)
    sums: Int32 = (inputs * taps).sum(axis=1, dtype=np.int32)
    return sums


def _matrix_rows(config: CoreConfig, entries: npt.NDArray[np.int8], channels: int) -> npt.NDArray[np.int8]:
    """Entries ``(..., lanes)`` in memory order as ``(..., batch, channels)``."""
    block = config.sub_block
    split = entries.reshape(*entries.shape[:-1], channels // block, config.batch, block)
    return split.swapaxes(-3, -2).reshape(*entries.shape[:-1], config.batch, channels)


def _lanes(config: CoreConfig, values: Int32) -> Int32:
    """Values ``(..., batch, block_out)`` as accumulator entries ``(..., lanes)`` in memory order."""
    block = config.sub_block
    split = values.reshape(*values.shape[:-1], config.block_out // block, block)
    return split.swapaxes(-3, -2).reshape(*values.shape[:-2], config.lanes)


def _count(levels: list[LoopLevel]) -> int:
    return prod(level.extent for level in levels)


def _indices(base: int, levels: list[LoopLevel], stride: str) -> Indices:
    return affine(base, [level.extent for level in levels], [getattr(level, stride) for level in levels])
