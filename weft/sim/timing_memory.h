// The memory side of the timing model: DRAM as in sim/harness.cpp, the bus masters, and cutting into bursts.

#pragma once

#include "timing.h"
#include "dram_banks.h"  // after the structs that it uses

namespace weft {

// Who has to be evaluated when; the order is the order of evaluation within a cycle. A part sees the outputs that those
// before it have in this cycle, and the state of those after it at the start of the cycle.
enum Part : unsigned { kDram, kReadMaster, kWriteMaster, kFetch, kFirstEngine, kParts = kFirstEngine + kEngines };

//
// A wake is forgotten when its part is evaluated earlier: each part, when evaluated, says again when it has to be next.
class Wakes {
  public:
    Wakes() { std::fill(at_, at_ + kParts, kNever); }
    void wake(unsigned part, Cycle cycle) { at_[part] = std::min(at_[part], cycle); }
    bool due(unsigned part, Cycle now) {
        if (at_[part] > now) return false;
        at_[part] = kNever;
        return true;
    }
    void wake_all(Cycle now) {
        for (Cycle& at : at_) at = std::min(at, now);
    }
    Cycle next() const { return *std::min_element(at_, at_ + kParts); }
    // The earliest wake of all parts but the two that bring words, and `engine`, which takes them.
    Cycle next_without(unsigned engine) const {
        Cycle next = kNever;
        for (unsigned part = 0; part < kParts; ++part) {
            if (part != kDram && part != kReadMaster && part != engine) next = std::min(next, at_[part]);
        }
        return next;
    }
    // Cycles have been worked out together: the three parts are evaluated in this one next.
    void stream_to(Cycle cycle, unsigned engine) { at_[kDram] = at_[kReadMaster] = at_[engine] = cycle; }

  private:
    Cycle at_[kParts];
};

struct Burst {
    unsigned beats = 0;
    bool last = false;
    uint32_t word = 0;  // its place in the window, in bus words
};

// hw/bursts.py
class BurstCutter {
  public:
    struct Transfer {
        uint32_t first, final, row_bytes, rows;
    };

    BurstCutter(const Core& core, int64_t max_beats) {
        while (core.bus_bytes >> (byte_bits_ + 1)) ++byte_bits_;
        while (max_beats >> (log2_ + 1)) ++log2_;
    }
    bool ready() const { return next_.rows == 0; }
    bool offers() const { return skid_full_ || offers_; }
    const Burst& burst() const { return skid_full_ ? skid_ : burst_; }
    bool idle() const { return !next_.rows && !valid_ && !offers(); }

    // One cycle; `taken`: the burst is accepted in it. True if anything has changed.
    bool step(bool taken, const Transfer* transfer) {
        const uint32_t mask = (1u << log2_) - 1;
        const bool accept = !offers_ || !skid_full_;
        const bool row_ends = word_ >> log2_ == final_ >> log2_;
        const bool next_row = !valid_ || (accept && row_ends);
        const bool waits = offers() && !taken;
        bool changed = taken || transfer || waits != skid_full_;
        if (!skid_full_) skid_ = burst_;
        skid_full_ = waits;
        if (accept) {
            changed |= valid_;
            offers_ = valid_;
            if (valid_) {
                burst_ = {(((row_ends ? final_ & mask : mask) - (word_ & mask)) & mask) + 1, row_ends && last_row_,
                          word_};
                word_ = ((word_ >> log2_) + 1) << log2_;
            }
        }
        if (next_row) {
            valid_ = next_.rows != 0;
            if (valid_) {
                word_ = next_.first >> byte_bits_;
                final_ = next_.final >> byte_bits_;
                next_.first += next_.row_bytes;
                next_.final += next_.row_bytes;
                last_row_ = next_.rows == 1;
                --next_.rows;
                changed = true;
            }
        }
        if (transfer) next_ = *transfer;
        return changed;
    }

  private:
    unsigned byte_bits_ = 0, log2_ = 0;
    Transfer next_{0, 0, 0, 0};
    bool valid_ = false, last_row_ = false, offers_ = false;
    uint32_t word_ = 0, final_ = 0;
    Burst burst_;
    // hw/skid_buffer.py: a burst that its master has not taken.
    Burst skid_;
    bool skid_full_ = false;
};

// A client of the read master: its bursts, and the buffer for their words (hw/read_dma.py).
struct ReadClient {
    ReadClient(const Core& core, int64_t max_beats, int64_t buffer_words)
        : cutter(core, max_beats), words(unsigned(buffer_words)), room(buffer_words) {}

    bool wants() const { return cutter.offers() && cutter.burst().beats <= room; }
    void take_word(Cycle now) {
        words.pop(now);
        ++room;
    }
    // A word comes and a word is taken in each cycle from the next on.
    void stream(Cycle now, Cycle count) {
        words.stream(now, count);
        room += count;
    }

    BurstCutter cutter;
    Fifo<char> words;
    int64_t room;
    bool granted = false;  // the master takes the burst in this cycle
};

// What a core sees of the memory: its outputs in the last cycle in which it was evaluated.
struct Port {
    bool address_ready = false, write_address_ready = false, data_ready = false, answered = false;
    bool beat = false, beat_last = false;
    unsigned beat_id = 0;
    Cycle last_step = 0;
};

// hw/read_dma.py: ReadMaster
struct ReadMaster {
    explicit ReadMaster(const Core& core) : core(core) {}
    void connect(ReadId id, ReadClient& client, unsigned part) {
        clients[id] = &client;
        parts[id] = part;
    }
    void step(Cycle now, Wakes& wakes, const Port& port);

    // Cycles from the next on in which no burst is asked for, if only client `source` makes room, for a word in each.
    Cycle streams(unsigned source) const {
        const ReadClient& client = *clients[source];
        if (outstanding == core.read_outstanding || !client.cutter.offers()) return kNever;
        return std::max<Cycle>(0, client.cutter.burst().beats - client.room);
    }
    void stream(Cycle words) {
        word_at += words;
        all_beats += words;
    }

    const Core& core;
    ReadClient* clients[kReadClients] = {};
    unsigned parts[kReadClients] = {};
    bool address_valid = false;
    unsigned id = 0, beats = 0, last_granted = 0;
    uint32_t word = 0;  // of the burst that is asked for
    int64_t outstanding = 0, all_beats = 0;
    Cycle word_at = -1;  // a word stands in the register in this cycle
    unsigned word_id = 0;
};

// hw/write_dma.py
struct WriteMaster {
    explicit WriteMaster(const Core& core)
        : core(core),
          words(unsigned(core.buffer_beats)),
          lengths(unsigned(core.write_outstanding)),
          unanswered(unsigned(core.write_outstanding)) {}
    void step(Cycle now, Wakes& wakes, const Port& port);
    void put_word(Cycle now, Wakes& wakes) {
        words.push(now, 0);
        ++gathered;
        wakes.wake(kWriteMaster, now + 1);
    }

    const Core& core;
    BurstCutter* cutter = nullptr;
    bool granted = false;  // the store engine's burst is taken in this cycle
    Fifo<char> words;
    Fifo<unsigned> lengths;
    Fifo<bool> unanswered;
    int64_t gathered = 0, outstanding = 0, all_beats = 0;
    bool address_valid = false, data_valid = false;
    unsigned beats = 0, written = 0;
    uint32_t word = 0;  // of the burst that is asked for
    Ring<Cycle> last_answers;  // cycles in which the engine hears that the last burst of a STORE is acknowledged
};

// What a core's memory needs to know where its bursts fall in a DRAM with banks; without one, addresses decide nothing.
struct DramPlace {
    Banks* banks = nullptr;
    Cycle start = 0;  // cycle of the system in which the core's own count begins
    uint64_t window_start = 0;
};

// sim/harness_memory.h: Memory. Reads and writes share the bandwidth; bursts wait for their latency.
struct Dram : Port {
    explicit Dram(const Core& core, const DramPlace& place = {})
        : core(core), place(place), random_state(seeded(uint64_t(core.seed))), credit(core.bus_bytes + core.bytes_per_cycle - 1) {}

    void step(Cycle now, Wakes& wakes, const ReadMaster& reads_from, const WriteMaster& writes_from) {
        const int64_t bus = core.bus_bytes, most = bus + core.bytes_per_cycle - 1;
        credit = std::min(credit + (now - last_step) * core.bytes_per_cycle, most);
        last_step = now;
        address_ready = reads_pending < core.outstanding && !stalls();
        write_address_ready = int64_t(writes.size()) < core.outstanding && !stalls();
        const bool collects = collecting < writes.size();
        const bool write_wanted = writes_from.data_valid && collects;
        beat = false;
        if (!(write_turn && write_wanted && credit < 2 * bus)) offer_read(now);
        data_ready = collects && credit >= bus && !stalls();
        if (!answering && !writes.empty() && writes.front().complete && writes.front().due <= now && !stalls()) {
            answering = true;
        }
        if (reads_from.address_valid && address_ready) {
            reads[reads_from.id].push({due(now, reads_from.word, reads_from.beats, false), reads_from.beats, accepted++});
            ++reads_pending;
        }
        answered = answering && writes_from.unanswered.can_pop(now);
        if (answered) {
            answering = false;
            writes.pop();
            --collecting;
        }
        if (writes_from.data_valid && data_ready) {
            Write& write = writes[collecting];
            if (--write.beats == 0) {
                write.complete = true;
                write.due = due(now, write.word, write.size, true);
                ++collecting;
            }
            credit -= bus;
            write_turn = false;
        }
        if (writes_from.address_valid && write_address_ready) {
            writes.push({writes_from.beats, false, 0, writes_from.word, writes_from.beats});
        }

        if (beat || reads_from.address_valid) wakes.wake(kReadMaster, now);
        if (answered || writes_from.address_valid || writes_from.data_valid) wakes.wake(kWriteMaster, now);
        Cycle next = kNever;
        for (const auto& queue : reads) {
            if (!queue.empty()) next = std::min(next, queue.front().due);
        }
        if (!writes.empty() && writes.front().complete) next = std::min(next, writes.front().due);
        if (core.jitter && (reads_pending || !writes.empty())) next = now;
        if (next != kNever) wakes.wake(kDram, std::max(next, now + 1));
    }

    // Cycles from the next on in each of which a beat comes, none of them a burst's last, if one came in this cycle and
    // the write master has nothing to do.
    Cycle streams(Cycle now, const WriteMaster& writes_from) const {
        if (writes_from.address_valid || writes_from.data_valid) return 0;
        if (core.jitter || core.reorder || core.bytes_per_cycle < core.bus_bytes || answering) return 0;
        if (last_step != now || !beat || beat_last || credit != core.bytes_per_cycle - 1) return 0;
        const Cycle answer = !writes.empty() && writes.front().complete ? writes.front().due - (now + 1) : kNever;
        return std::min(answer, Cycle(reads[beat_id].front().beats) - 1);
    }
    void stream(Cycle beats) {
        reads[beat_id].front().beats -= unsigned(beats);
        last_step += beats;
    }

    struct Read {
        Cycle due;
        unsigned beats;
        uint64_t order;
        bool started = false;
    };
    struct Write {
        unsigned beats;
        bool complete;
        Cycle due;
        uint32_t word;
        unsigned size;
    };

    const Core& core;
    const DramPlace place;

  private:
    static uint64_t seeded(uint64_t seed) { return (seed * 0x9E3779B97F4A7C15ull + 0x2545F4914F6CDD1Dull) | 1; }
    uint64_t below(uint64_t bound) {
        random_state ^= random_state >> 12;
        random_state ^= random_state << 25;
        random_state ^= random_state >> 27;
        return (random_state * 0x2545F4914F6CDD1Dull >> 33) % bound;
    }
    bool stalls() { return core.jitter && !below(8); }
    Cycle due(Cycle now) { return now + core.latency + (core.jitter ? Cycle(below(uint64_t(core.jitter) + 1)) : 0); }

    Cycle due(Cycle now, uint32_t word, unsigned beats, bool write) {
        const Cycle flat = due(now);
        if (!place.banks) return flat;
        const uint64_t address = place.window_start + uint64_t(word) * uint64_t(core.bus_bytes);
        const Cycle banked = place.banks->due(now + place.start, address, beats, uint32_t(core.bus_bytes), write);
        return banked - place.start + (flat - now - core.latency);
    }

    void offer_read(Cycle now) {
        if (credit < core.bus_bytes || !reads_pending || stalls()) return;
        unsigned chosen = kReadClients, candidates = 0;
        for (unsigned id = 0; id < kReadClients; ++id) {
            if (reads[id].empty() || reads[id].front().due > now) continue;
            ++candidates;
            if (core.reorder) {
                if (chosen == kReadClients || !below(candidates)) chosen = id;
            } else if (reads[id].front().started) {
                chosen = id;
                break;
            } else if (chosen == kReadClients || reads[id].front().order < reads[chosen].front().order) {
                chosen = id;
            }
        }
        if (chosen == kReadClients) return;
        Read& read = reads[chosen].front();
        read.started = true;
        beat = true;
        beat_id = chosen;
        beat_last = --read.beats == 0;
        if (beat_last) {
            reads[chosen].pop();
            --reads_pending;
        }
        credit -= core.bus_bytes;
        write_turn = true;
    }

    uint64_t random_state;
    Ring<Read> reads[kReadClients];
    Ring<Write> writes;
    size_t collecting = 0;  // the burst in `writes` that gets the next beat
    bool answering = false, write_turn = false;
    int64_t reads_pending = 0, credit;
    uint64_t accepted = 0;
};

inline void ReadMaster::step(Cycle now, Wakes& wakes, const Port& port) {
    if (word_at == now) {
        clients[word_id]->words.push(now, 0);
        ++all_beats;
        wakes.wake(parts[word_id], clients[word_id]->words.visible());
    }
    unsigned grant = 0;
    bool wanted = false;
    for (unsigned step = 1; step <= kReadClients && !wanted; ++step) {
        grant = (last_granted + step) % kReadClients;
        wanted = clients[grant]->wants();
    }
    // DRAM has not seen the address of this cycle if it was not evaluated; then there was none.
    const bool free = !address_valid || port.address_ready;
    const bool begins = wanted && free && outstanding != core.read_outstanding;
    const bool beat = port.last_step == now && port.beat;
    if (begins) {
        ReadClient& client = *clients[grant];
        last_granted = id = grant;
        beats = client.cutter.burst().beats;
        word = client.cutter.burst().word;
        client.room -= beats;
        client.granted = true;
        wakes.wake(parts[grant], now);
    }
    if (free) address_valid = begins;
    outstanding += int64_t(begins) - int64_t(beat && port.beat_last);
    if (beat) {
        word_at = now + 1;
        word_id = port.beat_id;
    }
    if (address_valid) wakes.wake(kDram, now + 1);
    if (begins || beat) wakes.wake(kReadMaster, now + 1);
}

inline void WriteMaster::step(Cycle now, Wakes& wakes, const Port& port) {
    const bool seen = port.last_step == now;
    const bool address_free = !address_valid || port.write_address_ready;
    const bool begins = cutter->offers() && address_free && int64_t(cutter->burst().beats) <= gathered &&
                        lengths.can_push(now) && unanswered.can_push(now);
    const bool answered = seen && port.answered;
    const bool data_taken = data_valid && port.data_ready;
    const bool next_word = lengths.can_pop(now) && words.can_pop(now) && (!data_valid || data_taken);
    if (answered) {
        if (unanswered.pop(now)) {
            last_answers.push(now + 1);
            wakes.wake(kFirstEngine + kStore, now);
        }
    }
    all_beats += data_taken;
    if (next_word) {
        words.pop(now);
        if (++written == lengths.front()) {
            lengths.pop(now);
            written = 0;
        }
    }
    if (next_word || data_taken) data_valid = next_word;
    if (begins) {
        beats = cutter->burst().beats;
        word = cutter->burst().word;
        gathered -= beats;
        lengths.push(now, beats);
        unanswered.push(now, cutter->burst().last);
        granted = true;
        wakes.wake(kFirstEngine + kStore, now);
    }
    if (begins || (address_valid && port.write_address_ready)) address_valid = begins;
    outstanding += int64_t(begins) - int64_t(answered);
    if (address_valid || data_valid) wakes.wake(kDram, now + 1);
    if (unanswered.visible() > now && !unanswered.empty()) wakes.wake(kDram, unanswered.visible());
    if (begins || next_word || answered) wakes.wake(kWriteMaster, now + 1);
    if (!lengths.empty() && !words.empty() && !data_valid) {
        wakes.wake(kWriteMaster, std::max({now + 1, lengths.visible(), words.visible()}));
    }
    const Cycle again = std::min(lengths.push_again(now), unanswered.push_again(now));
    if (again != kNever) wakes.wake(kWriteMaster, again);
}

}  // namespace weft
