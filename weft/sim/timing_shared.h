// Several cores on one memory port: the arbiter of hw/interconnect.py with the memory of sim/harness_memory.h behind it.

#pragma once

#include <array>

#include "timing_port.h"
#include "timing_rendezvous.h"

namespace weft {

namespace {

// The arbiter and the memory. Each core counts cycles from its own start.
class SharedPort : public MemoryPort {
  public:
    SharedPort(const Core& memory, unsigned count, const WeftTimingSharedReads& shared, Banks* banks, bool trace)
        : core_(memory),
          banks_(banks),
          masters_(count),
          reads_(count * kReadClients),
          rendezvous_(count, shared),
          shares_(shared.present),
          trace_(trace) {
        credit_ = core_.bus_bytes + core_.bytes_per_cycle - 1;
    }
    void connect(unsigned place, CoreModel& model, const WeftTimingProgram& program) override {
        masters_[place].model = &model;
        masters_[place].start = program.start;
        masters_[place].window_start = program.window_start;
        masters_[place].weight = program.weight;
    }
    const Port& port(unsigned place) const override { return masters_[place].port; }
    const WeftTimingPortUse& use(unsigned place) const override { return masters_[place].use; }
    const std::vector<WeftBusUse>& bus() const override { return bus_; }
    bool is_shared() const override { return true; }

    void step(Cycle now, uint32_t running) override {
        begin(now);
        const bool address_ready = reads_pending_ < core_.outstanding;
        const bool write_address_ready = int64_t(writes_.size()) < core_.outstanding;
        const bool collects = collecting_ < writes_.size();
        // Turns begin with the first core where no burst of the channel is under way.
        if (!reads_under_way_) read_grants_ = {unsigned(masters_.size()), 0};
        if (!writes_under_way_) write_grants_ = {unsigned(masters_.size()) - 1, 0};
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

    Cycle streams(Cycle now, unsigned& place, unsigned& id) const override {
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
    void stream(Cycle beats) override {
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
        uint64_t weight = 1;  // bursts of its turn
        Port port;
        Cycle read_asked = kNever, write_asked = kNever;  // since when an address waits for its grant
        WeftTimingPortUse use{};
    };
    // Who was last granted, and how many bursts its turn still has.
    struct Turn {
        unsigned last;
        uint64_t left;
    };
    struct ReadBurst {
        uint32_t cores = 0;  // to which its words go
        unsigned id = 0, beats = 0;
        uint64_t address = 0;
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
        uint64_t address;
        bool complete = false;
        Cycle due = 0;
    };
    struct Address {
        bool valid = false;
        unsigned master = 0, beats = 0;
        Cycle asked = 0;
        uint64_t address = 0;
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

    // Of `count`: the one whose turn it is, or the next one that wants something; -1 if there is none.
    template <typename Wants>
    int pick(const Turn& turn, unsigned count, Wants wants) const {
        if (turn.left && wants(turn.last)) return int(turn.last);
        for (unsigned step = 1; step <= count; ++step) {
            const unsigned place = (turn.last + step) % count;
            if (wants(place)) return int(place);
        }
        return -1;
    }

    // A burst of `place` is granted.
    void take(Turn& turn, unsigned place) const {
        const bool goes_on = turn.left && turn.last == place;
        const uint64_t weight = place < masters_.size() ? masters_[place].weight : 1;
        turn = {place, (goes_on ? turn.left : weight) - 1};
    }

    uint64_t address_of(const Master& master) const {
        return master.window_start + uint64_t(master.model->reads().word) * core_.bus_bytes;
    }
    Cycle due(Cycle now, uint64_t address, unsigned beats, bool write) {
        return banks_ ? banks_->due(now, address, beats, uint32_t(core_.bus_bytes), write) : now + core_.latency;
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
            if (!read.started) {
                const Cycle alone = read.burst.asked[place] + 1 + core_.latency;
                master.use.read_wait += banks_ ? std::max<Cycle>(0, now - alone) : now - alone;
            }
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
        const int granted = pick(read_grants_, count + 1, wants);
        const bool free = !read_held_.cores || ready;
        if (read_held_.cores && ready) {
            const ReadBurst& burst = read_held_;
            // Weights of all cores have one ID, so that they come in the order of their addresses.
            const unsigned place = shares_ && burst.id == kClientLoadw ? 0 : unsigned(__builtin_ctz(burst.cores));
            reads_[place * kReadClients + burst.id].push(
                {due(now, burst.address, burst.beats, false), burst.beats, accepted_++, burst});
            ++reads_pending_;
            read_held_.cores = 0;
        }
        uint32_t served = 0, put = 0;
        if (granted >= 0 && free) {
            take(read_grants_, unsigned(granted));
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
        ReadBurst burst{1u << place, master.model->reads().id, master.model->reads().beats, address_of(master)};
        burst.asked[place] = master.read_asked;
        accept(master);
        return burst;
    }
    ReadBurst together(uint32_t& served) {
        served = rendezvous_.group();
        const WaitingRead& first = rendezvous_.front(rendezvous_.first());
        ReadBurst burst{served, kClientLoadw, first.beats, first.address};
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
        const Cycle alone = write.asked + 2 + std::max(words, Cycle(write.size) - 1) + core_.latency;
        master.use.write_wait += banks_ ? std::max<Cycle>(0, now - alone) : now - alone;
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
            write.due = due(now, write.address, write.size, true);
            ++collecting_;
            order_.pop();
        }
        credit_ -= core_.bus_bytes;
        write_turn_ = false;
    }

    void write_address(Cycle now, bool ready, bool room) {
        const auto wants = [&](unsigned place) { return masters_[place].model->writes().address_valid; };
        const int granted = pick(write_grants_, unsigned(masters_.size()), wants);
        const bool free = !write_held_.valid || ready;
        if (write_held_.valid && ready) {
            writes_.push({write_held_.beats, write_held_.master, write_held_.asked, write_held_.beats, write_held_.address});
            write_held_.valid = false;
        }
        if (granted < 0 || !free || !room) return;
        Master& master = masters_[granted];
        master.port.write_address_ready = true;
        const WriteMaster& writes = master.model->writes();
        write_held_ = {true, unsigned(granted), writes.beats, master.write_asked,
                       master.window_start + uint64_t(writes.word) * core_.bus_bytes};
        master.write_asked = kNever;
        ++master.use.bursts_written;
        order_.push(unsigned(granted));
        take(write_grants_, unsigned(granted));
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
    Banks* const banks_;
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
    Turn read_grants_{}, write_grants_{};
    unsigned beat_queue_ = 0;
    size_t collecting_ = 0;  // the burst in `writes_` that gets the next word
    bool answering_ = false, write_turn_ = false, beaten_ = false, beat_last_ = false;
    int64_t reads_pending_ = 0, reads_under_way_ = 0, writes_under_way_ = 0, credit_;
    Cycle last_step_ = 0;
    uint64_t accepted_ = 0;
};

}  // namespace

}  // namespace weft
