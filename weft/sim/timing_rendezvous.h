// Reads that cores share: the rendezvous of hw/shared_reads.py in front of an arbiter.

#pragma once

#include "timing_core.h"

namespace weft {

namespace {

// A read burst of one core that waits for the same burst of the others.
struct WaitingRead {
    uint64_t address = 0;
    unsigned beats = 0;
    Cycle asked = 0;
};

// Which bursts wait, and whose turn it is. Bits are places of cores on the port.
class Rendezvous {
  public:
    Rendezvous(unsigned count, const WeftTimingSharedReads& shared) : shared_(shared), waiting_(count) {}

    bool shares(unsigned id, uint64_t address) const {
        return id == kClientLoadw && address >= shared_.start && address < shared_.stop;
    }
    bool has_room(unsigned place) const { return waiting_[place].size() < kWaitingReads; }
    bool waits(unsigned place) const { return waits_ >> place & 1; }
    bool offers() const { return round_; }
    // The cores whose bursts are the same as that of the first in this round.
    uint32_t group() const {
        const WaitingRead& leader = front(first());
        uint32_t members = 0;
        for (unsigned place = 0; place < waiting_.size(); ++place) {
            if (!(round_ >> place & 1)) continue;
            const WaitingRead& own = front(place);
            if (own.address == leader.address && own.beats == leader.beats) members |= 1u << place;
        }
        return members;
    }
    unsigned first() const { return unsigned(__builtin_ctz(round_)); }
    const WaitingRead& front(unsigned place) const { return waiting_[place].front(); }

    // The end of a cycle in which the bursts of `served` have gone. A round begins where none is open and all that run
    // wait, as it was at the start of the cycle.
    void step(uint32_t running, uint32_t served) {
        round_ = begins(running) ? waits_ : round_ & ~served;
        for (unsigned place = 0; place < waiting_.size(); ++place) {
            if (!(served >> place & 1)) continue;
            waiting_[place].pop();
            if (waiting_[place].empty()) waits_ &= ~(1u << place);
        }
    }
    // After `step`: a burst comes in this cycle.
    void put(unsigned place, const WaitingRead& read) {
        waiting_[place].push(read);
        waits_ |= 1u << place;
    }
    // Nothing changes before a core asks or ends.
    bool rests(uint32_t running) const { return !round_ && !begins(running); }

  private:
    bool begins(uint32_t running) const { return !round_ && waits_ && !(running & ~waits_); }

    const WeftTimingSharedReads& shared_;
    std::vector<Ring<WaitingRead>> waiting_;
    uint32_t waits_ = 0, round_ = 0;
};

}  // namespace

}  // namespace weft
