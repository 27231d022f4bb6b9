// One simulated machine: the verilated core, or system of cores, an AXI4 memory and an AXI4-Lite driver.
//
// Python calls weft_run once a program, or once for one program of each core; every cycle happens here. The generated
// ports.h has what differs from configuration to configuration: the ports and the interrupts, and of one core its
// scratchpads and its trace outputs.

#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "harness_memory.h"

#if VM_TRACE_FST
#include "verilated_fst_c.h"
using WaveFile = VerilatedFstC;
#elif VM_TRACE
#include "verilated_vcd_c.h"
using WaveFile = VerilatedVcdC;
#endif

namespace {

constexpr int kDrainReads = 10000;

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

// The cycles in which each core ran, where the hardware tells: an event a run, with the core's number.
class SpanRecorder {
  public:
    void begin() { events.clear(); }
    void sample(uint32_t running) {
        for (uint32_t core = 0; core < kCoresRunning; ++core) {
            const bool runs = running >> core & 1;
            if (runs && !(last_ >> core & 1)) started_[core] = now_;
            if (!runs && last_ >> core & 1) events.push_back({core, 0, started_[core], now_});
        }
        last_ = running;
        ++now_;
    }

    std::vector<WeftEvent> events;

  private:
    uint64_t now_ = 0, started_[32] = {};
    uint32_t last_ = 0;
};

// The cycles of all runs, counted as the core counts them: a run's own count begins some cycles after its start.
class CountedCycles {
  public:
    void begin_run(uint64_t before) { running_ = true, before_ = before; }
    // Another cycle begins.
    void step() {
        inside_ = running_ && !before_;
        if (inside_) ++counted_;
        if (before_) --before_;
    }
    void end_run() { running_ = false, before_ = 0; }
    bool inside() const { return inside_; }
    uint64_t number() const { return counted_ - 1; }

  private:
    uint64_t before_ = 0, counted_ = 0;
    bool running_ = false, inside_ = false;
};

#if VM_TRACE
// The waveform of some cycles. Cycle c begins with the rising edge at c times the length of a cycle; its inputs change
// in the middle of it.
class Waves {
  public:
    Waves(Vcore& core, const char* path, uint64_t first, uint64_t stop, uint64_t length)
        : first_(first), stop_(stop), length_(length) {
        core.trace(&file_, 99);
        file_.open(path);
    }
    ~Waves() { file_.close(); }

    void low(const Vcore&) {
        if (shown()) file_.dump(cycles.number() * length_ + length_ / 2);
    }
    void high() {
        if (shown()) file_.dump((cycles.number() + 1) * length_);
    }

    CountedCycles cycles;

  private:
    bool shown() const { return cycles.inside() && cycles.number() >= first_ && cycles.number() < stop_; }

    WaveFile file_;
    const uint64_t first_, stop_, length_;
};
using Watcher = Waves;
#elif WEFT_STATES
// What registers and memories hold at the end of each cycle of some windows: pairs of the first cycle and of that
// before which a window ends, ascending. One cycle behind the other is written to a buffer.
class States {
  public:
    States(uint8_t* to, const uint64_t* windows, uint64_t count)
        : to_(to), windows_(windows), end_(windows + 2 * count) {}

    void low(const Vcore& core) {
        if (!cycles.inside()) return;
        while (windows_ != end_ && cycles.number() >= windows_[1]) windows_ += 2;
        if (windows_ != end_ && cycles.number() >= windows_[0]) to_ = weft_read_states(*core.rootp, to_);
    }
    void high() {}

    CountedCycles cycles;

  private:
    uint8_t* to_;
    const uint64_t *windows_, *const end_;
};
using Watcher = States;
#endif

class Machine {
  public:
    explicit Machine(const WeftDram& dram) {
#if VM_TRACE
        context_.traceEverOn(true);
#endif
        context_.threads(1);  // no pool of threads: after a fork, its destructor would wait for what is not there
        core_.reset(new Vcore(&context_, "top"));
        for (unsigned port = 0; port < kPorts; ++port) buses_.push_back(weft_bus(*core_, port));
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

    void configure(const WeftDram& dram) {
        memories_.clear();
        banks_.reset(dram.banks ? new weft::Banks(*dram.banks) : nullptr);
        for (unsigned port = 0; port < kPorts; ++port) memories_.push_back(std::make_unique<Memory>(dram, banks_.get()));
    }

    int run(WeftRun& request) {
        const bool goes_on = !request.before_count && !request.starts_count;
        if (!goes_on) rest();
        for (uint64_t i = 0; i < request.before_count; ++i) write(request.before[i].address, request.before[i].value);
        if (!goes_on) begin_run(request.uncounted);
        uint64_t cycles = start_apart(request);
        const auto interrupt = [&] { return (weft_interrupts(*core_) & request.interrupts) == request.interrupts; };
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
        if (!request.more) end_run();
        for (uint64_t core = 0; core < 64; ++core) {
            if (!(request.interrupts >> core & 1)) continue;
            const uint32_t status = uint32_t(request.status_address + core * request.core_bytes);
            for (int i = 0; i < kDrainReads && read(status) & request.status_busy; ++i) {
            }
        }
        for (uint64_t i = 0; i < request.reads_count; ++i) request.reads[i].value = read(request.reads[i].address);
        if (protocol_error()[0]) return kOutcomeProtocolError;
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
        while (cycles-- && !weft_interrupts(*core_)) tick();
        return weft_interrupts(*core_);
    }

    // The waveform of cycles from first to before stop; nothing where the model was built without.
    void open_waves(const char* path, uint64_t first, uint64_t stop, uint64_t length) {
#if VM_TRACE
        watcher_ = std::make_unique<Waves>(*core_, path, first, stop, length);
#else
        (void)path, (void)first, (void)stop, (void)length;
#endif
    }
    // As States; nothing where the model was built without.
    void read_states(uint8_t* to, const uint64_t* windows, uint64_t count) {
#if WEFT_STATES
        watcher_ = std::make_unique<States>(to, windows, count);
#else
        (void)to, (void)windows, (void)count;
#endif
    }
    // The waveform ends, or the buffer of states is written no more.
    void close_waves() {
#if VM_TRACE || WEFT_STATES
        watcher_.reset();
#endif
    }

    Vcore& core() { return *core_; }
    TraceRecorder& trace() { return trace_; }
    const std::vector<WeftEvent>& spans() const { return spans_.events; }
    // Of the first port that has one, or an empty text.
    const char* protocol_error() const {
        for (const auto& memory : memories_) {
            if (!memory->protocol_error().empty()) return memory->protocol_error().c_str();
        }
        return "";
    }
    Memory& memory() { return *memories_[0]; }
    WeftDramUse dram_use() const { return banks_ ? banks_->use() : WeftDramUse{}; }

  private:
    static constexpr int kRegisterPatience = 1000;

    // What was before a run leaves no trace in its cycles.
    void rest() {
        spans_.begin();
        for (auto& memory : memories_) memory->rest();
        if (banks_) banks_->rest();
    }

    // Start writes, each in its own cycle or as soon as the one before is done; the cycles that they took.
    uint64_t start_apart(WeftRun& request) {
        const uint64_t first = now_;
        for (uint64_t i = 0; i < request.starts_count; ++i) {
            WeftStart& start = request.starts[i];
            while (now_ - first < start.cycle) tick();
            start.cycle = now_ - first;
            write(start.address, start.value);
        }
        return now_ - first;
    }

    // Combinational outputs for the inputs of this cycle.
    void settle() {
        core_->clk = 0;
        core_->eval();
    }

    void tick() {
        for (unsigned port = 0; port < kPorts; ++port) memories_[port]->drive(buses_[port]);
        settle();
#if VM_TRACE || WEFT_STATES
        if (watcher_) {
            watcher_->cycles.step();
            watcher_->low(*core_);
        }
#endif
        for (unsigned port = 0; port < kPorts; ++port) memories_[port]->sample(buses_[port]);
        if (kCoresRunning) spans_.sample(weft_running(*core_));
        core_->clk = 1;
        core_->eval();
#if VM_TRACE || WEFT_STATES
        if (watcher_) watcher_->high();
#endif
        ++now_;
    }

    // Cycles of a run are in its waveform, those of register accesses between runs are not.
#if VM_TRACE || WEFT_STATES
    void begin_run(uint64_t uncounted) {
        if (watcher_) watcher_->cycles.begin_run(uncounted);
    }
    void end_run() {
        if (watcher_) watcher_->cycles.end_run();
    }
#else
    void begin_run(uint64_t) {}
    void end_run() {}
#endif

    VerilatedContext context_;
    std::unique_ptr<Vcore> core_;
#if VM_TRACE || WEFT_STATES
    std::unique_ptr<Watcher> watcher_;  // after the core: a waveform is closed before it goes
#endif
    std::vector<WeftBus> buses_;
    std::unique_ptr<weft::Banks> banks_;  // behind all ports
    std::vector<std::unique_ptr<Memory>> memories_;
    uint64_t now_ = 0;
    TraceRecorder trace_;
    SpanRecorder spans_;
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
void weft_open_waves(void* machine, const char* path, uint64_t first, uint64_t stop, uint64_t length) {
    static_cast<Machine*>(machine)->open_waves(path, first, stop, length);
}
#if WEFT_STATES
const WeftState* weft_states(uint32_t number) { return number < kStateCount ? &kStates[number] : nullptr; }
#endif
void weft_read_states(void* machine, uint8_t* to, const uint64_t* windows, uint64_t count) {
    static_cast<Machine*>(machine)->read_states(to, windows, count);
}
void weft_close_waves(void* machine) { static_cast<Machine*>(machine)->close_waves(); }
void weft_dram_use(void* machine, WeftDramUse* use) { *use = static_cast<Machine*>(machine)->dram_use(); }
int weft_injected(void* machine) { return static_cast<Machine*>(machine)->memory().injected(); }

// Content of a scratchpad's bank, entry after entry; null if there is no such bank.
void* weft_memory(void* machine, uint32_t scratchpad, uint32_t bank) {
    return weft_find_memory(*static_cast<Machine*>(machine)->core().rootp, scratchpad, bank);
}
const char* weft_protocol_error(void* machine) { return static_cast<Machine*>(machine)->protocol_error(); }
uint64_t weft_events(void* machine, const WeftEvent** first) {
    const auto& events = static_cast<Machine*>(machine)->trace().events;
    *first = events.data();
    return events.size();
}
uint64_t weft_spans(void* machine, const WeftEvent** first) {
    const auto& spans = static_cast<Machine*>(machine)->spans();
    *first = spans.data();
    return spans.size();
}
uint64_t weft_activity(void* machine, const WeftActivity** first) {
    const auto& activity = static_cast<Machine*>(machine)->trace().activity;
    *first = activity.data();
    return activity.size();
}

}  // extern "C"
