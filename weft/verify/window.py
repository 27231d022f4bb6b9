"""DRAM of a core over the field: bytes of constants as they are, an element for each byte of a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..compiler.model import CorePart, TensorSlot
from .errors import NotProvedError
from .field import Elements
from .keyed import Keys


class Window:
    """What nobody has written is a random element. ``writer``: the instruction that stored each byte of the tensors
    last, -1 for none."""

    def __init__(self, core: CorePart, keys: Keys) -> None:
        slots = core.slots.values()
        self.start = min(slot.offset for slot in slots)
        self.stop = max(slot.offset + slot.nbytes for slot in slots)
        self.tensors = keys.atoms((self.stop - self.start,), "window")
        self.writer = np.full(self.stop - self.start, -1, np.int32)
        self.raw = np.zeros(core.window_bytes, np.uint8)
        self._is_constant = np.zeros(core.window_bytes, bool)
        for segment in core.constants:
            end = segment.offset + segment.data.nbytes
            if segment.offset < self.stop and end > self.start:
                raise NotProvedError(f"constant {segment.name!r} lies among the tensors")
            self.raw[segment.offset : end] = segment.data
            self._is_constant[segment.offset : end] = True

    def tensor(self, slot: TensorSlot) -> Elements:
        """The elements of a tensor, in its packed shape; a view."""
        return self.tensors[self._part(slot)].reshape(slot.shape)

    def writer_of(self, slot: TensorSlot, index: int) -> int:
        """The instruction that stored an element of a tensor last; -1 for none."""
        return int(self.writer[self._part(slot)][index])

    def write(self, slot: TensorSlot, values: Elements) -> None:
        """As the host does before a program."""
        self.tensors[self._part(slot)] = values.ravel()
        self.writer[self._part(slot)] = -1

    def _part(self, slot: TensorSlot) -> slice:
        place = slot.offset - self.start
        return slice(place, place + slot.nbytes)

    def read(self, start: int, rows: int, row_bytes: int, stride: int, item: int) -> tuple[npt.NDArray[Any], bool]:
        """(values, whether they are constants) of ``rows`` rows, of little-endian integers of ``item`` bytes.

        NotProvedError for what is neither.
        """
        last = start + (rows - 1) * stride + row_bytes
        if start >= self.start and last <= self.stop and item == 1:
            return _rows_of(self.tensors[start - self.start : last - self.start], rows, row_bytes, stride), False
        if (last > self.start and start < self.stop) or last > len(self.raw):
            raise NotProvedError(f"it reads bytes {start:#x}..{last:#x}, which are neither constants nor int8 tensors")
        if not _rows_of(self._is_constant[start:last], rows, row_bytes, stride).all():
            raise NotProvedError(f"it reads bytes of {start:#x}..{last:#x} that nobody writes")
        found = np.ascontiguousarray(_rows_of(self.raw[start:last], rows, row_bytes, stride))
        return found.view(f"<i{item}").astype(np.int64), True

    def store(self, start: int, rows: Elements, stride: int, number: int) -> None:
        """Rows in order: they may overlap."""
        place = start - self.start
        if place < 0 or place + (len(rows) - 1) * stride + rows.shape[1] > len(self.tensors):
            raise NotProvedError("it stores beside the tensors")
        for row in rows:
            self.tensors[place : place + len(row)] = row
            self.writer[place : place + len(row)] = number
            place += stride


def _rows_of(x: npt.NDArray[Any], rows: int, columns: int, stride: int) -> npt.NDArray[Any]:
    item = x.itemsize
    return np.lib.stride_tricks.as_strided(x, (rows, columns), (stride * item, item), writeable=False)
