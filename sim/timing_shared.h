// Several cores on one memory port: the arbiter of hw/interconnect.py with the memory of sim/harness_memory.h behind it,
// and the loop that steps the cores together.

#pragma once

#include <memory>

#include "timing_core.h"

namespace weft {

namespace {

// The arbiter and the memory. Each core counts cycles from its own start.
class SharedPort {
  public:
    SharedPort(const Core& memory, unsigned count) : core_(memory), masters_(count), reads_(count * kReadClients) {
        credit_ = core_.bus_bytes + core_.bytes_per_cycle - 1;
        last_read_ = last_write_ = count - 1;
    }
    void connect(unsigned place, CoreModel& model, Cycle start) {
        masters_[place].model = &model;
        masters_[place].start = start;
    }
    const Port& port(unsigned place) const { return masters_[place].port; }
    const WeftTimingPortUse& use(unsigned place) const { return masters_[place].use; }
    Cycle wake = kNever;

    void step(Cycle now) {
        begin(now);
        const bool address_ready = reads_pending_ < core_.outstanding;
        const bool write_address_ready = int64_t(writes_.size()) < core_.outstanding;
        const bool collects = collecting_ < writes_.size();
        // Turns begin with the first core where no burst of the channel is under way.
        if (!reads_under_way_) last_read_ = unsigned(masters_.size()) - 1;
        if (!writes_under_way_) last_write_ = unsigned(masters_.size()) - 1;
        Master* writer = order_.empty() ? nullptr : &masters_[order_.front()];
        const bool data_valid = writer && writer->model->writes().data_valid;
        if (!(write_turn_ && data_valid && collects && credit_ < 2 * core_.bus_bytes)) offer_read(now);
        const bool data_ready = collects && credit_ >= core_.bus_bytes;
        if (writer) writer->port.data_ready = data_ready;
        if (!answering_ && !writes_.empty() && writes_.front().complete && writes_.front().due <= now) answering_ = true;
        read_address(now, address_ready);
        answer_write(now);
        // A write burst whose last word goes makes room in the order from the next cycle on only.
        const bool room = order_.size() < kWritesOrdered;
        if (data_valid && data_ready) take_word(now);
        write_address(now, write_address_ready, room);
        wake_next(now);
    }

    // Cycles from the next on in which a word comes to one core's client, none of them a burst's last, and nobody else
    // wants anything of the port.
    Cycle streams(Cycle now, unsigned& place, unsigned& id) const {
        if (last_step_ != now || !beaten_ || beat_last_ || credit_ != core_.bytes_per_cycle - 1) return 0;
        if (core_.bytes_per_cycle < core_.bus_bytes || answering_ || read_held_.valid || write_held_.valid) return 0;
        for (const Master& master : masters_) {
            const WriteMaster& writes = master.model->writes();
            if (master.model->reads().address_valid || writes.address_valid || writes.data_valid) return 0;
        }
        const Cycle answer = !writes_.empty() && writes_.front().complete ? writes_.front().due - (now + 1) : kNever;
        place = beat_queue_ / kReadClients;
        id = beat_queue_ % kReadClients;
        return std::min(answer, Cycle(reads_[beat_queue_].front().beats) - 1);
    }
    void stream(Cycle beats) {
        reads_[beat_queue_].front().beats -= unsigned(beats);
        last_step_ += beats;
        for (Master& master : masters_) master.port.last_step = last_step_ - master.start;
        wake = last_step_ + 1;
    }

  private:
    struct Master {
        CoreModel* model = nullptr;
        Cycle start = 0;  // cycle of the system in which the core's own count begins
        Port port;
        Cycle read_asked = kNever, write_asked = kNever;  // since when an address waits for its grant
        WeftTimingPortUse use{};
    };
    struct Read {
        Cycle due;
        unsigned beats;
        uint64_t order;
        Cycle asked;
        bool started = false;
    };
    struct Write {
        unsigned beats, master;
        Cycle asked;
        unsigned size;
        bool complete = false;
        Cycle due = 0;
    };
    struct Address {
        bool valid = false;
        unsigned master = 0, id = 0, beats = 0;
        Cycle asked = 0;
    };

    void begin(Cycle now) {
        const int64_t most = core_.bus_bytes + core_.bytes_per_cycle - 1;
        credit_ = std::min(credit_ + (now - last_step_) * core_.bytes_per_cycle, most);
        last_step_ = now;
        for (Master& master : masters_) {
            master.port = Port{};
            master.port.last_step = now - master.start;
            if (master.model->reads().address_valid) master.read_asked = std::min(master.read_asked, now);
            if (master.model->writes().address_valid) master.write_asked = std::min(master.write_asked, now);
        }
    }

    template <typename Wants>
    int pick(unsigned last, Wants wants) const {
        for (unsigned step = 1; step <= masters_.size(); ++step) {
            const unsigned place = unsigned((last + step) % masters_.size());
            if (wants(*masters_[place].model)) return int(place);
        }
        return -1;
    }

    void offer_read(Cycle now) {
        beaten_ = false;
        if (credit_ < core_.bus_bytes || !reads_pending_) return;
        const unsigned none = unsigned(reads_.size());
        unsigned chosen = none;
        for (unsigned queue = 0; queue < none; ++queue) {
            if (reads_[queue].empty() || reads_[queue].front().due > now) continue;
            if (reads_[queue].front().started) {
                chosen = queue;
                break;
            } else if (chosen == none || reads_[queue].front().order < reads_[chosen].front().order) {
                chosen = queue;
            }
        }
        if (chosen == none) return;
        Read& read = reads_[chosen].front();
        Master& master = masters_[chosen / kReadClients];
        if (!read.started) master.use.read_wait += now - (read.asked + 1 + core_.latency);
        read.started = true;
        master.port.beat = beaten_ = true;
        master.port.beat_id = chosen % kReadClients;
        master.port.beat_last = beat_last_ = --read.beats == 0;
        beat_queue_ = chosen;
        if (beat_last_) {
            reads_[chosen].pop();
            --reads_pending_;
            --reads_under_way_;
        }
        credit_ -= core_.bus_bytes;
        write_turn_ = true;
    }

    void read_address(Cycle now, bool ready) {
        const int granted = pick(last_read_, [](const CoreModel& model) { return model.reads().address_valid; });
        const bool free = !read_held_.valid || ready;
        if (read_held_.valid && ready) {
            const unsigned queue = read_held_.master * kReadClients + read_held_.id;
            reads_[queue].push({now + core_.latency, read_held_.beats, accepted_++, read_held_.asked});
            ++reads_pending_;
            read_held_.valid = false;
        }
        if (granted < 0 || !free) return;
        Master& master = masters_[granted];
        const ReadMaster& from = master.model->reads();
        master.port.address_ready = true;
        read_held_ = {true, unsigned(granted), from.id, from.beats, master.read_asked};
        master.read_asked = kNever;
        ++master.use.bursts_read;
        last_read_ = unsigned(granted);
        ++reads_under_way_;
    }

    void answer_write(Cycle now) {
        if (!answering_) return;
        const Write& write = writes_.front();
        Master& master = masters_[write.master];
        if (!master.model->writes().unanswered.can_pop(now - master.start)) return;
        const Cycle words = (Cycle(write.size - 1) * core_.bus_bytes + core_.bytes_per_cycle - 1) / core_.bytes_per_cycle;
        master.use.write_wait += now - (write.asked + 2 + std::max(words, Cycle(write.size) - 1) + core_.latency);
        master.port.answered = true;
        answering_ = false;
        writes_.pop();
        --collecting_;
        --writes_under_way_;
    }

    void take_word(Cycle now) {
        Write& write = writes_[collecting_];
        if (--write.beats == 0) {
            write.complete = true;
            write.due = now + core_.latency;
            ++collecting_;
            order_.pop();
        }
        credit_ -= core_.bus_bytes;
        write_turn_ = false;
    }

    void write_address(Cycle now, bool ready, bool room) {
        const int granted = pick(last_write_, [](const CoreModel& model) { return model.writes().address_valid; });
        const bool free = !write_held_.valid || ready;
        if (write_held_.valid && ready) {
            writes_.push({write_held_.beats, write_held_.master, write_held_.asked, write_held_.beats});
            write_held_.valid = false;
        }
        if (granted < 0 || !free || !room) return;
        Master& master = masters_[granted];
        master.port.write_address_ready = true;
        write_held_ = {true, unsigned(granted), 0, master.model->writes().beats, master.write_asked};
        master.write_asked = kNever;
        ++master.use.bursts_written;
        order_.push(unsigned(granted));
        last_write_ = unsigned(granted);
        ++writes_under_way_;
    }

    // Who has to be evaluated in this cycle because of it, and when the port has to be next.
    void wake_next(Cycle now) {
        Cycle next = kNever;
        for (Master& master : masters_) {
            const ReadMaster& reads = master.model->reads();
            const WriteMaster& writes = master.model->writes();
            Wakes& wakes = master.model->wakes();
            const Cycle own = now - master.start;
            if (master.port.beat || reads.address_valid) wakes.wake(kReadMaster, own);
            if (master.port.answered || writes.address_valid || writes.data_valid) wakes.wake(kWriteMaster, own);
            if (reads.address_valid && !master.port.address_ready) next = now + 1;
            if (writes.address_valid && !master.port.write_address_ready) next = now + 1;
            const Cycle visible = writes.unanswered.visible();
            if (answering_ && visible != kNever) next = std::min(next, std::max(visible + master.start, now + 1));
        }
        if (read_held_.valid || write_held_.valid) next = now + 1;
        for (const auto& queue : reads_) {
            if (!queue.empty()) next = std::min(next, queue.front().due);
        }
        if (!writes_.empty() && writes_.front().complete) next = std::min(next, writes_.front().due);
        wake = next == kNever ? kNever : std::max(next, now + 1);
    }

    const Core& core_;
    std::vector<Master> masters_;
    std::vector<Ring<Read>> reads_;  // by master and client
    Ring<Write> writes_;
    Ring<unsigned> order_;  // masters in the order of their granted write addresses
    Address read_held_, write_held_;
    unsigned last_read_, last_write_, beat_queue_ = 0;
    size_t collecting_ = 0;  // the burst in `writes_` that gets the next word
    bool answering_ = false, write_turn_ = false, beaten_ = false, beat_last_ = false;
    int64_t reads_pending_ = 0, reads_under_way_ = 0, writes_under_way_ = 0, credit_;
    Cycle last_step_ = 0;
    uint64_t accepted_ = 0;
};

class SharedMachine {
  public:
    SharedMachine(const WeftTimingProgram* programs, const std::vector<std::vector<Instruction>>& decoded)
        : port_(*programs[0].core, unsigned(decoded.size())) {
        for (unsigned i = 0; i < decoded.size(); ++i) {
            const WeftTimingProgram& program = programs[i];
            models_.push_back(std::make_unique<CoreModel>(*program.core, decoded[i], uint32_t(program.offset), false));
            starts_.push_back(program.start);
            port_.connect(i, *models_[i], program.start);
        }
    }

    // Cycles that were evaluated; -1 if a program does not end.
    int64_t run(Cycle limit, bool every_cycle, WeftTimingResult* results, WeftTimingPortUse* use) {
        const unsigned count = unsigned(models_.size());
        std::vector<bool> over(count, false);
        unsigned left = count;
        int64_t evaluated = 0;
        for (Cycle now = 0; now < limit;) {
            ++evaluated;
            bool soon = every_cycle;
            const auto runs = [&](unsigned i) { return !over[i] && now >= starts_[i]; };
            for (unsigned i = 0; i < count; ++i) {
                if (runs(i) && models_[i]->begin(now - starts_[i], results[i])) over[i] = soon = true, --left;
            }
            if (!left) {
                for (unsigned i = 0; i < count; ++i) use[i] = port_.use(i);
                return evaluated;
            }
            for (unsigned i = 0; i < count; ++i) {
                if (!runs(i)) continue;
                if (every_cycle) models_[i]->wakes().wake_all(now - starts_[i]);
                if (models_[i]->wakes().due(kDram, now - starts_[i])) port_.wake = now;
            }
            if (port_.wake <= now) port_.step(now);
            for (unsigned i = 0; i < count; ++i) {
                if (!runs(i)) continue;
                models_[i]->step(now - starts_[i], port_.port(i));
                soon |= models_[i]->ends(now - starts_[i]);
            }
            const auto next_of = [&](unsigned i) {
                if (over[i]) return kNever;
                if (now < starts_[i]) return starts_[i];
                const Cycle next = models_[i]->wakes().next();
                return next == kNever ? kNever : next + starts_[i];
            };
            if (!soon) stream(now, next_of);
            Cycle next = port_.wake;
            for (unsigned i = 0; i < count; ++i) next = std::min(next, next_of(i));
            if (next == kNever && !soon) return -1;
            now = soon ? now + 1 : std::max(next, now + 1);
        }
        return -1;
    }

  private:
    // The cycles of one core's burst, if no other core has anything to do in them.
    template <typename Next>
    void stream(Cycle now, Next next_of) {
        unsigned place = 0, id = 0;
        Cycle cycles = port_.streams(now, place, id);
        for (unsigned i = 0; i < models_.size() && cycles > 0; ++i) {
            if (i != place) cycles = std::min(cycles, next_of(i) - (now + 1));
        }
        cycles = cycles > 0 ? models_[place]->streams(now - starts_[place], id, cycles) : 0;
        if (cycles <= 0) return;
        port_.stream(cycles);
        models_[place]->stream(now - starts_[place], id, cycles);
    }

    std::vector<std::unique_ptr<CoreModel>> models_;
    std::vector<Cycle> starts_;
    SharedPort port_;
};

}  // namespace

}  // namespace weft
