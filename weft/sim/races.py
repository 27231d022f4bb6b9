"""Race detection with vector clocks: are all accesses to an entry ordered by tokens or by one engine's program order?

The answer does not depend on the order in which the simulator happens to run the engines: the n-th wait of one engine
for another always meets the n-th send, so "happens before" is a property of the program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ..hw.isa import ENGINE_NAMES, MEMORY_USERS, Engine
from ..hw.memories import Memory
from .errors import RaceError

Clock = tuple[int, ...]
"""For each engine, how many of its instructions have certainly ended."""

Entries = slice | npt.NDArray[np.int64]
"""Entries of one memory that an instruction touches, as a NumPy index."""


class RaceDetector:
    """Last access of every engine to every entry of every memory (DRAM: granule), as instruction counts of that engine.

    Counts keep growing from run to run, so that starting a program costs nothing: everything before it has ended.
    """

    def __init__(self, entries: Mapping[Memory, int]) -> None:
        self._write = {
            memory: {engine: np.zeros(size, np.int32) for engine in MEMORY_USERS[memory].writers}
            for memory, size in entries.items()
        }
        self._read = {
            memory: {engine: np.zeros(size, np.int32) for engine in MEMORY_USERS[memory].readers}
            for memory, size in entries.items()
        }
        self._base = 0
        self._clocks: list[list[int]] = []
        self._numbers: list[list[int]] = []
        self.begin_program()

    def begin_program(self) -> None:
        """Everything that was accessed so far is ordered before what follows."""
        self._base = max((clock[engine] for engine, clock in enumerate(self._clocks)), default=0)
        self._clocks = [[self._base] * len(Engine) for _ in Engine]
        self._numbers = [[] for _ in Engine]

    def begin(self, engine: Engine, number: int, received: Sequence[Clock]) -> None:
        """Instruction ``number`` starts on ``engine`` with the clocks that its tokens carried."""
        clock = self._clocks[engine]
        for other in received:
            clock[:] = map(max, clock, other)
        clock[engine] += 1
        self._numbers[engine].append(number)

    def clock(self, engine: Engine) -> Clock:
        """What a token sent now by ``engine`` carries."""
        return tuple(self._clocks[engine])

    def access(self, engine: Engine, memory: Memory, entries: Entries, *, write: bool) -> None:
        """The instruction begun last on ``engine`` touches ``entries``; :class:`RaceError` names the other one."""
        clock = self._clocks[engine]
        seen = (("writes", self._write[memory]), ("reads", self._read[memory]))
        for verb, last in seen if write else seen[:1]:
            for other, counts in last.items():
                if other == engine:
                    continue
                late = counts[entries] > clock[other]
                if late.any():
                    self._report(engine, "writes" if write else "reads", other, verb, memory, entries, late, counts)
        own = (self._write if write else self._read)[memory][engine]
        own[entries] = clock[engine]

    def _report(
        self,
        engine: Engine,
        verb: str,
        other: Engine,
        other_verb: str,
        memory: Memory,
        entries: Entries,
        late: npt.NDArray[np.bool_],
        counts: npt.NDArray[np.int32],
    ) -> None:
        position = int(np.flatnonzero(late)[0])
        if isinstance(entries, slice):
            entry = int(entries.start) + position
        else:
            entry = int(entries.reshape(-1)[position])
        first = self._numbers[other][int(counts[entry]) - self._base - 1]
        second = self._numbers[engine][-1]
        unit = "granule " if memory is Memory.DRAM else "entry "
        raise RaceError(
            f"race on {memory} {unit}{entry}: instruction {first} ({ENGINE_NAMES[other]}) {other_verb} it and "
            f"instruction {second} ({ENGINE_NAMES[engine]}) {verb} it, with no chain of tokens between them",
            first=first,
            second=second,
            memory=memory,
            entry=entry,
        )
