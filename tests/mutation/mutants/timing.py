"""Faults in the timing model: typical mistakes where C++ repeats the control of the RTL."""

from __future__ import annotations

from .mutant import Mutant

MUTANTS = (
    # Memory
    Mutant(
        "model-fixed-priority", "sim/timing_memory.h", "arbitration",
        "grant = (last_granted + step) % kReadClients;", "grant = step % kReadClients;",
    ),
    # Engines
    Mutant(
        "model-three-forwards", "sim/timing_compute.h", "missing forward",
        "age <= shared_.core.gemm_forwards", "age < shared_.core.gemm_forwards",
    ),
)  # fmt: skip
