// The timing model: one call predicts one program, or one for each of several cores on a port. Python's side is
// sim/timing.py and sim/system_timing.py.

#include "timing_system.h"

namespace weft {

namespace {

// A core that has its memory alone.
class Machine {
  public:
    Machine(const Core& core, const std::vector<Instruction>& program, uint32_t offset, bool trace)
        : model_(core, program, offset, trace), dram_(core) {}

    // False if the program does not end: no part has anything to do, or the limit is reached.
    bool run(Cycle limit, bool every_cycle, WeftTimingResult& result) {
        Wakes& wakes = model_.wakes();
        result.evaluated = 0;
        for (Cycle now = 0; now < limit;) {
            ++result.evaluated;
            if (model_.begin(now, result)) return true;
            if (every_cycle) wakes.wake_all(now);
            if (wakes.due(kDram, now)) dram_.step(now, wakes, model_.reads(), model_.writes());
            model_.step(now, dram_);
            const bool ends = model_.ends(now);
            if (!ends && !every_cycle) {
                const Cycle cycles = model_.streams(now, dram_.beat_id, dram_.streams(now, model_.writes()));
                if (cycles > 0) {
                    dram_.stream(cycles);
                    model_.stream(now, dram_.beat_id, cycles);
                }
            }
            now = ends || every_cycle ? now + 1 : wakes.next();
        }
        return false;
    }

    const CoreModel& model() const { return model_; }

  private:
    CoreModel model_;
    Dram dram_;
};

}  // namespace

}  // namespace weft

extern "C" {

// A finished prediction, with its trace. `cycles` of `result` is -1 if the program does not end; null is returned if an
// instruction is illegal.
void* weft_timing_predict(const WeftTimingCore* core, const uint8_t* code, uint64_t count, uint32_t offset,
                          int64_t limit, int32_t trace, int32_t every_cycle, WeftTimingResult* result) {
    std::vector<weft::Instruction> program;
    if (!weft::decode_program(*core, code, count, program)) return nullptr;
    auto* machine = new weft::Machine(*core, program, offset, trace);
    result->cycles = -1;
    machine->run(limit, every_cycle, *result);
    return machine;
}

void weft_timing_delete(void* machine) { delete static_cast<weft::Machine*>(machine); }

uint64_t weft_timing_events(void* machine, const WeftEvent** first) {
    const auto& events = static_cast<weft::Machine*>(machine)->model().events();
    *first = events.data();
    return events.size();
}

uint64_t weft_timing_activity(void* machine, const WeftActivity** first) {
    const auto& activity = static_cast<weft::Machine*>(machine)->model().activity();
    *first = activity.data();
    return activity.size();
}

// As weft_timing_predict, for `count` cores, whose ports share a DRAM with `banks` or (null) are one: a program each,
// started in its cycle. With `traced`, that is the finished prediction with its traces, for weft_timing_shared_delete.
// Evaluated cycles, or -1 if a program does not end, or -2 - i if an instruction of program i is illegal.
// With a `relay` (null: without), each core runs several times, as that says: `programs` are those of all cores, turn by
// turn; `spans` gets the cycles of all runs, core by core, and `results` those of the last ones.
int64_t weft_timing_predict_shared(const WeftTimingProgram* programs, const WeftTimingSharedReads* shared,
                                   const WeftBanks* banks, uint64_t count, int64_t limit, int32_t every_cycle,
                                   WeftTimingResult* results, WeftTimingPortUse* use, WeftDramUse* dram, void** traced,
                                   const WeftTimingRelay* relay, WeftTimingSpan* spans) {
    std::vector<std::vector<weft::Instruction>> decoded(relay ? count * relay->turns : count);
    for (uint64_t i = 0; i < decoded.size(); ++i) {
        const WeftTimingProgram& program = programs[i];
        if (!weft::decode_program(*program.core, program.code, program.count, decoded[i])) return -2 - int64_t(i);
    }
    auto machine = std::make_unique<weft::SystemMachine>(programs, *shared, banks, std::move(decoded), traced != nullptr,
                                                         weft::RelayModel(relay, count, spans));
    const int64_t evaluated = machine->run(limit, every_cycle, results, use);
    if (machine->banks()) *dram = machine->banks()->use();
    if (traced) *traced = machine.release();
    return evaluated;
}

void weft_timing_shared_delete(void* machine) { delete static_cast<weft::SystemMachine*>(machine); }

uint64_t weft_timing_shared_events(void* machine, uint64_t place, uint64_t run, const WeftEvent** first) {
    const auto& events = static_cast<weft::SystemMachine*>(machine)->model(place, run).events();
    *first = events.data();
    return events.size();
}

uint64_t weft_timing_shared_activity(void* machine, uint64_t place, uint64_t run, const WeftActivity** first) {
    const auto& activity = static_cast<weft::SystemMachine*>(machine)->model(place, run).activity();
    *first = activity.data();
    return activity.size();
}

// Of a port with an arbiter. Bits of `cores` are places on it; cycles are those of the system.
uint64_t weft_timing_shared_bus(void* machine, uint64_t port, const WeftBusUse** first) {
    const auto& uses = static_cast<weft::SystemMachine*>(machine)->bus(port);
    *first = uses.data();
    return uses.size();
}

// Of a DRAM with banks, in the order in which they were decided.
uint64_t weft_timing_shared_commands(void* machine, const WeftDramCommand** first) {
    const auto& commands = static_cast<weft::SystemMachine*>(machine)->banks()->commands();
    *first = commands.data();
    return commands.size();
}

// A DRAM with banks that got `count` bursts, in their order; `due` gets when each is answered.
void* weft_dram_serve(const WeftBanks* banks, const WeftDramBurst* bursts, uint64_t count, uint32_t beat_bytes, int64_t* due,
                      WeftDramUse* use) {
    auto* served = new weft::Banks(*banks, true);
    for (uint64_t i = 0; i < count; ++i) {
        const WeftDramBurst& burst = bursts[i];
        due[i] = served->due(int64_t(burst.cycle), burst.address, burst.beats, beat_bytes, burst.write);
    }
    *use = served->use();
    return served;
}

void weft_dram_delete(void* banks) { delete static_cast<weft::Banks*>(banks); }

uint64_t weft_dram_commands(void* banks, const WeftDramCommand** first) {
    const auto& commands = static_cast<weft::Banks*>(banks)->commands();
    *first = commands.data();
    return commands.size();
}

}  // extern "C"
