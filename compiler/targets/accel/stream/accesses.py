"""What the instructions of a stream touch, as arrays: all accesses to a memory at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

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


def accesses_of(issues: Sequence[Issue], memories: Iterable[Memory] = Memory) -> dict[Memory, Accesses]:
    """What the instructions of a stream touch, by memory (:attr:`Issue.accesses`)."""
    wanted: dict[Memory, tuple[list[int], list[bool], list[Access]]] = {memory: ([], [], []) for memory in memories}
    for position, issue in enumerate(issues):
        for writes, several in enumerate(issue.accesses):
            for access in several:
                if (own := wanted.get(access.memory)) is not None:
                    positions, written, accesses = own
                    positions.append(position)
                    written.append(bool(writes))
                    accesses.append(access)
    engines = np.array([issue.instruction.engine for issue in issues], np.int64)
    return {memory: _arranged(np.array(positions, np.int64), engines, np.array(written, np.bool_), accesses)
            for memory, (positions, written, accesses) in wanted.items()}  # fmt: skip


def _arranged(positions: Ints, engines: Ints, writes: Flags, accesses: Sequence[Access]) -> Accesses:
    numbers: dict[tuple[int, tuple[int, ...], tuple[int, ...]], int] = {}
    sets = [numbers.setdefault((each.start, each.extents, each.strides), len(numbers)) for each in accesses]
    runs = [_runs(extents, strides) for _, extents, strides in numbers]
    begins = np.cumsum([0, *(len(starts) for starts, _ in runs)])
    shifts = np.repeat(np.array([start for start, *_ in numbers], np.int64), np.diff(begins))
    starts = np.concatenate([np.zeros(0, np.int64), *(starts for starts, _ in runs)]) + shifts
    stops = np.concatenate([np.zeros(0, np.int64), *(stops for _, stops in runs)]) + shifts
    points = np.unique(np.concatenate([starts, stops]))
    return Accesses(
        positions, engines[positions], writes, np.array(sets, np.int64), begins,
        np.searchsorted(points, starts), np.searchsorted(points, stops), len(points),
    )  # fmt: skip


@lru_cache(maxsize=65536)
def _runs(extents: tuple[int, ...], strides: tuple[int, ...]) -> tuple[Ints, Ints]:
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
