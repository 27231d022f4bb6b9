"""What the instructions of a stream touch, as arrays: all accesses to a memory at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, count
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from .....hw.memories import Memory
from .stream import Access, Issue, offsets_of

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


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


def engines_of(issues: Sequence[Issue]) -> Ints:
    """The engine of each instruction."""
    return np.array([issue.instruction.engine for issue in issues], np.int64)


def accesses_of(issues: Sequence[Issue], memories: Iterable[Memory] = Memory) -> dict[Memory, Accesses]:
    """What the instructions of a stream touch, by memory (:attr:`Issue.accesses`)."""
    several = list(chain.from_iterable([issue.accesses for issue in issues]))  # of each what is read, what is written
    places = np.repeat(np.arange(len(several)), np.fromiter(map(len, several), np.int64, len(several)))
    positions, writes = places >> 1, (places & 1).astype(np.bool_)
    # Streams touch the same again and again: the distinct ones are few.
    numbers: defaultdict[_Set, int] = defaultdict(count().__next__)
    sets = np.array([numbers[each] for each in map(_as_set, chain.from_iterable(several))], np.int64)
    engines = engines_of(issues)
    found = {}
    for memory in memories:
        own = np.array([each[0] is memory for each in numbers], np.bool_)
        here = own[sets]
        known = [each for each, is_own in zip(numbers, own.tolist(), strict=True) if is_own]
        number = np.cumsum(own) - 1
        found[memory] = _arranged(positions[here], engines, writes[here], number[sets[here]], known)
    return found


_Set = tuple[Memory, int, tuple[int, ...], tuple[int, ...]]
"""The fields of an access."""

_as_set: Callable[[Access], _Set] = attrgetter("memory", "start", "extents", "strides")


def _arranged(positions: Ints, engines: Ints, writes: Flags, sets: Ints, known: Sequence[_Set]) -> Accesses:
    runs = [runs_of(extents, strides) for *_, extents, strides in known]
    begins = np.cumsum([0, *(len(starts) for starts, _ in runs)])
    shifts = np.repeat(np.array([start for _, start, *_ in known], np.int64), np.diff(begins))
    starts = np.concatenate([np.zeros(0, np.int64), *(starts for starts, _ in runs)]) + shifts
    stops = np.concatenate([np.zeros(0, np.int64), *(stops for _, stops in runs)]) + shifts
    points = np.unique(np.concatenate([starts, stops]))
    return Accesses(
        positions, engines[positions], writes, sets, begins,
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
