"""Who touched which bytes, and when: races, reads of what nobody wrote, copies that may still land.

Time in a block is counted by barriers. A touch is *before* another one if both are of one block and a barrier lies
between them; two touches by different threads of which neither is before the other are a race where one writes.
"""

from __future__ import annotations

import numpy as np

from .types import Array

_NEVER = 0  # so that memory that nobody touched takes none
_ALWAYS = np.int64(1) << 62  # no barrier orders it: threads of several blocks
_SEVERAL = -1
EPOCHS = 1 << 32
WORD = 4


class Watch:
    """The touches of a memory of ``nbytes`` bytes, in granules of ``granule`` bytes. Threads are numbers from 1 on;
    ``now`` of a thread is its block's number, from 1 on, times `EPOCHS`, and the barriers that the block has passed."""

    def __init__(self, nbytes: int, granule: int, *, starts_unknown: bool) -> None:
        count = -(-nbytes // granule)
        self.granule = granule
        self._writer, self._written = np.zeros(count, np.int32), np.zeros(count, np.int64)
        self._reader, self._read = np.zeros(count, np.int32), np.zeros(count, np.int64)
        self._known = np.zeros(count, bool) if starts_unknown else None
        self._flying = np.zeros(count, bool) if starts_unknown else None

    def _granules(self, places: Array, nbytes: int) -> list[Array]:
        return [(places + byte) // self.granule for byte in range(0, nbytes, self.granule)]

    def write(self, places: Array, nbytes: int, me: Array, now: Array) -> tuple[str, Array] | None:
        """Threads write so many bytes at places each; gives what is wrong and with which of them, if anything is."""
        for at in self._granules(places, nbytes):
            wrong = self._unordered(self._writer[at], self._written[at], me, now)
            if wrong.any():
                return "it writes what another thread wrote, with no barrier between", wrong
            wrong = self._unordered(self._reader[at], self._read[at], me, now)
            if wrong.any():
                return "it writes what another thread reads, with no barrier between", wrong
            if self._flying is not None and self._flying[at].any():
                return "it writes where an asynchronous copy may still land", self._flying[at]
            self._writer[at], self._written[at] = me, now
            wrong = self._writer[at] != me
            if wrong.any():
                return "two threads write it at once", wrong
            if self._known is not None:
                self._known[at] = True
        return None

    def read(self, places: Array, nbytes: int, me: Array, now: Array) -> tuple[str, Array] | None:
        """As `write`, for reads. Of a word some bytes may be what nobody wrote: compilers read whole words for a few
        bytes."""
        granules = self._granules(places, nbytes)
        if self._known is not None:
            each = max(1, WORD // self.granule)
            for first in range(0, len(granules), each):
                known = np.logical_or.reduce(self._known[granules[first : first + each]])
                if not known.all():
                    return "it reads what was never written", ~known
        for at in granules:
            if self._flying is not None and self._flying[at].any():
                return "it reads where an asynchronous copy may still land: wait for the copy", self._flying[at]
            wrong = self._unordered(self._writer[at], self._written[at], me, now)
            if wrong.any():
                return "it reads what another thread wrote, with no barrier between", wrong
            others = self._unordered(self._reader[at], self._read[at], me, now)
            block = now // EPOCHS
            self._read[at] = np.where(others & (self._read[at] // EPOCHS != block), _ALWAYS, now)
            self._reader[at] = np.where(others, _SEVERAL, me)
            again = at[self._reader[at] != me]  # several threads of this very instruction, or of earlier ones
            if again.size:
                self._reader[again] = _SEVERAL
                mixed = self._read[at] // EPOCHS != block
                if mixed.any():
                    self._read[at[mixed]] = _ALWAYS
        return None

    def fly(self, places: Array, nbytes: int, me: Array, now: Array) -> tuple[str, Array] | None:
        """Asynchronous copies start: until they land, nobody may touch these bytes."""
        found = self.write(places, nbytes, me, now)
        if found is None and self._flying is not None:
            for at in self._granules(places, nbytes):
                self._flying[at] = True
        return found

    def land(self, places: Array, nbytes: int, me: Array, now: Array) -> None:
        """Copies have landed; the threads that started them see them, others do after a barrier."""
        for at in self._granules(places, nbytes):
            if self._flying is not None:
                self._flying[at] = False
            self._writer[at], self._written[at] = me, now

    @staticmethod
    def _unordered(thread: Array, when: Array, me: Array, now: Array) -> Array:
        """Whether a touch by another thread is not before now."""
        result: Array = (when != _NEVER) & (thread != me) & ~((when // EPOCHS == now // EPOCHS) & (when < now))
        return result
