// The load and store engines of the timing model (hw/load*.py, hw/store.py, hw/transfer_plan.py).

#pragma once

#include "timing_compute.h"

namespace weft {

// hw/transfer_plan.py: one instruction at a time, always as long.
struct Plan {
    BurstCutter::Transfer transfer;
    uint32_t rows, columns;
    bool moves, empty;
};

class Planner {
  public:
    explicit Planner(const Core& core) : core_(core) {}
    bool ready() const { return !busy_; }
    bool has_plan(Cycle now) const { return busy_ && now >= due_; }
    const Plan& plan() const { return plan_; }
    const Instruction& instruction() const { return *instruction_; }
    Cycle due() const { return busy_ ? due_ : kNever; }
    void leave() { busy_ = false; }
    void begin(Cycle now, const Instruction& instruction, int64_t entry_bytes) {
        const auto& t = instruction.transfer;
        const uint64_t entries = uint64_t(t.top + t.rows + t.bottom) * (t.left + t.columns + t.right);
        const bool merge = !(t.top | t.bottom | t.left | t.right) && t.stride == t.columns;
        const uint32_t first = uint32_t(t.offset * uint64_t(core_.granule_bytes));
        plan_.moves = t.rows && t.columns;
        plan_.empty = entries == 0;
        plan_.rows = merge ? 1 : t.rows;
        plan_.columns = merge ? uint32_t(entries) : t.columns;
        plan_.transfer = {first, uint32_t(first + plan_.columns * entry_bytes - 1), uint32_t(t.stride * entry_bytes),
                          plan_.rows};
        instruction_ = &instruction;
        due_ = now + core_.planner_cycles;
        busy_ = true;
    }

  private:
    const Core& core_;
    bool busy_ = false;
    Cycle due_ = 0;
    Plan plan_{};
    const Instruction* instruction_ = nullptr;
};

class Load {
  public:
    Load(Shared& shared, Gemm& gemm, unsigned engine)
        : client(shared.core, shared.core.burst_beats, shared.core.buffer_beats),
          shared_(shared),
          gemm_(gemm),
          engine_(engine),
          planner_(shared.core),
          loads_(unsigned(shared.core.loads_in_flight)),
          unpacking_(engine == kLoadw ? size_t(shared.core.unpack_cycles) : 0, EntryPart{}) {}

    Work step(Cycle now) {
        Work work;
        const bool granted = client.granted;
        client.granted = false;
        work.ready = planner_.ready();
        const BurstCutter::Transfer* transfer = nullptr;
        bool changed = false;
        if (planner_.has_plan(now)) {
            const Plan& plan = planner_.plan();
            if (loads_.can_push(now) && (client.cutter.ready() || !plan.moves)) {
                if (plan.moves) transfer = &plan.transfer;
                loads_.push(now, describe());
                planner_.leave();
                changed = true;
            } else if (loads_.push_again(now) != kNever) {
                shared_.wakes.wake(part(), loads_.push_again(now));
            }
        }
        steady_ = !changed;
        changed |= write(now, work);
        if (client.cutter.step(granted, transfer)) changed = true, steady_ = false;
        if (changed) shared_.wakes.wake(part(), now + 1);
        if (client.wants()) shared_.wakes.wake(kReadMaster, now + 1);
        return work;
    }
    // Cycles from the next on in each of which a word is written to a scratchpad, none of them the last of a run, and
    // nothing else happens, if a word comes in each; entries of acc, whose banks others write, are left out.
    Cycle streams(Cycle now) const {
        if (!steady_ || !client.words.streams(now) || waiting_full_ || !unpacks_plain()) return 0;
        if (load_.kind != kWriteOwn && load_.kind != kWriteRecords) return 0;
        if (head_left_) return 0;
        if (state_ != State::kRun || run_ != Part::kBody || pad_row_ || last_place_) return 0;
        if (planner_.has_plan(now) && loads_.push_again(now) != kNever) return 0;
        const Cycle plan = planner_.has_plan(now) ? kNever : planner_.due() - (now + 1);
        const uint32_t entries = load_.kind == kWriteRecords ? entries_left_ : run_left_;  // a head follows a record
        return std::min(plan, Cycle(entries) * (last_part_ + 1) - part_ - 1);
    }
    void stream(Cycle now, Cycle words) {
        client.stream(now, words);
        const Cycle parts = part_ + words;
        const uint32_t entries = uint32_t(parts / (last_part_ + 1));
        part_ = uint32_t(parts % (last_part_ + 1));
        load_.index += entries;
        run_left_ -= entries;
        if (load_.kind == kWriteRecords) entries_left_ -= entries;
    }
    void begin(Cycle now, const Instruction& instruction) {
        const int64_t bytes = shared_.core.load_bytes[engine_][kind(instruction)];
        planner_.begin(now, instruction, bytes);
    }
    void wake(Cycle now) const {
        if (planner_.due() > now && planner_.due() != kNever) shared_.wakes.wake(part(), planner_.due());
        if (state_ == State::kTake && !loads_.empty()) shared_.wakes.wake(part(), std::max(loads_.visible(), now + 1));
        if (state_ == State::kRun && !client.words.empty() && client.words.visible() > now) {
            shared_.wakes.wake(part(), client.words.visible());
        }
    }

    ReadClient client;

  private:
    enum class State { kTake, kRow, kRun };
    enum class Part { kLeft, kBody, kRight };
    struct Write {  // hw.load_writer.write_layout
        unsigned kind;
        bool empty;
        uint32_t index, top, rows, bottom, width, left, columns, right, position, step;
    };

    struct EntryPart {  // hw.load_writer.entry_part_layout
        bool acc, inp, last;
        uint32_t index;
        bool valid;  // not a gap between others
    };

    unsigned part() const { return kFirstEngine + engine_; }
    static unsigned kind(const Instruction& instruction) {
        const uint32_t scratchpad = instruction.transfer.scratchpad;
        if (instruction.transfer.records) return kWriteRecords;
        return scratchpad == kPadAcc ? kWriteAcc : scratchpad == kPadAcc8 ? kWriteAcc8 : kWriteOwn;
    }
    Write describe() const {
        const auto& t = planner_.instruction().transfer;
        const Plan& plan = planner_.plan();
        const unsigned kind = Load::kind(planner_.instruction());
        const int64_t bytes = shared_.core.load_bytes[engine_][kind];
        const uint32_t places = uint32_t(std::max<int64_t>(1, shared_.core.bus_bytes / bytes));
        const uint32_t position = uint32_t(plan.transfer.first / bytes) % places;
        const uint32_t columns = plan.columns * uint32_t(t.records ? shared_.core.record_entries : 1);
        return {kind,     plan.empty, t.index,      plan.moves ? t.top : t.top + t.rows,
                plan.moves ? plan.rows : 0, t.bottom, t.left + t.columns + t.right, t.left,
                columns, t.right, position, t.stride % places};
    }

    // hw/weight_records.py: what comes leaves as many cycles later as there are registers, in all of which parts move at
    // once. What leaves is in `part`.
    EntryPart unpack(bool enable, const EntryPart& comes) {
        if (unpacking_.empty()) return comes;
        EntryPart leaves = unpacking_.back();
        leaves.valid &= enable;
        if (enable) {
            for (size_t i = unpacking_.size(); --i > 0;) unpacking_[i] = unpacking_[i - 1];
            unpacking_[0] = comes;
        }
        return leaves;
    }
    // Whether all that is being unpacked, and what is written, is words of wgt, none of them the last of a LOAD.
    bool unpacks_plain() const {
        const auto plain = [](const EntryPart& part) { return part.valid && !part.acc && !part.last; };
        if (unpacking_.empty()) return true;
        return register_full_ && plain(register_) && std::all_of(unpacking_.begin(), unpacking_.end(), plain);
    }
    bool unpacks_any() const {
        return std::any_of(unpacking_.begin(), unpacking_.end(), [](const EntryPart& part) { return part.valid; });
    }

    // The load writer and its register; true if anything has changed.
    bool write(Cycle now, Work& work) {
        bool port_free = true;
        WritePorts& ports = shared_.ports;
        ports.begin(now);
        if (register_full_ && register_.acc) {
            const int bank = shared_.bank(register_.index);
            port_free = gemm_.write_bank(now) != bank && ports.vector_write != bank;
            if (engine_ == kLoad) {
                ports.load_write = bank;
            } else {
                port_free &= ports.load_write != bank;
            }
        } else if (register_full_ && register_.inp) {
            port_free = !ports.vector_writes_inp;
        }
        const bool leaves = !register_full_ || port_free;
        const bool advance = !waiting_full_;
        work.retires = register_full_ && register_.last && leaves;
        bool steps = false, nothing = false, load_ends = false, changed = register_full_ || unpacks_any();
        was_head_ = false;
        const uint32_t index = load_.index;
        switch (state_) {
            case State::kTake:
                if (loads_.can_pop(now)) {
                    load_ = loads_.pop(now);
                    const int64_t bytes = shared_.core.load_bytes[engine_][load_.kind], bus = shared_.core.bus_bytes;
                    last_part_ = bytes > bus ? uint32_t(bytes / bus) - 1 : 0;
                    if (load_.kind == kWriteRecords) last_part_ = uint32_t(shared_.core.record_entry_words) - 1;
                    last_place_ = bus > bytes ? uint32_t(bus / bytes) - 1 : 0;
                    state_ = State::kRow;
                    changed = true;
                }
                break;
            case State::kRow:
                changed = true;
                nothing = load_.empty;
                start_row();
                if (!load_.empty) {
                    state_ = State::kRun;
                } else if (advance) {
                    state_ = State::kTake;
                }
                break;
            case State::kRun:
                steps = run(now, advance, load_ends, work);
                changed |= steps;
                break;
        }
        work.busy = steps;
        if (!advance) work.waiting = kConflict;
        const bool to_own = load_.kind == kWriteOwn || load_.kind == kWriteRecords;
        const bool made = (steps && !was_head_) || (nothing && advance);
        const EntryPart next = unpack(
            advance, {steps && !to_own, steps && to_own && engine_ == kLoad, nothing || load_ends, index, made});
        if (leaves) {
            register_full_ = waiting_full_ || next.valid;
            register_ = waiting_full_ ? waiting_ : next;
            waiting_full_ = false;
        } else if (next.valid) {
            waiting_full_ = true;
            waiting_ = next;
        }
        return changed;
    }

    bool run(Cycle now, bool advance, bool& load_ends, Work& work) {
        const bool padding = run_ != Part::kBody;
        const bool has_word = client.words.can_pop(now);
        if (!padding && !has_word) work.waiting = kMemory;
        if (!advance || !(padding || has_word)) return false;
        if (!padding && head_left_) {
            client.take_word(now);
            --head_left_;
            return was_head_ = true;
        }
        const bool entry_ends = padding || part_ == last_part_;
        const bool row_ends = entry_ends && run_left_ == 1 &&
                              (pad_row_ || run_ == Part::kRight || (run_ == Part::kBody && load_.right == 0));
        load_ends = row_ends && !load_.top && !load_.rows && !load_.bottom;
        if (!padding) {
            if (place_ == last_place_ || run_left_ == 1 || last_place_ == 0) client.take_word(now);
            part_ = entry_ends ? 0 : part_ + 1;
            place_ = place_ == last_place_ ? 0 : place_ + 1;
        }
        if (!entry_ends) return true;
        ++load_.index;
        --run_left_;
        if (load_.kind == kWriteRecords && --entries_left_ == 0) start_record();
        if (load_ends) {
            place_row();
            state_ = State::kTake;
        } else if (row_ends) {
            start_row();
        } else if (run_left_ == 0) {
            if (run_ == Part::kLeft) {
                run_ = Part::kBody;
                run_left_ = load_.columns;
            } else {
                run_ = Part::kRight;
                run_left_ = load_.right;
            }
        }
        return true;
    }

    void start_record() {
        head_left_ = load_.kind == kWriteRecords ? uint32_t(shared_.core.record_head_words) : 0;
        entries_left_ = uint32_t(shared_.core.record_entries);
    }
    void place_row() {
        start_record();
        if (load_.top) return;
        place_ = load_.position;
        load_.position = (load_.position + load_.step) & last_place_;
    }
    void start_row() {
        place_row();
        pad_row_ = true;
        run_ = Part::kLeft;
        run_left_ = load_.width;
        if (load_.top) {
            --load_.top;
        } else if (load_.rows) {
            pad_row_ = false;
            --load_.rows;
            if (load_.left) {
                run_left_ = load_.left;
            } else {
                run_ = Part::kBody;
                run_left_ = load_.columns;
            }
        } else {
            --load_.bottom;
        }
    }

    Shared& shared_;
    Gemm& gemm_;
    unsigned engine_;
    Planner planner_;
    Fifo<Write> loads_;
    State state_ = State::kTake;
    Write load_{};
    Part run_ = Part::kLeft;
    uint32_t run_left_ = 0, part_ = 0, place_ = 0, last_part_ = 0, last_place_ = 0;
    uint32_t head_left_ = 0, entries_left_ = 0;  // words of a head and entries that the record still has
    bool pad_row_ = false, was_head_ = false;  // the word of this cycle was a head's
    bool steady_ = false;  // neither the planner nor the cutter has done anything in the last cycle
    bool register_full_ = false, waiting_full_ = false;  // a part waits only behind one in the register
    EntryPart register_{}, waiting_{};
    std::vector<EntryPart> unpacking_;
};

class Store {
  public:
    Store(Shared& shared, WriteMaster& master)
        : cutter(shared.core, shared.core.burst_beats),
          shared_(shared),
          master_(master),
          planner_(shared.core),
          rows_(2),
          pending_(unsigned(shared.core.stores_in_flight)),
          entries_(unsigned(shared.core.entries_ahead)),
          places_(unsigned(shared.core.entries_ahead)) {
        splits_ = shared.core.out_bytes >= shared.core.bus_bytes;
        parts_ = uint32_t(splits_ ? shared.core.out_bytes / shared.core.bus_bytes
                                  : shared.core.bus_bytes / shared.core.out_bytes);
    }

    Work step(Cycle now) {
        Work work;
        const bool granted = master_.granted;
        master_.granted = false;
        work.ready = planner_.ready();
        const BurstCutter::Transfer* transfer = nullptr;
        bool changed = false;

        const bool under_way = pending_.can_pop(now);
        const bool moves = under_way && pending_.front();
        work.retires = under_way && (!moves || ended_ != 0);
        ended_ -= work.retires && moves;
        while (!master_.last_answers.empty() && master_.last_answers.front() == now) {
            master_.last_answers.pop();
            ++ended_;
            changed = true;
        }
        const bool can_issue_rows = rows_.can_push(now);
        if (planner_.has_plan(now)) {
            const Plan& plan = planner_.plan();
            if (pending_.can_push(now) && ((cutter.ready() && can_issue_rows) || !plan.moves)) {
                if (plan.moves) {
                    const auto& t = planner_.instruction().transfer;
                    transfer = &plan.transfer;
                    const uint32_t position = uint32_t(plan.transfer.first / shared_.core.out_bytes);
                    rows_.push(now, {plan.rows, plan.columns, position, t.stride});
                }
                pending_.push(now, plan.moves);
                planner_.leave();
                changed = true;
            } else {
                const Cycle again = std::min(pending_.push_again(now), rows_.push_again(now));
                if (again != kNever) shared_.wakes.wake(kPart, again);
            }
        }
        if (work.retires) {
            pending_.pop(now);
            changed = true;
        }
        changed |= pack(now, work);
        if (work.waiting == kIdle && under_way) work.waiting = kMemory;
        changed |= cutter.step(granted, transfer);
        if (cutter.offers()) shared_.wakes.wake(kWriteMaster, now + 1);
        if (changed) shared_.wakes.wake(kPart, now + 1);
        return work;
    }
    void begin(Cycle now, const Instruction& instruction) { planner_.begin(now, instruction, shared_.core.out_bytes); }
    void wake(Cycle now) const {
        if (planner_.due() > now && planner_.due() != kNever) shared_.wakes.wake(kPart, planner_.due());
        if (!master_.last_answers.empty()) shared_.wakes.wake(kPart, master_.last_answers.front());
        if (!pending_.empty() && pending_.visible() > now) shared_.wakes.wake(kPart, pending_.visible());
        if (!entries_.empty() && entries_.visible() > now) shared_.wakes.wake(kPart, entries_.visible());
        if (!reading_ && !rows_.empty() && rows_.visible() > now) shared_.wakes.wake(kPart, rows_.visible());
    }

    BurstCutter cutter;

  private:
    static constexpr unsigned kPart = kFirstEngine + kStore;
    struct Rows {
        uint32_t rows, columns, position, step;
    };
    struct Place {
        uint32_t place;
        bool last;
    };

    // hw/store.py: EntryPacker; true if anything has changed.
    bool pack(Cycle now, Work& work) {
        const bool reads = reading_ && ahead_ != shared_.core.entries_ahead;
        const bool put = arriving_ >> 1 & 1;
        const bool has_entry = entries_.can_pop(now);
        const bool room = master_.words.can_push(now);
        bool changed = reads || arriving_;
        if (ahead_ && !has_entry) work.waiting = kConflict;
        bool taken = false;
        if (splits_) {
            work.busy = has_entry && room;
            if (work.busy) {
                master_.put_word(now, shared_.wakes);
                taken = part_ + 1 == parts_;
                part_ = taken ? 0 : part_ + 1;
            }
        } else {
            const bool sends = complete_ && room;
            if (sends) master_.put_word(now, shared_.wakes);
            taken = work.busy = has_entry && (!complete_ || room);
            if (taken) {
                const Place place = places_.pop(now);
                complete_ = place.last || place.place == parts_ - 1;
            } else if (sends) {
                complete_ = false;
            }
            changed |= sends;
        }
        changed |= work.busy;
        if (taken) entries_.pop(now);
        if (!room && !master_.words.empty()) changed = true;  // try again: the master does not tell of its pops
        if (put) entries_.push(now, 0);
        arriving_ = (arriving_ << 1 | unsigned(reads)) & 3;
        if (!reading_ && rows_.can_pop(now)) {
            current_ = rows_.pop(now);
            columns_left_ = current_.columns;
            rows_left_ = current_.rows - 1;
            position_ = current_.position;
            reading_ = true;
            changed = true;
        } else if (reads) {
            const bool row_ends = columns_left_ == 1;
            if (!splits_) places_.push(now, {position_ % parts_, row_ends});
            ++position_;
            --columns_left_;
            if (row_ends) {
                columns_left_ = current_.columns;
                reading_ = rows_left_ != 0;
                --rows_left_;
                current_.position += current_.step;
                position_ = current_.position;
            }
        }
        ahead_ += int64_t(reads) - int64_t(taken);
        return changed;
    }

    Shared& shared_;
    WriteMaster& master_;
    Planner planner_;
    Fifo<Rows> rows_;
    Fifo<bool> pending_;
    Fifo<char> entries_;
    Fifo<Place> places_;
    bool splits_;
    uint32_t parts_, part_ = 0;
    int64_t ended_ = 0, ahead_ = 0;
    bool reading_ = false, complete_ = false;
    unsigned arriving_ = 0;  // bit n: a read was asked for n + 1 cycles ago
    Rows current_{};
    uint32_t columns_left_ = 0, rows_left_ = 0, position_ = 0;
};

}  // namespace weft
