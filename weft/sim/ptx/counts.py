"""Counts of what decides the speed of a kernel: instructions by kind, wavefronts of shared memory, sectors of global
memory, branches at which a warp splits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from .types import Array

BANKS, BANK_BYTES = 32, 4
SECTOR_BYTES = 32


@dataclass
class Traffic:
    """How often something was needed, and the fewest with which the same bytes could have been moved."""

    needed: int = 0
    fewest: int = 0

    def add(self, other: Traffic) -> None:
        self.needed += other.needed
        self.fewest += other.fewest


@dataclass
class Counts:
    """Of a launch. ``instructions``: warp instructions by operation. ``wavefronts`` of shared memory and ``sectors`` of
    global memory, by the text of the instruction. ``divergent``: branches at which the lanes of a warp went two ways,
    once for each warp."""

    instructions: Counter[str] = field(default_factory=Counter)
    wavefronts: dict[str, Traffic] = field(default_factory=dict)
    sectors: dict[str, Traffic] = field(default_factory=dict)
    bytes_read: int = 0
    bytes_written: int = 0
    divergent: int = 0
    barriers: int = 0

    @property
    def warp_instructions(self) -> int:
        return self.instructions.total()

    @property
    def conflicts(self) -> int:
        """Wavefronts beyond the fewest."""
        return sum(each.needed - each.fewest for each in self.wavefronts.values())

    @property
    def coalescing(self) -> float:
        """The fewest sectors over those that were moved; 1 where nothing was."""
        needed = sum(each.needed for each in self.sectors.values())
        return sum(each.fewest for each in self.sectors.values()) / needed if needed else 1.0

    def add(self, other: Counts) -> None:
        """Add the counts of another launch."""
        self.instructions.update(other.instructions)
        for mine, theirs in ((self.wavefronts, other.wavefronts), (self.sectors, other.sectors)):
            for text, traffic in theirs.items():
                mine.setdefault(text, Traffic()).add(traffic)
        self.bytes_read += other.bytes_read
        self.bytes_written += other.bytes_written
        self.divergent += other.divergent
        self.barriers += other.barriers


def wavefronts(addresses: Array, nbytes: int) -> Traffic:
    """Of an access of so many bytes to addresses of shared memory, (warps, 32). Accesses of 8 bytes go by halves of a
    warp, those of 16 by quarters; each bank gives one word of 4 bytes in a wavefront, to all who want it."""
    words = max(1, nbytes // BANK_BYTES)
    wanted = (addresses[..., None] // BANK_BYTES + np.arange(words)).reshape(-1, BANKS // words * words)
    ordered = np.sort(wanted, axis=1)
    new = np.ones(ordered.shape, bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    rows = np.arange(len(ordered))[:, None] * BANKS
    load = np.bincount((rows + ordered % BANKS)[new], minlength=len(ordered) * BANKS).reshape(-1, BANKS)
    return Traffic(int(load.max(1).sum()), int((-(-load.sum(1) // BANKS)).sum()))


def sectors(addresses: Array, nbytes: int) -> Traffic:
    """Of an access of so many bytes to addresses of global memory, (warps, 32)."""
    ordered = np.sort(addresses, axis=1)
    different = 1 + (np.diff(ordered, axis=1) != 0).sum(1)
    touched = np.sort(ordered // SECTOR_BYTES, axis=1)
    needed = 1 + (np.diff(touched, axis=1) != 0).sum(1)
    return Traffic(int(needed.sum()), int((-(-different * nbytes // SECTOR_BYTES)).sum()))
