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
    Mutant(
        "model-load-does-not-wait-at-inp", "sim/timing_transfer.h", "back-pressure ignored",
        "port_free = !ports.vector_writes_inp;", "port_free = true;",
    ),
    Mutant(
        "model-loadw-waits-as-well", "sim/timing_transfer.h", "another engine's port",
        "load_.kind == kWriteOwn && engine_ == kLoad;", "load_.kind == kWriteOwn;",
    ),
    Mutant(
        "model-results-for-out-hold-inp", "sim/timing_compute.h", "another memory's port",
        "vector_writes_inp = offer_.target == kTargetInp", "vector_writes_inp = offer_.target != kTargetAcc",
    ),
    Mutant(
        "model-waits-for-results-in-inp", "sim/timing_compute.h", "hazard where there is none",
        "if (task_.target == kTargetAcc && held_.dst", "if (task_.target != kTargetOut && held_.dst",
    ),
    Mutant(
        "model-other-taps-share", "sim/timing_compute.h", "columns that are read again",
        "if (inner.b == 0 && inner.a == pitch)", "if (inner.a == pitch)", ("tests/sim/test_timing.py",),
    ),
)  # fmt: skip
