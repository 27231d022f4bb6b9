// What every engine has around it (hw/engine.py, hw/tokens.py), who writes where (hw/acc_memory.py, hw/shared_write.py), and fetch.

#pragma once

#include "timing_memory.h"

namespace weft {

// hw/tokens.py; sends and takes of a cycle are seen in the next.
class Tokens {
  public:
    explicit Tokens(const Core& core) : depth_(int(core.token_depth)) {}
    // Of the engines in `wait`, those whose token is missing.
    unsigned missing(unsigned engine, unsigned wait) const {
        unsigned mask = 0;
        for (unsigned source = 0; source < kEngines; ++source) {
            if (wait >> source & 1 && !count_[source][engine]) mask |= 1u << source;
        }
        return mask;
    }
    bool has_room(unsigned engine, unsigned send) const {
        for (unsigned target = 0; target < kEngines; ++target) {
            if (send >> target & 1 && count_[engine][target] == depth_) return false;
        }
        return true;
    }
    void take(unsigned engine, unsigned wait) {
        if (wait) changes_[changed_++] = {engine, wait, false};
    }
    void send(unsigned engine, unsigned mask) {
        if (mask) changes_[changed_++] = {engine, mask, true};
    }
    void commit(Cycle now, Wakes& wakes) {
        for (; changed_; --changed_) {
            const Change& change = changes_[changed_ - 1];
            for (unsigned other = 0; other < kEngines; ++other) {
                if (!(change.mask >> other & 1)) continue;
                if (change.sends) {
                    ++count_[change.engine][other];
                } else {
                    --count_[other][change.engine];
                }
                wakes.wake(kFirstEngine + other, now + 1);
            }
        }
    }

  private:
    struct Change {
        unsigned engine, mask;
        bool sends;
    };
    int depth_;
    int count_[kEngines][kEngines] = {};
    Change changes_[2 * kEngines];
    unsigned changed_ = 0;
};

// Who writes in this cycle, apart from gemm: banks of acc (-1: none), and whether vector writes inp.
struct WritePorts {
    Cycle cycle = -1;
    int vector_write = -1, load_write = -1;
    bool vector_writes_inp = false;
    void begin(Cycle now) {
        if (cycle != now) *this = {now, -1, -1, false};
    }
};

// What the parts of one run share.
struct Shared {
    Shared(const Core& core, const std::vector<Instruction>& program)
        : core(core), program(program), tokens(core), bank_entries(core.acc_depth / core.acc_banks) {
        while (bank_entries >> (bank_log2 + 1)) ++bank_log2;
    }
    int bank(uint32_t index) const { return int(index >> bank_log2); }

    const Core& core;
    const std::vector<Instruction>& program;
    Tokens tokens;
    Wakes wakes;
    WritePorts ports;
    int64_t bank_entries;
    unsigned bank_log2 = 0;
    bool finished = false;  // fetch has reached FINISH
    bool trace = false;
    std::vector<WeftEvent> events;
    std::vector<WeftActivity> activity;
};

// What a body does in a cycle, towards its control.
struct Work {
    bool ready = false, retires = false, busy = false;
    Class waiting = kIdle;
};

// hw/engine.py: EngineControl with its ledger and the queue in front of it.
class Control {
  public:
    Control(Shared& shared, unsigned engine)
        : queue(unsigned(shared.core.queue_depth)),
          shared_(shared),
          engine_(engine),
          ledger_mask_(power_of_two(shared.core.ledger_entries) - 1),
          ledger_(ledger_mask_ + 1) {}

    bool idle(Cycle now) const { return !held_ && to_start_ == to_send_ && queue.count_at(now) == 0; }

    // One cycle; returns the instruction that its body starts, if any.
    const Instruction* step(Cycle now, const Work& work) {
        const unsigned part = kFirstEngine + engine_;
        const bool held = held_;
        const Instruction* instruction = held ? &shared_.program[number_] : nullptr;
        const unsigned missing = held ? shared_.tokens.missing(engine_, instruction->wait) : 0;
        const bool room = used_.before(now) < shared_.core.ledger_entries - 1;
        const bool syncs = held && instruction->opcode == kOpSync;
        const bool leaves = held && !missing && room && (syncs || work.ready);

        // The ledger.
        const Entry& retiring = ledger_[to_retire_ & ledger_mask_];
        const bool ledger_empty = to_send_ == to_start_;
        const bool retires = to_retire_ != to_start_ && (retiring.instant || work.retires || done_);
        const bool pending = to_send_ != to_retire_;
        const Entry& sending = ledger_[to_send_ & ledger_mask_];
        const bool wants_to_send = pending && sending.send;
        const bool sends = wants_to_send && shared_.tokens.has_room(engine_, sending.send);
        const bool nothing_comes = shared_.finished && queue.count_at(now) == 0;
        account(now, classify(work, leaves, held, missing, wants_to_send, room, ledger_empty, nothing_comes));

        if (retires) {
            if (shared_.trace) shared_.events.push_back({engine_, retiring.number, retiring.started, uint64_t(now + 1)});
            ++to_retire_;
        }
        done_ += int(work.retires) - int(retires && !retiring.instant);
        if (sends) shared_.tokens.send(engine_, sending.send);
        const bool passes = pending && (sends || !sending.send);
        if (passes) ++to_send_;
        if (leaves) {
            shared_.tokens.take(engine_, instruction->wait);
            const bool instant = syncs || instruction->opcode == kOpLoop;
            ledger_[to_start_++ & ledger_mask_] = {number_, instruction->send, instant, uint64_t(now + 1)};
        }
        used_.set(now, int64_t(to_start_ - to_send_));
        bool taken = false;
        if (!held || leaves) {
            taken = held_ = queue.can_pop(now);
            if (held_) {
                number_ = queue.pop(now);
                shared_.wakes.wake(kFetch, now + 1);
            } else if (!queue.empty()) {
                shared_.wakes.wake(part, queue.visible());
            }
        }
        steady_ = !(leaves || retires || work.retires || passes || taken) && (held_ || queue.empty());
        if (!steady_ || used_.settles_after(now)) shared_.wakes.wake(part, now + 1);
        return leaves && !syncs ? instruction : nullptr;
    }

    // True if all cycles from the next on are as this one, in which the body was at work, as long as nobody else sends a
    // token or an instruction and the body starts and ends none.
    bool streams(Cycle now) const { return steady_ && !used_.settles_after(now); }

    void account(Cycle now, Class kind) {
        if (kind == kind_) return;
        close(now);
        kind_ = kind;
        since_ = now;
    }

    // Add the cycles up to `now` to the counters; activity is seen one cycle late (hw/engine.py), first as IDLE.
    void close(Cycle now) {
        if (now == since_) return;
        counters[kind_] += now - since_;
        if (shared_.trace) {
            shared_.activity.push_back({engine_, kind_, uint64_t(since_ + 1), uint64_t(now - since_)});
        }
        since_ = now;
    }

    Fifo<uint32_t> queue;
    int64_t counters[kClasses] = {};

  private:
    struct Entry {
        uint32_t number;
        uint8_t send;
        bool instant;
        uint64_t started;
    };

    Class classify(const Work& work, bool leaves, bool held, unsigned missing, bool wants_to_send, bool room,
                   bool ledger_empty, bool nothing_comes) const {
        if (work.busy || leaves) return kBusy;
        if (work.waiting != kIdle) return work.waiting;
        if (missing) return Class(kTokenLoad + __builtin_ctz(missing));
        if (wants_to_send && (!held || !room)) return kSend;
        if (held || !ledger_empty) return kConflict;
        return nothing_comes ? kIdle : kInstruction;
    }

    Shared& shared_;
    unsigned engine_;
    bool held_ = false;
    uint32_t number_ = 0;
    unsigned ledger_mask_;
    std::vector<Entry> ledger_;
    uint64_t to_start_ = 0, to_retire_ = 0, to_send_ = 0;
    int done_ = 0;
    Lagging used_;
    bool steady_ = false;  // nothing has changed in the last cycle
    Class kind_ = kIdle;
    Cycle since_ = -1;  // cycle 0 of the counters shows the reset value
};

// hw/fetch.py
class Fetch {
  public:
    Fetch(Shared& shared, Control* const* controls, uint32_t first, uint32_t final)
        : client(shared.core, shared.core.fetch_burst_beats, shared.core.fetch_buffer_words),
          shared_(shared),
          controls_(controls),
          transfer_{first, final, 0, 1} {
        const int64_t bus = shared.core.bus_bytes, wide = shared.core.instruction_bytes;
        words_ = wide > bus ? unsigned(wide / bus) : 1;
        places_ = bus > wide ? unsigned(bus / wide) : 1;
        shared.wakes.wake(kFetch, kStart);
    }

    void step(Cycle now) {
        const bool granted = client.granted;
        client.granted = false;
        bool changed = false;
        const BurstCutter::Transfer* transfer = nullptr;
        bool takes = false;  // an instruction is wanted in this cycle
        switch (state_) {
            case State::kCheck:
                if (now < kStart) break;
                transfer = &transfer_;
                state_ = State::kWait;
                changed = true;
                break;
            case State::kWait:
                takes = number_ < shared_.program.size();
                break;
            case State::kDispatch:
                changed = dispatch(now);
                break;
            case State::kDone:
                takes = true;
                break;
        }
        if (client.words.can_pop(now)) {
            const bool complete = word_ + 1 == words_;
            const bool instruction = complete && takes;
            const bool word = words_ > 1 ? (!complete || takes) : (takes && place_ + 1 == places_);
            if (instruction && state_ == State::kWait) state_ = State::kDispatch;
            if (word) client.take_word(now);
            if (words_ > 1) {
                if (word) word_ = complete ? 0 : word_ + 1;
            } else if (instruction) {
                place_ = (place_ + 1) % places_;
            }
            changed |= word || instruction;
        }
        changed |= client.cutter.step(granted, transfer);
        if (client.wants()) shared_.wakes.wake(kReadMaster, now + 1);
        if (changed) shared_.wakes.wake(kFetch, now + 1);
        if (!client.words.empty() && client.words.visible() > now) {
            shared_.wakes.wake(kFetch, client.words.visible());
        }
    }

    // Cycle from which FINISH is known to have been reached.
    Cycle finishing() const { return finishing_; }

    ReadClient client;

  private:
    static constexpr Cycle kStart = 1;  // in cycle 0 of the counters, fetch is told to start
    enum class State { kCheck, kWait, kDispatch, kDone };

    bool dispatch(Cycle now) {
        const Instruction& instruction = shared_.program[number_];
        if (instruction.opcode == kOpFinish) {
            finishing_ = now + 1;
            state_ = State::kDone;
            return true;
        }
        Fifo<uint32_t>& queue = controls_[instruction.engine]->queue;
        if (!queue.can_push(now)) {
            const Cycle again = queue.push_again(now);
            if (again != kNever) shared_.wakes.wake(kFetch, again);
            return false;
        }
        queue.push(now, number_);
        shared_.wakes.wake(kFirstEngine + instruction.engine, queue.visible());
        ++number_;
        state_ = State::kWait;
        return true;
    }

    Shared& shared_;
    Control* const* controls_;
    BurstCutter::Transfer transfer_;
    State state_ = State::kCheck;
    uint32_t number_ = 0;
    unsigned words_, places_, word_ = 0, place_ = 0;
    Cycle finishing_ = kNever;
};

}  // namespace weft
