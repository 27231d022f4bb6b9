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
from .....hw.isa import Engine, Load, Scratchpad
from .....hw.load_counts import bytes_each, entries_each, entries_of
from .....hw.memories import Memory
from ...llvm.scan import scan
from .accesses import Ints, Stream, Touched, runs_of, stream_of
from .stream import RECENT, Access, Issue, dram_access

SMALLEST_PART_ENTRIES = 32
"""Entries: each part is an instruction of its own, and waits for DRAM by itself."""

MOST_PARTS_OF_LOAD = 8
"""Of a load."""


@dataclass(frozen=True)
class _Candidate:
    """A load that may be cut before its rows, or before the columns of a single one. Row n needs ``length`` units from
    ``start + n * apart`` on, of DRAM or, of ``weights``, of their scratchpad; it brings ``entries``."""

    position: int
    load: Load
    weights: bool
    start: int
    count: int
    apart: int
    length: int
    entries: int

    @property
    def stop(self) -> int:
        """One past the last unit."""
        return self.start + (self.count - 1) * self.apart + self.length


def split_loads(config: CoreConfig, issues: Sequence[Issue]) -> Stream:
    """The stream with such loads cut; it means the same."""
    stream = stream_of(issues)
    parts = {}
    for each, needs in _needs(config, stream.touched, _candidates(config, stream)):
        cuts = _changes(needs, each.entries)
        if cuts:
            parts[each.position] = cut_load(config, stream[each.position], each.load, cuts)
    return stream.cut(parts)


def _candidates(config: CoreConfig, stream: Stream) -> list[_Candidate]:
    touched = stream.touched
    reads_dram = np.zeros(len(stream), np.bool_)
    reads_dram[touched.positions[touched.of(Memory.DRAM) & ~touched.writes]] = True
    positions = np.flatnonzero(np.isin(touched.engines, (Engine.LOAD, Engine.LOADW)))
    found = []
    for position, from_dram in zip(positions.tolist(), reads_dram[positions].tolist(), strict=True):
        load = stream[position].instruction
        if isinstance(load, Load):
            rows = _rows_in_dram(config, load) if from_dram else _weights(config, load)
            if rows is not None:
                found.append(_Candidate(position, load, not from_dram, *rows))
    return found


_Rows = tuple[int, int, int, int, int]
"""Start, count, distance, length and entries of a candidate."""


def _rows_in_dram(config: CoreConfig, load: Load) -> _Rows | None:
    """Rows of a load, or columns of a single row, in granules; None where it is not cut."""
    units, part = divmod(bytes_each(config, load), config.granule_bytes)
    if part:
        return None  # smaller than what addresses count
    if load.rows > 1:
        entries = load.pad_left + load.columns + load.pad_right
        return load.offset, load.rows, load.stride * units, load.columns * units, entries
    if load.pad_top or load.pad_bottom:
        return None
    return load.offset, load.rows * load.columns, units, units, 1


def _weights(config: CoreConfig, load: Load) -> _Rows | None:
    """Columns of a load of weights, which nothing writes in DRAM, in entries; None where it is not cut."""
    if load.scratchpad is not Scratchpad.WGT:
        return None
    if load.rows > 1 or load.pad_top or load.pad_bottom or load.pad_left or load.pad_right:
        return None
    each = entries_each(config, load)
    return load.index, load.rows * load.columns, each, each, each


def _needs(
    config: CoreConfig, touched: Touched, candidates: Sequence[_Candidate]
) -> Iterator[tuple[_Candidate, Ints]]:  # fmt: skip
    """The candidates whose rows do not all need the same, and what number of an instruction, from 1, each row needs.
    Of DRAM that is the last store, which has to be a recent one; of weights the last that had to do with their place.
    """
    own = np.flatnonzero(touched.of(Memory.WGT) | (touched.of(Memory.DRAM) & touched.writes))
    used, sets = np.unique(touched.sets[own], return_inverse=True)
    known = [touched.known[each] for each in used.tolist()]
    granules = max([each.stop for each in candidates if not each.weights] +
                   [Access(*each).stop for each in known if each[0] is Memory.DRAM], default=0)  # fmt: skip
    runs = [runs_of(extents, strides) for *_, extents, strides in known]
    begins = np.cumsum([0, *(len(first) for first, _ in runs)])
    shifts = np.repeat(
        np.array([start + (granules if memory is Memory.WGT else 0) for memory, start, *_ in known], np.int64),
        np.diff(begins),
    )
    none = np.zeros(0, np.int64)
    first, stop = (np.concatenate([none, *each]) + shifts for each in zip((none, none), *runs, strict=True))
    units = max([granules + config.wgt_depth, *(granules + each.stop for each in candidates if each.weights)])
    columns = np.array(
        [(each.position, 0 if each.weights else each.position + 1 - RECENT, each.start + granules * each.weights,
          each.count, each.apart, each.length) for each in candidates], np.int64,
    ).reshape(-1, 6).T.copy()  # fmt: skip
    places, needs = np.empty(len(candidates), np.int64), np.empty(int(columns[3].sum()), np.int64)
    end = np.iinfo(np.int64).max
    _scan_needs(
        *columns, len(candidates), np.append(touched.positions[own], end), len(own), sets.reshape(-1), begins, first,
        stop, np.zeros(max(units, int(stop.max(initial=0))), np.int64), places, needs,
    )  # fmt: skip
    for number in np.flatnonzero(places >= 0).tolist():
        yield candidates[number], needs[places[number] : places[number] + candidates[number].count]


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
