"""Places in the DMA window by liveness: what is not alive at the same time may share bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

ALIGNMENT = 64
"""Bytes to which everything in the window is aligned: a burst of the widest bus."""


@dataclass(frozen=True)
class Lifetime:
    """A tensor of ``nbytes`` that is written at time ``first`` and read for the last time at ``last``."""

    name: str
    nbytes: int
    first: int
    last: int


def aligned(nbytes: int) -> int:
    """``nbytes`` rounded up to whole alignment units."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def plan_memory(lifetimes: Iterable[Lifetime], start: int) -> tuple[dict[str, int], int]:
    """First-fit places from byte ``start`` on, the largest tensors first; and the end of the region."""
    placed: list[tuple[Lifetime, int]] = []
    offsets: dict[str, int] = {}
    end = start
    for tensor in sorted(lifetimes, key=lambda each: (-each.nbytes, each.first, each.name)):
        offset = start
        for other, begin in sorted(placed, key=lambda pair: pair[1]):
            if other.last < tensor.first or tensor.last < other.first:
                continue
            if offset + tensor.nbytes <= begin:
                break
            offset = max(offset, begin + aligned(other.nbytes))
        placed.append((tensor, offset))
        offsets[tensor.name] = offset
        end = max(end, offset + aligned(tensor.nbytes))
    return offsets, end
