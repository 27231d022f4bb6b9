// In place of what sim/build.py writes: a scripted core has no scratchpads and no trace.

#pragma once

#include "bus.h"  // the memory port, written by tests/sim/scripted.py

constexpr unsigned kCoresRunning = 0;  // it is no system whose cores start each other
static inline uint32_t weft_running(const Vcore&) { return 0; }
static inline uint32_t weft_interrupts(const Vcore& core) { return core.__SYM__interrupt; }

struct WeftTraceSample {
    bool started, retired;
    uint32_t started_number, retired_number, kind;
};
static inline void weft_sample_trace(const Vcore&, WeftTraceSample*) {}
static inline void* weft_find_memory(Vcore___024root&, uint32_t, uint32_t) { return nullptr; }
