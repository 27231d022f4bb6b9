"""Which instructions have to stay behind which earlier ones: they share units that at least one of them writes.

Found for a whole stream at once. The accesses to a memory are taken in parts. The ends of all that is accessed in a
part cut the memory into *atoms*, whose units meet the same accesses: to sort the accesses of each atom says which write
comes before each access, and which behind each read. What happened before a part is kept for each unit as the number of
a *state*: who wrote it last, and who of each engine was its last reader since.

Named are pairs that imply all others: from the last write to each access, and from reads to the next write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from .....hw.isa import Engine
from .....hw.memories import Memory
from .accesses import Accesses, Ints, accesses_of, flat, ranges
from .stream import Issue

ENGINES = len(Engine)

RUNS = 2048
"""Of consecutive units, in all accesses of a part, about: fewer cost overhead, more are cut into more atoms."""

POSITION_BITS = 31
"""Of an instruction's position in the stream."""

NOBODY = -1


Pairs = tuple[Ints, Ints]
"""Positions in a stream: the earlier ones and the later ones, in no order, some several times."""


@dataclass(frozen=True)
class Conflicts:
    """Of a stream of ``length`` instructions: the pairs through scratchpads, and what is accessed in DRAM."""

    length: int
    on_core: Pairs
    dram: Accesses

    @cached_property
    def pairs(self) -> Pairs:
        """All pairs."""
        earlier, later = _together([self.on_core, *_pairs(self.dram)])
        return earlier, later

    def moved(self, order: Sequence[int]) -> Conflicts:
        """Those of a stream in another order, in which no instruction came to stand before one that it shares units
        with. ``order``: positions in this stream.

        Loads may overtake one another, so the last that reads of DRAM may be another: such pairs are found anew.
        """
        places = np.empty(self.length, np.int64)
        places[order] = np.arange(self.length)
        earlier, later = self.on_core
        positions = places[self.dram.positions]
        by_position = np.argsort(positions, kind="stable")
        dram = replace(
            self.dram, positions=positions[by_position], engines=self.dram.engines[by_position],
            writes=self.dram.writes[by_position], sets=self.dram.sets[by_position],
        )  # fmt: skip
        return Conflicts(self.length, (places[earlier], places[later]), dram)


def conflicts_of(issues: Sequence[Issue]) -> Conflicts:
    """Of all that the instructions of a stream touch."""
    accesses = accesses_of(issues)
    dram = accesses.pop(Memory.DRAM)
    return Conflicts(len(issues), _together([pair for each in accesses.values() for pair in _pairs(each)]), dram)


def _together(found: Sequence[Pairs]) -> Pairs:
    none = np.zeros(0, np.int64)
    earlier, later = (np.concatenate([none, *each]) for each in zip(*[(none, none), *found], strict=True))
    other = earlier != later  # an instruction that reads what it writes
    return earlier[other], later[other]


def _parts(accesses: Accesses) -> Iterator[slice]:
    """Of all accesses."""
    runs = np.cumsum(np.diff(accesses.begins)[accesses.sets])
    first = 0
    while first < len(runs):
        done = runs[first - 1] if first else 0
        stop = max(int(np.searchsorted(runs, done + RUNS)), first + 1)
        yield slice(first, stop)
        first = stop


class _States:
    """What happened to units: who wrote them last, and who of each engine was the last reader since. The state of
    which nothing is known is number 0."""

    def __init__(self, columns: int) -> None:
        self._rows = np.full((1024, columns), NOBODY, np.int64)
        self._count = 1

    def rows(self, numbers: Ints) -> Ints:
        """Positions, or NOBODY: the writer's, then the readers'."""
        return self._rows[numbers]

    def add(self, rows: Ints) -> Ints:
        """The numbers of new states; equal ones have one."""
        same = rows[:, 0] + 1
        for column in rows.T[1:]:
            same = _numbered(same << POSITION_BITS | column + 1)
        if len(rows.T) == 1:
            same = _numbered(same)
        first, stop = self._count, self._count + int(same.max(initial=-1)) + 1
        if stop > len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows), np.empty_like(rows)])
        self._rows[first + same] = rows
        self._count = stop
        return first + same


def _numbered(values: Ints) -> Ints:
    """The rank of each among the distinct values."""
    order = np.argsort(values)
    ordered = values[order]
    ranks = np.empty_like(values)
    ranks[order] = np.concatenate([[0], np.cumsum(ordered[1:] != ordered[:-1])])
    return ranks


def _pairs(accesses: Accesses) -> Iterator[Pairs]:
    """The pairs through one memory, also of an instruction with itself."""
    readers = np.unique(accesses.engines[~accesses.writes])
    column_of = np.searchsorted(readers, np.arange(ENGINES)) + 1
    states, state_of = _States(1 + len(readers)), np.zeros(accesses.size, np.int64)
    for part in _parts(accesses):
        run, access = flat(accesses.begins, accesses.sets[part])
        starts, stops = accesses.starts[run], accesses.stops[run]
        low, high = int(starts.min()), int(stops.max())
        here = state_of[low:high]
        cut = np.zeros(high - low + 1, np.bool_)
        cut[0] = cut[starts - low] = cut[stops - low] = True
        cut[1:-1] |= here[1:] != here[:-1]
        points = np.flatnonzero(cut)
        number = np.cumsum(cut) - 1
        # The accesses of each atom, one atom after the other.
        atom, which = ranges(number[starts - low], number[stops - low] - number[starts - low])
        order = np.argsort(atom.astype(np.uint16) if len(points) < 1 << 16 else atom, kind="stable")
        by_access, atom = access[which], atom[order]
        access = by_access[order]
        own, writing = accesses.positions[part], accesses.writes[part]
        position, write = own[access], writing[access]
        ends = np.cumsum(np.bincount(atom, minlength=len(points) - 1))
        begin = (ends - np.diff(ends, prepend=0))[atom]
        # In the part: the write before each access, and the one behind each read.
        index = np.arange(len(atom))
        written = np.maximum.accumulate(np.where(write, index, NOBODY))
        before = np.concatenate([[NOBODY], written[:-1]])
        has_before = before >= begin
        earlier, later = _once(order, by_access, np.where(has_before, access[before], NOBODY))
        yield own[earlier], own[later]
        behind = np.minimum.accumulate(np.where(write, index, len(atom))[::-1])[::-1]
        has_behind = ~write & (behind < ends[atom])
        later, earlier = _once(order, by_access, np.where(has_behind, access[behind * has_behind], NOBODY))
        yield own[earlier], own[later]
        # From before the part: what the first accesses of each atom meet.
        known, state = np.unique(here[points[:-1]], return_inverse=True)
        rows_of, rows = states.rows(known), states.rows(known)[state]
        met, meets = _once(order, by_access, np.where(has_before, NOBODY, state[atom]))
        yield _known(rows_of[met, 0], own[meets])
        writes = writing[meets]
        met, meets = met[writes], meets[writes]
        for column in rows_of.T[1:]:
            yield _known(column[met], own[meets])
        # Behind the part.
        is_last = np.concatenate([atom[1:] != atom[:-1], [True]])
        last = np.full(len(rows), NOBODY)
        last[atom[is_last]] = np.where(written >= begin, written, NOBODY)[is_last]
        again = last != NOBODY
        rows[again, 0], rows[again, 1:] = position[last[again]], NOBODY
        since = np.flatnonzero(~write & (index > last[atom]))
        column = column_of[accesses.engines[part][access[since]]]
        rows[atom[since], column] = position[since]  # the last of several stays
        state_of[low:high] = np.repeat(states.add(rows), np.diff(points))


def _once(order: Ints, accesses: Ints, partners: Ints) -> Pairs:
    """Partners with their accesses. Atoms of one access that follow one another often have the same one, which is named
    once. ``accesses``: atom by atom of each; ``order``: in which the ``partners`` stand, NOBODY for none."""
    found = np.empty_like(partners)
    found[order] = partners
    new = found != NOBODY
    new[1:] &= (found[1:] != found[:-1]) | (accesses[1:] != accesses[:-1])
    return found[new], accesses[new]


def _known(earlier: Ints, later: Ints) -> Pairs:
    known = earlier != NOBODY
    return earlier[known], later[known]
