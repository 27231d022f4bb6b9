// The AXI4 memory behind a port, as the harness drives it each cycle.
//
// The generated ports.h has what differs from configuration to configuration: WeftBus, the signals of one port, and the
// length of its bursts.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "Vcore.h"
#include "Vcore___024root.h"
#include "harness_interface.h"  // structs and numbers that Python shares, written by sim/harness.py
#include "dram_banks.h"  // after the structs that it uses
#include "ports.h"

namespace {

constexpr unsigned kBusBytes = sizeof(WeftBus::rdata);

template <typename T>
void store_bits(T& signal, const uint8_t* bytes) {
    std::memcpy(&signal, bytes, sizeof(T));
}

// xorshift64*: the same numbers on every machine.
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 0x2545F4914F6CDD1Dull) {
        if (!state_) state_ = 1;
    }
    uint64_t next() {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return state_ * 0x2545F4914F6CDD1Dull;
    }
    uint64_t below(uint64_t bound) { return (next() >> 33) % bound; }

  private:
    uint64_t state_;
};

// AXI4 memory: bursts wait for their latency, beats share the bandwidth. Responses of one ID stay in order; written
// bytes become visible with the response.
class Memory {
  public:
    // `banks`: the DRAM behind all ports, if it has banks.
    Memory(const WeftDram& settings, weft::Banks* banks) : settings_(settings), banks_(banks), random_(settings.seed) {}

    // Let something go wrong: `bit` of the next word for reader `id` where that is what is flipped.
    void inject(uint32_t fault, unsigned id, unsigned bit) {
        pending_ = fault;
        fault_id_ = id;
        fault_bit_ = bit;
        injected_ = false;
    }
    bool injected() const { return injected_; }

    // Nobody has asked for anything in a long time: what a program takes depends on no program before it.
    void rest() { credit_ = most_credit(); }

    // Drive the bus's inputs for the cycle that begins.
    void drive(WeftBus& bus) {
        if (pending_ == kFaultHung) {
            hang(bus);
            return;
        }
        credit_ = std::min(credit_ + settings_.bytes_per_cycle, most_credit());
        bus.arready = reads_pending_ < settings_.outstanding && !stall();
        bus.awready = writes_.size() < settings_.outstanding && !stall();
        const bool write_wanted = bus.wvalid && collecting_ < writes_.size();
        if (!(write_turn_ && write_wanted && credit_ < 2 * kBusBytes)) offer_read();
        bus.rvalid = read_offered_;
        if (read_offered_) {
            bus.rid = offered_.id;
            bus.rresp = offered_.response;
            bus.rlast = offered_.last;
            store_bits(bus.rdata, offered_.data);
        }
        bus.wready = collecting_ < writes_.size() && credit_ >= kBusBytes && !stall();
        if (!response_offered_ && !writes_.empty() && writes_.front().complete && writes_.front().due <= now_ &&
            !stall()) {
            answer_write();
        }
        bus.bvalid = response_offered_;
        bus.bresp = response_;
        bus.bid = writes_.empty() ? 0 : writes_.front().id;
    }

    // Take the handshakes of the cycle that ends.
    void sample(const WeftBus& bus) {
        check_stability(bus);
        if (bus.arvalid && bus.arready) accept_read(bus);
        if (bus.rvalid && bus.rready) read_offered_ = false;
        if (bus.bvalid && bus.bready) {
            response_offered_ = false;
            writes_.pop_front();
            --collecting_;
        }
        if (bus.wvalid && bus.wready) accept_data(bus);
        if (bus.awvalid && bus.awready) accept_write(bus);
        ++now_;
    }

    const std::string& protocol_error() const { return protocol_error_; }

  private:
    struct Read {
        uint64_t address, due;
        unsigned beats, done;
    };
    struct Write {
        uint64_t address, due;
        unsigned beats, id;
        bool complete;
        uint8_t response;
        std::vector<uint8_t> data, strobes;
    };
    struct Beat {
        unsigned id;
        uint8_t response;
        bool last;
        uint8_t data[kBusBytes];
    };
    struct Held {  // a channel's payload in the cycle before, if it was not taken
        bool waiting = false;
        uint64_t address = 0;
        uint32_t length_id = 0;
    };

    bool stall() { return settings_.jitter && !random_.below(8); }
    uint64_t due() { return now_ + settings_.latency + (settings_.jitter ? random_.below(settings_.jitter + 1) : 0); }

    uint64_t due(uint64_t address, unsigned beats, bool write) {
        if (!banks_) return due();
        const uint64_t flat = due() - settings_.latency - now_;
        return uint64_t(banks_->due(int64_t(now_), address - settings_.base, beats, kBusBytes, write)) + flat;
    }

    uint8_t response_at(uint64_t address, bool write) const {
        if (address < settings_.base || address + kBusBytes > settings_.base + settings_.size) return kResponseDecerr;
        const bool armed = write ? settings_.error_writes : settings_.error_reads;
        return armed && address < settings_.error_stop && settings_.error_start < address + kBusBytes ? kResponseSlverr
                                                                                                    : kResponseOkay;
    }

    // A slave that does nothing any more, but keeps what it has offered, as the protocol asks.
    void hang(WeftBus& bus) {
        injected_ = true;
        bus.arready = bus.awready = bus.wready = 0;
        bus.rvalid = read_offered_;
        bus.bvalid = response_offered_;
    }

    bool happens(uint32_t fault) {
        if (pending_ != fault) return false;
        pending_ = kFaultNone;
        injected_ = true;
        return true;
    }

    void answer_write() {
        Write& write = writes_.front();
        if (happens(kFaultWriteError)) write.response = kResponseSlverr;
        commit(write);
        if (happens(kFaultLostWrite)) {
            writes_.pop_front();
            --collecting_;
            return;
        }
        response_offered_ = true;
        response_ = write.response;
    }

    void offer_read() {
        if (read_offered_ || credit_ < kBusBytes || !reads_pending_ || stall()) return;
        // The oldest burst that is due; with reordering any ID's first burst that is due.
        unsigned chosen = kIds;
        unsigned candidates = 0;
        for (unsigned id = 0; id < kIds; ++id) {
            if (reads_[id].empty() || reads_[id].front().due > now_) continue;
            ++candidates;
            if (settings_.reorder) {
                if (chosen == kIds || !random_.below(candidates)) chosen = id;
            } else if (reads_[id].front().done) {
                chosen = id;
                break;
            } else if (chosen == kIds || order_[id].front() < order_[chosen].front()) {
                chosen = id;
            }
        }
        if (chosen == kIds) return;
        Read& read = reads_[chosen].front();
        if (!read.done && happens(kFaultLostRead)) {
            forget_read(chosen);
            return;
        }
        const uint64_t address = read.address + uint64_t(read.done) * kBusBytes;
        offered_.id = chosen;
        offered_.response = response_at(address, false);
        offered_.last = ++read.done == read.beats;
        if (offered_.response == kResponseDecerr) {
            std::memset(offered_.data, 0, kBusBytes);
        } else {
            std::memcpy(offered_.data, settings_.bytes + (address - settings_.base), kBusBytes);
        }
        if (happens(kFaultReadError)) offered_.response = kResponseSlverr;
        if (chosen == fault_id_ && happens(kFaultFlippedRead)) offered_.data[fault_bit_ / 8] ^= 1 << fault_bit_ % 8;
        if (offered_.last) forget_read(chosen);
        credit_ -= kBusBytes;
        read_offered_ = true;
        write_turn_ = true;
    }

    void forget_read(unsigned id) {
        reads_[id].pop_front();
        order_[id].pop_front();
        --reads_pending_;
    }

    void accept_read(const WeftBus& bus) {
        check_burst("AR", bus.araddr, bus.arlen, bus.arsize, bus.arburst);
        const unsigned id = bus.arid;
        const unsigned beats = unsigned(bus.arlen) + 1;
        reads_[id].push_back({bus.araddr, due(bus.araddr, beats, false), beats, 0});
        order_[id].push_back(accepted_++);
        ++reads_pending_;
    }

    void accept_write(const WeftBus& bus) {
        check_burst("AW", bus.awaddr, bus.awlen, bus.awsize, bus.awburst);
        writes_.push_back({bus.awaddr, 0, unsigned(bus.awlen) + 1, bus.awid, false, kResponseOkay, {}, {}});
    }

    void accept_data(const WeftBus& bus) {
        Write& write = writes_[collecting_];
        const auto* data = reinterpret_cast<const uint8_t*>(&bus.wdata);
        const uint64_t strobes = bus.wstrb;
        const uint64_t address = write.address + write.data.size();
        write.data.insert(write.data.end(), data, data + kBusBytes);
        for (unsigned byte = 0; byte < kBusBytes; ++byte) write.strobes.push_back(strobes >> byte & 1);
        if (strobes) write.response = std::max(write.response, response_at(address, true));
        const bool last = write.data.size() == size_t(write.beats) * kBusBytes;
        if (last != bool(bus.wlast)) fail("WLAST does not mark the last beat of its burst");
        if (last) {
            write.complete = true;
            write.due = due(write.address, write.beats, true);
            ++collecting_;
        }
        credit_ -= std::min<uint64_t>(credit_, kBusBytes);
        write_turn_ = false;
    }

    uint64_t most_credit() const { return kBusBytes + settings_.bytes_per_cycle - 1; }

    void commit(const Write& write) {
        if (write.response != kResponseOkay) return;
        for (size_t byte = 0; byte < write.data.size(); ++byte) {
            if (write.strobes[byte]) settings_.bytes[write.address - settings_.base + byte] = write.data[byte];
        }
    }

    void check_burst(const char* channel, uint64_t address, unsigned length, unsigned size, unsigned burst) {
        const unsigned bytes = (length + 1) * kBusBytes;
        if ((1u << size) != kBusBytes) fail(std::string(channel) + "SIZE is not the width of the bus");
        if (burst != 1) fail(std::string(channel) + "BURST is not INCR");
        if (length >= kBurstBeats) {
            fail(std::string(channel) + " burst of " + std::to_string(length + 1) + " of at most " +
                 std::to_string(kBurstBeats) + " beats");
        }
        if (address % kBusBytes) fail(std::string(channel) + "ADDR is not aligned to the bus");
        if (address % kPageBytes + bytes > kPageBytes) fail(std::string(channel) + " burst crosses a 4 KiB page");
    }

    void check_stability(const WeftBus& bus) {
        hold("AR", held_[0], bus.arvalid, bus.arready, bus.araddr,
             bus.arlen << 8 | bus.arid);
        hold("AW", held_[1], bus.awvalid, bus.awready, bus.awaddr,
             bus.awlen << 8 | bus.awid);
        uint64_t digest = bus.wstrb;
        const auto* data = reinterpret_cast<const uint8_t*>(&bus.wdata);
        if (bus.wvalid) {
            for (unsigned at = 0; at < kBusBytes; at += 8) {
                uint64_t word;
                std::memcpy(&word, data + at, 8);
                digest = (digest ^ word) * 0x9E3779B97F4A7C15ull;
            }
        }
        hold("W", held_[2], bus.wvalid, bus.wready, digest, bus.wlast);
    }

    void hold(const char* channel, Held& held, bool valid, bool ready, uint64_t address, uint32_t length_id) {
        if (held.waiting && !valid) fail(std::string(channel) + "VALID fell before READY");
        if (held.waiting && valid && (address != held.address || length_id != held.length_id)) {
            fail(std::string(channel) + " payload changed before READY");
        }
        held = {valid && !ready, address, length_id};
    }

    void fail(const std::string& text) {
        if (protocol_error_.empty()) protocol_error_ = text;
    }

    const WeftDram settings_;
    weft::Banks* const banks_;
    Random random_;
    uint64_t now_ = 0;
    uint64_t credit_ = 0;
    uint64_t accepted_ = 0;
    uint64_t reads_pending_ = 0;
    bool write_turn_ = false;
    std::deque<Read> reads_[kIds];
    std::deque<uint64_t> order_[kIds];  // for each burst in reads_, its place among all
    bool read_offered_ = false;
    Beat offered_{};
    std::deque<Write> writes_;
    size_t collecting_ = 0;  // the burst in writes_ that gets the next data beat
    bool response_offered_ = false;
    uint8_t response_ = kResponseOkay;
    Held held_[3];
    uint32_t pending_ = kFaultNone;
    unsigned fault_id_ = 0, fault_bit_ = 0;
    bool injected_ = false;
    std::string protocol_error_;
};

}  // namespace
