"""Global memory of the interpreted device: allocations at addresses, with gaps between them."""

from __future__ import annotations

from bisect import insort
from typing import Any

import numpy as np

from .errors import PtxError
from .types import Array

GAP = 256
"""Bytes between two allocations, and what their addresses are multiples of."""

_FIRST = 1 << 16
_LARGEST = 1 << 36


class DeviceMemory:
    """Bytes of a device. Kernels may touch what is allocated, and nothing between."""

    def __init__(self) -> None:
        self.bytes = np.zeros(_FIRST, np.uint8)
        self._regions: list[tuple[int, int]] = []  # first byte, and that behind the last
        self._starts = self._ends = np.zeros(0, np.int64)
        self._views: dict[Any, Array] = {}

    def allocate(self, nbytes: int) -> int:
        """The address of so many bytes, which are 0."""
        start = self._free_place(nbytes)
        if start + nbytes + GAP > self.bytes.size:
            size = max(2 * self.bytes.size, start + nbytes + GAP)
            if size > _LARGEST:
                raise PtxError(f"{nbytes:,} bytes do not fit into the memory of the interpreted device")
            grown = np.zeros(size, np.uint8)
            grown[: self.bytes.size] = self.bytes
            self.bytes = grown
            self._views.clear()
        self.bytes[start : start + nbytes] = 0
        insort(self._regions, (start, start + nbytes))
        self._changed()
        return start

    def free(self, address: int) -> None:
        """Give back what was allocated at this address."""
        self._regions = [region for region in self._regions if region[0] != address]
        self._changed()

    def put(self, array: Array) -> int:
        """The address of a copy of an array."""
        data = np.ascontiguousarray(array)
        address = self.allocate(data.nbytes)
        self.write(address, data)
        return address

    def write(self, address: int, array: Array) -> None:
        """Copy a contiguous array to an address. PtxError outside of what is allocated."""
        self._require(address, array.nbytes)
        self.bytes[address : address + array.nbytes] = array.reshape(-1).view(np.uint8)

    def read(self, address: int, array: Array) -> None:
        """Fill a contiguous array from an address. PtxError outside of what is allocated."""
        self._require(address, array.nbytes)
        array.reshape(-1).view(np.uint8)[:] = self.bytes[address : address + array.nbytes]

    def view(self, dtype: Any) -> Array:
        """All bytes as elements of a type."""
        if dtype not in self._views:
            self._views[dtype] = self.bytes[: self.bytes.size & -16].view(dtype)
        return self._views[dtype]

    def outside(self, addresses: Array, nbytes: int) -> Array | None:
        """Which of the accesses to so many bytes leave what is allocated; None where none does."""
        first, last = int(addresses.min()), int(addresses.max()) + nbytes
        place = int(np.searchsorted(self._starts, first, "right")) - 1
        if place >= 0 and last <= int(self._ends[place]):
            return None
        places = np.searchsorted(self._starts, addresses, "right") - 1
        if not self._starts.size:
            return np.ones(addresses.shape, bool)
        wrong = (places < 0) | (addresses + nbytes > self._ends[np.maximum(places, 0)])
        return wrong if wrong.any() else None

    def _require(self, address: int, nbytes: int) -> None:
        if nbytes and self.outside(np.array([address], np.int64), nbytes) is not None:
            raise PtxError(f"{nbytes:,} bytes at address {address} are outside of every allocation")

    def _free_place(self, nbytes: int) -> int:
        place = GAP
        for start, end in self._regions:
            if place + nbytes + GAP <= start:
                return place
            place = -(-max(end, start + 1) // GAP) * GAP + GAP
        return place

    def _changed(self) -> None:
        self._starts = np.array([start for start, _ in self._regions], np.int64)
        self._ends = np.array([end for _, end in self._regions], np.int64)
