"""Faults in the harness around the verilated core: checks that do not fire, and a memory that breaks its promises."""

from __future__ import annotations

from .mutant import Mutant

TESTS = ("tests/sim/test_harness.py",)
"""They need no core; for all others of the simulators, Verilator builds one anew."""

MUTANTS = (
    # Checks
    Mutant(
        "harness-valid-may-fall", "sim/harness_memory.h", "check ignored",
        "if (held.waiting && !valid) fail(", "if (held.waiting && !valid && ready) fail(", TESTS,
    ),
    Mutant(
        "harness-either-payload", "sim/harness_memory.h", "condition",
        "(address != held.address || length_id != held.length_id)",
        "(address != held.address && length_id != held.length_id)", TESTS,
    ),
    Mutant(
        "harness-only-missing-last", "sim/harness_memory.h", "condition",
        "if (last != bool(bus.wlast)) fail(", "if (last && !bus.wlast) fail(", TESTS,
    ),
    Mutant(
        "harness-tells-the-last", "sim/harness_memory.h", "wrong text in record",
        "if (protocol_error_.empty()) protocol_error_ = text;", "protocol_error_ = text;", TESTS,
    ),
    Mutant(
        "harness-error-not-told", "sim/harness.cpp", "check ignored",
        "if (protocol_error()[0]) return kOutcomeProtocolError;", "", TESTS,
    ),
    Mutant(
        "harness-data-without-strobes", "sim/harness_memory.h", "check ignored",
        "uint64_t digest = bus.wstrb;", "uint64_t digest = 0;", TESTS,
    ),
    # Memory
    Mutant(
        "harness-error-without-strobes", "sim/harness_memory.h", "fault condition",
        "if (strobes) write.response = std::max(", "write.response = std::max(", TESTS,
    ),
    Mutant(
        "harness-stores-refused-bursts", "sim/harness_memory.h", "fault condition",
        "if (write.response != kResponseOkay) return;", "", TESTS,
    ),
    Mutant(
        "harness-latency-plus-one", "sim/harness_memory.h", "latency",
        "now_ + settings_.latency +", "now_ + settings_.latency + 1 +", TESTS,
    ),
    Mutant(
        "harness-one-read-more", "sim/harness_memory.h", "queue depth",
        "reads_pending_ < settings_.outstanding", "reads_pending_ <= settings_.outstanding", TESTS,
    ),
    Mutant(
        "harness-error-range-one-less", "sim/harness_memory.h", "off by one",
        "settings_.error_start < address + kBusBytes", "settings_.error_start + 1 < address + kBusBytes", TESTS,
    ),
    Mutant(
        "harness-reads-go-first", "sim/harness_memory.h", "arbitration",
        "if (!(write_turn_ && write_wanted && credit_ < 2 * kBusBytes)) offer_read();", "offer_read();", TESTS,
    ),
    Mutant(
        "harness-youngest-read-first", "sim/harness_memory.h", "order",
        "order_[id].front() < order_[chosen].front()", "order_[id].front() > order_[chosen].front()", TESTS,
    ),
    Mutant(
        "harness-flips-another-bit", "sim/harness_memory.h", "injected fault",
        "offered_.data[fault_bit_ / 8] ^= 1 << fault_bit_ % 8;",
        "offered_.data[fault_bit_ % 8] ^= 1 << fault_bit_ / 8;", TESTS,
    ),
    Mutant(
        "harness-loses-a-beat", "sim/harness_memory.h", "injected fault",
        "if (!read.done && happens(kFaultLostRead)) {", "if (happens(kFaultLostRead)) {", TESTS,
    ),
    Mutant(
        "harness-refused-write-is-stored", "sim/harness_memory.h", "injected fault",
        "if (happens(kFaultWriteError)) write.response = kResponseSlverr;\n        commit(write);",
        "commit(write);\n        if (happens(kFaultWriteError)) write.response = kResponseSlverr;", TESTS,
    ),
    Mutant(
        "harness-credit-piles-up", "sim/harness_memory.h", "bandwidth",
        "std::min(credit_ + settings_.bytes_per_cycle, most_credit())", "credit_ + settings_.bytes_per_cycle", TESTS,
    ),
)  # fmt: skip
