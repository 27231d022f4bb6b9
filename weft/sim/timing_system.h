// Several cores on several memory ports, stepped together: all ports have one DRAM behind them, if that has banks.

#pragma once

#include "timing_relay.h"
#include "timing_shared.h"

namespace weft {

namespace {

class SystemMachine {
  public:
    // `banks`: null if addresses decide nothing. `programs`: those of all cores for the first turn, then for the next.
    SystemMachine(const WeftTimingProgram* programs, const WeftTimingSharedReads& shared, const WeftBanks* banks,
                  std::vector<std::vector<Instruction>> decoded, bool trace, RelayModel relay)
        : decoded_(std::move(decoded)),
          programs_(programs, programs + decoded_.size()),
          relay_(std::move(relay)),
          trace_(trace),
          banks_(banks ? new Banks(*banks, trace) : nullptr) {
        const unsigned count = unsigned(decoded_.size() / relay_.turns());
        std::vector<unsigned> members;
        for (unsigned i = 0; i < count; ++i) {
            const size_t port = programs[i].port;
            members.resize(std::max(members.size(), port + 1));
            places_.push_back({port, members[port]++});
        }
        for (size_t port = 0; port < members.size(); ++port) {
            unsigned first = 0;
            while (first < count && programs[first].port != port) ++first;
            if (first == count) {
                ports_.push_back(nullptr);  // nobody on it runs
            } else if (programs[first].arbiter) {
                ports_.push_back(std::make_unique<SharedPort>(*programs[first].core, members[port], shared, banks_.get(),
                                                              trace));
            } else {
                ports_.push_back(std::make_unique<OwnPort>(*programs[first].core, banks_.get()));
            }
        }
        for (unsigned i = 0; i < count; ++i) {
            models_.push_back(nullptr);
            before_.emplace_back();
            starts_.push_back(0);
            begin_run(i, i, programs[i], relay_.starts(i, programs[i].start));
        }
    }

    // Cycles that were evaluated; -1 if a program does not end.
    int64_t run(Cycle limit, bool every_cycle, WeftTimingResult* results, WeftTimingPortUse* use) {
        const unsigned count = unsigned(models_.size());
        std::vector<bool> over(count, false);
        std::vector<uint32_t> running(ports_.size());
        int64_t left = relay_.all_runs(count);
        int64_t evaluated = 0;
        for (Cycle now = 0; now < limit;) {
            ++evaluated;
            bool soon = every_cycle;
            const auto runs = [&](unsigned i) { return !over[i] && now >= starts_[i]; };
            std::fill(running.begin(), running.end(), 0);
            for (unsigned i = 0; i < count; ++i) running[places_[i].port] |= uint32_t(runs(i)) << places_[i].place;
            std::vector<bool> ended(ports_.size(), false);
            for (unsigned i = 0; i < count; ++i) {
                if (!runs(i) || !models_[i]->begin(now - starts_[i], results[i])) continue;
                over[i] = soon = ended[places_[i].port] = true;
                relay_.end(i, starts_[i], results[i].cycles);
                --left;
            }
            for (unsigned i = 0; soon && i < count; ++i) {
                if (!over[i] && starts_[i] != kNever) continue;
                const Cycle start = relay_.next(i, now + 1);
                if (start == kNever) continue;
                over[i] = false;
                const uint64_t which = relay_.turn(i) * count + i;
                begin_run(i, which, relay_.moved(i, programs_[which]), start);
            }
            if (!left) {
                for (unsigned i = 0; i < count; ++i) use[i] = port_of(i).use(places_[i].place);
                return evaluated;
            }
            for (unsigned i = 0; i < count; ++i) {
                if (!runs(i)) continue;
                if (every_cycle) models_[i]->wakes().wake_all(now - starts_[i]);
                if (models_[i]->wakes().due(kDram, now - starts_[i])) port_of(i).wake = now;
            }
            // The DRAM takes addresses of one cycle in the order of its ports.
            for (size_t i = 0; i < ports_.size(); ++i) {
                if (!ports_[i]) continue;
                MemoryPort& port = *ports_[i];
                if (port.wake <= now) port.step(now, running[i]);
                if (ended[i] && port.is_shared()) port.wake = now + 1;  // others may have waited for what it would ask
            }
            for (unsigned i = 0; i < count; ++i) {
                if (!runs(i)) continue;
                models_[i]->step(now - starts_[i], port_of(i).port(places_[i].place));
                soon |= models_[i]->ends(now - starts_[i]);
            }
            const auto next_of = [&](unsigned i) {
                if (over[i]) return kNever;
                if (now < starts_[i]) return starts_[i];
                const Cycle next = models_[i]->wakes().next();
                return next == kNever ? kNever : next + starts_[i];
            };
            if (!soon) stream(now, next_of);
            Cycle next = kNever;
            for (const auto& port : ports_) {
                if (port) next = std::min(next, port->wake);
            }
            for (unsigned i = 0; i < count; ++i) next = std::min(next, next_of(i));
            if (next == kNever && !soon) return -1;
            now = soon ? now + 1 : std::max(next, now + 1);
        }
        return -1;
    }

    // A core's run with this number; with a trace all are kept, without one the last.
    const CoreModel& model(uint64_t core, uint64_t run) const {
        return run < before_[core].size() ? *before_[core][run] : *models_[core];
    }
    const std::vector<WeftBusUse>& bus(uint64_t port) const { return ports_[port]->bus(); }
    const Banks* banks() const { return banks_.get(); }

  private:
    struct Place {
        size_t port;
        unsigned place;  // on the port
    };

    MemoryPort& port_of(unsigned core) { return *ports_[places_[core].port]; }

    void begin_run(unsigned i, uint64_t which, WeftTimingProgram program, Cycle start) {
        if (trace_ && models_[i] && starts_[i] != kNever) before_[i].push_back(std::move(models_[i]));
        program.start = starts_[i] = start;
        models_[i] = std::make_unique<CoreModel>(*program.core, decoded_[which], uint32_t(program.offset), trace_);
        port_of(i).connect(places_[i].place, *models_[i], program);
    }

    // The cycles of one core's burst, if no other core has anything to do in them.
    template <typename Next>
    void stream(Cycle now, Next next_of) {
        for (size_t at = 0; at < ports_.size(); ++at) {
            unsigned place = 0, id = 0;
            Cycle cycles = ports_[at] ? ports_[at]->streams(now, place, id) : 0;
            if (cycles <= 0) continue;
            unsigned core = 0;
            for (unsigned i = 0; i < models_.size() && cycles > 0; ++i) {
                if (places_[i].port == at && places_[i].place == place) {
                    core = i;
                } else {
                    cycles = std::min(cycles, next_of(i) - (now + 1));
                }
            }
            for (size_t other = 0; other < ports_.size(); ++other) {
                if (other != at && ports_[other]) cycles = std::min(cycles, ports_[other]->wake - (now + 1));
            }
            cycles = cycles > 0 ? models_[core]->streams(now - starts_[core], id, cycles) : 0;
            if (cycles <= 0) continue;
            ports_[at]->stream(cycles);
            models_[core]->stream(now - starts_[core], id, cycles);
            return;
        }
    }

    const std::vector<std::vector<Instruction>> decoded_;
    const std::vector<WeftTimingProgram> programs_;
    RelayModel relay_;
    const bool trace_;
    std::vector<std::unique_ptr<CoreModel>> models_;
    std::vector<std::vector<std::unique_ptr<CoreModel>>> before_;  // of each core, its runs before the last one
    std::vector<Cycle> starts_;
    std::vector<Place> places_;
    std::vector<std::unique_ptr<MemoryPort>> ports_;
    std::unique_ptr<Banks> banks_;
};

}  // namespace

}  // namespace weft
