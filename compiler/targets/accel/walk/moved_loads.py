"""Loads of entries in any order: few rectangles, and what is filled in."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from .....hw.config import STRIDE_BITS
from ..operators.moves import fill_of_entry
from .fold import Rectangle

Places = npt.NDArray[np.int64]

_LARGEST_STRIDE = (1 << STRIDE_BITS) - 1


def moved_pieces(numbers: Places) -> Iterator[tuple[Rectangle, int]]:
    """Numbers of entries, of which those below 0 are fills, as rectangles with what they are filled with. The
    scratchpad's entries follow each other in the order of the numbers."""
    if not len(numbers):
        return
    fills = numbers < 0
    breaks = np.flatnonzero((np.diff(fills) != 0) | (fills[1:] & (np.diff(numbers) != 0))) + 1
    for start, stop in zip([0, *breaks.tolist()], [*breaks.tolist(), len(numbers)], strict=True):
        if fills[start]:
            yield Rectangle(start, 0, 0, stop - start, top=1), fill_of_entry(int(numbers[start]))
        else:
            for piece in rectangles(numbers[start:stop]):
                yield Rectangle(start + piece.scratchpad, piece.dram, piece.rows, piece.columns, piece.stride), 0


def rectangles(entries: Places) -> Iterator[Rectangle]:
    """Entries in their order as rows, at equal distances, of neighbours."""
    breaks = np.flatnonzero(np.diff(entries) != 1) + 1
    starts = [0, *breaks.tolist()]
    stops = [*breaks.tolist(), len(entries)]
    runs = [(int(entries[start]), stop - start) for start, stop in zip(starts, stops, strict=True)]
    place = 0
    while place < len(runs):
        (first, columns), rows = runs[place], 1
        stride = runs[place + 1][0] - first if place + 1 < len(runs) else -1
        while (
            place + rows < len(runs) and 0 <= stride <= _LARGEST_STRIDE
            and runs[place + rows] == (first + rows * stride, columns)
        ):  # fmt: skip
            rows += 1
        yield Rectangle(starts[place], first, rows, columns, stride if rows > 1 else 0)
        place += rows
