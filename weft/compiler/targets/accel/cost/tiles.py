"""Tilings of one kernel as arrays, all at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from .....hw.memories import Memory
from ..schedule.tiling import Tiling

Array = npt.NDArray[Any]
"""One value a tiling."""


@dataclass(frozen=True, eq=False)
class Tiles(Sequence[Tiling]):
    """Tilings of one kernel: the fields of :class:`Tiling` as arrays."""

    groups: Array
    rows: Array
    columns: Array
    reduction: Array
    order: Array
    epilogue_groups: Array
    epilogue_rows: Array
    threads: Array
    portion: Array

    @staticmethod
    def of(tilings: Iterable[Tiling]) -> Tiles:
        if isinstance(tilings, Tiles):
            return tilings
        listed = list(tilings)
        return Tiles(*(np.array([getattr(each, name) for each in listed], kind) for name, kind in FIELDS.items()))

    def take(self, places: Array) -> Tiles:
        """Those at ``places``, or where it is true."""
        return Tiles(*(getattr(self, name)[places] for name in FIELDS))

    @staticmethod
    def joined(parts: Sequence[Tiles]) -> Tiles:
        return Tiles(*(np.concatenate([getattr(part, name) for part in parts]) for name in FIELDS))

    def __len__(self) -> int:
        return len(self.groups)

    @overload
    def __getitem__(self, place: int) -> Tiling: ...
    @overload
    def __getitem__(self, place: slice) -> Tiles: ...
    def __getitem__(self, place: int | slice) -> Tiling | Tiles:
        if isinstance(place, slice):
            return Tiles(*(getattr(self, name)[place] for name in FIELDS))
        return Tiling(*(getattr(self, name)[place].item() for name in FIELDS))


FIELDS: dict[str, type[np.generic]] = {
    each.name: np.str_ if each.name == "order" else np.int64 for each in fields(Tiling)
}


@dataclass(frozen=True)
class Buffers:
    """A buffer as each tiling has it: a number, or an array with one for each tiling."""

    scratchpad: Memory
    entries: Array | int
    copies: Array | int  # alive at once
    loads: Array | int  # how often it is filled from DRAM; 0 for results
    entry_bytes: Array | float = 0  # bytes read for an entry, on average
    zone: str = ""  # of ``acc``: what its zone is called there
    bursts: Array | float = 0  # of an entry, on average, of those that a slow memory answers
