// A memory port as the loop over several cores sees it, and the port of a core that has one alone.

#pragma once

#include <memory>

#include "timing_core.h"

namespace weft {

namespace {

// Cores on a port are called by their place on it.
class MemoryPort {
  public:
    virtual ~MemoryPort() = default;
    virtual void connect(unsigned place, CoreModel& model, const WeftTimingProgram& program) = 0;
    virtual const Port& port(unsigned place) const = 0;
    virtual const WeftTimingPortUse& use(unsigned place) const = 0;
    virtual const std::vector<WeftBusUse>& bus() const = 0;
    virtual bool is_shared() const = 0;
    // `running`: the cores whose programs run in this cycle.
    virtual void step(Cycle now, uint32_t running) = 0;
    // Cycles from the next on in which a word comes to one core's client, none of them a burst's last, and nobody else
    // wants anything of the port.
    virtual Cycle streams(Cycle now, unsigned& place, unsigned& id) const = 0;
    virtual void stream(Cycle beats) = 0;

    Cycle wake = kNever;
};

// The port of one core, wired to it without an arbiter.
class OwnPort : public MemoryPort {
  public:
    OwnPort(const Core& core, Banks* banks) : core_(core), banks_(banks) {}
    void connect(unsigned, CoreModel& model, const WeftTimingProgram& program) override {
        model_ = &model;
        start_ = program.start;
        dram_ = std::make_unique<Dram>(core_, DramPlace{banks_, program.start, program.window_start});
    }
    const Port& port(unsigned) const override { return *dram_; }
    const WeftTimingPortUse& use(unsigned) const override { return use_; }
    const std::vector<WeftBusUse>& bus() const override { return bus_; }
    bool is_shared() const override { return false; }

    void step(Cycle now, uint32_t running) override {
        wake = kNever;  // the core's own wakes say when the memory is next
        if (running) dram_->step(now - start_, model_->wakes(), model_->reads(), model_->writes());
    }
    Cycle streams(Cycle now, unsigned& place, unsigned& id) const override {
        place = 0;
        id = dram_->beat_id;
        return now < start_ ? 0 : dram_->streams(now - start_, model_->writes());
    }
    void stream(Cycle beats) override { dram_->stream(beats); }

  private:
    const Core& core_;
    Banks* const banks_;
    CoreModel* model_ = nullptr;
    Cycle start_ = 0;
    std::unique_ptr<Dram> dram_;
    const WeftTimingPortUse use_{};
    const std::vector<WeftBusUse> bus_;
};

}  // namespace

}  // namespace weft
