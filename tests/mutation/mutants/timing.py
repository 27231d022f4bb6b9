"""Faults in the timing model: typical mistakes where C++ repeats the control of the RTL."""

from __future__ import annotations

from .mutant import Mutant

BANKS = ("tests/sim/test_dram_banks.py",)

MUTANTS = (
    # Memory
    Mutant(
        "model-fixed-priority", "sim/timing_memory.h", "arbitration",
        "grant = (last_granted + step) % kReadClients;", "grant = step % kReadClients;",
    ),
    # Cycles that are worked out together
    Mutant(
        "model-streams-past-a-full-buffer", "sim/timing_memory.h", "off by one",
        "client.cutter.burst().beats - client.room)", "client.cutter.burst().beats - client.room + 1)",
    ),
    Mutant(
        "model-streams-past-an-answer", "sim/timing_memory.h", "forgotten event",
        "writes.front().due - (now + 1) : kNever;", "kNever : kNever;",
    ),
    Mutant(
        "model-streams-past-other-parts", "sim/timing_memory.h", "forgotten event",
        "if (part != kDram && part != kReadMaster && part != engine)", "if (part < kDram)",
    ),
    Mutant(
        "model-streams-past-a-plan", "sim/timing_transfer.h", "forgotten event",
        "planner_.due() - (now + 1);", "kNever;",
    ),
    Mutant(
        "model-streams-into-acc", "sim/timing_transfer.h", "missing hazard check",
        "if (load_.kind != kWriteOwn && load_.kind != kWriteRecords) return 0;", "",
    ),
    Mutant(
        "model-streams-through-heads", "sim/timing_transfer.h", "missing case",
        "load_.kind == kWriteRecords ? entries_left_ : run_left_", "run_left_",
    ),
    Mutant(
        "model-unpacks-at-once", "sim/timing_transfer.h", "wrong stage",
        "if (unpacking_.empty()) return comes;", "return comes;",
    ),
    Mutant(
        "model-streams-while-bursts-are-cut", "sim/timing_transfer.h", "forgotten event",
        "if (!steady_ || !client", "if (!client",
    ),
    Mutant(
        "model-streams-while-tokens-pass", "sim/timing_core.h", "forgotten event",
        "if (!controls_[engine].streams(now)) return 0;", "",
    ),
    # Several cores on a port
    Mutant(
        "model-turns-go-on", "sim/timing_shared.h", "state that survives",
        "if (!reads_under_way_) read_grants_ = {unsigned(masters_.size()), 0};", "", ("tests/sim/test_system.py",),
    ),
    Mutant(
        "model-turn-that-nobody-leaves", "sim/timing_shared.h", "wrong count",
        "(goes_on ? turn.left : weight) - 1", "weight - 1", ("tests/sim/test_system.py",),
    ),
    Mutant(
        "model-streams-past-another-core", "sim/timing_system.h", "forgotten event",
        "cycles = std::min(cycles, next_of(i) - (now + 1));", "", ("tests/sim/test_system.py",),
    ),
    Mutant(
        "model-grants-into-the-last-place", "sim/timing_shared.h", "queue depth",
        "if (granted < 0 || !free || !room) return;", "if (granted < 0 || !free) return;",
        ("tests/sim/test_system.py",),
    ),
    Mutant(
        "model-waits-for-what-has-ended", "sim/timing_system.h", "forgotten event",
        "if (ended[i] && port.is_shared()) port.wake = now + 1;", "", ("tests/sim/test_shared_reads.py",),
    ),
    Mutant(
        "model-shares-by-address-alone", "sim/timing_rendezvous.h", "dropped condition",
        " && own.beats == leader.beats", "", ("tests/sim/test_shared_reads.py",),
    ),
    Mutant(
        "model-weights-overtake", "sim/timing_shared.h", "missing order",
        "return !shares_ || reads.id != kClientLoadw || !rendezvous_.waits(place);", "return true;",
        ("tests/sim/test_shared_reads.py",),
    ),
    # A DRAM with banks
    Mutant(
        "banks-open-row-forgotten", "sim/dram_banks.h", "wrong state",
        "            bank.row = row;\n", "            bank.row = row & ~int64_t(1);\n", BANKS,
    ),
    Mutant(
        "banks-closed-while-written", "sim/dram_banks.h", "missing hazard check",
        "write ? over + t_.WR : at + t_.RTP", "at + t_.RTP", BANKS,
    ),
    Mutant(
        "banks-older-activation-counts", "sim/dram_banks.h", "off by one",
        "activations_[kActivations - 1] + t_.FAW", "activations_[kActivations - 2] + t_.FAW - t_.RRD_S", BANKS,
    ),
    Mutant(
        "banks-two-commands-in-a-clock", "sim/dram_banks.h", "missing hazard check",
        "if (taken_[size_t(at) % kSlots] == at) from = at + 1;", "", BANKS,
    ),
    Mutant(
        "banks-refresh-of-an-open-bank", "sim/dram_banks.h", "missing hazard check",
        "start = std::max(start, bank.row >= 0 ? bank.closes : bank.opens);", "", BANKS,
    ),
    Mutant(
        "banks-refresh-left-out", "sim/dram_banks.h", "forgotten event",
        "        refresh(std::max(arrival, any_.column + t_.CCD_S));\n", "", BANKS,
    ),
    Mutant(
        "banks-read-behind-a-write-of-another-group", "sim/dram_banks.h", "dropped condition",
        "any_.write + written + t_.WTR_S, ", "", BANKS,
    ),
    Mutant(
        "banks-last-access-of-a-burst", "sim/dram_banks.h", "off by one",
        "for (uint64_t at = address / bytes * bytes; at < end; at += bytes) {",
        "for (uint64_t at = address; at < end; at += bytes) {", BANKS,
    ),
    Mutant(
        "banks-time-goes-on", "sim/dram_banks.h", "state that survives",
        "        begun_ = false;\n", "", BANKS,
    ),
    Mutant(
        "banks-window-left-out", "sim/timing_memory.h", "dropped term",
        "place.window_start + uint64_t(word)", "uint64_t(word)", BANKS,
    ),
    Mutant(
        "banks-groups-side-by-side", "sim/dram_banks.h", "wrong place",
        "groups_[number % size_t(t_.groups)]", "groups_[number * size_t(t_.groups) / size_t(t_.banks)]", BANKS,
    ),
    Mutant(
        "banks-opened-while-precharged", "sim/dram_banks.h", "missing hazard check",
        "bank.opens = close + t_.RP;", "bank.opens = close;", BANKS,
    ),
    Mutant(
        "banks-column-before-its-row", "sim/dram_banks.h", "missing hazard check",
        "bank.columns = open + t_.RCD;", "bank.columns = open + 1;", BANKS,
    ),
    Mutant(
        "banks-row-closed-too-soon", "sim/dram_banks.h", "missing hazard check",
        "bank.closes = open + t_.RAS;", "bank.closes = open + t_.RCD;", BANKS,
    ),
    Mutant(
        "banks-precharges-side-by-side", "sim/dram_banks.h", "dropped condition",
        "{arrival, bank.closes, last_precharge_ + t_.PPD}", "{arrival, bank.closes}", BANKS,
    ),
    Mutant(
        "banks-write-behind-a-read-at-once", "sim/dram_banks.h", "dropped condition",
        "at = std::max(at, any_.read + t_.RTW);", "", BANKS,
    ),
    Mutant(
        "banks-columns-of-a-group", "sim/dram_banks.h", "dropped condition",
        ", group.column + t_.CCD_L}", "}", BANKS,
    ),
    Mutant(
        "banks-activations-of-a-group", "sim/dram_banks.h", "dropped condition",
        ", group.activation + t_.RRD_L,", ",", BANKS,
    ),
    Mutant(
        "banks-refreshes-drift", "sim/dram_banks.h", "forgotten event",
        "next_refresh_ += t_.REFI;", "next_refresh_ = start + t_.REFI;", BANKS,
    ),
    Mutant(
        "banks-opened-while-refreshed", "sim/dram_banks.h", "missing hazard check",
        "bank.opens = start + t_.RFC;", "bank.opens = start;", BANKS,
    ),
    Mutant(
        "banks-rows-survive-a-refresh", "sim/dram_banks.h", "state that survives",
        "bank.row = -1, bank.opens", "bank.opens", BANKS,
    ),
    Mutant(
        "banks-words-wait-for-nothing", "sim/dram_banks.h", "dropped term",
        "- (write ? 0 : beat)", "- beat", BANKS,
    ),
    Mutant(
        "banks-data-before-their-clock", "sim/dram_banks.h", "rounding",
        "(tick * t_.cycles + t_.ticks - 1) / t_.ticks", "tick * t_.cycles / t_.ticks", BANKS,
    ),
    Mutant(
        "banks-of-neighbouring-rows", "sim/dram_banks.h", "wrong address",
        "const uint32_t number = uint32_t(line % uint64_t(t_.banks));",
        "const uint32_t number = uint32_t(line / 8 % uint64_t(t_.banks));", BANKS,
    ),
    Mutant(
        "banks-opened-any-time-ahead", "sim/dram_banks.h", "bound",
        "        arrival = std::max(arrival, any_.column - kAhead);\n", "", BANKS,
    ),
    Mutant(
        "banks-conflicts-are-misses", "sim/dram_banks.h", "wrong count",
        "++use_.conflicts;", "++use_.misses;", BANKS,
    ),
    Mutant(
        "model-turns-of-writes-go-on", "sim/timing_shared.h", "state that survives",
        "if (!writes_under_way_) write_grants_ = {unsigned(masters_.size()) - 1, 0};", "",
        ("tests/sim/test_system.py",),
    ),
    Mutant(
        "model-room-a-run-late", "sim/timing_relay.h", "off by one",
        "ended_[other] + plan_->slots <= ended_[core]", "ended_[other] + plan_->slots <= ended_[core] + 1",
        ("tests/sim/test_relay.py",),
    ),
    Mutant(
        "model-traces-runs-that-never-began", "sim/timing_system.h", "dropped condition",
        "if (trace_ && models_[i] && starts_[i] != kNever)", "if (trace_ && models_[i])",
        ("tests/runtime/test_profile_shared.py",),
    ),
    Mutant(
        "model-relay-in-one-window", "sim/timing_relay.h", "dropped effect",
        "program.window_start += uint64_t(ended_[core] % plan_->slots) * plan_->pitch;", "",
        ("tests/sim/test_relay.py",),
    ),
    Mutant(
        "model-turns-of-one-program", "sim/timing_relay.h", "wrong index",
        "ended_[core] % plan_->turns", "ended_[core] % plan_->turns * 0", ("tests/sim/test_relay.py",),
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
        "steps && to_own && engine_ == kLoad,", "steps && to_own,",
    ),
    Mutant(
        "model-write-waits-for-its-port", "sim/timing_transfer.h", "missing buffer",
        "const bool advance = !waiting_full_;", "const bool advance = leaves;",
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
