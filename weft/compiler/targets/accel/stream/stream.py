"""The sequential instruction stream: instructions in an order in which running them one by one is correct.

Each knows what it touches, so that :mod:`.tokens` can let the engines run at the same time without changing the result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from .....hw.config import CoreConfig
from .....hw.isa import Engine, Instruction
from .....hw.load_counts import granules_reached
from .....hw.memories import Memory
from .....records import quick_init

RECENT = 256
"""Instructions behind another within which one may still have to wait for it; what lies further back is done."""

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

    @property
    def stop(self) -> int:
        """One past the last unit."""
        return self.start + offsets_of(self.extents, self.strides)[1]

    def selector(self) -> Selector:
        """What picks the units out of an array with one element a unit."""
        offsets, length = offsets_of(self.extents, self.strides)
        return slice(self.start, self.start + length) if offsets is None else offsets + self.start


def dram_access(config: CoreConfig, offset: int, rows: int, columns: int, stride: int, entry_bytes: int) -> Access:
    """The granules that a transfer touches; of entries that are no whole granules all from its first to its last."""
    if entry_bytes % config.granule_bytes:
        return Access(Memory.DRAM, offset, (granules_reached(config, rows, columns, stride, entry_bytes),), (1,))
    units = entry_bytes // config.granule_bytes
    if rows == 1 or stride == columns:
        return Access(Memory.DRAM, offset, (rows * columns * units,), (1,))
    return Access(Memory.DRAM, offset, (rows, columns * units), (stride * units, 1))


TRANSFERS = (Engine.LOAD, Engine.LOADW, Engine.STORE)
"""Engines that reach DRAM."""

Places = list[tuple[Memory, Selector]]
"""What picks the units out of arrays with one element for each unit of a memory."""


@lru_cache(maxsize=65536)
def offsets_of(extents: tuple[int, ...], strides: tuple[int, ...]) -> tuple[npt.NDArray[np.int64] | None, int]:
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
    _accesses: tuple[tuple[Access, ...], tuple[Access, ...]] | None = field(default=None, repr=False, compare=False)

    @property
    def accesses(self) -> tuple[tuple[Access, ...], tuple[Access, ...]]:
        """What is only read, and what is written. The emitter gives what is both as one object."""
        if self._accesses is None:
            writes = self.writes
            if len(writes) == 1:
                (written,) = writes
                reads = tuple([access for access in self.reads if access is not written])
            else:
                reads = tuple([access for access in self.reads if not any(access is each for each in writes)])
            self._accesses = reads, writes
        return self._accesses

    @property
    def places(self) -> tuple[Places, Places]:
        """What picks the units of :attr:`accesses` out."""
        reads, writes = self.accesses
        return [(each.memory, each.selector()) for each in reads], [(each.memory, each.selector()) for each in writes]

    def forget(self, memory: Memory, *, written: bool) -> None:
        """From now on :attr:`accesses` leaves out what is read of a memory, or what is written."""
        reads, writes = self.accesses
        if written:
            self._accesses = reads, tuple([each for each in writes if each.memory is not memory])
        else:
            self._accesses = tuple([each for each in reads if each.memory is not memory]), writes
