"""Folding loop nests around a micro-op into the loop levels and rectangles that one instruction can hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from .....hw.config import LOOP_LEVELS, PAD_BITS

Strides = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NestLoop:
    """A loop around a micro-op: strides of the operands in entries, the destination's first.

    ``starts``: the micro-op starts from its identity only where this loop is at 0.
    """

    extent: int
    strides: Strides
    starts: bool = False


@dataclass(frozen=True, slots=True)
class Folded:
    """``levels``, innermost first, go into the instruction; ``outer`` loops, outermost first, repeat it."""

    levels: tuple[NestLoop, ...]
    outer: tuple[NestLoop, ...]


@lru_cache(maxsize=65536)
def fold_levels(nest: tuple[NestLoop, ...], has_start: bool, largest_stride: int) -> Folded:
    """Fold a nest (outermost first) into at most ``LOOP_LEVELS`` levels.

    ``has_start``: some micro-ops start from the identity. The hardware takes the levels with destination stride 0 for
    the reduction, so a loop that has that stride and is none stays outside.
    """
    merged: list[NestLoop] = []
    for loop in nest:
        if loop.extent == 1:
            continue
        if merged and _contiguous(merged[-1], loop):
            merged[-1] = NestLoop(merged[-1].extent * loop.extent, loop.strides, loop.starts)
        else:
            merged.append(loop)
    outer = [loop for loop in merged if not _fits_a_level(loop, has_start, largest_stride)]
    inner = [loop for loop in merged if _fits_a_level(loop, has_start, largest_stride)]
    split = max(0, len(inner) - LOOP_LEVELS)
    return Folded(tuple(reversed(inner[split:])), (*outer, *inner[:split]))


def _contiguous(outer: NestLoop, inner: NestLoop) -> bool:
    return outer.starts == inner.starts and outer.strides == tuple(inner.extent * s for s in inner.strides)


def _fits_a_level(loop: NestLoop, has_start: bool, largest_stride: int) -> bool:
    if any(not 0 <= stride <= largest_stride for stride in loop.strides):
        return False
    return not has_start or (loop.strides[0] == 0) == loop.starts


def iterate(loops: tuple[NestLoop, ...]) -> Iterator[tuple[Strides, bool]]:
    """Offsets of the operands for each iteration of ``loops``, and whether all loops that ``starts`` are at 0."""
    if not loops:
        yield (), True
        return
    first, rest = loops[0], loops[1:]
    for index in range(first.extent):
        shift = tuple(index * stride for stride in first.strides)
        for offsets, at_start in iterate(rest):
            total = tuple(a + b for a, b in zip(shift, offsets, strict=True)) if offsets else shift
            yield total, at_start and not (first.starts and index)


Ranges = list[tuple[int, int]]
"""Of each loop of a nest, the first iteration and the one behind the last."""


@dataclass(frozen=True, slots=True)
class Box:
    """A part of a nest: ``loops`` as far as they run in it, from the iterations ``first``."""

    loops: tuple[NestLoop, ...]
    first: tuple[int, ...]

    def starts(self, entries: list[int]) -> list[int]:
        """The operands' first entries in this part, from those of the nest."""
        return [
            entry + sum(first * loop.strides[operand] for first, loop in zip(self.first, self.loops, strict=True))
            for operand, entry in enumerate(entries)
        ]


def boxes(nest: tuple[NestLoop, ...], inside: Ranges | None) -> tuple[Box | None, list[Box]]:
    """A nest in boxes that do not overlap: what lies ``inside`` (None: nothing does), and all else."""

    def box(ranges: Ranges) -> Box:
        loops = (replace(loop, extent=stop - start) for loop, (start, stop) in zip(nest, ranges, strict=True))
        return Box(tuple(loops), tuple(start for start, _ in ranges))

    full = [(0, loop.extent) for loop in nest]
    if inside is None:
        return None, [box(full)]
    borders = []
    for place, (low, high) in enumerate(inside):
        for start, stop in ((0, low), (high, nest[place].extent)):
            if start < stop:
                borders.append(box([*inside[:place], (start, stop), *full[place + 1 :]]))
    return box(inside), borders


@dataclass(frozen=True, slots=True)
class CopyLoop:
    """A loop around the copy of one entry. Iterations ``low .. high-1`` copy; the others write the padding value."""

    extent: int
    scratchpad_stride: int
    dram_stride: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Behind ``columns`` entries, ``step`` apart, nothing is used until the next row begins, ``pitch`` columns on."""

    step: int
    columns: int
    pitch: int


def over_gaps(nest: list[CopyLoop], gaps: Sequence[Gap]) -> list[CopyLoop]:
    """A nest that writes padding into gaps between whole rows, so that rows can be one instruction."""
    closed = list(nest)
    for gap in gaps:
        for place, loop in enumerate(nest):
            rows = any(each.scratchpad_stride == gap.step * gap.pitch and each.extent > 1 for each in nest[:place])
            if rows and (loop.scratchpad_stride, loop.extent) == (gap.step, gap.columns):
                closed[place] = replace(loop, extent=gap.pitch)
    return closed


@dataclass(frozen=True, slots=True)
class Rectangle:
    """One DMA instruction; positions in entries from the operands' bases. ``rows == 0``: only padding."""

    scratchpad: int
    dram: int
    rows: int
    columns: int
    stride: int = 0
    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0

    @property
    def entries(self) -> int:
        """Scratchpad entries written or read."""
        return (self.top + self.rows + self.bottom) * (self.left + self.columns + self.right)


@lru_cache(maxsize=65536)
def fold_copies(nest: tuple[CopyLoop, ...], largest_stride: int) -> tuple[Rectangle, ...]:
    """The rectangles that copy a nest (outermost first), in the order of the nest."""
    merged: list[CopyLoop] = []
    empty = any(loop.high <= loop.low for loop in nest)
    for loop in nest:
        if empty:
            loop = CopyLoop(loop.extent, loop.scratchpad_stride, loop.dram_stride, 0, 0)
        if loop.extent == 1:
            continue
        if merged and _copies_contiguous(merged[-1], loop, empty):
            last = merged.pop()
            low, high = last.low * loop.extent, last.high * loop.extent
            loop = CopyLoop(last.extent * loop.extent, loop.scratchpad_stride, loop.dram_stride, low, high)
        merged.append(loop)
    columns = CopyLoop(1, 1, 1, 0, 0 if empty else 1)
    if merged and merged[-1].scratchpad_stride == 1 and (empty or merged[-1].dram_stride == 1):
        columns = merged.pop()
    rows = CopyLoop(1, columns.extent, 0, 0, 0 if empty else 1)
    if merged and merged[-1].scratchpad_stride == columns.extent and 0 <= merged[-1].dram_stride <= largest_stride:
        rows = merged.pop()
    return tuple(_rectangles(tuple(merged), rows, columns, 0, 0, not empty))


def _copies_contiguous(outer: CopyLoop, inner: CopyLoop, empty: bool) -> bool:
    if outer.scratchpad_stride != inner.extent * inner.scratchpad_stride:
        return False
    whole = (inner.low, inner.high) == (0, inner.extent)
    return empty or (whole and outer.dram_stride == inner.extent * inner.dram_stride)


def _rectangles(
    outer: tuple[CopyLoop, ...], rows: CopyLoop, columns: CopyLoop, scratchpad: int, dram: int, inside: bool
) -> Iterator[Rectangle]:
    if outer:
        loop = outer[0]
        for index in range(loop.extent):
            yield from _rectangles(
                outer[1:], rows, columns, scratchpad + index * loop.scratchpad_stride,
                dram + index * loop.dram_stride, inside and loop.low <= index < loop.high,
            )  # fmt: skip
        return
    if not inside:
        yield _fill(scratchpad, rows.extent * columns.extent)
        return
    yield from _padded_rectangle(rows, columns, scratchpad, dram)


def _fill(scratchpad: int, entries: int) -> Rectangle:
    return Rectangle(scratchpad, 0, 0, entries, top=1)


def _padded_rectangle(rows: CopyLoop, columns: CopyLoop, scratchpad: int, dram: int) -> Iterator[Rectangle]:
    """One rectangle, and more where a padding does not fit its field."""
    most = (1 << PAD_BITS) - 1
    left, right = columns.low, columns.extent - columns.high
    if max(left, right) > most:
        for row in range(rows.extent):
            start = scratchpad + row * columns.extent
            if not rows.low <= row < rows.high:
                yield _fill(start, columns.extent)
                continue
            source = dram + row * rows.dram_stride + columns.low
            if left:
                yield _fill(start, left)
            yield Rectangle(start + left, source, 1, columns.high - columns.low)
            if right:
                yield _fill(start + columns.high, right)
        return
    top, bottom = rows.low, rows.extent - rows.high
    source = dram + rows.low * rows.dram_stride + columns.low
    if top > most:
        yield _fill(scratchpad, top * columns.extent)
        scratchpad, top = scratchpad + top * columns.extent, 0
    below = 0
    if bottom > most:
        bottom, below = 0, bottom
    count = rows.high - rows.low
    stride = rows.dram_stride if count > 1 else 0
    yield Rectangle(scratchpad, source, count, columns.high - columns.low, stride, top, bottom, left, right)
    if below:
        yield _fill(scratchpad + (top + count) * columns.extent, below * columns.extent)
