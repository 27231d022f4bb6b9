"""The sequential instruction stream: instructions in an order in which running them one by one is correct.

Each knows what it touches, so that :mod:`.tokens` can let the engines run at the same time without changing the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from .....hw.config import CoreConfig
from .....hw.isa import Engine, Instruction
from .....hw.memories import Memory
from .....records import quick_init

RECENT = 256
"""Instructions behind another within which one may still have to wait for it; what lies further back is done."""

_any = np.logical_or.reduce  # `.any()` takes twice as long

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


TRANSFERS = (Engine.LOAD, Engine.LOADW, Engine.STORE)
"""Engines that reach DRAM."""

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
    _places: tuple[Places, Places] | None = field(default=None, repr=False, compare=False)

    @property
    def places(self) -> tuple[Places, Places]:
        """What is only read, and what is written; worked out once. The emitter gives what is both as one object."""
        if self._places is None:
            writes = self.writes
            reads: Places = []
            for access in self.reads:
                for written in writes:
                    if access is written:
                        break
                else:
                    reads.append((access.memory, access.selector()))
            self._places = reads, [(access.memory, access.selector()) for access in writes]
        return self._places

    def forget(self, memory: Memory, *, written: bool) -> None:
        """From now on :attr:`places` leaves out what is read of a memory, or what is written."""
        reads, writes = self.places
        if written:
            self._places = reads, [each for each in writes if each[0] is not memory]
        else:
            self._places = [each for each in reads if each[0] is not memory], writes

    @property
    def finished(self) -> Instruction:
        """The instruction with its waits and sends."""
        return self.instruction.with_tokens(self.waits, self.sends)


def forget_constants(issues: Sequence[Issue]) -> None:
    """Leave DRAM that no instruction writes out of :attr:`Issue.places`: nothing has to wait for it. Where nothing that
    is written is read, leave out all of it: stores keep their order by themselves."""
    transfers = [issue for issue in issues if issue.instruction.engine in TRANSFERS]
    in_dram = [(issue, place) for issue in transfers for place in issue.places[1] if place[0] is Memory.DRAM]
    written = np.zeros(max((_stop(selector) for _, (_, selector) in in_dram), default=0), np.bool_)
    for _, (_, selector) in in_dram:
        written[selector] = True
    is_read = False
    for issue in transfers:
        read = [selector for memory, selector in issue.places[0] if memory is Memory.DRAM]
        if any(_any(written[each if isinstance(each, slice) else each[each < len(written)]]) for each in read):
            is_read = True
        elif read:
            issue.forget(Memory.DRAM, written=False)
    if not is_read and all(issue.instruction.engine is Engine.STORE for issue, _ in in_dram):
        for issue, _ in in_dram:
            issue.forget(Memory.DRAM, written=True)


def _stop(selector: Selector) -> int:
    """One past the last unit."""
    return int(selector.stop if isinstance(selector, slice) else selector[-1] + 1)


def memory_sizes(config: CoreConfig, issues: Sequence[Issue]) -> dict[Memory, int]:
    """Units of every memory; of DRAM, up to the last one in :attr:`Issue.places`."""
    sizes = {memory: config.depth(memory) for memory in config.scratchpads}
    transfers = [issue.places for issue in issues if issue.instruction.engine in TRANSFERS]
    in_dram = (each for both in transfers for places in both for each in places if each[0] is Memory.DRAM)
    last = max((_stop(selector) for _, selector in in_dram), default=0)
    return {**sizes, Memory.DRAM: last}
