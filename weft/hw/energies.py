"""Published energies of memories and of a processor's instructions.

They are of M. Horowitz, "Computing's energy problem (and what we can do about it)", ISSCC 2014, figure 1.1.9: 45 nm,
0.9 V.
"""

from __future__ import annotations

import math

SRAM_64_BITS_PJ = ((8 * 1024, 10.0), (32 * 1024, 20.0), (1024 * 1024, 100.0))
"""Bytes of a memory, and what one access of 64 bits takes."""

INSTRUCTION_PJ = 70.0
"""An instruction of a simple processor, with its fetch, its registers and its control. A cycle of the host is one."""

DRAM_64_BITS_PJ = (1300.0 + 2600.0) / 2
"""The middle of the published range of 1.3 to 2.6 nJ."""

VOLTS = 0.9

INVERTER_PF = 1.7e-3
"""Input of the smallest inverter of a library of 45 nm (NanGate's Open Cell Library). C V^2 of it, and of that of
another library, say how energies of the two compare."""


def sram_pj(capacity: float) -> float:
    """An access of 64 bits to a memory of ``capacity`` bytes: a line through the published ones, in logarithms."""
    points = [(math.log(size), math.log(energy)) for size, energy in SRAM_64_BITS_PJ]
    x = math.log(capacity)
    low, high = (points[0], points[1]) if x < points[1][0] else (points[1], points[2])
    slope = (high[1] - low[1]) / (high[0] - low[0])
    return math.exp(low[1] + slope * (x - low[0]))
