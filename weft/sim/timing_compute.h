// The gemm and vector engines of the timing model (hw/gemm.py, hw/vector*.py).

#pragma once

#include "timing_control.h"

namespace weft {

// Never stalls, so an instruction's cycles are known when it starts; which bank is used when is worked out on demand.
class Gemm {
  public:
    explicit Gemm(Shared& shared)
        : shared_(shared),
          remembered_mask_(power_of_two(shared.core.gemm_forwards + 1) - 1),
          recent_(remembered_mask_ + 1) {}

    Work step(Cycle now) {
        Work work;
        work.busy = now <= last_issue_;
        work.ready = now >= last_issue_;
        work.retires = !retirements_.empty() && retirements_.front() == now;
        if (work.retires) retirements_.pop();
        return work;
    }
    void begin(Cycle now, const Instruction& instruction) {
        if (instruction.opcode == kOpLoop) {
            levels_[instruction.loop.level] = instruction.loop.values;
            return;
        }
        while (!runs_.empty() && runs_.front().last + shared_.core.gemm_write < now) {
            runs_.pop();
            ++dropped_;
        }
        const Nest nest(levels_, instruction);
        const Waves waves(nest, instruction);
        const Cycle last = now + Cycle(waves.count());
        runs_.push({now + 1, last, nest, waves, instruction.work.zero});
        retirements_.push(last + shared_.core.gemm_write);
        last_issue_ = last;
    }
    void wake(Cycle now) const {
        const unsigned part = kFirstEngine + kGemm;
        if (last_issue_ >= now) shared_.wakes.wake(part, std::max(last_issue_, now + 1));
        if (!retirements_.empty()) shared_.wakes.wake(part, retirements_.front());
    }

    // Banks of acc that gemm reads and writes in this cycle, or -1. Cycles must not go back.
    int read_bank(Cycle now) {
        const Cycle issue = now - shared_.core.gemm_read;
        if (runs_.empty() || issue > runs_[runs_.size() - 1].last) return -1;
        const MicroOp op = look_up(issue);
        if (!op.exists || op.from_zero) return -1;
        for (Cycle age = 1; age <= shared_.core.gemm_forwards; ++age) {
            const MicroOp before = look_up(issue - age);
            if (before.exists && before.dst == op.dst) return -1;
        }
        return shared_.bank(op.dst);
    }
    int write_bank(Cycle now) {
        const Cycle issue = now - shared_.core.gemm_write;
        if (runs_.empty() || issue > runs_[runs_.size() - 1].last) return -1;
        const MicroOp op = writes_.at(issue, runs_, dropped_);
        return op.exists ? shared_.bank(op.dst) : -1;
    }

  private:
    // Cycles of one GEMM: a wave each. A micro-op writes in its last one; without depthwise it has no other.
    class Waves {
      public:
        Waves() = default;
        Waves(const Nest& nest, const Instruction& instruction) : row_(nest.inner().extent), outer_(nest.count() / row_) {
            if (!instruction.work.depthwise) return;
            const Level& inner = nest.inner();
            const uint64_t pitch = instruction.work.column_pitch;
            fresh_ = further_ = kTapColumns;
            if (inner.b == 0 && inner.a == pitch) {
                further_ = 1;
            } else if (inner.b == 0 && inner.a == 2 * pitch) {
                further_ = 2;
            }
        }
        uint64_t count() const { return outer_ * in_row(); }
        // Whether wave `number` is its micro-op's last, and which that is.
        bool writes(uint64_t number, uint64_t& micro_op) const {
            const uint64_t place = number % in_row();
            micro_op = number / in_row() * row_;
            if (place < fresh_) return place + 1 == fresh_;
            micro_op += 1 + (place - fresh_) / further_;
            return (place - fresh_) % further_ + 1 == further_;
        }

      private:
        uint64_t in_row() const { return fresh_ + (row_ - 1) * further_; }
        uint64_t row_ = 1, outer_ = 1;             // micro-ops of one turn of level 0, and turns
        uint64_t fresh_ = 1, further_ = 1;         // waves of the first micro-op of a turn, and of each other
    };
    struct Run {
        Cycle first, last;  // issue of its waves
        Nest nest;
        Waves waves;
        bool zero;
    };
    struct MicroOp {
        bool exists = false, from_zero = false;
        uint32_t dst = 0;
    };

    // Finds the micro-op that writes, issued in a cycle; quick if the cycles asked for follow each other.
    struct Walker {
        uint64_t run = 0;  // number of the run, the dropped ones counted
        bool loaded = false;
        Nest nest;

        MicroOp at(Cycle issue, const Ring<Run>& runs, uint64_t dropped) {
            if (run < dropped) run = dropped, loaded = false;
            while (run - dropped < runs.size() && runs[run - dropped].last < issue) ++run, loaded = false;
            if (run - dropped == runs.size()) return {};
            const Run& current = runs[run - dropped];
            if (issue < current.first) return {};
            uint64_t number;
            if (!current.waves.writes(uint64_t(issue - current.first), number)) return {};
            if (!loaded) nest = current.nest, loaded = true;
            if (number == nest.number() + 1) {
                nest.step();
            } else if (number != nest.number()) {
                nest.seek(number);
            }
            return {true, current.zero && nest.first(), nest.index().dst};
        }
    };

    MicroOp look_up(Cycle issue) {
        if (issue < 0) return {};
        if (issue > remembered_) {
            const Cycle first = std::max({remembered_ + 1, issue - Cycle(remembered_mask_), Cycle(0)});
            for (Cycle each = first; each <= issue; ++each) {
                recent_[each & remembered_mask_] = reads_.at(each, runs_, dropped_);
            }
            remembered_ = issue;
        }
        return recent_[issue & remembered_mask_];
    }

    Shared& shared_;
    Level levels_[kLevels];
    Ring<Run> runs_;
    uint64_t dropped_ = 0;
    Ring<Cycle> retirements_;
    Cycle last_issue_ = -1;
    Walker reads_, writes_;
    unsigned remembered_mask_;
    std::vector<MicroOp> recent_;  // by the cycle of its issue, up to `remembered_`
    Cycle remembered_ = -1;
};

class Vector {
  public:
    Vector(Shared& shared, Gemm& gemm) : shared_(shared), gemm_(gemm), writer_(size_t(shared.core.acc_depth) + 4, -1) {}

    Work step(Cycle now) {
        const Core& core = shared_.core;
        Work work;
        const int64_t written_before = written_;
        work.retires = write_result(now);
        const bool room = count_.before(now) < core.vector_slots - 1;

        bool moves = false, issues = false;
        if (occupied_) {
            work.waiting = kConflict;
            moves = fetch_operands(now, written_before);
            issues = room && !pending_a_ && !pending_b_ && !pending_d_;
        }
        work.busy = busy_ = moves || issues;
        if (issues) {
            if (task_.target == kTargetAcc && held_.dst < writer_.size()) writer_[held_.dst] = issued_;
            ++issued_;
            results_.push({now + core.vector_result, held_.dst, task_.target, held_end_});
        }
        count_.set(now, issued_ - written_);

        const bool accepts = !occupied_ || issues, steps = loops_valid_ && !skid_full_;
        work.ready = !loops_valid_ || (steps && nest_.end());
        if (steps) {
            skid_ = {nest_.index(), nest_.begin(), nest_.end(), nest_.first(), next_task_};
            if (skid_.end) {
                loops_valid_ = false;
            } else {
                nest_.step();
            }
        }
        const bool offers = skid_full_ || steps;
        skid_full_ = offers && !accepts;
        if (accepts) {
            occupied_ = offers;
            parameter_ = 0;
            if (offers) accept();
        }
        return work;
    }
    void begin(const Instruction& instruction) {
        if (instruction.opcode == kOpLoop) {
            levels_[instruction.loop.level] = instruction.loop.values;
            return;
        }
        const auto& work = instruction.work;
        nest_ = Nest(levels_, instruction);
        loops_valid_ = true;
        next_task_.target = work.target;
        next_task_.zero = work.zero;
        next_task_.b_immediate = work.b_immediate;
        next_task_.accumulates = kAccumulates[work.op];
        next_task_.b_entries = work.b_immediate ? 0 : kBEntries[work.op];
    }
    void wake(Cycle now) const {
        const unsigned part = kFirstEngine + kVector;
        if (busy_ || occupied_ || loops_valid_ || offered_ || count_.settles_after(now)) {
            shared_.wakes.wake(part, now + 1);
        } else if (!results_.empty()) {
            shared_.wakes.wake(part, std::max(results_.front().ready, now + 1));
        }
    }

  private:
    struct Task {
        VectorTarget target;
        bool zero, b_immediate, accumulates;
        uint32_t b_entries;  // that are read at b
    };
    struct MicroOp {
        Nest::Index index;
        bool begin, end, first;
        Task task;
    };
    struct Result {
        Cycle ready;  // leaves the queue of results in this cycle at the earliest
        uint32_t dst;
        VectorTarget target;
        bool end;
    };

    // The result at the write port, and the next one behind it; true if an instruction's last is written.
    bool write_result(Cycle now) {
        bool written = false, retires = false;
        if (offered_) {
            written = true;
            shared_.ports.begin(now);
            if (offer_.target == kTargetAcc) {
                const int bank = shared_.bank(offer_.dst);
                shared_.ports.vector_write = bank;
                written = gemm_.write_bank(now) != bank;
            } else {
                shared_.ports.vector_writes_inp = offer_.target == kTargetInp;
            }
            if (written) {
                ++written_;
                retires = offer_.end;
            }
        }
        if (!results_.empty() && results_.front().ready <= now && (!offered_ || written)) {
            offer_ = results_.front();
            results_.pop();
            offered_ = true;
        } else if (written) {
            offered_ = false;
        }
        return retires;
    }

    // Reads that are granted in this cycle; true if there are any.
    bool fetch_operands(Cycle now, int64_t written) {
        const bool wants_a = pending_a_ && blocked_a_ < written;
        const bool wants_b = pending_b_ && !task_.b_immediate && blocked_b_ < written;
        const bool wants_d = pending_d_ && blocked_d_ < written;
        const bool immediate = pending_b_ && task_.b_immediate;
        if (immediate) pending_b_ = false;
        if (!(wants_a || wants_b || wants_d)) return immediate;
        const int taken = gemm_.read_bank(now);
        const int bank_a = shared_.bank(held_.a), bank_b = shared_.bank(b_index_), bank_d = shared_.bank(held_.dst);
        bool moves = immediate;
        if (wants_a && bank_a != taken) {
            pending_a_ = false;
            moves = true;
        }
        if (wants_b && bank_b != taken && !(wants_a && bank_a == bank_b)) {
            moves = true;
            ++b_index_;
            if (++parameter_ >= task_.b_entries) pending_b_ = false;
        }
        if (wants_d && bank_d != taken && !(wants_a && bank_a == bank_d) && !(wants_b && bank_b == bank_d)) {
            pending_d_ = false;
            moves = true;
        }
        return moves;
    }

    // The next micro-op becomes the one that fetches: what it has to read, seen from the one before.
    void accept() {
        const Nest::Index next = skid_.index;
        const bool begins = skid_.begin;
        const Task& task = skid_.task;
        const bool identity = task.accumulates && task.zero && skid_.first;
        const bool same_a = !begins && !overwritten_a_ && next.a == held_.a;
        const bool same_b = !begins && !overwritten_b_ && next.b == held_.b;
        const bool goes_on = !begins && next.dst == held_.dst;
        pending_a_ = !same_a;
        blocked_a_ = writer_of(next.a);
        const bool to_acc = task.target == kTargetAcc;
        overwritten_a_ = to_acc && next.dst == next.a;
        pending_b_ = (task.b_entries && !same_b) || (task.b_immediate && begins);
        blocked_b_ = writer_of(next.b);
        overwritten_b_ = to_acc && next.dst == next.b;
        for (uint32_t i = 1; i < task.b_entries; ++i) {
            blocked_b_ = std::max(blocked_b_, writer_of(next.b + i));
            overwritten_b_ |= to_acc && next.dst == next.b + i;
        }
        pending_d_ = task.accumulates && !identity && !goes_on;
        blocked_d_ = writer_of(next.dst);
        held_ = next;
        b_index_ = next.b;
        held_end_ = skid_.end;
        task_ = task;
    }
    // Number of the last micro-op that was issued to write this entry of acc.
    int64_t writer_of(uint32_t index) const { return index < writer_.size() ? writer_[index] : -1; }

    Shared& shared_;
    Gemm& gemm_;
    Level levels_[kLevels];
    // The loops.
    bool loops_valid_ = false;
    Nest nest_;
    Task next_task_{};
    // The last micro-op that left the loops, and whether it still waits for fetch (hw/skid_buffer.py).
    MicroOp skid_{};
    bool skid_full_ = false;
    // The micro-op that fetches.
    bool occupied_ = false, held_end_ = false, busy_ = false;
    Nest::Index held_;
    Task task_{};
    uint32_t b_index_ = 0;
    uint32_t parameter_ = 0;
    bool pending_a_ = false, pending_b_ = false, pending_d_ = false;
    bool overwritten_a_ = false, overwritten_b_ = false;
    int64_t blocked_a_ = -1, blocked_b_ = -1, blocked_d_ = -1;  // the micro-op to be written first
    // The results.
    int64_t issued_ = 0, written_ = 0;
    Lagging count_;
    Ring<Result> results_;
    bool offered_ = false;
    Result offer_{};
    std::vector<int64_t> writer_;
};

}  // namespace weft
