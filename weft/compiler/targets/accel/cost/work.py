"""What a kernel asks of the engines, and how long these take when they work at the same time.

Layers, first layers and what both engines share are compared by the same law, so that a figure of one means the same as
a figure of another. Chains are not (`chain_tiling`): with it MobileNetV3 takes 0.9 % more cycles on `pynq`, and of four
other networks none takes fewer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .tiles import Array

Cycles = Array | float
"""Of one tiling, or of many at once."""

DOUBLINGS = 6
"""Two engines that are equally busy take 1.1 % longer beside each other than one of them alone. Of eight networks
seven take fewer cycles by that (MobileNetV2 1.2 %), one takes 0.04 % more."""


@dataclass(frozen=True)
class Work:
    """Cycles in which a kernel uses the array, the vector engine and the bus, and those in which it uses none of them
    because nothing overlaps: its first loads, its last results, and where one engine waits for another."""

    matrix: Cycles
    vector: Cycles
    traffic: Cycles
    exposed: Cycles = 0.0

    def __add__(self, other: Work) -> Work:
        """Of two kernels that take turns in one stream."""
        return Work(self.matrix + other.matrix, self.vector + other.vector, self.traffic + other.traffic,
                    self.exposed + other.exposed)  # fmt: skip

    def __mul__(self, times: float) -> Work:
        """Of a part of a kernel, or of several that are alike."""
        return Work(self.matrix * times, self.vector * times, self.traffic * times, self.exposed * times)

    @property
    def cycles(self) -> Cycles:
        """Of a kernel by itself."""
        return overlapped(self.matrix, self.vector, self.traffic) + self.exposed

    @property
    def used(self) -> Cycles:
        """Of a kernel beside another one, which takes what it leaves unused: all that it uses counts."""
        return self.matrix + self.vector + self.traffic + self.exposed


def overlapped(*engines: Cycles) -> Cycles:
    """Cycles of engines that work at the same time, from those of each: the most, and a little more where others are
    nearly as busy, which then wait for each other. Their 2**`DOUBLINGS`-norm; only products and square roots, so that
    every machine chooses the same tilings."""
    most = engines[0]
    for each in engines[1:]:
        most = np.maximum(most, each)
    total: Cycles = 0.0
    for each in engines:
        share = each / most
        for _ in range(DOUBLINGS):
            share = share * share
        total = total + share
    for _ in range(DOUBLINGS):
        total = np.sqrt(total)
    return most * total
