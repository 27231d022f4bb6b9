"""The last results of a program are narrowed and stored in parts.

The last products of a program come in parts (:mod:`.split_end`), but one instruction narrows all their results, and one
stores them: both wait for the last part. Cut where their own products end, they have only the last results left then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from .....hw.config import CoreConfig
from .....hw.isa import Engine, Loop, Opcode, Store, Vector
from .....hw.memories import Memory
from .accesses import Stream, Touched, stream_of
from .rows import Ints, last_of
from .split_products import Level, access_of, levels_at
from .stream import Access, Issue, dram_access

SMALLEST_PART_RESULTS = 4
"""Entries of a part but the last."""


def split_results(config: CoreConfig, issues: Sequence[Issue]) -> Stream:
    """The stream with them cut; it means the same."""
    stream = stream_of(issues)
    rows = stream.rows
    narrow, store = last_of(rows, Opcode.VECTOR), last_of(rows, Opcode.STORE)
    if not last_of(rows, Opcode.GEMM) < narrow < store:
        return stream
    vector, stored = rows[narrow].instruction, rows[store].instruction
    assert isinstance(vector, Vector)
    assert isinstance(stored, Store)
    levels = levels_at(stream, narrow, Engine.VECTOR, vector.levels)
    each = _entries_of_iterations(vector, levels, stored)
    if not each:
        return stream
    cuts = [cut for cut in _cuts(config, stream, narrow, vector, levels) if _storable(config, stored, cut * each)]
    if not cuts:
        return stream
    return stream.cut({
        narrow: _vectors(rows[narrow], vector, levels, cuts),
        store: _stores(config, rows[store], stored, [cut * each for cut in cuts]),
    })  # fmt: skip


def _entries_of_iterations(vector: Vector, levels: Sequence[Level], stored: Store) -> int:
    """Results of an iteration of the outermost loop; 0 where they do not stand one behind another as they are
    stored."""
    if not levels or vector.op.accumulates or vector.target.memory is not Memory.OUT:
        return 0
    extent, apart, _, _ = levels[-1]
    inner = sum((each - 1) * stride for each, stride, _, _ in levels[:-1]) + 1
    whole = vector.dst == stored.index and extent * apart == stored.rows * stored.columns
    return apart if whole and inner <= apart else 0


def _cuts(
    config: CoreConfig, stream: Stream, narrow: int, vector: Vector, levels: Sequence[Level]
) -> list[int]:  # fmt: skip
    """Iterations of the outermost loop whose sums are done later than those before them."""
    count, _, apart, _ = levels[-1]
    inner: Ints = np.zeros(1, np.int64)
    for extent, _, stride, _ in levels[:-1]:
        inner = (np.arange(extent)[:, None] * stride + inner).ravel()
    entries = vector.a + np.arange(count)[:, None] * apart + inner
    needs = _written(config, stream.touched, narrow, entries)[entries].max(axis=1)
    least = -(-SMALLEST_PART_RESULTS // inner.size)
    cuts: list[int] = []
    for place in (np.flatnonzero(np.diff(needs)) + 1).tolist():
        if place - (cuts[-1] if cuts else 0) >= least:
            cuts.append(place)
    return cuts if (np.diff(needs) >= 0).all() else []


def _written(config: CoreConfig, touched: Touched, position: int, entries: Ints) -> Ints:
    """The last place before a position at which each of these accumulators is written, -1 where there is none; one
    number for each that the core has."""
    done = np.full(config.acc_depth, -1, np.int64)
    wanted = np.zeros(config.acc_depth, np.bool_)
    wanted[entries] = True
    own = np.flatnonzero(touched.writes & touched.of(Memory.ACC) & (touched.positions < position))
    for place, number in zip(touched.positions[own][::-1].tolist(), touched.sets[own][::-1].tolist(), strict=True):
        units = Access(*touched.known[number]).selector()
        done[units] = np.where(wanted[units], place, done[units])
        wanted[units] = False
        if not wanted.any():
            break
    return done


def _storable(config: CoreConfig, stored: Store, entries: int) -> bool:
    """Whether a store can begin there."""
    of_row = entries % (stored.columns if stored.rows > 1 else 1)
    return of_row == 0 and _apart(stored, entries) * config.out_bytes % config.granule_bytes == 0


def _apart(stored: Store, entries: int) -> int:
    """Entries in DRAM from the first to the one behind so many, whole rows where there are several."""
    return entries // stored.columns * stored.stride if stored.rows > 1 else entries


def _vectors(issue: Issue, vector: Vector, levels: Sequence[Level], cuts: Sequence[int]) -> list[Issue]:
    *inner, (count, to_dst, to_a, to_b) = levels
    own = [access for access in issue.accesses[0] if access.memory is not Memory.ACC]  # of its table
    found: list[Issue] = []
    held = count
    for first, stop in pairwise((0, *cuts, count)):
        if stop - first != held:
            held = stop - first
            loop = Loop(
                engine=Engine.VECTOR, level=len(inner), extent=held, dst_stride=to_dst, a_stride=to_a, b_stride=to_b
            )
            found.append(Issue(loop, layer=issue.layer, tile=issue.tile))
        part = replace(
            vector, dst=vector.dst + first * to_dst, a=vector.a + first * to_a,
            b=vector.b + (0 if vector.b_immediate else first * to_b),
        )  # fmt: skip
        loops = [*inner, (held, to_dst, to_a, to_b)]
        reads = [access_of(Memory.ACC, part.a, loops, 2), *own]
        if part.b_entries:
            factors = access_of(Memory.ACC, part.b, loops, 3)
            reads.append(replace(factors, extents=(*factors.extents, part.b_entries), strides=(*factors.strides, 1)))
        found.append(Issue(part, tuple(reads), (access_of(Memory.OUT, part.dst, loops, 1),), issue.layer, issue.tile))
    return found


def _stores(config: CoreConfig, issue: Issue, store: Store, cuts: Sequence[int]) -> list[Issue]:
    """``cuts``: entries before which it is cut."""
    columns, found = store.columns, list[Issue]()
    for first, stop in pairwise((0, *cuts, store.rows * columns)):
        rows, in_row = ((stop - first) // columns, columns) if store.rows > 1 else (1, stop - first)
        offset = store.offset + _apart(store, first) * config.out_bytes // config.granule_bytes
        part = replace(store, index=store.index + first, offset=offset, rows=rows, columns=in_row)
        read = Access(Memory.OUT, part.index, (stop - first,), (1,))
        written = dram_access(config, part.offset, part.rows, part.columns, part.stride, config.out_bytes)
        found.append(Issue(part, (read,), (written,), issue.layer, issue.tile))
    return found
