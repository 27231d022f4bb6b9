// What all parts of the timing model share: time, queues, instructions, loop nests.
//
// The model repeats the control of hw/*.py cycle for cycle and leaves out all data. Each part is evaluated only in the
// cycles in which something can happen to it (its wake), and what does not stall is worked out ahead.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "timing_interface.h"  // structs, enumerations and constants, written by sim/timing_interface.py

namespace weft {

using Cycle = int64_t;
constexpr Cycle kNever = INT64_MAX / 2;
using Core = WeftTimingCore;

struct Level {
    uint32_t extent = 1, dst = 0, a = 0, b = 0;
};

struct Instruction {
    Opcode opcode = kOpFinish;
    uint8_t engine = 0, wait = 0, send = 0;
    // One of these, as the opcode says.
    struct {
        uint32_t level = 0;
        Level values;
    } loop;
    struct {
        uint32_t scratchpad = 0, index = 0, rows = 0, columns = 0, stride = 0, top = 0, bottom = 0, left = 0, right = 0;
        bool records = false;  // of 4-bit weights
        uint64_t offset = 0;
    } transfer;
    struct {
        uint32_t levels = 0, dst = 0, a = 0, b = 0;
        bool zero = false, b_immediate = false, depthwise = false;
        uint8_t op = 0;
        VectorTarget target = kTargetAcc;
        uint32_t column_pitch = 0;
    } work;
};

inline unsigned power_of_two(int64_t least) {
    unsigned size = 1;
    while (size < least) size <<= 1;
    return size;
}

// Amaranth's SyncFIFOBuffered: an item can be read two cycles after it was written. Whoever asks sees the state at the
// start of the cycle, whatever has been done in it already.
template <typename T>
class Fifo {
  public:
    explicit Fifo(unsigned depth) : depth_(depth), mask_(power_of_two(depth + 1) - 1), items_(mask_ + 1) {}
    unsigned count_at(Cycle now) const { return count_ - (last_push_ == now) + (last_pop_ == now); }
    bool can_push(Cycle now) const {
        if (depth_ == 1) return count_at(now) == 0;
        const bool shown = last_pop_ == now || visible_ <= now;
        return count_at(now) - shown != depth_ - 1;
    }
    bool can_pop(Cycle now) const { return visible_ <= now; }
    // First cycle in which the oldest item can be read, as far as that is known.
    Cycle visible() const { return visible_; }
    // When to try again after a refused push: after the next pop, which is somebody's business to tell, or earlier.
    Cycle push_again(Cycle now) const { return depth_ > 1 && visible_ > now ? visible_ : kNever; }
    bool empty() const { return count_ == 0; }
    void push(Cycle now, const T& value) {
        items_[(head_ + count_) & mask_] = {value, now};
        if (!count_) visible_ = std::max(now + latency(), last_pop_ + 1);
        ++count_;
        last_push_ = now;
    }
    const T& front() const { return items_[head_].value; }
    // True if an item can be read in each cycle from the next on, provided that one was pushed and one popped in this
    // cycle, and that this goes on.
    bool streams(Cycle now) const { return last_push_ == now && last_pop_ == now && count_ >= latency(); }
    // Items without a value are pushed and popped, one of each in each cycle from the next on. Their dates do not matter.
    void stream(Cycle now, Cycle items) {
        head_ = (head_ + unsigned(items)) & mask_;
        last_push_ = last_pop_ = now + items;
        visible_ = now + items + 1;
    }
    T pop(Cycle now) {
        const T value = items_[head_].value;
        head_ = (head_ + 1) & mask_;
        --count_;
        last_pop_ = now;
        visible_ = count_ ? std::max(items_[head_].pushed + latency(), now + 1) : kNever;
        return value;
    }

  private:
    struct Item {
        T value;
        Cycle pushed;
    };
    Cycle latency() const { return depth_ == 1 ? 1 : 2; }

    unsigned depth_, mask_, head_ = 0, count_ = 0;
    Cycle last_push_ = -1, last_pop_ = -1, visible_ = kNever;
    std::vector<Item> items_;
};

// First in, first out, without a time of its own; grows as needed.
template <typename T>
class Ring {
  public:
    Ring() : items_(16), mask_(15) {}
    bool empty() const { return head_ == tail_; }
    size_t size() const { return tail_ - head_; }
    T& operator[](size_t place) { return items_[(head_ + place) & mask_]; }
    const T& operator[](size_t place) const { return items_[(head_ + place) & mask_]; }
    const T& front() const { return items_[head_ & mask_]; }
    T& front() { return items_[head_ & mask_]; }
    void push(const T& value) {
        if (size() > mask_) grow();
        items_[tail_++ & mask_] = value;
    }
    void pop() { ++head_; }

  private:
    void grow() {
        std::vector<T> larger(items_.size() * 2);
        const size_t count = size();
        for (size_t i = 0; i < count; ++i) larger[i] = (*this)[i];
        items_.swap(larger);
        mask_ = items_.size() - 1;
        head_ = 0;
        tail_ = count;
    }
    std::vector<T> items_;
    size_t head_ = 0, tail_ = 0, mask_;
};

// A number of which the registered copy of a comparison lags one cycle.
class Lagging {
  public:
    int64_t value() const { return value_; }
    // The value at the start of the cycle before `now`; `set` is called last in a cycle.
    int64_t before(Cycle now) const { return now > changed_ ? value_ : old_; }
    void set(Cycle now, int64_t value) {
        if (value == value_) return;
        old_ = value_;
        value_ = value;
        changed_ = now + 1;
    }
    bool settles_after(Cycle now) const { return now <= changed_; }

  private:
    int64_t value_ = 0, old_ = 0;
    Cycle changed_ = -1;
};

// Micro-ops of one GEMM or VECTOR in order: three indices and their place in the reduction (hw/loops.py).
class Nest {
  public:
    struct Index {
        uint32_t dst = 0, a = 0, b = 0;
        void add(const Level& level, uint32_t times) {
            dst += times * level.dst;
            a += times * level.a;
            b += times * level.b;
        }
    };

    Nest() = default;
    Nest(const Level* levels, const Instruction& instruction) : used_(instruction.work.levels) {
        std::copy(levels, levels + used_, levels_);
        if (!used_) used_ = 1, levels_[0] = Level{};
        count_ = 1;
        for (unsigned i = 0; i < used_; ++i) count_ *= levels_[i].extent;
        start_ = {instruction.work.dst, instruction.work.a, instruction.work.b};
        seek(0);
    }
    uint64_t count() const { return count_; }
    const Level& inner() const { return levels_[0]; }
    uint64_t number() const { return number_; }
    const Index& index() const { return base_[0]; }
    bool first() const { return !turned_; }  // iteration 0 at every level with dst stride 0
    bool begin() const { return number_ == 0; }
    bool end() const { return number_ + 1 == count_; }

    void seek(uint64_t number) {
        number_ = number;
        uint64_t rest = number;
        for (unsigned i = 0; i < used_; ++i) {
            iteration_[i] = uint32_t(rest % levels_[i].extent);
            rest /= levels_[i].extent;
        }
        Index index = start_;
        turned_ = 0;
        for (unsigned i = used_; i-- > 0;) {
            index.add(levels_[i], iteration_[i]);
            base_[i] = index;
            turned_ += iteration_[i] != 0 && levels_[i].dst == 0;
        }
    }
    void step() {
        ++number_;
        unsigned i = 0;
        while (i < used_ && iteration_[i] + 1 == levels_[i].extent) {
            turned_ -= iteration_[i] != 0 && levels_[i].dst == 0;
            iteration_[i] = 0;
            ++i;
        }
        if (i == used_) return;
        turned_ += iteration_[i] == 0 && levels_[i].dst == 0;
        ++iteration_[i];
        base_[i].add(levels_[i], 1);
        while (i-- > 0) base_[i] = base_[i + 1];
    }

  private:
    unsigned used_ = 0, turned_ = 0;
    uint64_t count_ = 0, number_ = 0;
    Level levels_[kLevels];
    Index start_, base_[kLevels];
    uint32_t iteration_[kLevels] = {};
};

}  // namespace weft
