"""Matrices of constant weights that hold nothing but zeros: they are neither loaded nor multiplied.

Where channels only change places, in groups and in pruned networks most matrices of a layer are such. The loops of a
kernel run over all of them; what emits its instructions (`emit_nest`) leaves out those that do not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import sha256
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]

RUN_CYCLES = 12
"""Cycles assumed lost for one more instruction of the array: its loop registers, its fetch, sums that are read."""

TILE_PIXELS = 64
"""Outputs of a channel group that a tile is assumed to have, where the layer has so many."""

LEAST_GAIN = 0.02
"""Share of a layer's cycles that must be saved."""


@dataclass(frozen=True)
class Kept:
    """Which matrices of packed weights (Ko, ..., block_out, block_in) count: ``bits`` of shape (Ko, ...), packed.

    These are the ones that are not zero, and the first of a channel group that has no other: something has to write
    its results.
    """

    shape: tuple[int, ...]
    bits: bytes = field(repr=False)

    @staticmethod
    def of(weights: npt.NDArray[Any]) -> Kept:
        mask: Mask = np.any(weights, axis=(-2, -1))
        rows = mask.reshape(len(mask), -1)
        rows[~rows.any(axis=1), 0] = True
        return Kept(mask.shape, np.packbits(rows).tobytes())

    @cached_property
    def mask(self) -> Mask:
        bits = np.unpackbits(np.frombuffer(self.bits, np.uint8), count=prod(self.shape))
        return bits.astype(np.bool_).reshape(self.shape)

    @property
    def digest(self) -> str:
        return sha256(repr(self.shape).encode() + self.bits).hexdigest()[:16]

    @cached_property
    def share(self) -> float:
        return float(self.mask.mean())

    @cached_property
    def runs(self) -> int:
        """Instructions that multiply them, where one tile has all channels."""
        return len(parts_of(self.mask))

    def saves(self, pixels: int, load_cycles: float, moving: float) -> bool:
        """Whether to leave the others out saves cycles, roughly. ``pixels``: of the layer's result. ``load_cycles``: of
        one matrix. ``moving``: cycles in which inputs and results take the memory, beside which the array works."""
        matrices, kept = self.mask.size, int(np.count_nonzero(self.mask))
        further = RUN_CYCLES * (self.runs - 1) * -(-pixels // TILE_PIXELS)
        all_of_them = max(pixels * matrices, load_cycles * matrices + moving)
        these = max(pixels * kept + further, load_cycles * kept + moving)
        return these < (1 - LEAST_GAIN) * all_of_them


Run = tuple[int, int, int]
"""Iterations of a loop: the first, the distance of two, how many."""


def parts_of(mask: Mask) -> tuple[tuple[Run, ...], ...]:
    """Parts of a nest of loops that together are the iterations for which ``mask`` holds: of each, what it runs of each
    loop.

    Iterations of the outermost loop that parts have in common are the same in all of these, which follow one another.
    """
    return _parts(mask.shape, mask.tobytes())


@lru_cache(maxsize=16384)
def _parts(shape: tuple[int, ...], content: bytes) -> tuple[tuple[Run, ...], ...]:
    if not shape:
        return ((),) if any(content) else ()
    size = prod(shape[1:])
    alike: dict[bytes, list[int]] = {}
    for index in range(shape[0]):
        alike.setdefault(content[index * size : (index + 1) * size], []).append(index)
    return tuple(
        (run, *rest)
        for inside, indices in alike.items() if any(inside)
        for run in _progressions(indices)
        for rest in _parts(shape[1:], inside)
    )  # fmt: skip


def _progressions(indices: Sequence[int]) -> Iterator[Run]:
    """Rising numbers as few arithmetic progressions: the longest from the smallest number that is left."""
    left = list(indices)
    while left:
        first, present = left[0], set(left)
        best: Run = (first, 1, 1)
        for second in left[1:]:
            step, count = second - first, 2
            if first + step * best[2] > left[-1]:
                break  # with so large a step none is longer
            while first + step * count in present:
                count += 1
            if count > best[2]:
                best = (first, step, count)
        yield best
        taken = range(first, first + best[1] * best[2], best[1])
        left = [index for index in left if index not in taken]
