"""Tables of a flatbuffer, every access checked: an offset of a file may point anywhere, and a file is never believed.

A table begins with its distance to a list of 16-bit distances, one a field, of which 0 stands for a field that is left
out. Text, vectors and tables among the fields are found by one more distance. All numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...graph import Array
from ..errors import ModelError

_OFFSET = struct.Struct("<I")
_SIGNED = struct.Struct("<i")
_SHORT = struct.Struct("<H")
_FORMATS = {name: struct.Struct(f"<{name}") for name in "bBhHiIqQf?"}


class Buffer:
    """The bytes of a file. Every read outside of them raises `ModelError`, and so does one that makes a small file
    stand for a large one, by vectors that lie on each other: together they may have four elements a byte."""

    def __init__(self, data: bytes, name: str) -> None:
        self.data, self.name = memoryview(data), name
        self._left = 4 * len(data) + 1024

    def damaged(self, what: str) -> ModelError:
        return ModelError(f"{self.name} is not a complete LiteRT file: {what}", hint="is it truncated?")

    def read(self, form: struct.Struct, place: int) -> int:
        if not 0 <= place <= len(self.data) - form.size:
            raise self.damaged(f"it refers to byte {place:,} of {len(self.data):,}")
        return form.unpack_from(self.data, place)[0]  # type: ignore[no-any-return]

    def part(self, place: int, size: int) -> memoryview:
        if place < 0 or size < 0 or place + size > len(self.data):
            raise self.damaged(f"it refers to bytes {place:,} to {place + size:,} of {len(self.data):,}")
        return self.data[place : place + size]

    def spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise self.damaged("its parts are larger than the whole")

    def root(self) -> Table:
        return Table(self, self.read(_OFFSET, 0))


@dataclass(frozen=True)
class Table:
    """One table. ``slot`` counts its fields in the order of the schema, from 0."""

    buffer: Buffer
    place: int

    def __post_init__(self) -> None:
        self.buffer.spend(1)

    def _field(self, slot: int) -> int:
        """Where a field lies; 0 if it is left out."""
        fields = self.place - self.buffer.read(_SIGNED, self.place)
        if 4 + 2 * slot >= self.buffer.read(_SHORT, fields):
            return 0
        distance = self.buffer.read(_SHORT, fields + 4 + 2 * slot)
        return self.place + distance if distance else 0

    def _target(self, slot: int) -> int:
        place = self._field(slot)
        return place + self.buffer.read(_OFFSET, place) if place else 0

    def number(self, slot: int, kind: str, default: float = 0) -> float:
        """A number; ``kind`` as in `struct`."""
        place = self._field(slot)
        return self.buffer.read(_FORMATS[kind], place) if place else default

    def integer(self, slot: int, kind: str, default: int = 0) -> int:
        return int(self.number(slot, kind, default))

    def table(self, slot: int) -> Table | None:
        place = self._target(slot)
        return Table(self.buffer, place) if place else None

    def _vector(self, slot: int, size: int) -> tuple[int, int] | None:
        """Where the elements begin, and how many there are; None for a vector that is left out."""
        place = self._target(slot)
        if not place:
            return None
        count = self.buffer.read(_OFFSET, place)
        self.buffer.part(place + 4, count * size)
        return place + 4, count

    def numbers(self, slot: int, kind: str) -> Array | None:
        """A vector of numbers, a copy in the machine's order; None if it is left out."""
        size = _FORMATS[kind].size
        found = self._vector(slot, size)
        if found is None:
            return None
        self.buffer.spend(found[1])
        return np.frombuffer(self.buffer.part(found[0], found[1] * size), np.dtype(f"<{kind}")).copy()

    def integers(self, slot: int, kind: str = "i") -> tuple[int, ...]:
        found = self.numbers(slot, kind)
        return () if found is None else tuple(found.tolist())

    def bytes(self, slot: int) -> memoryview | None:
        """A vector of bytes, not copied; None if it is left out."""
        found = self._vector(slot, 1)
        return None if found is None else self.buffer.part(*found)

    def text(self, slot: int) -> str:
        found = self.bytes(slot)
        if found is None:
            return ""
        self.buffer.spend(len(found))
        return bytes(found).decode("utf-8", "replace")

    def tables(self, slot: int) -> Iterator[Table]:
        found = self._vector(slot, 4)
        for number in range(found[1] if found else 0):
            place = (found[0] if found else 0) + 4 * number
            yield Table(self.buffer, place + self.buffer.read(_OFFSET, place))
