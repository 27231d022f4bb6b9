"""What the instructions of a stream touch, as arrays: all accesses to a memory at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, count
from operator import attrgetter
from typing import overload

import numpy as np
import numpy.typing as npt

from .....hw.isa import Engine
from .....hw.memories import Memory
from .stream import Access, Issue, offsets_of

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

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
    """The ``issues`` of a stream, and what they touch. A pass that puts others in the place of a few finds out what
    these touch, and nothing of the rest anew."""

    issues: list[Issue]
    touched: Touched = field(repr=False, compare=False)

    @overload
    def __getitem__(self, place: int) -> Issue: ...

    @overload
    def __getitem__(self, place: slice) -> list[Issue]: ...

    def __getitem__(self, place: int | slice) -> Issue | list[Issue]:
        return self.issues[place]

    def __len__(self) -> int:
        return len(self.issues)

    def __iter__(self) -> Iterator[Issue]:
        return iter(self.issues)

    def cut(self, parts: Mapping[int, Sequence[Issue]]) -> Stream:
        """The stream with ``parts`` in the place of the instruction at each of these positions, in their order."""
        if not parts:
            return self
        issues: list[Issue] = []
        done = 0
        for position, several in parts.items():
            issues += self.issues[done:position]
            issues += several
            done = position + 1
        issues += self.issues[done:]
        old, fresh = self.touched, touched_by(list(chain.from_iterable(parts.values())))
        cut = np.fromiter(parts, np.int64, len(parts))
        lengths = np.ones(len(self.issues), np.int64)
        lengths[cut] = [len(several) for several in parts.values()]
        places = np.cumsum(lengths) - lengths
        fresh_places = ranges(places[cut], lengths[cut])[0]
        stays = np.ones(len(self.issues), np.bool_)
        stays[cut] = False
        engines = np.empty(len(issues), np.int64)
        engines[places[stays]], engines[fresh_places] = old.engines[stays], fresh.engines
        rows = stays[old.positions]
        positions = np.concatenate([places[old.positions[rows]], fresh_places[fresh.positions]])
        order = np.argsort(positions, kind="stable")
        sets = np.concatenate([old.sets[rows], fresh.sets + len(old.known)])
        writes = np.concatenate([old.writes[rows], fresh.writes])
        return Stream(
            issues, Touched(positions[order], writes[order], sets[order], [*old.known, *fresh.known], engines)
        )


def stream_of(issues: Sequence[Issue]) -> Stream:
    """The stream of these instructions."""
    return issues if isinstance(issues, Stream) else Stream(list(issues), touched_by(issues))


def engines_of(issues: Sequence[Issue]) -> Ints:
    """The engine of each instruction."""
    return np.fromiter(map(_engine, issues), np.int64, len(issues))


def touched_by(issues: Sequence[Issue]) -> Touched:
    """What the instructions of a stream touch (:attr:`Issue.accesses`)."""
    several = list(chain.from_iterable([issue.accesses for issue in issues]))  # of each what is read, what is written
    places = np.repeat(np.arange(len(several)), np.fromiter(map(len, several), np.int64, len(several)))
    # Streams touch the same again and again: the distinct ones are few.
    numbers: defaultdict[Set, int] = defaultdict(count().__next__)
    sets = np.array([numbers[each] for each in map(_as_set, chain.from_iterable(several))], np.int64)
    return Touched(places >> 1, (places & 1).astype(np.bool_), sets, list(numbers), engines_of(issues))


def accesses_of(issues: Sequence[Issue], memories: Iterable[Memory] = Memory) -> dict[Memory, Accesses]:
    """What the instructions of a stream touch, by memory."""
    return stream_of(issues).touched.by_memory(memories)


_engine: Callable[[Issue], Engine] = attrgetter("instruction.engine")
_as_set: Callable[[Access], Set] = attrgetter("memory", "start", "extents", "strides")


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
