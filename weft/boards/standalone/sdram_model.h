// A chip of SDR SDRAM with 16 data bits and four banks, by the rules of JESD21-C (3.11.5) and of data sheets: what a
// controller may do when, in nanoseconds. It shares nothing with the controller but the chip's figures.

#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

struct SdramFigures {
    unsigned row_bits, column_bits, latency;
    double rcd, rp, ras, rc, rrd, rfc, wr, refresh, startup;  // ns
    double period;                                            // of the clock, ns
};

class SdramModel {
public:
    explicit SdramModel(const SdramFigures& figures) : f_(figures), rows_(kBanks << figures.row_bits) {}

    // One rising edge of the chip's clock, with what stands on its pins: `command` is ras_n, cas_n, we_n; `driven`, whether
    // the controller drives the data pins. Returns what the chip drives there for this edge, or -1 for nothing.
    int edge(unsigned command, unsigned bank, unsigned address, unsigned mask, bool driven, unsigned data) {
        ++edge_;
        masks_ = {mask, masks_[0], masks_[1]};
        now_ = double(edge_) * f_.period;
        take(command, bank, address);
        write(driven, data, mask);
        const int out = read(driven);
        if (ready_ && double(refreshes_ - startup_) + kPostponed < std::floor((now_ - ready_since_) / f_.refresh))
            fail("refreshes come too late");
        return out;
    }

    // The first rule that was broken, or "".
    const std::string& error() const { return error_; }
    uint64_t refreshes() const { return refreshes_; }
    uint64_t activates() const { return activates_; }

private:
    enum Command : unsigned { kMode, kRefresh, kPrecharge, kActivate, kWrite, kRead, kStop, kNothing };
    static constexpr unsigned kBanks = 4, kStartupRefreshes = 8;
    static constexpr int64_t kModeCycles = 2, kRecoveryCycles = 2;
    static constexpr double kPostponed = 8, kLongAgo = -1e18;

    struct Bank {
        bool open = false;
        unsigned row = 0;
        double activated = kLongAgo, precharged = kLongAgo, written = kLongAgo;
        int64_t written_at = INT64_MIN / 2, read_until = INT64_MIN / 2;
    };
    struct Burst {
        int64_t first;  // edge of its first data
        unsigned bank, row, column;
    };

    void fail(const char* rule) {
        if (error_.empty()) error_ = std::string(rule) + " at edge " + std::to_string(edge_);
    }
    void expect(bool kept, const char* rule) {
        if (!kept) fail(rule);
    }
    // With a little for figures that are sums of periods.
    bool since(double start, double least) const { return now_ - start >= least - 1e-6; }

    void take(unsigned command, unsigned number, unsigned address) {
        if (command == kNothing) return;
        expect(now_ >= f_.startup, "a command before the end of the startup time");
        expect(edge_ - mode_at_ >= kModeCycles, "a command right after MODE REGISTER SET");
        expect(since(refreshed_, f_.rfc), "a command within tRFC of REFRESH");
        Bank& bank = banks_[number & (kBanks - 1)];
        switch (command) {
            case kPrecharge:
                for (unsigned each = 0; each < kBanks; ++each)
                    if (address >> 10 & 1 || each == number) precharge(banks_[each]);
                started_ = started_ || address >> 10 & 1;
                break;
            case kRefresh:
                idle();
                expect(started_, "REFRESH before PRECHARGE of all banks");
                refreshed_ = now_;
                ++refreshes_;
                break;
            case kMode:
                idle();
                expect(started_, "MODE REGISTER SET before PRECHARGE of all banks");
                set_mode(number, address);
                break;
            case kActivate:
                expect(ready_ && refreshes_ >= kStartupRefreshes, "ACTIVATE before mode register and eight refreshes");
                expect(!bank.open, "ACTIVATE of an open bank");
                expect(since(bank.precharged, f_.rp), "ACTIVATE within tRP of PRECHARGE");
                expect(since(bank.activated, f_.rc), "ACTIVATE within tRC of the last one of its bank");
                for (const Bank& each : banks_) expect(since(each.activated, f_.rrd), "ACTIVATE within tRRD of another");
                expect(address >> f_.row_bits == 0, "a row that is not there");
                bank.open = true;
                bank.row = address;
                bank.activated = now_;
                ++activates_;
                break;
            case kRead:
            case kWrite:
                column(command == kWrite, bank, number, address);
                break;
            default:
                fail("BURST STOP");
        }
    }

    void precharge(Bank& bank) {
        if (bank.open) {
            expect(since(bank.activated, f_.ras), "PRECHARGE within tRAS of ACTIVATE");
            expect(since(bank.written, f_.wr) && edge_ - bank.written_at >= kRecoveryCycles,
                   "PRECHARGE within the write recovery time");
            expect(edge_ >= bank.read_until, "PRECHARGE cuts a read");
            bank.precharged = now_;
        }
        bank.open = false;
    }

    void idle() {
        for (const Bank& each : banks_) {
            expect(!each.open, "REFRESH or MODE REGISTER SET while a bank is open");
            expect(since(each.precharged, f_.rp), "REFRESH or MODE REGISTER SET within tRP of PRECHARGE");
        }
    }

    void set_mode(unsigned bank, unsigned address) {
        const unsigned length = address & 7, latency = address >> 4 & 7;
        expect(bank == 0 && address >> 7 == 0, "reserved bits of the mode register");
        expect(length <= 3 && !(address >> 3 & 1), "a burst other than 1, 2, 4 or 8 words in order");
        expect(latency == f_.latency, "another CAS latency than the chip has at this clock");
        burst_ = int64_t(1) << (length & 3);
        latency_ = latency;
        mode_at_ = edge_;
        if (!ready_) ready_since_ = now_, startup_ = refreshes_;
        ready_ = true;
    }

    void column(bool writes, Bank& bank, unsigned number, unsigned address) {
        expect(bank.open, "READ or WRITE in a bank that is not open");
        expect(since(bank.activated, f_.rcd), "READ or WRITE within tRCD of ACTIVATE");
        expect(address >> f_.column_bits == 0, "a column that is not there, or automatic precharge");
        expect(edge_ >= column_at_ + burst_, "READ or WRITE cuts a burst");
        column_at_ = edge_;
        const int64_t first = writes ? edge_ : edge_ + latency_;
        (writes ? writes_ : reads_).push_back({first, number, bank.row, address});
        if (writes)
            bank.written_at = edge_ + burst_ - 1, bank.written = double(bank.written_at) * f_.period;
        else
            bank.read_until = edge_ + burst_;
    }

    void write(bool driven, unsigned data, unsigned mask) {
        if (writes_.empty()) {
            expect(!driven, "data pins driven without a WRITE");
            return;
        }
        expect(driven, "nobody drives the data pins in a WRITE");
        uint16_t& word = at(writes_.front());
        for (unsigned byte = 0; byte < 2; ++byte)
            if (!(mask >> byte & 1)) word = uint16_t((word & ~(0xFF << 8 * byte)) | (data & (0xFF << 8 * byte)));
        if (edge_ == writes_.front().first + burst_ - 1) writes_.pop_front();
    }

    int read(bool driven) {
        const bool now = !reads_.empty() && edge_ >= reads_.front().first;
        expect(!(driven && (now || drove_)), "chip and controller drive the data pins with no cycle between");
        drove_ = now;
        if (!now) return -1;
        expect(masks_[2] == 0, "a READ is masked");
        const int word = at(reads_.front());
        if (edge_ == reads_.front().first + burst_ - 1) reads_.pop_front();
        return word;
    }

    // The word of a burst at this edge: it stays within a block of its own length.
    uint16_t& at(const Burst& burst) {
        auto& row = rows_[burst.bank << f_.row_bits | (burst.row & ((1u << f_.row_bits) - 1))];
        if (!row) {  // a chip starts with anything
            row = std::make_unique<uint16_t[]>(size_t(1) << f_.column_bits);
            for (unsigned place = 0; place >> f_.column_bits == 0; ++place)
                row[place] = uint16_t((place + 1) * 0x9E37u + burst.row * 0x79B9u + burst.bank);
        }
        const unsigned inside = unsigned(burst_) - 1, step = unsigned(edge_ - burst.first);
        const unsigned place = (burst.column & ~inside) | ((burst.column + step) & inside);
        return row[place & ((1u << f_.column_bits) - 1)];
    }

    const SdramFigures f_;
    std::vector<std::unique_ptr<uint16_t[]>> rows_;
    std::array<Bank, kBanks> banks_{};
    std::deque<Burst> writes_, reads_;
    std::array<unsigned, 3> masks_{};
    std::string error_;
    int64_t edge_ = 0, mode_at_ = INT64_MIN / 2, column_at_ = INT64_MIN / 2, burst_ = 1, latency_ = 0;
    double now_ = 0, refreshed_ = kLongAgo, ready_since_ = 0;
    uint64_t refreshes_ = 0, startup_ = 0, activates_ = 0;
    bool started_ = false, ready_ = false, drove_ = false;
};
