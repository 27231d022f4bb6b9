"""What the instructions of a stream touch, as arrays: all accesses to a memory at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import overload

import numpy as np

from .....hw.memories import Memory
from .rows import Flags, Ints, Rows, Shape
from .stream import Issue, offsets_of

Set = tuple[Memory, int, tuple[int, ...], tuple[int, ...]]
"""The fields of an access: which units it picks."""


@dataclass(frozen=True)
class Accesses:
    """All accesses to one memory, in the stream's order; an instruction's reads stand before its writes.

    ``positions``: of the instructions; ``engines``: theirs; ``writes``: whether an access writes; ``sets``: which set
    of units it picks. The runs of consecutive units of set s are those from ``begins[s]`` on; run r has
    the units ``starts[r] .. stops[r] - 1``, counted in pieces of the memory that no access takes a part of. The memory
    has ``size`` of these.
    """

    positions: Ints
    engines: Ints
    writes: Flags
    sets: Ints
    begins: Ints
    starts: Ints
    stops: Ints
    size: int


@dataclass(frozen=True)
class Touched:
    """All accesses of a stream, in its order; an instruction's reads stand before its writes. ``positions``: of the
    instructions; ``writes``: whether an access writes; ``sets``: which of the ``known`` sets of units it picks;
    ``engines``: of the stream's instructions."""

    positions: Ints
    writes: Flags
    sets: Ints
    known: Sequence[Set]
    engines: Ints

    def of(self, memory: Memory) -> Flags:
        """Which of the accesses are to a memory."""
        return np.array([each[0] is memory for each in self.known], np.bool_)[self.sets]

    def by_memory(self, memories: Iterable[Memory] = Memory) -> dict[Memory, Accesses]:
        """The accesses to each memory."""
        found = {}
        for memory in memories:
            own = np.array([each[0] is memory for each in self.known], np.bool_)
            here = own[self.sets]
            known = [each for each, is_own in zip(self.known, own.tolist(), strict=True) if is_own]
            number = np.cumsum(own) - 1
            positions = self.positions[here]
            found[memory] = _arranged(
                positions, self.engines[positions], self.writes[here], number[self.sets[here]], known
            )
        return found

    def without(self, left_out: Flags) -> Touched:
        """Without some of the accesses."""
        kept = ~left_out
        return replace(self, positions=self.positions[kept], writes=self.writes[kept], sets=self.sets[kept])


@dataclass(frozen=True)
class Stream(Sequence[Issue]):
    """The instructions of a stream, and what they touch. A pass that puts others in the place of a few finds out what
    these touch, and nothing of the rest anew."""

    rows: Rows
    touched: Touched = field(repr=False, compare=False)

    @overload
    def __getitem__(self, place: int) -> Issue: ...

    @overload
    def __getitem__(self, place: slice) -> list[Issue]: ...

    def __getitem__(self, place: int | slice) -> Issue | list[Issue]:
        return self.rows[place]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Issue]:
        return iter(self.rows)

    def cut(self, parts: Mapping[int, Sequence[Issue]]) -> Stream:
        """The stream with ``parts`` in the place of the instruction at each of these positions, in their order."""
        if not parts:
            return self
        counts = np.array([len(several) for several in parts.values()], np.int64)
        return self.replaced(np.fromiter(parts, np.int64, len(parts)), counts, Rows.of(chain(*parts.values())))

    def replaced(self, cut: Ints, counts: Ints, in_place: Rows) -> Stream:
        """The stream with so many instructions of ``in_place`` for the one at each position of ``cut``, in order."""
        old, fresh = self.touched, touched_by(in_place)
        lengths = np.ones(len(self), np.int64)
        lengths[cut] = counts
        places = np.cumsum(lengths) - lengths
        fresh_places = ranges(places[cut], lengths[cut])[0]
        stays = np.ones(len(self), np.bool_)
        stays[cut] = False
        picked = np.empty(int(lengths.sum()), np.int64)  # of the old ones, and the fresh ones behind them
        picked[places[stays]], picked[fresh_places] = np.flatnonzero(stays), len(self) + np.arange(len(in_place))
        joined = Rows.joined([self.rows, in_place]).picked(picked)
        rows = stays[old.positions]
        positions = np.concatenate([places[old.positions[rows]], fresh_places[fresh.positions]])
        order = np.argsort(positions, kind="stable")
        sets = np.concatenate([old.sets[rows], fresh.sets + len(old.known)])
        writes = np.concatenate([old.writes[rows], fresh.writes])
        return Stream(
            joined, Touched(positions[order], writes[order], sets[order], [*old.known, *fresh.known], joined.engines)
        )


def stream_of(issues: Sequence[Issue]) -> Stream:
    """The stream of these instructions."""
    if isinstance(issues, Stream):
        return issues
    rows = issues if isinstance(issues, Rows) else Rows.of(issues)
    return Stream(rows, touched_by(rows))


def touched_by(rows: Rows) -> Touched:
    """What the instructions of a stream touch (:attr:`Issue.accesses`)."""
    shapes: dict[Shape, int] = {}
    of_form: list[list[tuple[int, int, int]]] = []  # of each access its column, its shape and whether it writes
    for form in rows.forms:
        before = len(form.addressed)
        of_form.append([
            (before + each, shapes.setdefault(form.sets[each], len(shapes)), writes)
            for writes, own in enumerate(form.accesses) for each in own
        ])  # fmt: skip
    begins = np.cumsum([0, *map(len, of_form)])
    columns, shape_of, writes = np.array([*chain.from_iterable(of_form)], np.int64).reshape(-1, 3).T
    access, positions = flat(begins, rows.form_of)
    starts = rows.addresses[positions, columns[access]]
    # Streams touch the same again and again: the distinct ones are few.
    keys, sets = np.unique(starts * len(shapes) + shape_of[access], return_inverse=True)
    start_of, shape = np.divmod(keys, max(len(shapes), 1))
    of_shape = list(shapes)
    known = []
    for start, number in zip(start_of.tolist(), shape.tolist(), strict=True):
        memory, extents, strides = of_shape[number]
        known.append((memory, start, extents, strides))
    return Touched(positions, writes[access].astype(np.bool_), sets.reshape(-1), known, rows.engines)


def accesses_of(issues: Sequence[Issue], memories: Iterable[Memory] = Memory) -> dict[Memory, Accesses]:
    """What the instructions of a stream touch, by memory."""
    return stream_of(issues).touched.by_memory(memories)


def _arranged(positions: Ints, engines: Ints, writes: Flags, sets: Ints, known: Sequence[Set]) -> Accesses:
    runs = [runs_of(extents, strides) for *_, extents, strides in known]
    begins = np.cumsum([0, *(len(starts) for starts, _ in runs)])
    shifts = np.repeat(np.array([start for _, start, *_ in known], np.int64), np.diff(begins))
    starts = np.concatenate([np.zeros(0, np.int64), *(starts for starts, _ in runs)]) + shifts
    stops = np.concatenate([np.zeros(0, np.int64), *(stops for _, stops in runs)]) + shifts
    points = np.unique(np.concatenate([starts, stops]))
    return Accesses(
        positions, engines, writes, sets, begins,
        np.searchsorted(points, starts), np.searchsorted(points, stops), len(points),
    )  # fmt: skip


@lru_cache(maxsize=65536)
def runs_of(extents: tuple[int, ...], strides: tuple[int, ...]) -> tuple[Ints, Ints]:
    """First units of the runs of consecutive units, from 0, and the units behind them."""
    offsets, length = offsets_of(extents, strides)
    if offsets is None:
        return np.zeros(1, np.int64), np.array([length], np.int64)
    gaps = np.flatnonzero(np.diff(offsets) != 1)
    return offsets[np.concatenate([[0], gaps + 1])], offsets[np.concatenate([gaps, [len(offsets) - 1]])] + 1


def flat(begins: Ints, chosen: Ints) -> tuple[Ints, Ints]:
    """Of rows that begin at ``begins``, all elements of those that are chosen, one after the other; and for each of
    them the place of its row in ``chosen``."""
    lengths = (begins[1:] - begins[:-1])[chosen]
    return ranges(begins[chosen], lengths)


def ranges(firsts: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """The numbers ``first .. first + length - 1`` of each pair, one after the other; and which pair each is of."""
    ends = np.cumsum(lengths)
    which = np.repeat(np.arange(len(firsts)), lengths)
    return np.arange(len(which)) + (firsts - ends + lengths)[which], which
