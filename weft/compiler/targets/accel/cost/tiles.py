"""Tilings of one kernel as arrays, all at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

import numpy as np
import numpy.typing as npt

from .....hw.memories import Memory
from ..schedule.tiling import ChainTiling, Tiling

Array = npt.NDArray[Any]
"""One value a tiling."""

AnyTiling = TypeVar("AnyTiling", bound=Tiling, covariant=True)

TYPES: dict[str, type[np.generic]] = {"int": np.int64, "str": np.str_, "bool": np.bool_}
"""Of arrays, by the type of the field that they hold."""


@dataclass(frozen=True, eq=False)
class _Tiles(Sequence[AnyTiling], Generic[AnyTiling]):
    """The fields of :class:`Tiling` as arrays."""

    groups: Array
    rows: Array
    columns: Array
    reduction: Array
    order: Array
    epilogue_groups: Array
    epilogue_rows: Array
    threads: Array
    portion: Array

    one: ClassVar[type[Any]]
    """The class of one of them."""

    @classmethod
    def of(cls, tilings: Iterable[Tiling]) -> Self:
        if isinstance(tilings, cls):
            return tilings
        listed = list(tilings)
        return cls(*(np.array([getattr(each, field.name) for each in listed], TYPES[str(field.type)])
                     for field in fields(cls.one)))  # fmt: skip

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        return cls(*map(np.concatenate, zip(*(part.arrays for part in parts), strict=True))) if parts else cls.of(())

    @property
    def arrays(self) -> list[Array]:
        """One a field."""
        return [getattr(self, field.name) for field in fields(self)]

    def take(self, places: Array) -> Self:
        """Those at ``places``, or where it is true."""
        return type(self)(*(array[places] for array in self.arrays))

    def __len__(self) -> int:
        return len(self.groups)

    @overload
    def __getitem__(self, place: int) -> AnyTiling: ...
    @overload
    def __getitem__(self, place: slice) -> Self: ...
    def __getitem__(self, place: int | slice) -> AnyTiling | Self:
        if isinstance(place, slice):
            return type(self)(*(array[place] for array in self.arrays))
        tiling: AnyTiling = self.one(*(array[place].item() for array in self.arrays))
        return tiling


@dataclass(frozen=True, eq=False)
class Tiles(_Tiles[Tiling]):
    """Tilings of one kernel."""

    one = Tiling


@dataclass(frozen=True, eq=False)
class ChainTiles(_Tiles[ChainTiling]):
    """Tilings of one chain."""

    resident: Array
    skewed: Array
    ahead: Array
    rolling: Array

    one = ChainTiling


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
