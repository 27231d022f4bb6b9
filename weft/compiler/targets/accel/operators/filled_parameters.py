"""Parameters of a requantise of which one entry is the same number everywhere: LOAD fills it in instead of reading it.

Bias, multiplier and shift of a channel group are three entries of ``acc``, one after another. Products without a bias
have zeros in the first, weights with one scale the same shift in the last. Such an entry is not stored in DRAM: each
group is a row of two entries, to which the load adds a column of padding. That saves a third of what is read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .....hw.config import CoreConfig
from .....hw.dram_rate import DramRate
from .....hw.isa import VectorOp
from ....graph.ir import Array

TOGETHER = VectorOp.REQUANTISE.b_entries
"""Entries of a group: bias, multiplier, shift."""

ROW_GAP = 2
"""Cycles that the bus loses at most between two rows of a load: 16 rows of 128 bytes take 274 cycles for 256."""


@dataclass(frozen=True)
class Filled:
    """Of parameters (Ko, 3, ...) the entry of each group that holds ``value`` only: the first, or else the last."""

    first: bool
    value: int

    @staticmethod
    def of(parameters: Array) -> Filled | None:
        """None where no entry at an end is one number that a load can fill in."""
        bounds = np.iinfo(np.int8)
        for place in (0, TOGETHER - 1):
            value = int(parameters[:, place].flat[0])
            if bounds.min <= value <= bounds.max and (parameters[:, place] == value).all():
                return Filled(place == 0, value)
        return None

    def stored(self, parameters: Array) -> Array:
        """What is left of parameters (Ko, 3, ...): (Ko, 2, ...)."""
        return np.ascontiguousarray(parameters[:, 1:] if self.first else parameters[:, :-1])


def fills_pay(config: CoreConfig, rate: DramRate) -> bool:
    """Whether a group's parameters are read sooner without one entry: then each group is a burst of its own."""
    entry = config.acc_bytes / rate.for_bus(config)
    row = max((TOGETHER - 1) * entry + ROW_GAP, rate.latency / config.read_outstanding)
    return row < TOGETHER * entry
