"""Which instructions have to stay behind which earlier ones: they share units that at least one of them writes.

Of each unit of a memory it is known who wrote it last, and who of each engine was its last reader since. Named are
pairs that imply all others: from the last write to each access, and from the last reads to the next write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from .....hw.isa import Engine
from .....hw.memories import Memory
from ...llvm.scan import scan
from .accesses import Accesses, stream_of
from .rows import Ints
from .stream import Issue

ENGINES = len(Engine)

NOBODY = -1


Pairs = tuple[Ints, Ints]
"""Positions in a stream: the earlier ones and the later ones, in no order, some several times."""


@dataclass(frozen=True)
class Conflicts:
    """Of a stream whose instructions are of these ``engines``: the pairs through scratchpads, and what is accessed in
    DRAM."""

    engines: Ints
    on_core: Pairs
    dram: Accesses

    @cached_property
    def pairs(self) -> Pairs:
        """All pairs."""
        earlier, later = _together([self.on_core, _pairs(self.dram)])
        return earlier, later

    def moved(self, order: Ints) -> Conflicts:
        """Those of a stream in another order, in which no instruction came to stand before one that it shares units
        with. ``order``: positions in this stream.

        Loads may overtake one another, so the last that reads of DRAM may be another: such pairs are found anew.
        """
        places = np.empty(len(self.engines), np.int64)
        places[order] = np.arange(len(self.engines))
        earlier, later = self.on_core
        positions = places[self.dram.positions]
        by_position = np.argsort(positions, kind="stable")
        dram = replace(
            self.dram, positions=positions[by_position], engines=self.dram.engines[by_position],
            writes=self.dram.writes[by_position], sets=self.dram.sets[by_position],
        )  # fmt: skip
        return Conflicts(self.engines[order], (places[earlier], places[later]), dram)


def conflicts_of(issues: Sequence[Issue]) -> Conflicts:
    """Of all that the instructions of a stream touch."""
    touched = stream_of(issues).touched
    accesses = touched.by_memory()
    dram = accesses.pop(Memory.DRAM)
    return Conflicts(touched.engines, _together([_pairs(each) for each in accesses.values()]), dram)


def _together(found: Sequence[Pairs]) -> Pairs:
    none = np.zeros(0, np.int64)
    earlier, later = (np.concatenate([none, *each]) for each in zip(*[(none, none), *found], strict=True))
    other = earlier != later  # an instruction that reads what it writes
    return earlier[other], later[other]


def _pairs(accesses: Accesses) -> Pairs:
    """The pairs through one memory, also of an instruction with itself."""
    length = int(accesses.positions.max(initial=-1)) + 1
    room = 4 * len(accesses.sets)
    while True:
        earlier, later = np.empty(room, np.int64), np.empty(room, np.int64)
        found = _scan_pairs(
            accesses.positions, accesses.engines, accesses.writes.astype(np.int64), accesses.sets,
            len(accesses.sets), accesses.begins, accesses.starts, accesses.stops,
            np.full(accesses.size, NOBODY), np.full(accesses.size * ENGINES, NOBODY), np.full(length, NOBODY),
            earlier, later, room,
        )  # fmt: skip
        if found <= room:
            return earlier[:found], later[:found]
        room = found


@scan
def _scan_pairs(
    positions: Ints, engines: Ints, writes: Ints, sets: Ints, accesses: int, begins: Ints, starts: Ints, stops: Ints,
    writer: Ints, readers: Ints, met: Ints, earlier: Ints, later: Ints, room: int,
) -> int:  # fmt: skip
    """How many pairs there are; those for which there is ``room`` are noted. Of each unit the ``writer`` is known, and
    of each engine the last of its ``readers`` since; of each instruction, which one it ``met`` last."""
    found = 0
    for access in range(accesses):
        position = positions[access]
        for run in range(begins[sets[access]], begins[sets[access] + 1]):
            for unit in range(starts[run], stops[run]):
                other = writer[unit]
                if other != NOBODY and met[other] != position:
                    met[other] = position
                    if found < room:
                        earlier[found] = other
                        later[found] = position
                    found += 1
                if writes[access]:
                    writer[unit] = position
                    for reader in range(unit * ENGINES, unit * ENGINES + ENGINES):
                        other = readers[reader]
                        readers[reader] = NOBODY
                        if other != NOBODY and met[other] != position:
                            met[other] = position
                            if found < room:
                                earlier[found] = other
                                later[found] = position
                            found += 1
                else:
                    readers[unit * ENGINES + engines[access]] = position
    return found
