"""What memories hold over time: an entry counts from the cycle in which it is written to the last one that reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..hw.config import CoreConfig
from ..hw.isa import Instruction
from ..hw.memories import Memory
from .accesses import Entries, Level, accesses

Integers = npt.NDArray[np.int64]

NEVER = -1


@dataclass(frozen=True)
class Steps:
    """A step function: ``values[i]`` from cycle ``starts[i]`` on; 0 before the first."""

    starts: Integers
    values: Integers

    def peaks(self, edges: Integers) -> Integers:
        """The largest value between consecutive ``edges``, which increase."""
        if not len(self.starts):
            return np.zeros(len(edges) - 1, np.int64)
        inside = slice(*np.searchsorted(self.starts, [edges[0], edges[-1]]).tolist())
        cuts = np.unique(np.concatenate([self.starts[inside], edges]))[:-1]  # the last edge is of no bin
        place = np.searchsorted(self.starts, cuts, side="right") - 1
        values = np.where(place >= 0, self.values[place], 0)
        found: Integers = np.maximum.reduceat(values, np.searchsorted(cuts, edges[:-1]))
        return found

    @staticmethod
    def of(begins: Integers, ends: Integers, nbytes: int) -> Steps:
        """Of intervals of time, in each of which ``nbytes`` are held."""
        cycles = np.concatenate([begins, ends])
        if not len(cycles):
            return Steps(cycles, cycles)
        changes = np.concatenate([np.full(len(begins), nbytes), np.full(len(ends), -nbytes)])
        order = np.argsort(cycles, kind="stable")
        cycles, values = cycles[order], np.cumsum(changes[order])
        last = np.append(cycles[1:] != cycles[:-1], True)
        return Steps(cycles[last], values[last])


class _Memory:
    def __init__(self, size: int) -> None:
        self._written = np.full(size, NEVER, np.int64)
        self._until = np.zeros(size, np.int64)
        self._begins: list[Integers] = []
        self._ends: list[Integers] = []

    def write(self, entries: Entries, start: int, retire: int) -> None:
        self._keep(entries)
        self._written[entries], self._until[entries] = start, retire

    def read(self, entries: Entries, retire: int) -> None:
        self._until[entries] = np.maximum(self._until[entries], retire)

    def _keep(self, entries: Entries) -> None:
        written = self._written[entries]
        there = written != NEVER
        self._begins.append(written[there])
        self._ends.append(self._until[entries][there])

    def steps(self, nbytes: int) -> Steps:
        self._keep(slice(None))
        return Steps.of(np.concatenate(self._begins), np.concatenate(self._ends), nbytes)


def held(
    config: CoreConfig, instructions: Sequence[Instruction], loops: Sequence[tuple[Level, ...]],
    events: npt.NDArray[np.void], window_bytes: int,
) -> Mapping[Memory, Steps]:  # fmt: skip
    """Bytes that each scratchpad holds, and those of the DRAM window that one layer wrote for another.

    ``loops``: as `accesses.nests` says; ``events``: of the run's trace. What the host put into the window, constants
    and inputs, does not count: it was there before.
    """
    sizes = {memory: config.depth(memory) for memory in config.scratchpads}
    sizes[Memory.DRAM] = window_bytes // config.granule_bytes + 1
    memories = {memory: _Memory(size) for memory, size in sizes.items()}
    for _, number, start, retire in events[np.argsort(events["start"], kind="stable")].tolist():
        for memory, entries, kind in accesses(config, instructions[number], loops[number]):
            if kind == "write":
                memories[memory].write(entries, start, retire)
            else:
                memories[memory].read(entries, retire)
    each = {memory: config.entry_elements(memory) * memory.element_bytes for memory in config.scratchpads}
    each[Memory.DRAM] = config.granule_bytes
    return {memory: found.steps(each[memory]) for memory, found in memories.items()}
