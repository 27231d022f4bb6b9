// One simulated machine: the verilated core, an AXI4 memory and an AXI4-Lite driver.
//
// Python calls weft_run once a program; every cycle happens here. The generated ports.h has what differs from
// configuration to configuration: the core's memories, its trace outputs and the length of its bursts.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "Vcore.h"
#include "Vcore___024root.h"
#include "harness_interface.h"  // structs and numbers that Python shares, written by sim/harness.py
#include "ports.h"

namespace {

constexpr unsigned kBusBytes = sizeof(Vcore::m_axi_rdata);
constexpr int kDrainReads = 10000;

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
    explicit Memory(const WeftDram& settings) : settings_(settings), random_(settings.seed) {}

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

    // Drive the core's inputs for the cycle that begins.
    void drive(Vcore& core) {
        if (pending_ == kFaultHung) {
            hang(core);
            return;
        }
        credit_ = std::min(credit_ + settings_.bytes_per_cycle, most_credit());
        core.m_axi_arready = reads_pending_ < settings_.outstanding && !stall();
        core.m_axi_awready = writes_.size() < settings_.outstanding && !stall();
        const bool write_wanted = core.m_axi_wvalid && collecting_ < writes_.size();
        if (!(write_turn_ && write_wanted && credit_ < 2 * kBusBytes)) offer_read();
        core.m_axi_rvalid = read_offered_;
        if (read_offered_) {
            core.m_axi_rid = offered_.id;
            core.m_axi_rresp = offered_.response;
            core.m_axi_rlast = offered_.last;
            store_bits(core.m_axi_rdata, offered_.data);
        }
        core.m_axi_wready = collecting_ < writes_.size() && credit_ >= kBusBytes && !stall();
        if (!response_offered_ && !writes_.empty() && writes_.front().complete && writes_.front().due <= now_ &&
            !stall()) {
            answer_write();
        }
        core.m_axi_bvalid = response_offered_;
        core.m_axi_bresp = response_;
        core.m_axi_bid = writes_.empty() ? 0 : writes_.front().id;
    }

    // Take the handshakes of the cycle that ends.
    void sample(const Vcore& core) {
        check_stability(core);
        if (core.m_axi_arvalid && core.m_axi_arready) accept_read(core);
        if (core.m_axi_rvalid && core.m_axi_rready) read_offered_ = false;
        if (core.m_axi_bvalid && core.m_axi_bready) {
            response_offered_ = false;
            writes_.pop_front();
            --collecting_;
        }
        if (core.m_axi_wvalid && core.m_axi_wready) accept_data(core);
        if (core.m_axi_awvalid && core.m_axi_awready) accept_write(core);
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

    uint8_t response_at(uint64_t address, bool write) const {
        if (address < settings_.base || address + kBusBytes > settings_.base + settings_.size) return kResponseDecerr;
        const bool armed = write ? settings_.error_writes : settings_.error_reads;
        return armed && address < settings_.error_stop && settings_.error_start < address + kBusBytes ? kResponseSlverr
                                                                                                    : kResponseOkay;
    }

    // A slave that does nothing any more, but keeps what it has offered, as the protocol asks.
    void hang(Vcore& core) {
        injected_ = true;
        core.m_axi_arready = core.m_axi_awready = core.m_axi_wready = 0;
        core.m_axi_rvalid = read_offered_;
        core.m_axi_bvalid = response_offered_;
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

    void accept_read(const Vcore& core) {
        check_burst("AR", core.m_axi_araddr, core.m_axi_arlen, core.m_axi_arsize, core.m_axi_arburst);
        const unsigned id = core.m_axi_arid;
        reads_[id].push_back({core.m_axi_araddr, due(), unsigned(core.m_axi_arlen) + 1, 0});
        order_[id].push_back(accepted_++);
        ++reads_pending_;
    }

    void accept_write(const Vcore& core) {
        check_burst("AW", core.m_axi_awaddr, core.m_axi_awlen, core.m_axi_awsize, core.m_axi_awburst);
        writes_.push_back({core.m_axi_awaddr, 0, unsigned(core.m_axi_awlen) + 1, core.m_axi_awid, false, kResponseOkay, {}, {}});
    }

    void accept_data(const Vcore& core) {
        Write& write = writes_[collecting_];
        const auto* data = reinterpret_cast<const uint8_t*>(&core.m_axi_wdata);
        const uint64_t strobes = core.m_axi_wstrb;
        const uint64_t address = write.address + write.data.size();
        write.data.insert(write.data.end(), data, data + kBusBytes);
        for (unsigned byte = 0; byte < kBusBytes; ++byte) write.strobes.push_back(strobes >> byte & 1);
        if (strobes) write.response = std::max(write.response, response_at(address, true));
        const bool last = write.data.size() == size_t(write.beats) * kBusBytes;
        if (last != bool(core.m_axi_wlast)) fail("WLAST does not mark the last beat of its burst");
        if (last) {
            write.complete = true;
            write.due = due();
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

    void check_stability(const Vcore& core) {
        hold("AR", held_[0], core.m_axi_arvalid, core.m_axi_arready, core.m_axi_araddr,
             core.m_axi_arlen << 8 | core.m_axi_arid);
        hold("AW", held_[1], core.m_axi_awvalid, core.m_axi_awready, core.m_axi_awaddr,
             core.m_axi_awlen << 8 | core.m_axi_awid);
        uint64_t digest = core.m_axi_wstrb;
        const auto* data = reinterpret_cast<const uint8_t*>(&core.m_axi_wdata);
        if (core.m_axi_wvalid) {
            for (unsigned at = 0; at < kBusBytes; at += 8) {
                uint64_t word;
                std::memcpy(&word, data + at, 8);
                digest = (digest ^ word) * 0x9E3779B97F4A7C15ull;
            }
        }
        hold("W", held_[2], core.m_axi_wvalid, core.m_axi_wready, digest, core.m_axi_wlast);
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

// Starts and retirements are matched in order: engines work in order.
class TraceRecorder {
  public:
    void begin() {
        events.clear();
        activity.clear();
        for (auto& queue : running_) queue.clear();
        now_ = 0;
    }

    void sample(const Vcore& core) {
        WeftTraceSample samples[kEngines];
        weft_sample_trace(core, samples);
        for (uint32_t engine = 0; engine < kEngines; ++engine) {
            const WeftTraceSample& sample = samples[engine];
            if (sample.started) running_[engine].push_back({engine, sample.started_number, now_, 0});
            if (sample.retired) {
                auto& queue = running_[engine];
                while (!queue.empty()) {
                    WeftEvent event = queue.front();
                    queue.pop_front();
                    event.retire = now_;
                    events.push_back(event);
                    if (event.number == sample.retired_number) break;
                }
            }
            if (now_ == 0 || sample.kind != runs_[engine].kind) {
                if (now_) activity.push_back(runs_[engine]);
                runs_[engine] = {engine, sample.kind, now_, 0};
            }
            ++runs_[engine].cycles;
        }
        ++now_;
    }

    void end() {
        if (now_) activity.insert(activity.end(), runs_, runs_ + kEngines);
    }

    std::vector<WeftEvent> events;
    std::vector<WeftActivity> activity;

  private:
    uint64_t now_ = 0;
    std::deque<WeftEvent> running_[kEngines];
    WeftActivity runs_[kEngines];
};

class Machine {
  public:
    explicit Machine(const WeftDram& dram) {
        context_.threads(1);  // no pool of threads: after a fork, its destructor would wait for what is not there
        core_.reset(new Vcore(&context_, "top"));
        reset(dram);
    }

    // The rst pin; the memory forgets what it was asked for, but keeps its bytes.
    void reset(const WeftDram& dram) {
        configure(dram);
        core_->rst = 1;
        for (int i = 0; i < 16; ++i) tick();
        core_->rst = 0;
        tick();
    }

    void configure(const WeftDram& dram) { memory_ = std::make_unique<Memory>(dram); }

    int run(WeftRun& request) {
        memory_->rest();
        for (uint64_t i = 0; i < request.before_count; ++i) write(request.before[i].address, request.before[i].value);
        uint64_t cycles = 0;
        if (request.trace) {
            trace_.begin();
            for (; !interrupt() && cycles < request.cycle_limit; ++cycles) {
                trace_.sample(*core_);
                tick();
            }
            trace_.end();
        } else {
            uint64_t visited = 0;
            for (; !interrupt() && cycles < request.cycle_limit; ++cycles) {
                while (visited < request.moments_count && request.moments[visited] == cycles) {
                    ++visited;
                    request.visit(cycles);
                }
                tick();
            }
        }
        const bool finished = interrupt();
        for (int i = 0; i < kDrainReads; ++i) {
            if (!(read(request.status_address) & request.status_busy)) break;
        }
        for (uint64_t i = 0; i < request.reads_count; ++i) request.reads[i].value = read(request.reads[i].address);
        if (!memory_->protocol_error().empty()) return kOutcomeProtocolError;
        return finished ? kOutcomeFinished : kOutcomeCycleLimit;
    }

    void write(uint32_t address, uint32_t value) {
        core_->s_axil_awaddr = address;
        core_->s_axil_awvalid = 1;
        core_->s_axil_wdata = value;
        core_->s_axil_wstrb = 15;
        core_->s_axil_wvalid = 1;
        core_->s_axil_bready = 1;
        for (int i = 0; i < kRegisterPatience; ++i) {
            settle();
            const bool address_taken = core_->s_axil_awready, data_taken = core_->s_axil_wready;
            const bool answered = core_->s_axil_bvalid;
            tick();
            if (address_taken) core_->s_axil_awvalid = 0;
            if (data_taken) core_->s_axil_wvalid = 0;
            if (answered) break;
        }
        core_->s_axil_bready = 0;
    }

    uint32_t read(uint32_t address) {
        core_->s_axil_araddr = address;
        core_->s_axil_arvalid = 1;
        core_->s_axil_rready = 1;
        uint32_t value = 0;
        for (int i = 0; i < kRegisterPatience; ++i) {
            settle();
            const bool taken = core_->s_axil_arready, answered = core_->s_axil_rvalid;
            value = core_->s_axil_rdata;
            tick();
            if (taken) core_->s_axil_arvalid = 0;
            if (answered) break;
        }
        core_->s_axil_rready = 0;
        return value;
    }

    // Lets cycles pass, fewer if the interrupt is high; whether it is.
    bool wait(uint32_t cycles) {
        while (cycles-- && !interrupt()) tick();
        return interrupt();
    }

    Vcore& core() { return *core_; }
    TraceRecorder& trace() { return trace_; }
    const std::string& protocol_error() const { return memory_->protocol_error(); }
    Memory& memory() { return *memory_; }

  private:
    static constexpr int kRegisterPatience = 1000;

    // Verilator's spelling of a port whose name some C++ compilers reserve.
    bool interrupt() const { return core_->__SYM__interrupt; }

    // Combinational outputs for the inputs of this cycle.
    void settle() {
        core_->clk = 0;
        core_->eval();
    }

    void tick() {
        memory_->drive(*core_);
        settle();
        memory_->sample(*core_);
        core_->clk = 1;
        core_->eval();
    }

    VerilatedContext context_;
    std::unique_ptr<Vcore> core_;
    std::unique_ptr<Memory> memory_;
    TraceRecorder trace_;
};

}  // namespace

extern "C" {

void* weft_new(const WeftDram* dram) { return new Machine(*dram); }
void weft_delete(void* machine) { delete static_cast<Machine*>(machine); }
int weft_run(void* machine, WeftRun* request) { return static_cast<Machine*>(machine)->run(*request); }
void weft_write(void* machine, uint32_t address, uint32_t value) { static_cast<Machine*>(machine)->write(address, value); }
uint32_t weft_read(void* machine, uint32_t address) { return static_cast<Machine*>(machine)->read(address); }
int weft_wait(void* machine, uint32_t cycles) { return static_cast<Machine*>(machine)->wait(cycles); }
void weft_configure(void* machine, const WeftDram* dram) { static_cast<Machine*>(machine)->configure(*dram); }
void weft_reset(void* machine, const WeftDram* dram) { static_cast<Machine*>(machine)->reset(*dram); }
void weft_inject(void* machine, uint32_t fault, uint32_t id, uint32_t bit) {
    static_cast<Machine*>(machine)->memory().inject(fault, id, bit);
}
int weft_injected(void* machine) { return static_cast<Machine*>(machine)->memory().injected(); }

// Content of a scratchpad's bank, entry after entry; null if there is no such bank.
void* weft_memory(void* machine, uint32_t scratchpad, uint32_t bank) {
    return weft_find_memory(*static_cast<Machine*>(machine)->core().rootp, scratchpad, bank);
}
const char* weft_protocol_error(void* machine) { return static_cast<Machine*>(machine)->protocol_error().c_str(); }
uint64_t weft_events(void* machine, const WeftEvent** first) {
    const auto& events = static_cast<Machine*>(machine)->trace().events;
    *first = events.data();
    return events.size();
}
uint64_t weft_activity(void* machine, const WeftActivity** first) {
    const auto& activity = static_cast<Machine*>(machine)->trace().activity;
    *first = activity.data();
    return activity.size();
}

}  // extern "C"
