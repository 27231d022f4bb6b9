// The functional simulator in C++: executes an encoded program to the bit, without time, as sim/fsim.py does.
//
// Programs are legal: whoever calls has decoded them (hw/decode.py). Faults that depend on memories and tokens are found.

#include <cmath>
#include <cstring>
#include <vector>

#include "functional_interface.h"  // written by sim/functional_interface.py
#include "timing.h"

namespace weft {

namespace {

using FunctionalCore = WeftFunctionalCore;

constexpr uint32_t bit(unsigned engine) { return uint32_t(1) << engine; }

int64_t signed_low(int64_t value, unsigned bits) { return int64_t(uint64_t(value) << (64 - bits)) >> (64 - bits); }

// One encoded instruction.
class Word {
  public:
    Word(const FunctionalCore& core, const uint8_t* bytes)
        : core_(&core), bytes_(bytes), opcode_(Opcode(read(core.fields[kOpFinish][kFieldOpcode]))) {}
    Opcode opcode() const { return opcode_; }
    // A field; 0 where the core's instruction has none.
    int64_t field(Field which) const { return read(core_->fields[opcode_][which]); }

  private:
    int64_t read(const int32_t* place) const {
        uint64_t value = 0;
        for (int32_t i = 0; i < place[1]; ++i) {
            const int32_t at = place[0] + i;
            value |= uint64_t(bytes_[at >> 3] >> (at & 7) & 1) << i;
        }
        return place[2] ? signed_low(int64_t(value), unsigned(place[1])) : int64_t(value);
    }

    const FunctionalCore* core_;
    const uint8_t* bytes_;
    Opcode opcode_;
};

struct Stop {
    Fault fault = kFaultNone;
    int64_t engine = 0, number = 0;
};

// A LOAD or STORE in bytes and entries, from the window's base.
struct Transfer {
    unsigned memory;
    int64_t index, entries, entry_bytes, start, rows, row_bytes, stride_bytes;
    int64_t bytes() const { return rows * row_bytes; }
    int64_t end() const { return start + (rows - 1) * stride_bytes + row_bytes; }
};

class Functional {
  public:
    Functional(const FunctionalCore& core, uint8_t* window, int64_t bytes)
        : core_(core), window_(window), window_bytes_(bytes) {
        for (unsigned memory = 0; memory < kMemories; ++memory) {
            const size_t elements = size_t(core.depth[memory] * core.elements[memory]);
            if (memory == kMemoryAcc) acc_.resize(elements);
            else narrow_[memory].resize(elements);
        }
    }

    void* scratchpad(unsigned memory) {
        return memory == kMemoryAcc ? static_cast<void*>(acc_.data()) : static_cast<void*>(narrow_[memory].data());
    }

    void run(int64_t offset, int64_t count, WeftFunctionalResult& result) {
        run_ = Run();
        run_.offset = offset;
        run_.count = count;
        if (offset % kProgramAlignment) fail(kFaultAlignment, kFetchUnit, 0);
        else if (offset + count * core_.instruction_bytes > window_bytes_) fail(kFaultWindow, kFetchUnit, 0);
        bool progress = true;
        while (progress && !stopped()) {
            progress = fetch();
            for (unsigned engine = 0; engine < kEngines; ++engine)
                while (!stopped() && step(engine)) progress = true;
        }
        if (!stopped()) find_deadlock();
        result = {int64_t(run_.stop.fault), run_.stop.engine, run_.stop.number, run_.bytes_read, run_.bytes_written};
    }

  private:
    struct Sending {
        int64_t number;
        uint32_t targets;
    };
    struct Run {
        int64_t offset = 0, count = 0, fetched = 0, bytes_read = 0, bytes_written = 0;
        bool finished = false;
        Stop stop;
        Ring<int64_t> queues[kEngines];  // numbers of instructions
        Ring<Sending> sending[kEngines];
        int64_t tokens[kEngines][kEngines] = {};  // from, to
        Level loops[kEngines][kLevels];
    };

    bool stopped() const { return run_.stop.fault != kFaultNone; }
    void fail(Fault fault, int64_t engine, int64_t number) { run_.stop = {fault, engine, number}; }

    Word word(int64_t number) const {
        return Word(core_, window_ + run_.offset + number * core_.instruction_bytes);
    }

    // Fetch: moves instructions into queues until one is full.
    bool fetch() {
        bool progress = false;
        while (!run_.finished && !stopped()) {
            if (run_.fetched == run_.count) {
                fail(kFaultNoFinish, kFetchUnit, run_.count);
                break;
            }
            const Word next = word(run_.fetched);
            if (next.opcode() == kOpFinish) {
                run_.finished = true;
            } else {
                auto& queue = run_.queues[next.field(kFieldEngine)];
                if (int64_t(queue.size()) == core_.queue_depth) break;
                queue.push(run_.fetched);
            }
            ++run_.fetched;
            run_.bytes_read += core_.instruction_bytes;
            progress = true;
        }
        return progress;
    }

    uint32_t full(unsigned engine, uint32_t targets) const {
        uint32_t found = 0;
        for (unsigned target = 0; target < kEngines; ++target)
            if (targets & bit(target) && run_.tokens[engine][target] >= core_.token_depth) found |= bit(target);
        return found;
    }

    // Engines whose token the next instruction lacks.
    uint32_t missing(unsigned engine) const {
        if (run_.queues[engine].empty()) return 0;
        const uint32_t wait = uint32_t(word(run_.queues[engine].front()).field(kFieldWait));
        uint32_t found = 0;
        for (unsigned source = 0; source < kEngines; ++source)
            if (wait & bit(source) && !run_.tokens[source][engine]) found |= bit(source);
        return found;
    }

    // Sends what is pending, or executes the next instruction if its tokens are there.
    bool step(unsigned engine) {
        auto& sending = run_.sending[engine];
        if (!sending.empty() && !full(engine, sending.front().targets)) {
            for (unsigned target = 0; target < kEngines; ++target)
                if (sending.front().targets & bit(target)) ++run_.tokens[engine][target];
            sending.pop();
            return true;
        }
        if (run_.queues[engine].empty() || sending.size() == kMostSending || missing(engine)) return false;
        const int64_t number = run_.queues[engine].front();
        run_.queues[engine].pop();
        const Word instruction = word(number);
        const uint32_t wait = uint32_t(instruction.field(kFieldWait)), send = uint32_t(instruction.field(kFieldSend));
        for (unsigned source = 0; source < kEngines; ++source)
            if (wait & bit(source)) --run_.tokens[source][engine];
        const Fault fault = execute(engine, instruction);
        if (fault != kFaultNone) fail(fault, engine, number);
        if (send || !sending.empty()) sending.push({number, send});
        return true;
    }

    void find_deadlock() {
        bool found = false;
        for (unsigned engine = 0; engine < kEngines; ++engine) {
            if (missing(engine)) return fail(kFaultWatchdog, engine, run_.queues[engine].front());
            if (!found && !run_.sending[engine].empty()) {
                fail(kFaultWatchdog, engine, run_.sending[engine].front().number);
                found = true;
            }
        }
    }

    Fault execute(unsigned engine, const Word& word) {
        switch (word.opcode()) {
            case kOpLoop:
                run_.loops[engine][word.field(kFieldLevel)] = {
                    uint32_t(word.field(kFieldExtent)), uint32_t(word.field(kFieldDstStride)),
                    uint32_t(word.field(kFieldAStride)), uint32_t(word.field(kFieldBStride))};
                return kFaultNone;
            case kOpLoad:
                return load(word);
            case kOpStore:
                return store(word);
            case kOpGemm:
                return gemm(word);
            case kOpVector:
                return vector(word);
            default:
                return kFaultNone;
        }
    }

    Transfer transfer_of(const Word& word, unsigned memory, int64_t entry_bytes, int64_t entries) const {
        const int64_t columns = word.field(kFieldColumns), rows = word.field(kFieldRows);
        return {memory, word.field(kFieldIndex), entries, entry_bytes, word.field(kFieldOffset) * core_.granule_bytes,
                columns ? rows : 0, columns * entry_bytes, word.field(kFieldStride) * entry_bytes};
    }

    Fault problem(const Transfer& transfer) const {
        if (transfer.index + transfer.entries > core_.depth[transfer.memory]) return kFaultIndex;
        if (!transfer.bytes()) return kFaultNone;
        const int64_t divides = transfer.entry_bytes & -transfer.entry_bytes;
        if (transfer.start % std::min(divides, core_.bus_bytes)) return kFaultAlignment;
        return transfer.end() > window_bytes_ ? kFaultWindow : kFaultNone;
    }

    Fault load(const Word& word) {
        const unsigned scratchpad = unsigned(word.field(kFieldScratchpad)), memory = kOfScratchpad[scratchpad];
        const int64_t left = word.field(kFieldPadLeft), right = word.field(kFieldPadRight);
        const int64_t top = word.field(kFieldPadTop), bottom = word.field(kFieldPadBottom);
        const int64_t pad = word.field(kFieldPadValue);
        const bool records = core_.weight_group && scratchpad == kPadWgt && pad == kFourBits;
        const int64_t columns = word.field(kFieldColumns), rows = word.field(kFieldRows);
        const int64_t wide = left + columns + right;
        const int64_t entries = (top + rows + bottom) * wide * (records ? core_.record_entries : 1);
        const int64_t each = records ? core_.record_bytes : core_.dram_bytes[scratchpad];
        const Transfer transfer = transfer_of(word, memory, each, entries);
        if (const Fault fault = problem(transfer)) return fault;
        if (records) {
            int64_t entry = transfer.index;
            for (int64_t row = 0; row < transfer.rows; ++row)
                for (int64_t column = 0; column < columns; ++column, entry += core_.record_entries)
                    unpack(window_ + transfer.start + row * transfer.stride_bytes + column * each, entry);
        } else {
            int64_t entry = transfer.index;
            for (int64_t row = 0; row < top + rows + bottom; ++row)
                for (int64_t column = 0; column < wide; ++column, ++entry) {
                    const int64_t y = row - top, x = column - left;
                    const bool inside = y >= 0 && y < rows && x >= 0 && x < columns;
                    const uint8_t* source =
                        inside ? window_ + transfer.start + y * transfer.stride_bytes + x * each : nullptr;
                    fill(memory, entry, source, each, pad);
                }
        }
        run_.bytes_read += transfer.bytes();
        return kFaultNone;
    }

    // An entry from DRAM, its elements widened to those of the memory; or padding.
    void fill(unsigned memory, int64_t entry, const uint8_t* source, int64_t bytes, int64_t pad) {
        const int64_t elements = core_.elements[memory];
        const int64_t size = bytes / elements;
        for (int64_t i = 0; i < elements; ++i) {
            int32_t value = int32_t(pad);
            if (source && size == 1) value = int8_t(source[i]);
            else if (source) std::memcpy(&value, source + i * size, sizeof value);
            if (memory == kMemoryAcc) acc_[entry * elements + i] = value;
            else narrow_[memory][entry * elements + i] = int8_t(value);
        }
    }

    // Weights of 4 bits: the head has a scale and a zero point for each output, then come two codes in a byte.
    void unpack(const uint8_t* record, int64_t entry) {
        const int64_t pairs = core_.block_in / 2;
        const uint8_t* codes = record + core_.record_head_bytes;
        for (int64_t e = 0; e < core_.record_entries; ++e)
            for (int64_t o = 0; o < core_.block_out; ++o) {
                const int scale = record[o] & 15, zero = record[o] >> 4;
                int8_t* weights = &narrow_[kMemoryWgt][((entry + e) * core_.block_out + o) * core_.block_in];
                for (int64_t i = 0; i < core_.block_in; ++i) {
                    const uint8_t byte = codes[(e * core_.block_out + o) * pairs + i / 2];
                    weights[i] = int8_t(((i & 1 ? byte >> 4 : byte & 15) - zero) * scale);
                }
            }
    }

    Fault store(const Word& word) {
        const int64_t entries = word.field(kFieldRows) * word.field(kFieldColumns);
        const Transfer transfer = transfer_of(word, kMemoryOut, core_.elements[kMemoryOut], entries);
        if (const Fault fault = problem(transfer)) return fault;
        const int8_t* source = narrow_[kMemoryOut].data() + transfer.index * transfer.entry_bytes;
        for (int64_t row = 0; row < transfer.rows; ++row)  // in order: rows may overlap
            std::memcpy(window_ + transfer.start + row * transfer.stride_bytes, source + row * transfer.row_bytes,
                        size_t(transfer.row_bytes));
        run_.bytes_written += transfer.bytes();
        return kFaultNone;
    }

    Nest nest_of(const Word& word, unsigned engine, int64_t a, int64_t b) const {
        Instruction instruction;
        instruction.work.levels = uint32_t(word.field(kFieldLevels));
        instruction.work.dst = uint32_t(word.field(kFieldDst));
        instruction.work.a = uint32_t(a);
        instruction.work.b = uint32_t(b);
        return Nest(run_.loops[engine], instruction);
    }

    Fault gemm(const Word& word) {
        const bool zero = word.field(kFieldZero), taps = word.field(kFieldDepthwise);
        const int64_t row_pitch = word.field(kFieldRowPitch), column_pitch = word.field(kFieldColumnPitch);
        const int64_t reach = taps ? (kTapRows - 1) * row_pitch + (kTapColumns - 1) * column_pitch : 0;
        Nest nest = nest_of(word, kGemm, word.field(kFieldSrc), word.field(kFieldWgt));
        for (uint64_t left = nest.count(); left--; nest.step()) {
            const Nest::Index at = nest.index();
            if (at.dst >= core_.depth[kMemoryAcc] || at.a + reach >= core_.depth[kMemoryInp] ||
                at.b >= core_.depth[kMemoryWgt])
                return kFaultIndex;
            int32_t* sums = &acc_[at.dst * core_.elements[kMemoryAcc]];
            if (zero && nest.first()) std::fill(sums, sums + core_.elements[kMemoryAcc], 0);
            const int8_t* weights = &narrow_[kMemoryWgt][at.b * core_.elements[kMemoryWgt]];
            if (taps) add_taps(sums, at.a, weights, row_pitch, column_pitch);
            else add_product(sums, &narrow_[kMemoryInp][at.a * core_.elements[kMemoryInp]], weights);
        }
        return kFaultNone;
    }

    // Channel c of item n stands at this place of an entry.
    int64_t lane(int64_t n, int64_t c) const {
        const int64_t block = core_.sub_block;
        return (c / block * core_.batch + n) * block + c % block;
    }

    void add_product(int32_t* sums, const int8_t* inputs, const int8_t* weights) const {
        for (int64_t n = 0; n < core_.batch; ++n)
            for (int64_t o = 0; o < core_.block_out; ++o) {
                int32_t sum = 0;
                for (int64_t block = 0; block < core_.block_in; block += core_.sub_block) {
                    const int8_t* values = inputs + lane(n, block);
                    const int8_t* factors = weights + o * core_.block_in + block;
                    for (int64_t i = 0; i < core_.sub_block; ++i) sum += int32_t(values[i]) * factors[i];
                }
                int32_t& total = sums[lane(n, o)];
                total = int32_t(uint32_t(total) + uint32_t(sum));
            }
    }

    void add_taps(int32_t* sums, int64_t src, const int8_t* weights, int64_t row_pitch, int64_t column_pitch) const {
        for (int64_t i = 0; i < core_.block_in; ++i) {
            int32_t sum = 0;
            for (int64_t row = 0; row < kTapRows; ++row)
                for (int64_t column = 0; column < kTapColumns; ++column) {
                    const int64_t entry = src + row * row_pitch + column * column_pitch;
                    sum += int32_t(narrow_[kMemoryInp][entry * core_.elements[kMemoryInp] + i]) *
                           weights[(kTapRowOutputs * row + column) * core_.block_in + i];
                }
            sums[i] = int32_t(uint32_t(sums[i]) + uint32_t(sum));
        }
    }

    Fault vector(const Word& word) {
        const auto op = VectorOp(word.field(kFieldOp));
        const bool zero = word.field(kFieldZero), immediate = word.field(kFieldBImmediate);
        const unsigned target = kOfTarget[word.field(kFieldTarget)];
        const int64_t b = word.field(kFieldB), lanes = core_.elements[kMemoryAcc];
        const int64_t b_entries = immediate ? 0 : kBEntries[op], table = word.field(kFieldTable);
        const int64_t point = word.field(kFieldZeroPoint), low = word.field(kFieldLow), high = word.field(kFieldHigh);
        const int64_t left_shift = word.field(kFieldLeftShift);
        const int64_t rounding = word.field(kFieldRounding) ? core_.rounding : int64_t(kRoundingHalfUp);
        Nest nest = nest_of(word, kVector, word.field(kFieldA), immediate ? 0 : b);
        for (uint64_t left = nest.count(); left--; nest.step()) {
            const Nest::Index at = nest.index();
            if (at.dst >= core_.depth[target] || at.a >= core_.depth[kMemoryAcc]) return kFaultIndex;
            if (b_entries && int32_t(at.b) < 0) return kFaultIndex;
            if (b_entries && at.b + b_entries > core_.depth[kMemoryAcc]) return kFaultIndex;
            for (int64_t i = 0; i < lanes; ++i) {
                const int64_t first = acc_[at.a * lanes + i];
                const int64_t second = immediate ? b : b_entries ? acc_[at.b * lanes + i] : 0;
                if (kAccumulates[op]) {
                    int32_t& total = acc_[at.dst * lanes + i];
                    const int32_t old = zero && nest.first() ? kIdentities[op] : total;
                    total = accumulated(op, old, first, second);
                    continue;
                }
                int64_t value;
                if (op == kOpRequantise) {
                    const int32_t biased = int32_t(first + second);
                    const int64_t factor = signed_low(acc_[(at.b + 1) * lanes + i], core_.multiplier_bits);
                    const int64_t shift = acc_[(at.b + 2) * lanes + i] & 63;
                    const int64_t product = biased * factor;
                    const int64_t rounded = rounding == kRoundingFloat32 ? in_float32(biased, factor, shift)
                                            : shift ? half_up(nudged(rounding, product, shift), shift)
                                                    : product;
                    value = int64_t(uint64_t(std::min(std::max(rounded + point, low), high)) << left_shift);
                } else {
                    value = computed(op, first, second);
                }
                if (table) value = narrow_[kMemoryTab][((table - 1) * kTableEntries + uint8_t(value)) * lanes + i];
                if (target == kMemoryAcc) acc_[at.dst * lanes + i] = int32_t(value);
                else narrow_[target][at.dst * lanes + i] = int8_t(value);
            }
        }
        return kFaultNone;
    }

    static int64_t half_up(int64_t value, int64_t shift) { return ((value >> (shift - 1)) + 1) >> 1; }

    // The biased sum and its product with the factor as float32 has them, then a whole number, halves to even.
    static int64_t in_float32(int32_t biased, int64_t factor, int64_t shift) {
        const float product = float(biased) * float(factor);
        return int64_t(std::nearbyint(double(product) / double(int64_t(1) << std::min<int64_t>(shift, 62))));
    }

    static int32_t accumulated(VectorOp op, int32_t old, int64_t first, int64_t second) {
        switch (op) {
            case kOpMac:
                return int32_t(old + first * signed_low(second, kImmediateBits));
            case kOpSum:
                return int32_t(old + first);
            case kOpMinAccumulate:
                return std::min(old, int32_t(first));
            default:
                return std::max(old, int32_t(first));
        }
    }

    static int64_t computed(VectorOp op, int64_t first, int64_t second) {
        switch (op) {
            case kOpAdd:
                return first + second;
            case kOpSub:
                return first - second;
            case kOpMul:
                return first * signed_low(second, kImmediateBits);
            case kOpMin:
                return std::min(first, second);
            case kOpMax:
                return std::max(first, second);
            default:  // SHR
                if (second >= 0) return first >> std::min<int64_t>(second, 31);
                return second < -31 ? 0 : int64_t(uint64_t(first) << -second);
        }
    }

    const FunctionalCore core_;
    uint8_t* window_;
    int64_t window_bytes_;
    std::vector<int8_t> narrow_[kMemories];
    std::vector<int32_t> acc_;
    Run run_;
};

}  // namespace

}  // namespace weft

extern "C" {

// A core with a window of memory that belongs to the caller; its scratchpads are zero.
void* weft_functional_create(const WeftFunctionalCore* core, uint8_t* window, int64_t bytes) {
    return new weft::Functional(*core, window, bytes);
}

void* weft_functional_scratchpad(void* machine, uint32_t memory) {
    return static_cast<weft::Functional*>(machine)->scratchpad(memory);
}

// Runs `count` instructions at byte `offset` of the window.
void weft_functional_run(void* machine, int64_t offset, int64_t count, WeftFunctionalResult* result) {
    static_cast<weft::Functional*>(machine)->run(offset, count, *result);
}

}  // extern "C"
