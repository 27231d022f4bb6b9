"""Loads of entries in any order: few rectangles, and what is filled in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from .....hw.config import STRIDE_BITS, CoreConfig
from .....hw.isa import Load, Scratchpad
from ...errors import CompileError
from ..operators.intrinsics import EmitLoad
from ..operators.moves import entry_of_fill, fill_of_entry
from .fold import Rectangle

Places = npt.NDArray[np.int64]

_LARGEST_STRIDE = (1 << STRIDE_BITS) - 1


def moved_loads(
    config: CoreConfig, emits: EmitLoad, index: int, start: int, rectangles: Sequence[Rectangle], numbers: Places,
    pad: int,
) -> Iterator[tuple[Rectangle, Load]]:  # fmt: skip
    """Loads of a copy of what begins at byte ``start`` of a tensor to ``index`` and behind. ``numbers``: those of the
    tensor's entries in the window; below 0 they are fills."""
    entry_bytes, each = emits.scratchpad.dram_bytes(config), 1
    if emits.scratchpad is Scratchpad.WGT:
        each = config.block_out
        matrices = as_matrices(numbers, each)
        if matrices is None:
            raise CompileError("entries that are loaded as matrices lie apart", hint="move them by a layer")
        numbers = matrices
    for whole in rectangles:
        first = start // entry_bytes + whole.dram
        places = first + np.arange(whole.rows)[:, None] * whole.stride + np.arange(whole.columns)
        around = (whole.top, whole.bottom), (whole.left, whole.right)
        wanted = np.pad(numbers[places], around, constant_values=entry_of_fill(pad)).ravel()
        for piece, value in moved_pieces(wanted, each):
            offset, rest = divmod(piece.dram * (entry_bytes // each), config.granule_bytes)
            if rest:
                raise CompileError("matrices that are loaded begin at no address", hint="move them by a layer")
            yield piece, Load(
                engine=emits.engine, scratchpad=emits.scratchpad, index=index + whole.scratchpad + piece.scratchpad,
                offset=offset, rows=piece.rows, columns=piece.columns, stride=piece.stride, pad_top=piece.top,
                pad_value=value,
            )  # fmt: skip


def as_matrices(numbers: Places, each: int) -> Places | None:
    """Of entries, of which ``each`` that follow each other are a matrix, the first of each matrix, or its fill; None
    where some matrix is of others."""
    if len(numbers) % each:
        return None
    first = numbers[::each]
    steps = np.where(first < 0, 0, 1)[:, None] * np.arange(each)
    return first if np.array_equal(numbers.reshape(-1, each), first[:, None] + steps) else None


def moved_pieces(numbers: Places, each: int = 1) -> Iterator[tuple[Rectangle, int]]:
    """Numbers of entries, of which those below 0 are fills, as rectangles with what they are filled with. The
    scratchpad's entries follow each other in the order of the numbers. ``each``: of matrices, how many entries one is:
    the numbers are those of their first entries."""
    if not len(numbers):
        return
    fills = numbers < 0
    breaks = np.flatnonzero((np.diff(fills) != 0) | (fills[1:] & (np.diff(numbers) != 0))) + 1
    for start, stop in zip([0, *breaks.tolist()], [*breaks.tolist(), len(numbers)], strict=True):
        if fills[start]:
            yield Rectangle(start, 0, 0, stop - start, top=1), fill_of_entry(int(numbers[start]))
        else:
            for piece in rectangles(numbers[start:stop], each):
                yield Rectangle(start + piece.scratchpad, piece.dram, piece.rows, piece.columns, piece.stride), 0


def rectangles(entries: Places, each: int = 1) -> Iterator[Rectangle]:
    """Entries in their order as rows, at equal distances, of neighbours. ``each``: as of `moved_pieces`; columns and
    strides count matrices."""
    breaks = np.flatnonzero(np.diff(entries) != each) + 1
    starts = [0, *breaks.tolist()]
    stops = [*breaks.tolist(), len(entries)]
    runs = [(int(entries[start]), stop - start) for start, stop in zip(starts, stops, strict=True)]
    place = 0
    while place < len(runs):
        (first, columns), rows = runs[place], 1
        stride = runs[place + 1][0] - first if place + 1 < len(runs) else -1
        while (
            place + rows < len(runs) and 0 <= stride <= each * _LARGEST_STRIDE and stride % each == 0
            and runs[place + rows] == (first + rows * stride, columns)
        ):  # fmt: skip
            rows += 1
        yield Rectangle(starts[place], first, rows, columns, stride // each if rows > 1 else 0)
        place += rows
