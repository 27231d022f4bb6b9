"""Loads are cut into parts where one part could begin long before another.

- A layer's results are stored part by part, and the next layer often loads them all with one instruction, which waits
  for the last store. In parts, the first ones are loaded while the vector engine still works on the last ones.
- All weights of a layer are often loaded at once, to where weights of several layers lay, and wait for the last of
  these. In parts, those whose place is free are loaded while the layer before still reads its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from .....hw.config import CoreConfig
from .....hw.isa import MEMORY_USERS, Load, Scratchpad
from .....hw.load_counts import bytes_each, entries_each, entries_of
from .....hw.memories import Memory
from .stream import RECENT, TRANSFERS, Access, Issue, dram_access

_maximum = np.maximum.reduce

SMALLEST_PART_ENTRIES = 32
"""Entries: each part is an instruction of its own, and waits for DRAM by itself."""

MOST_PARTS_OF_LOAD = 8
"""Of a load."""

CONCERNED = frozenset(
    engine for memory in (Memory.WGT, Memory.DRAM)
    for engines in (MEMORY_USERS[memory].writers, MEMORY_USERS[memory].readers) for engine in engines
)  # fmt: skip
"""Engines that touch weights, or DRAM."""


def split_loads(config: CoreConfig, issues: Sequence[Issue]) -> list[Issue]:
    """The stream with such loads cut; it means the same."""
    stored_by = np.full(_granules(issues), -1, np.int32)
    touched_by = np.full(config.wgt_depth, -1, np.int32)  # entries of ``wgt``
    stream: list[Issue] = []
    for position, issue in enumerate(issues):
        instruction = issue.instruction
        if instruction.engine not in CONCERNED:
            stream.append(issue)
            continue
        reads, writes = issue.accesses
        for access in writes:
            if access.memory is Memory.DRAM:
                stored_by[access.selector()] = position
        if isinstance(instruction, Load):
            if any(access.memory is Memory.DRAM for access in reads):
                stream += cut_load(config, issue, instruction, _cuts(config, instruction, stored_by, position))
            elif instruction.scratchpad is Scratchpad.WGT:
                stream += cut_load(config, issue, instruction, _cuts_of_weights(config, instruction, touched_by))
            else:
                stream.append(issue)
        else:
            stream.append(issue)
        for each in (reads, writes):
            for access in each:
                if access.memory is Memory.WGT:
                    touched_by[access.selector()] = position
    return stream


def _granules(issues: Sequence[Issue]) -> int:
    """Of DRAM, up to the last that the stream knows of."""
    stop = 0
    for issue in issues:
        if issue.instruction.engine in TRANSFERS:
            for several in issue.accesses:
                for access in several:
                    if access.memory is Memory.DRAM:
                        stop = max(stop, access.stop)
    return stop


def _cuts(config: CoreConfig, load: Load, stored_by: npt.NDArray[np.int32], position: int) -> list[int]:
    """Rows, or columns of a single row, before which a load is cut."""
    units, part = divmod(bytes_each(config, load), config.granule_bytes)
    if part:
        return []  # smaller than what addresses count
    end = load.offset + ((load.rows - 1) * load.stride + load.columns) * units
    if _maximum(stored_by[load.offset : end]) < position - RECENT:
        return []  # nothing between its first and its last place was stored shortly before
    if load.rows > 1:
        first = load.offset + np.arange(load.rows)[:, None] * (load.stride * units)
        places, entries = first + np.arange(load.columns * units), load.pad_left + load.columns + load.pad_right
    elif load.pad_top or load.pad_bottom:
        return []
    else:
        places, entries = load.offset + np.arange(load.columns * units).reshape(load.columns, units), 1
    needs = stored_by[places].max(axis=1)
    if needs.max() < position - RECENT:
        return []
    return _changes(needs, entries)


def _cuts_of_weights(config: CoreConfig, load: Load, touched_by: npt.NDArray[np.int32]) -> list[int]:
    """Columns of a load of weights, which nothing writes in DRAM, before which it is cut."""
    if load.rows > 1 or load.pad_top or load.pad_bottom or load.pad_left or load.pad_right:
        return []
    each = entries_each(config, load)
    touched = touched_by[load.index : load.index + load.columns * each]
    return _changes(_maximum(touched.reshape(-1, each), axis=1), each)


def _changes(needs: npt.NDArray[np.int32], entries: int) -> list[int]:
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
