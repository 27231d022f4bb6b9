// Cores that start each other: hw/relay.py in the timing model.

#pragma once

#include "timing_core.h"

namespace weft {

namespace {

// Without a plan each core has one run, and its start is that of its program.
class RelayModel {
  public:
    RelayModel(const WeftTimingRelay* plan, uint64_t count, WeftTimingSpan* spans)
        : plan_(plan), spans_(spans), ended_(count), waiting_(count, false) {}

    int64_t all_runs(unsigned count) const { return plan_ ? plan_->runs * count : count; }
    int64_t turns() const { return plan_ ? plan_->turns : 1; }

    // The start of a core's first run; kNever if it waits for another core's.
    Cycle starts(unsigned core, Cycle own) {
        if (!plan_) return own;
        waiting_[core] = !ready(core);
        return waiting_[core] ? kNever : 0;
    }
    void end(unsigned core, Cycle start, Cycle cycles) {
        if (!plan_) return;
        spans_[core * plan_->runs + ended_[core]++] = {start, cycles};
        waiting_[core] = ended_[core] < plan_->runs;
    }
    // The start of the next run of a core that waits, if the runs that ended before cycle `now` are those it waits for.
    Cycle next(unsigned core, Cycle now) {
        if (!waiting_[core] || !ready(core)) return kNever;
        waiting_[core] = false;
        return now + plan_->handover;
    }
    // The program of the core's next run, and its window.
    int64_t turn(unsigned core) const { return ended_[core] % plan_->turns; }
    WeftTimingProgram moved(unsigned core, WeftTimingProgram program) const {
        program.window_start += uint64_t(ended_[core] % plan_->slots) * plan_->pitch;
        return program;
    }

  private:
    bool ready(unsigned core) const {
        for (unsigned other = 0; other < ended_.size(); ++other) {
            if (plan_->after[core] >> other & 1 && ended_[other] <= ended_[core]) return false;
            if (plan_->room[core] >> other & 1 && ended_[other] + plan_->slots <= ended_[core]) return false;
        }
        return true;
    }

    const WeftTimingRelay* plan_;
    WeftTimingSpan* spans_;
    std::vector<int64_t> ended_;
    std::vector<bool> waiting_;
};

}  // namespace

}  // namespace weft
