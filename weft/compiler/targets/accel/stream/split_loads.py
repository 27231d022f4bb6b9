"""Loads are cut into parts where one part could begin long before another.

- A layer's results are stored part by part, and the next layer often loads them all with one instruction, which waits
  for the last store. In parts, the first ones are loaded while the vector engine still works on the last ones.
- All weights of a layer are often loaded at once, to where weights of several layers lay, and wait for the last of
  these. In parts, those whose place is free are loaded while the layer before still reads its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from .....hw.config import CoreConfig
from .....hw.isa import Load, Opcode, Scratchpad
from .....hw.load_counts import bytes_each, entries_each, entries_of
from .....hw.memories import Memory
from ...llvm.scan import scan
from .accesses import Stream, Touched, runs_of, stream_of
from .rows import Ints, bytes_of_each
from .stream import RECENT, Access, Issue, dram_access

SMALLEST_PART_ENTRIES = 32
"""Entries: each part is an instruction of its own, and waits for DRAM by itself."""

MOST_PARTS_OF_LOAD = 8
"""Of a load."""


@dataclass(frozen=True)
class _Candidates:
    """Loads that may be cut before their rows, or before the columns of a single one. Row n of a load needs ``lengths``
    units from ``starts + n * aparts`` on, of DRAM or, of ``weights``, of their scratchpad; it brings ``entries``."""

    positions: Ints
    weights: Ints
    starts: Ints
    counts: Ints
    aparts: Ints
    lengths: Ints
    entries: Ints

    @property
    def stops(self) -> Ints:
        """One past the last unit of each."""
        return self.starts + (self.counts - 1) * self.aparts + self.lengths


def split_loads(config: CoreConfig, issues: Sequence[Issue]) -> Stream:
    """The stream with such loads cut; it means the same."""
    stream = stream_of(issues)
    parts = {}
    candidates = _candidates(config, stream)
    for number, needs in _needs(config, stream.touched, candidates):
        cuts = _changes(needs, int(candidates.entries[number]))
        if cuts:
            position = int(candidates.positions[number])
            issue = stream[position]
            assert isinstance(issue.instruction, Load)
            parts[position] = cut_load(config, issue, issue.instruction, cuts)
    return stream.cut(parts)


def _candidates(config: CoreConfig, stream: Stream) -> _Candidates:
    touched, rows = stream.touched, stream.rows
    reads_dram = np.zeros(len(stream), np.bool_)
    reads_dram[touched.positions[touched.of(Memory.DRAM) & ~touched.writes]] = True
    positions = rows.places(Opcode.LOAD)
    names = "index", "offset", "rows", "columns", "stride", "pad_top", "pad_bottom", "pad_left", "pad_right"
    index, offset, count, columns, stride, top, bottom, left, right = (rows.column(name, positions) for name in names)
    from_dram, several, around = reads_dram[positions], count > 1, (top | bottom) > 0
    # Rows, or columns of a single row, in granules; none of a load whose entries are smaller than what addresses count.
    units, part = np.divmod(bytes_of_each(config, rows)[positions], config.granule_bytes)
    in_rows = np.stack([offset, count, stride * units, columns * units, left + columns + right])
    single = np.stack([offset, count * columns, units, units, np.ones_like(units)])
    may = from_dram & (part == 0) & (several | ~around)
    # Columns of a load of weights, which nothing writes in DRAM, in entries.
    each = rows.by_form(lambda form: entries_each(config, form.example) if isinstance(form.example, Load) else 0)
    each = each[positions]
    of_weights = np.stack([index, count * columns, each, each, each])
    whole = ~from_dram & ~several & ~around & ((left | right) == 0)
    whole &= rows.column("scratchpad", positions) == Scratchpad.WGT
    found = np.where(from_dram, np.where(several, in_rows, single), of_weights)
    own = may | whole
    return _Candidates(positions[own], whole[own].astype(np.int64), *np.ascontiguousarray(found[:, own]))


def _needs(config: CoreConfig, touched: Touched, candidates: _Candidates) -> Iterator[tuple[int, Ints]]:
    """The candidates whose rows do not all need the same, and what number of an instruction, from 1, each row needs.
    Of DRAM that is the last store, which has to be a recent one; of weights the last that had to do with their place.
    """
    own = np.flatnonzero(touched.of(Memory.WGT) | (touched.of(Memory.DRAM) & touched.writes))
    used, sets = np.unique(touched.sets[own], return_inverse=True)
    known = [touched.known[each] for each in used.tolist()]
    of_weights = candidates.weights > 0
    granules = max([int(candidates.stops[~of_weights].max(initial=0))] +
                   [Access(*each).stop for each in known if each[0] is Memory.DRAM])  # fmt: skip
    runs = [runs_of(extents, strides) for *_, extents, strides in known]
    begins = np.cumsum([0, *(len(first) for first, _ in runs)])
    shifts = np.repeat(
        np.array([start + (granules if memory is Memory.WGT else 0) for memory, start, *_ in known], np.int64),
        np.diff(begins),
    )
    none = np.zeros(0, np.int64)
    first, stop = (np.concatenate([none, *each]) + shifts for each in zip((none, none), *runs, strict=True))
    units = granules + max(config.wgt_depth, int(candidates.stops[of_weights].max(initial=0)))
    count = len(candidates.positions)
    recent = np.where(of_weights, 0, candidates.positions + 1 - RECENT)
    places, needs = np.empty(count, np.int64), np.empty(int(candidates.counts.sum()), np.int64)
    end = np.iinfo(np.int64).max
    _scan_needs(
        candidates.positions, recent, candidates.starts + granules * candidates.weights, candidates.counts,
        candidates.aparts, candidates.lengths, count, np.append(touched.positions[own], end), len(own),
        sets.reshape(-1), begins, first, stop, np.zeros(max(units, int(stop.max(initial=0))), np.int64), places, needs,
    )  # fmt: skip
    for number in np.flatnonzero(places >= 0).tolist():
        yield number, needs[places[number] : places[number] + candidates.counts[number]]


@scan
def _scan_needs(
    loads: Ints, recent: Ints, starts: Ints, counts: Ints, aparts: Ints, lengths: Ints, candidates: int,
    positions: Ints, accesses: int, sets: Ints, begins: Ints, first: Ints, stop: Ints, last: Ints, places: Ints,
    needs: Ints,
) -> None:  # fmt: skip
    """``last``: of each unit the number of the instruction that stored it, or had to do with it. ``places``: of each
    candidate where in ``needs`` its rows are, or -1. A candidate is judged before what its own instruction touches."""
    load = 0
    found = 0
    for access in range(accesses + 1):
        while load < candidates and loads[load] <= positions[access]:
            differs = 0
            most = 0
            for row in range(counts[load]):
                value = 0
                begin = starts[load] + row * aparts[load]
                for unit in range(begin, begin + lengths[load]):
                    value = max(value, last[unit])
                needs[found + row] = value
                if value != needs[found]:
                    differs = 1
                most = max(most, value)
            places[load] = -1
            if differs and most >= recent[load]:
                places[load] = found
                found += counts[load]
            load += 1
        if access < accesses:
            for run in range(begins[sets[access]], begins[sets[access] + 1]):
                for unit in range(first[run], stop[run]):
                    last[unit] = positions[access] + 1


def _changes(needs: Ints, entries: int) -> list[int]:
    """Where rows, or columns, need another instruction than those before. ``entries``: in each."""
    least = max(SMALLEST_PART_ENTRIES // entries, -(-len(needs) // MOST_PARTS_OF_LOAD), 1)
    cuts: list[int] = []
    for place in (np.flatnonzero(np.diff(needs)) + 1).tolist():
        if place - (cuts[-1] if cuts else 0) >= least and len(needs) - place >= least:
            cuts.append(place)
    return cuts


def cut_load(config: CoreConfig, issue: Issue, load: Load, cuts: Sequence[int]) -> list[Issue]:
    """The parts of a load, cut before these rows, or columns of a single row; not where an entry, of less than a
    granule, begins at no address."""
    each = bytes_each(config, load)
    apart, end = (each * load.stride, load.rows) if load.rows > 1 else (each, load.columns)
    cuts = [cut for cut in cuts if cut * apart % config.granule_bytes == 0]
    if not cuts:
        return [issue]
    index = load.index
    parts = []
    for first, stop in pairwise((0, *cuts, end)):
        if load.rows > 1:
            part = replace(
                load, index=index, offset=load.offset + first * apart // config.granule_bytes, rows=stop - first,
                pad_top=0 if first else load.pad_top, pad_bottom=load.pad_bottom if stop == end else 0,
            )  # fmt: skip
        else:
            part = replace(
                load, index=index, offset=load.offset + first * apart // config.granule_bytes, columns=stop - first,
                pad_left=0 if first else load.pad_left, pad_right=load.pad_right if stop == end else 0,
            )  # fmt: skip
        entries = entries_of(config, part)
        read = dram_access(config, part.offset, part.rows, part.columns, part.stride, each)
        written = Access(part.scratchpad.memory, index, (entries,), (1,))
        parts.append(Issue(part, (read,), (written,), issue.layer, issue.tile))
        if not issue.accesses[0]:  # nothing writes what it reads (`forget_constants`)
            parts[-1].forget(Memory.DRAM, written=False)
        index += entries
    return parts
