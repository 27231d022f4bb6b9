"""Faults in the timing model: typical mistakes where C++ repeats the control of the RTL."""

from __future__ import annotations

from .mutant import Mutant

MUTANTS = (
    # All parts
    Mutant(
        "model-fifo-a-cycle-early", "sim/timing.h", "latency",
        "return depth_ == 1 ? 1 : 2;", "return 1;",
    ),
    # Memory
    Mutant(
        "model-fixed-priority", "sim/timing_memory.h", "arbitration",
        "grant = (last_granted + step) % kReadClients;", "grant = step % kReadClients;",
    ),
    Mutant(
        "model-reads-go-first", "sim/timing_memory.h", "arbitration",
        "if (!(write_turn && write_wanted && credit < 2 * bus)) offer_read(now);", "offer_read(now);",
    ),
    # Control
    Mutant(
        "model-ledger-one-more", "sim/timing_control.h", "queue depth",
        "used_.before(now) < shared_.core.ledger_entries - 1", "used_.before(now) < shared_.core.ledger_entries",
    ),
    Mutant(
        "model-one-token-more", "sim/timing_control.h", "queue depth",
        "count_[engine][target] == depth_", "count_[engine][target] > depth_",
    ),
    Mutant(
        "model-waits-for-the-highest", "sim/timing_control.h", "counter class",
        "__builtin_ctz(missing)", "(31 - __builtin_clz(missing))",
    ),
    # Engines
    Mutant(
        "model-three-forwards", "sim/timing_compute.h", "missing forward",
        "age <= shared_.core.gemm_forwards", "age < shared_.core.gemm_forwards",
    ),
    Mutant(
        "model-chains-across-instructions", "sim/timing_compute.h", "state machine",
        "const bool goes_on = !begins && next.dst == held_.dst;", "const bool goes_on = next.dst == held_.dst;",
    ),
    Mutant(
        "model-padded-rows-without-data-vanish", "sim/timing_transfer.h", "corner case",
        "plan.moves ? t.top : t.top + t.rows", "t.top",
    ),
    Mutant(
        "model-reads-too-far-ahead", "sim/timing_transfer.h", "back-pressure ignored",
        "reading_ && ahead_ != shared_.core.entries_ahead", "reading_",
    ),
)  # fmt: skip
