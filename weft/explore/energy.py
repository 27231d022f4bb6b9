"""An estimate of energy: events that the timing model counts, times published energies of each.

The energies are of M. Horowitz, "Computing's energy problem (and what we can do about it)", ISSCC 2014, figure 1.1.9:
45 nm, 0.9 V. They are of a chip, not of an FPGA, and leave out leakage, clock and control: the figure orders designs
of one technology, and is no prediction of a board's power. Every micro-op of the array counts as full.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ..hw.config import CoreConfig
from ..hw.energies import (
    DRAM_64_BITS_PJ,
    INSTRUCTION_PJ,
    INT8_MULTIPLY_PJ,
    INT32_ADD_PJ,
    INT32_MULTIPLY_PJ,
    sram_pj,
)
from ..hw.memories import Memory
from .measure import Measure
from .processors import Processor


def entry_pj(config: CoreConfig, memory: Memory) -> float:
    """Reading or writing an entry of a scratchpad: slices of 64 bits, each a memory as deep as a bank."""
    words = math.ceil(config.entry_bytes(memory) / 8)
    return words * sram_pj(8 * config.depth(memory) / config.banks(memory))


def point_pj(cores: Sequence[CoreConfig], measure: Measure, processor: Processor) -> dict[str, float]:
    """As :func:`energy_pj` of all cores of a point. A read that answers several cores counts for each."""
    if not measure.parts:
        return energy_pj(cores[0], measure, processor)
    pieces = [energy_pj(cores[0], replace(measure, array=0, vector=0, bytes_read=0, bytes_written=0), processor)]
    for core, array, vector, read, written in measure.parts:
        own = replace(measure, array=array, vector=vector, bytes_read=read, bytes_written=written)
        pieces.append(energy_pj(cores[core], replace(own, host_operations=0, host_bytes=0), processor))
    return {name: sum(piece[name] for piece in pieces) for name in pieces[0]}


def energy_pj(config: CoreConfig, measure: Measure, processor: Processor) -> dict[str, float]:
    """Picojoules of one run, by where they go: ``array``, ``vector``, ``scratchpads``, ``dram``, ``host``.

    A micro-op of the array reads an entry of inp and of wgt, and reads and writes one of acc. A cycle of the vector
    engine reads and writes an entry of acc, and multiplies and adds on every lane. What comes from DRAM is written into
    a scratchpad, what goes there is read from ``out``, whose entries the vector engine wrote. The host's ``processor``
    takes an instruction a cycle, and moves its bytes to and from the same DRAM.
    """
    gemm_pj = config.macs_per_cycle * (INT8_MULTIPLY_PJ + INT32_ADD_PJ)
    vector_pj = config.lanes * (INT32_MULTIPLY_PJ + INT32_ADD_PJ)
    acc = entry_pj(config, Memory.ACC)
    gemm_entries = entry_pj(config, Memory.INP) + entry_pj(config, Memory.WGT) + 2 * acc
    loaded = entry_pj(config, Memory.WGT) / config.entry_bytes(Memory.WGT)
    stored = 2 * entry_pj(config, Memory.OUT) / config.entry_bytes(Memory.OUT)
    return {
        "array": measure.array * gemm_pj,
        "vector": measure.vector * vector_pj,
        "scratchpads": measure.array * gemm_entries + measure.vector * 2 * acc
        + measure.bytes_read * loaded + measure.bytes_written * stored,
        "dram": (measure.bytes_read + measure.bytes_written) / 8 * DRAM_64_BITS_PJ,
        "host": processor.cycles(measure.host) * INSTRUCTION_PJ + measure.host_bytes / 8 * DRAM_64_BITS_PJ,
    }  # fmt: skip
