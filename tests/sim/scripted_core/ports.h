// In place of what sim/build.py writes: a scripted core has no scratchpads and no trace.

#pragma once

constexpr unsigned kBurstBeats = 64;

struct WeftTraceSample {
    bool started, retired;
    uint32_t started_number, retired_number, kind;
};
static inline void weft_sample_trace(const Vcore&, WeftTraceSample*) {}
static inline void* weft_find_memory(Vcore___024root&, uint32_t, uint32_t) { return nullptr; }
