// A DRAM with banks, in clocks of its own: open page, in order, all banks refreshed together. The harness and the timing
// model both include this text, so that a burst is due in the same cycle in either.
//
// Time is counted from the first address that the DRAM takes in a run. A burst is timed when its address is taken, or of
// a write the last of its words.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace weft {

class Banks {
  public:
    // `logs`: the commands are kept.
    explicit Banks(const WeftBanks& timing, bool logs = false) : t_(timing), logs_(logs) { rest(); }

    // A run begins: all banks are closed.
    void rest() {
        begun_ = false;
        banks_.assign(size_t(t_.banks), Bank{});
        groups_.assign(size_t(t_.groups), Group{});
        taken_.assign(kSlots, -1);
        any_ = Group{};
        std::fill(activations_, activations_ + kActivations, kLongAgo);
        last_precharge_ = kLongAgo;
        next_refresh_ = t_.REFI;
        was_write_ = false;
        use_ = WeftDramUse{};
        commands_.clear();
    }

    // The cycle in which the first word of a read burst can come so that the others can follow in each cycle, or from
    // which on a write is answered.
    int64_t due(int64_t now, uint64_t address, uint32_t beats, uint32_t beat_bytes, bool write) {
        if (!begun_) begun_ = true, origin_ = now;
        const int64_t arrival = tick(now - origin_);
        const uint64_t bytes = uint64_t(t_.access_bytes), end = address + uint64_t(beats) * beat_bytes;
        int64_t due = 0;
        for (uint64_t at = address / bytes * bytes; at < end; at += bytes) {
            const int64_t beat = int64_t(at > address ? (at - address) / beat_bytes : 0);
            due = std::max(due, cycle(access(arrival, at, write)) - (write ? 0 : beat));
        }
        return origin_ + due + t_.front;
    }

    const WeftDramUse& use() const { return use_; }
    const std::vector<WeftDramCommand>& commands() const { return commands_; }

  private:
    static constexpr int64_t kLongAgo = -(int64_t(1) << 40);
    static constexpr int64_t kAhead = 128;  // clocks by which a bank is opened before the column before it at most
    static constexpr size_t kSlots = 4096;
    static constexpr int kActivations = 4;

    struct Bank {
        int64_t row = -1;
        int64_t opens = 0, columns = 0, closes = 0;  // first tick of an activation, a column command, a precharge
    };
    // The last commands to any bank of a group, or of all.
    struct Group {
        int64_t activation = kLongAgo, column = kLongAgo, read = kLongAgo, write = kLongAgo;
    };

    int64_t tick(int64_t cycle) const { return cycle * t_.ticks / t_.cycles; }
    int64_t cycle(int64_t tick) const { return (tick * t_.cycles + t_.ticks - 1) / t_.ticks; }

    // The first tick from `from` on in which the command bus is free for this long; it is taken.
    int64_t slot(int64_t from, int64_t length) {
        for (int64_t at = from; at < from + length; ++at) {
            if (taken_[size_t(at) % kSlots] == at) from = at + 1;
        }
        for (int64_t at = from; at < from + length; ++at) taken_[size_t(at) % kSlots] = at;
        return from;
    }

    void log(int64_t tick, WeftDramCommandKind kind, uint32_t bank, int64_t row, uint64_t column) {
        if (logs_) commands_.push_back({uint64_t(tick), uint64_t(row), uint32_t(kind), bank, uint32_t(column), 0});
    }

    // All refreshes that are due by this tick.
    void refresh(int64_t until) {
        while (until >= next_refresh_) {
            int64_t start = next_refresh_;
            bool open = false;
            for (const Bank& bank : banks_) {
                start = std::max(start, bank.row >= 0 ? bank.closes : bank.opens);
                open |= bank.row >= 0;
            }
            if (open) {
                start = slot(std::max(start, last_precharge_ + t_.PPD), t_.precharge_slots);
                log(start, kDramPrechargeAll, 0, 0, 0);
                last_precharge_ = start;
                start += t_.RPA;
            }
            log(start, kDramRefresh, 0, 0, 0);
            for (Bank& bank : banks_) bank.row = -1, bank.opens = start + t_.RFC;
            next_refresh_ += t_.REFI;
            ++use_.refreshes;
        }
    }

    // One access, a column command of a bank; the tick in which its last data are over.
    int64_t access(int64_t arrival, uint64_t address, bool write) {
        arrival = std::max(arrival, any_.column - kAhead);
        refresh(std::max(arrival, any_.column + t_.CCD_S));
        const uint64_t line = address / uint64_t(t_.row_bytes);
        const uint32_t number = uint32_t(line % uint64_t(t_.banks));
        const int64_t row = int64_t(line / uint64_t(t_.banks));
        const uint64_t column = address % uint64_t(t_.row_bytes) / uint64_t(t_.access_bytes);
        Bank& bank = banks_[number];
        Group& group = groups_[number % size_t(t_.groups)];
        if (bank.row != row) {
            if (bank.row >= 0) {
                const int64_t close = slot(std::max({arrival, bank.closes, last_precharge_ + t_.PPD}), t_.precharge_slots);
                log(close, kDramPrecharge, number, 0, 0);
                last_precharge_ = close;
                bank.opens = close + t_.RP;
                ++use_.conflicts;
            } else {
                ++use_.misses;
            }
            const int64_t open = slot(std::max({arrival, bank.opens, any_.activation + t_.RRD_S, group.activation + t_.RRD_L,
                                                activations_[kActivations - 1] + t_.FAW}),
                                      t_.activate_slots);
            log(open, kDramActivate, number, row, 0);
            std::copy_backward(activations_, activations_ + kActivations - 1, activations_ + kActivations);
            activations_[0] = any_.activation = group.activation = open;
            bank.row = row;
            bank.columns = open + t_.RCD;
            bank.closes = open + t_.RAS;
        } else {
            ++use_.hits;
        }
        int64_t at = std::max({arrival, bank.columns, any_.column + t_.CCD_S, group.column + t_.CCD_L});
        if (write) {
            at = std::max(at, any_.read + t_.RTW);
        } else {
            const int64_t written = t_.CWL + t_.access_ticks;
            at = std::max({at, any_.write + written + t_.WTR_S, group.write + written + t_.WTR_L});
        }
        at = slot(at, t_.column_slots);
        log(at, write ? kDramWrite : kDramRead, number, row, column);
        use_.turns += write != was_write_;
        was_write_ = write;
        any_.column = group.column = at;
        (write ? any_.write : any_.read) = (write ? group.write : group.read) = at;
        const int64_t over = at + (write ? t_.CWL : t_.CL) + t_.access_ticks;
        bank.closes = std::max(bank.closes, write ? over + t_.WR : at + t_.RTP);
        use_.busy_ticks += t_.access_ticks;
        return over;
    }

    const WeftBanks t_;
    const bool logs_;
    bool begun_ = false, was_write_ = false;
    int64_t origin_ = 0, next_refresh_ = 0, last_precharge_ = 0;
    int64_t activations_[kActivations];  // the last ones, newest first
    std::vector<Bank> banks_;
    std::vector<Group> groups_;
    Group any_;
    std::vector<int64_t> taken_;  // ticks in which the command bus is in use, by their place in the ring
    WeftDramUse use_{};
    std::vector<WeftDramCommand> commands_;
};

}  // namespace weft
