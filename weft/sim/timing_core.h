// One core in the timing model: instructions as the engines take them, and the engines, queues and bus masters together.

#pragma once

#include "timing_transfer.h"

namespace weft {

namespace {

uint64_t bits(const uint8_t* word, int position, int width) {
    uint64_t value = 0;
    for (int done = 0; done < width;) {
        const int at = position + done, take = std::min(8 - at % 8, width - done);
        value |= uint64_t(word[at / 8] >> at % 8 & ((1 << take) - 1)) << done;
        done += take;
    }
    return value;
}

// Loop levels and extents that the core refuses; all else that is wrong gives wrong cycles at worst.
bool is_legal(const Instruction& instruction) {
    if (instruction.opcode == kOpLoop) return instruction.loop.level < kLevels && instruction.loop.values.extent;
    return instruction.work.levels <= kLevels;
}

Instruction decode(const Core& core, const uint8_t* word) {
    Instruction instruction;
    const auto field = [&](Field name) {
        const int32_t* f = core.fields[instruction.opcode][name];
        const uint64_t value = bits(word, f[0], f[1]);
        return f[2] && value >> (f[1] - 1) ? value | ~uint64_t(0) << f[1] : value;
    };
    const auto number = [&](Field name) { return uint32_t(field(name)); };
    instruction.opcode = Opcode(field(kFieldOpcode));  // at the same place in all instructions
    instruction.engine = uint8_t(field(kFieldEngine));
    instruction.wait = uint8_t(field(kFieldWait));
    instruction.send = uint8_t(field(kFieldSend));
    switch (instruction.opcode) {
        case kOpLoop:
            instruction.loop.level = number(kFieldLevel);
            instruction.loop.values = {number(kFieldExtent), number(kFieldDstStride), number(kFieldAStride),
                                       number(kFieldBStride)};
            break;
        case kOpLoad:
        case kOpStore: {
            auto& t = instruction.transfer;
            t.index = number(kFieldIndex);
            t.offset = field(kFieldOffset);
            t.rows = number(kFieldRows);
            t.columns = number(kFieldColumns);
            t.stride = number(kFieldStride);
            if (instruction.opcode == kOpStore) break;
            t.scratchpad = number(kFieldScratchpad);
            t.top = number(kFieldPadTop);
            t.bottom = number(kFieldPadBottom);
            t.left = number(kFieldPadLeft);
            t.right = number(kFieldPadRight);
            t.records = core.record_entries && t.scratchpad == kPadWgt && number(kFieldPadValue) == kFourBits;
            break;
        }
        case kOpGemm:
        case kOpVector: {
            const bool gemm = instruction.opcode == kOpGemm;
            auto& w = instruction.work;
            w.levels = number(kFieldLevels);
            w.zero = field(kFieldZero);
            w.dst = number(kFieldDst);
            w.a = number(gemm ? kFieldSrc : kFieldA);
            w.b = number(gemm ? kFieldWgt : kFieldB);
            if (gemm) {
                w.depthwise = field(kFieldDepthwise);  // 0 on cores without the field
                w.column_pitch = number(kFieldColumnPitch);
                break;
            }
            w.op = uint8_t(field(kFieldOp));
            w.target = VectorTarget(field(kFieldTarget));
            w.b_immediate = field(kFieldBImmediate);
            break;
        }
        default:
            break;
    }
    return instruction;
}

// False if an instruction is illegal.
bool decode_program(const Core& core, const uint8_t* code, uint64_t count, std::vector<Instruction>& program) {
    program.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
        program.push_back(decode(core, code + i * core.instruction_bytes));
        if (!is_legal(program.back())) return false;
    }
    return true;
}

// One core with all but the memory behind its port.
class CoreModel {
  public:
    CoreModel(const Core& core, const std::vector<Instruction>& program, uint32_t offset, bool trace)
        : shared_(core, program),
          read_(core),
          write_(core),
          gemm_(shared_),
          vector_(shared_, gemm_),
          load_(shared_, gemm_, kLoad),
          loadw_(shared_, gemm_, kLoadw),
          store_(shared_, write_),
          controls_{{shared_, kLoad}, {shared_, kLoadw}, {shared_, kGemm}, {shared_, kVector}, {shared_, kStore}},
          queues_{&controls_[0], &controls_[1], &controls_[2], &controls_[3], &controls_[4]},
          fetch_(shared_, queues_, offset, uint32_t(offset + program.size() * core.instruction_bytes - 1)) {
        shared_.trace = trace;
        read_.connect(kClientLoad, load_.client, kFirstEngine + kLoad);
        read_.connect(kClientLoadw, loadw_.client, kFirstEngine + kLoadw);
        read_.connect(kClientFetch, fetch_.client, kFetch);
        write_.cutter = &store_.cutter;
        for (unsigned engine = 0; engine < kEngines; ++engine) shared_.wakes.wake(kFirstEngine + engine, 0);
    }

    // What happens at the start of a cycle. True once the program has ended, with its `result`; then nothing follows.
    bool begin(Cycle now, WeftTimingResult& result) {
        if (fetch_.finishing() == now) {
            shared_.finished = true;
            for (unsigned engine = 0; engine < kEngines; ++engine) shared_.wakes.wake(kFirstEngine + engine, now);
        }
        if (drained_ < now && !read_.outstanding && read_.word_at != now && !write_.outstanding) {
            finish(now, result);
            return true;
        }
        if (drained_ == kNever && shared_.finished && all_idle(now)) drained_ = now;
        return false;
    }
    // The next cycle has to be looked at, whatever the wakes say.
    bool ends(Cycle now) const { return drained_ != kNever || fetch_.finishing() == now + 1; }

    // The rest of the cycle; `port` has been evaluated if it was due.
    void step(Cycle now, const Port& port) {
        Wakes& wakes = shared_.wakes;
        if (wakes.due(kReadMaster, now)) read_.step(now, wakes, port);
        if (wakes.due(kWriteMaster, now)) write_.step(now, wakes, port);
        if (wakes.due(kFetch, now)) fetch_.step(now);
        // In the order of priority at the ports of acc.
        if (wakes.due(kFirstEngine + kGemm, now)) {
            if (auto* instruction = control(now, kGemm, gemm_.step(now))) gemm_.begin(now, *instruction);
            gemm_.wake(now);
        }
        if (wakes.due(kFirstEngine + kVector, now)) {
            if (auto* instruction = control(now, kVector, vector_.step(now))) vector_.begin(*instruction);
            vector_.wake(now);
        }
        if (wakes.due(kFirstEngine + kLoad, now)) {
            if (auto* instruction = control(now, kLoad, load_.step(now))) load_.begin(now, *instruction);
            load_.wake(now);
        }
        if (wakes.due(kFirstEngine + kLoadw, now)) {
            if (auto* instruction = control(now, kLoadw, loadw_.step(now))) loadw_.begin(now, *instruction);
            loadw_.wake(now);
        }
        if (wakes.due(kFirstEngine + kStore, now)) {
            if (auto* instruction = control(now, kStore, store_.step(now))) store_.begin(now, *instruction);
            store_.wake(now);
        }
        shared_.tokens.commit(now, wakes);
    }

    // Where words go straight from DRAM to a scratchpad and nothing else happens, the next cycles are worked out
    // together: how many, of at most `most` in which a word for client `id` comes.
    Cycle streams(Cycle now, unsigned id, Cycle most) const {
        if (most <= 0 || id == kClientFetch) return 0;
        const unsigned engine = id == kClientLoad ? kLoad : kLoadw;
        if (!controls_[engine].streams(now)) return 0;
        most = std::min(most, shared_.wakes.next_without(kFirstEngine + engine) - (now + 1));
        return std::min({most, read_.streams(id), (engine == kLoad ? load_ : loadw_).streams(now)});
    }
    void stream(Cycle now, unsigned id, Cycle cycles) {
        const unsigned engine = id == kClientLoad ? kLoad : kLoadw;
        read_.stream(cycles);
        (engine == kLoad ? load_ : loadw_).stream(now, cycles);
        shared_.wakes.stream_to(now + 1 + cycles, kFirstEngine + engine);
    }

    Wakes& wakes() { return shared_.wakes; }
    const ReadMaster& reads() const { return read_; }
    const WriteMaster& writes() const { return write_; }
    const std::vector<WeftEvent>& events() const { return shared_.events; }
    const std::vector<WeftActivity>& activity() const { return shared_.activity; }

  private:
    bool all_idle(Cycle now) const {
        for (const Control& control : controls_) {
            if (!control.idle(now)) return false;
        }
        return true;
    }

    const Instruction* control(Cycle now, unsigned engine, const Work& work) {
        return controls_[engine].step(now, work);
    }

    void finish(Cycle now, WeftTimingResult& result) {
        result.cycles = now + 1;
        result.read_beats = read_.all_beats;
        result.write_beats = write_.all_beats;
        for (unsigned engine = 0; engine < kEngines; ++engine) {
            controls_[engine].close(now);
            std::copy_n(controls_[engine].counters, unsigned(kClasses), result.counters[engine]);
        }
    }

    Shared shared_;
    ReadMaster read_;
    WriteMaster write_;
    Gemm gemm_;
    Vector vector_;
    Load load_, loadw_;
    Store store_;
    Control controls_[kEngines];
    Control* queues_[kEngines];
    Fetch fetch_;
    Cycle drained_ = kNever;
};

}  // namespace

}  // namespace weft
