"""Which bytes of DRAM a program touches, as sets of intervals."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Offsets = npt.NDArray[np.int64]


class Footprint:
    """Bytes read, and bytes written."""

    def __init__(self) -> None:
        self._parts: dict[bool, list[tuple[Offsets, int]]] = {False: [], True: []}

    def add(self, start: int, row_bytes: int, rows: int = 1, stride: int = 0, *, write: bool) -> None:
        """``rows`` pieces of ``row_bytes``, each ``stride`` bytes after the one before."""
        self._parts[write].append((start + np.arange(rows, dtype=np.int64) * stride, row_bytes))

    def intervals(self, *, write: bool) -> Intervals:
        """What was read, or written."""
        parts = self._parts[write]
        starts = [rows for rows, _ in parts]
        ends = [rows + size for rows, size in parts]
        return Intervals.of(np.concatenate(starts or [np.zeros(0, np.int64)]),
                            np.concatenate(ends or [np.zeros(0, np.int64)]))  # fmt: skip


class Intervals:
    """A set of whole numbers: ascending intervals ``starts[i]..ends[i]`` with gaps between them."""

    def __init__(self, starts: Offsets, ends: Offsets) -> None:
        self.starts = starts
        self.ends = ends

    @staticmethod
    def of(starts: Offsets, ends: Offsets) -> Intervals:
        """The union of any intervals."""
        filled = ends > starts
        starts, ends = starts[filled], ends[filled]
        if not len(starts):
            return Intervals(starts, ends)
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], np.maximum.accumulate(ends[order])
        apart = starts[1:] > ends[:-1]
        return Intervals(starts[np.append(True, apart)], ends[np.append(apart, True)])

    def common(self, other: Intervals) -> int | None:
        """The least number that is in both; None if there is none."""
        place = np.searchsorted(other.ends, self.starts, side="right")  # the first interval that ends behind the start
        there = place < len(other.ends)
        first = np.maximum(self.starts[there], other.starts[place[there]])
        met = first[first < self.ends[there]]
        return int(met.min()) if len(met) else None
