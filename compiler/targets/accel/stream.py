"""The sequential instruction stream: instructions in an order in which running them one by one is correct.

Each knows what it touches, so that :mod:`.tokens` can let the engines run at the same time without changing the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ....hw.config import CoreConfig
from ....hw.isa import Instruction
from ....hw.memories import Memory
from ....records import quick_init

Selector = slice | npt.NDArray[np.int64]


@quick_init
@dataclass(frozen=True, slots=True)
class Access:
    """The units ``start + sum(i[d] * strides[d])`` for ``0 <= i[d] < extents[d]`` of one memory, strides > 0.

    Units of scratchpads are entries, those of DRAM granules from the window's base.
    """

    memory: Memory
    start: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]

    def selector(self) -> Selector:
        """What picks the units out of an array with one element a unit."""
        offsets, length = _offsets(self.extents, self.strides)
        return slice(self.start, self.start + length) if offsets is None else offsets + self.start

    @property
    def stop(self) -> int:
        """One past the last unit."""
        return self.start + sum((e - 1) * s for e, s in zip(self.extents, self.strides, strict=True)) + 1


Places = list[tuple[Memory, Selector]]
"""What picks the units out of arrays with one element for each unit of a memory."""


@lru_cache(maxsize=65536)
def _offsets(extents: tuple[int, ...], strides: tuple[int, ...]) -> tuple[npt.NDArray[np.int64] | None, int]:
    """Sorted distinct offsets, or None where they are all of ``0 .. length-1``; and that length."""
    offsets = np.zeros(1, np.int64)
    for extent, stride in sorted(zip(extents, strides, strict=True), key=lambda pair: pair[1]):
        if stride <= offsets[-1]:
            offsets = np.unique((offsets[:, None] + np.arange(extent) * stride).ravel())
        else:
            offsets = (np.arange(extent)[:, None] * stride + offsets).ravel()
    length = int(offsets[-1]) + 1
    return (None, length) if len(offsets) == length else (offsets, length)


@dataclass(slots=True)
class Issue:
    """One instruction of the stream, what it reads and writes, and which layer and tile it belongs to."""

    instruction: Instruction
    reads: tuple[Access, ...] = ()
    writes: tuple[Access, ...] = ()
    layer: int = 0
    tile: int = 0
    waits: int = field(default=0)  # mask of engines, filled in by the token pass
    sends: int = field(default=0)

    @property
    def places(self) -> tuple[Places, Places]:
        """What is only read, and what is written. The emitter gives what is both as one object."""
        writes = self.writes
        reads: Places = []
        for access in self.reads:
            for written in writes:
                if access is written:
                    break
            else:
                reads.append((access.memory, access.selector()))
        return reads, [(access.memory, access.selector()) for access in writes]

    @property
    def finished(self) -> Instruction:
        """The instruction with its waits and sends."""
        return self.instruction.with_tokens(self.waits, self.sends)


def memory_sizes(config: CoreConfig, issues: Sequence[Issue]) -> dict[Memory, int]:
    """Units of every memory; of DRAM, up to the last one that is touched."""
    sizes = {memory: config.depth(memory) for memory in config.scratchpads}
    last = 0
    for issue in issues:
        for accesses in (issue.reads, issue.writes):
            for access in accesses:
                if access.memory is Memory.DRAM:
                    last = max(last, access.stop)
    return {**sizes, Memory.DRAM: last}
