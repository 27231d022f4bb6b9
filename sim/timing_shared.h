// Several cores on one memory port: the arbiter of hw/interconnect.py with the memory of sim/harness_memory.h behind it,
// and the loop that steps the cores together.

#pragma once

#include <array>
#include <memory>

#include "timing_rendezvous.h"

namespace weft {

namespace {

// The arbiter and the memory. Each core counts cycles from its own start.
class SharedPort {
  public:
    SharedPort(const Core& memory, unsigned count, const WeftTimingSharedReads& shared, bool trace)
        : core_(memory),
          masters_(count),
          reads_(count * kReadClients),
          rendezvous_(count, shared),
          shares_(shared.present),
          trace_(trace) {
        credit_ = core_.bus_bytes + core_.bytes_per_cycle - 1;
        last_read_ = count;
        last_write_ = count - 1;
    }
    void connect(unsigned place, CoreModel& model, const WeftTimingProgram& program) {
        masters_[place].model = &model;
        masters_[place].start = program.start;
        masters_[place].window_start = program.window_start;
    }
    const Port& port(unsigned place) const { return masters_[place].port; }
    const WeftTimingPortUse& use(unsigned place) const { return masters_[place].use; }
    const std::vector<WeftBusUse>& bus() const { return bus_; }
    Cycle wake = kNever;

    // `running`: the cores whose programs run in this cycle.
    void step(Cycle now, uint32_t running) {
        begin(now);
        const bool address_ready = reads_pending_ < core_.outstanding;
        const bool write_address_ready = int64_t(writes_.size()) < core_.outstanding;
        const bool collects = collecting_ < writes_.size();
        // Turns begin with the first core where no burst of the channel is under way.
        if (!reads_under_way_) last_read_ = unsigned(masters_.size());
        if (!writes_under_way_) last_write_ = unsigned(masters_.size()) - 1;
        Master* writer = order_.empty() ? nullptr : &masters_[order_.front()];
        const bool data_valid = writer && writer->model->writes().data_valid;
        if (!(write_turn_ && data_valid && collects && credit_ < 2 * core_.bus_bytes)) offer_read(now);
        const bool data_ready = collects && credit_ >= core_.bus_bytes;
        if (writer) writer->port.data_ready = data_ready;
        if (!answering_ && !writes_.empty() && writes_.front().complete && writes_.front().due <= now) answering_ = true;
        rendezvous_moves_ = read_address(now, address_ready, running);
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
        if (core_.bytes_per_cycle < core_.bus_bytes || answering_ || read_held_.cores || write_held_.valid) return 0;
        if (rendezvous_moves_) return 0;
        for (const Master& master : masters_) {
            const WriteMaster& writes = master.model->writes();
            if (master.model->reads().address_valid || writes.address_valid || writes.data_valid) return 0;
        }
        const Cycle answer = !writes_.empty() && writes_.front().complete ? writes_.front().due - (now + 1) : kNever;
        const ReadBurst& burst = reads_[beat_queue_].front().burst;
        if (burst.cores & (burst.cores - 1)) return 0;
        place = unsigned(__builtin_ctz(burst.cores));
        id = burst.id;
        return std::min(answer, Cycle(reads_[beat_queue_].front().beats) - 1);
    }
    void stream(Cycle beats) {
        reads_[beat_queue_].front().beats -= unsigned(beats);
        if (trace_) note(reads_[beat_queue_].front().burst.cores, false, last_step_ + 1, beats);
        last_step_ += beats;
        for (Master& master : masters_) master.port.last_step = last_step_ - master.start;
        wake = last_step_ + 1;
    }

  private:
    struct Master {
        CoreModel* model = nullptr;
        Cycle start = 0;  // cycle of the system in which the core's own count begins
        uint64_t window_start = 0;
        Port port;
        Cycle read_asked = kNever, write_asked = kNever;  // since when an address waits for its grant
        WeftTimingPortUse use{};
    };
    struct ReadBurst {
        uint32_t cores = 0;  // to which its words go
        unsigned id = 0, beats = 0;
        std::array<Cycle, kMostCores> asked{};  // by those cores
    };
    struct Read {
        Cycle due;
        unsigned beats;
        uint64_t order;
        ReadBurst burst;
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

    // The next after `last` of `count` that wants something; -1 if there is none.
    template <typename Wants>
    int pick(unsigned last, unsigned count, Wants wants) const {
        for (unsigned step = 1; step <= count; ++step) {
            const unsigned place = (last + step) % count;
            if (wants(place)) return int(place);
        }
        return -1;
    }

    uint64_t address_of(const Master& master) const {
        return master.window_start + uint64_t(master.model->reads().word) * core_.bus_bytes;
    }
    // The core's address is for the rendezvous.
    bool shared(const Master& master) const {
        const ReadMaster& reads = master.model->reads();
        return shares_ && reads.address_valid && rendezvous_.shares(reads.id, address_of(master));
    }
    // The core's address is for the arbiter itself, as it is now.
    bool asks(unsigned place) const {
        const Master& master = masters_[place];
        const ReadMaster& reads = master.model->reads();
        if (!reads.address_valid || shared(master)) return false;
        return !shares_ || reads.id != kClientLoadw || !rendezvous_.waits(place);
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
        beaten_ = true;
        beat_last_ = --read.beats == 0;
        beat_queue_ = chosen;
        if (trace_) note(read.burst.cores, false, now, 1);
        for (unsigned place = 0; place < masters_.size(); ++place) {
            if (!(read.burst.cores >> place & 1)) continue;
            Master& master = masters_[place];
            if (!read.started) master.use.read_wait += now - (read.burst.asked[place] + 1 + core_.latency);
            master.port.beat = true;
            master.port.beat_id = read.burst.id;
            master.port.beat_last = beat_last_;
        }
        read.started = true;
        if (beat_last_) {
            reads_[chosen].pop();
            --reads_pending_;
            --reads_under_way_;
        }
        credit_ -= core_.bus_bytes;
        write_turn_ = true;
    }

    // True if the rendezvous has something to do in the next cycle.
    bool read_address(Cycle now, bool ready, uint32_t running) {
        const unsigned count = unsigned(masters_.size());
        const auto wants = [&](unsigned place) { return place == count ? rendezvous_.offers() : asks(place); };
        const int granted = pick(last_read_, count + 1, wants);
        const bool free = !read_held_.cores || ready;
        if (read_held_.cores && ready) {
            const ReadBurst& burst = read_held_;
            // Weights of all cores have one ID, so that they come in the order of their addresses.
            const unsigned place = shares_ && burst.id == kClientLoadw ? 0 : unsigned(__builtin_ctz(burst.cores));
            reads_[place * kReadClients + burst.id].push({now + core_.latency, burst.beats, accepted_++, burst});
            ++reads_pending_;
            read_held_.cores = 0;
        }
        uint32_t served = 0, put = 0;
        if (granted >= 0 && free) {
            last_read_ = unsigned(granted);
            ++reads_under_way_;
            read_held_ = unsigned(granted) == count ? together(served) : alone(unsigned(granted));
        }
        if (!shares_) return false;
        for (unsigned place = 0; place < count; ++place) {
            if (shared(masters_[place]) && rendezvous_.has_room(place)) put |= 1u << place;
        }
        rendezvous_.step(running, served);
        for (unsigned place = 0; place < count; ++place) {
            if (!(put >> place & 1)) continue;
            Master& master = masters_[place];
            rendezvous_.put(place, {address_of(master), master.model->reads().beats, master.read_asked});
            accept(master);
        }
        return served || !rendezvous_.rests(running);
    }

    // Words of reads or writes for these cores, in so many cycles.
    void note(uint32_t cores, bool writes, Cycle start, Cycle cycles) {
        if (last_use_[writes] < bus_.size()) {
            WeftBusUse& last = bus_[last_use_[writes]];
            if (last.cores == cores && last.writes == writes && Cycle(last.start + last.cycles) == start) {
                last.cycles += uint64_t(cycles);
                return;
            }
        }
        last_use_[writes] = bus_.size();
        bus_.push_back({cores, uint32_t(writes), uint64_t(start), uint64_t(cycles)});
    }

    void accept(Master& master) {
        master.port.address_ready = true;
        master.read_asked = kNever;
        ++master.use.bursts_read;
    }
    ReadBurst alone(unsigned place) {
        Master& master = masters_[place];
        ReadBurst burst{1u << place, master.model->reads().id, master.model->reads().beats};
        burst.asked[place] = master.read_asked;
        accept(master);
        return burst;
    }
    ReadBurst together(uint32_t& served) {
        served = rendezvous_.group();
        ReadBurst burst{served, kClientLoadw, rendezvous_.front(rendezvous_.first()).beats};
        for (unsigned place = 0; place < masters_.size(); ++place) {
            if (!(served >> place & 1)) continue;
            burst.asked[place] = rendezvous_.front(place).asked;
            masters_[place].use.bursts_shared += (served & (served - 1)) != 0;
        }
        return burst;
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
        if (trace_) note(1u << write.master, true, now, 1);
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
        const auto wants = [&](unsigned place) { return masters_[place].model->writes().address_valid; };
        const int granted = pick(last_write_, unsigned(masters_.size()), wants);
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
            // What waits for the rendezvous is looked at again when that moves.
            const bool held_up = reads.address_valid && !master.port.address_ready;
            if (held_up && asks(unsigned(&master - masters_.data()))) next = now + 1;
            if (writes.address_valid && !master.port.write_address_ready) next = now + 1;
            const Cycle visible = writes.unanswered.visible();
            if (answering_ && visible != kNever) next = std::min(next, std::max(visible + master.start, now + 1));
        }
        if (read_held_.cores || write_held_.valid) next = now + 1;
        if (rendezvous_moves_) next = now + 1;
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
    ReadBurst read_held_;  // of no core: there is none
    Address write_held_;
    Rendezvous rendezvous_;
    const bool shares_;
    bool rendezvous_moves_ = false;
    const bool trace_;
    std::vector<WeftBusUse> bus_;
    size_t last_use_[2] = {};  // of reads and of writes
    unsigned last_read_, last_write_, beat_queue_ = 0;
    size_t collecting_ = 0;  // the burst in `writes_` that gets the next word
    bool answering_ = false, write_turn_ = false, beaten_ = false, beat_last_ = false;
    int64_t reads_pending_ = 0, reads_under_way_ = 0, writes_under_way_ = 0, credit_;
    Cycle last_step_ = 0;
    uint64_t accepted_ = 0;
};

class SharedMachine {
  public:
    SharedMachine(const WeftTimingProgram* programs, const WeftTimingSharedReads& shared,
                  std::vector<std::vector<Instruction>> decoded, bool trace)
        : decoded_(std::move(decoded)),
          port_(*programs[0].core, unsigned(decoded_.size()), shared, trace) {
        for (unsigned i = 0; i < decoded_.size(); ++i) {
            const WeftTimingProgram& program = programs[i];
            models_.push_back(std::make_unique<CoreModel>(*program.core, decoded_[i], uint32_t(program.offset), trace));
            starts_.push_back(program.start);
            port_.connect(i, *models_[i], program);
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
            uint32_t running = 0;
            for (unsigned i = 0; i < count; ++i) running |= uint32_t(runs(i)) << i;
            bool ended = false;
            for (unsigned i = 0; i < count; ++i) {
                if (runs(i) && models_[i]->begin(now - starts_[i], results[i])) over[i] = soon = ended = true, --left;
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
            if (port_.wake <= now) port_.step(now, running);
            if (ended) port_.wake = now + 1;  // others may have waited for what it would ask
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

    const CoreModel& model(uint64_t place) const { return *models_[place]; }
    const std::vector<WeftBusUse>& bus() const { return port_.bus(); }

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

    const std::vector<std::vector<Instruction>> decoded_;
    std::vector<std::unique_ptr<CoreModel>> models_;
    std::vector<Cycle> starts_;
    SharedPort port_;
};

}  // namespace

}  // namespace weft
