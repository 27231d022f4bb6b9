"""An estimate of energy: events that the timing model counts, times what each takes.

What the core's arithmetic, its registers and its clock take was measured in cells (``weft power``, and
``benchmarks/hardware/power.py``, which says how far this estimate is off); memories, DRAM and the host's
instructions are published figures (:mod:`weft.hw.energies`). All are of 45 nm and 0.9 V, of a chip, not of an
FPGA: the figure orders designs of one technology, and is no prediction of a board's power. Every micro-op of the
array counts as full.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ..hw.config import CoreConfig
from ..hw.energies import (
    DRAM_64_BITS_PJ,
    INSTRUCTION_PJ,
    sram_pj,
)
from ..hw.memories import Memory
from .measure import Measure
from .processors import Processor

MAC_PJ = 1.85
"""A multiply-accumulate of the array, with its registers' data. A multiplication and an addition alone: 0.3."""

LANE_PJ = 17.0
"""A cycle in which a lane of the vector engine requantises, which nearly all of its cycles are for."""

REGISTER_PJ = 0.0152
"""A flip-flop in a cycle, whether it changes or not: its clock pin, 0.0145, and its share of the control around it."""

REGISTERS, REGISTERS_OF_LANE, REGISTERS_OF_MAC, REGISTERS_OF_BUS_BIT = 4200, 1414, 39.7, 37.3
"""Flip-flops of a core: of all, and more of each lane, each multiplier and each bit of the bus."""


def registers_of(config: CoreConfig) -> float:
    """About as many flip-flops has a core."""
    of_array = REGISTERS_OF_LANE * config.lanes + REGISTERS_OF_MAC * config.macs_per_cycle
    return REGISTERS + of_array + REGISTERS_OF_BUS_BIT * config.bus_bits


def entry_pj(config: CoreConfig, memory: Memory) -> float:
    """Reading or writing an entry of a scratchpad: slices of 64 bits, each a memory as deep as a bank."""
    words = math.ceil(config.entry_bytes(memory) / 8)
    return words * sram_pj(8 * config.depth(memory) / config.banks(memory))


def point_pj(cores: Sequence[CoreConfig], measure: Measure, processor: Processor) -> dict[str, float]:
    """As :func:`energy_pj` of all cores of a point. A read that answers several cores counts for each."""
    if not measure.parts:
        return energy_pj(cores[0], measure, processor)
    host = replace(measure, cycles=0, array=0, vector=0, bytes_read=0, bytes_written=0)
    pieces = [energy_pj(cores[0], host, processor)]
    for core, array, vector, read, written in measure.parts:
        own = replace(measure, array=array, vector=vector, bytes_read=read, bytes_written=written)
        pieces.append(energy_pj(cores[core], replace(own, host_operations=0, host_bytes=0), processor))
    return {name: sum(piece[name] for piece in pieces) for name in pieces[0]}


def energy_pj(config: CoreConfig, measure: Measure, processor: Processor) -> dict[str, float]:
    """Picojoules of one run, by where they go: ``array``, ``vector``, ``scratchpads``, ``control``, ``dram``, ``host``.

    A micro-op of the array reads an entry of inp and of wgt, and reads and writes one of acc. A cycle of the vector
    engine reads and writes an entry of acc, and works on every lane. What comes from DRAM is written into a scratchpad,
    what goes there is read from ``out``, whose entries the vector engine wrote. ``control`` is what all registers of
    the core take in each cycle, as nothing stops their clock. The host's ``processor`` takes an instruction a cycle,
    and moves its bytes to and from the same DRAM.
    """
    acc = entry_pj(config, Memory.ACC)
    gemm_entries = entry_pj(config, Memory.INP) + entry_pj(config, Memory.WGT) + 2 * acc
    loaded = entry_pj(config, Memory.WGT) / config.entry_bytes(Memory.WGT)
    stored = 2 * entry_pj(config, Memory.OUT) / config.entry_bytes(Memory.OUT)
    return {
        "array": measure.array * config.macs_per_cycle * MAC_PJ,
        "vector": measure.vector * config.lanes * LANE_PJ,
        "scratchpads": measure.array * gemm_entries + measure.vector * 2 * acc
        + measure.bytes_read * loaded + measure.bytes_written * stored,
        "control": measure.cycles * registers_of(config) * REGISTER_PJ,
        "dram": (measure.bytes_read + measure.bytes_written) / 8 * DRAM_64_BITS_PJ,
        "host": processor.cycles(measure.host) * INSTRUCTION_PJ + measure.host_bytes / 8 * DRAM_64_BITS_PJ,
    }  # fmt: skip
