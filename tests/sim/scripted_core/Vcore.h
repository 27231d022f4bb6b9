// In place of the verilated core: plays a script, row by row, at the ports that sim/harness.cpp looks at.
//
// A row is held until the handshake that it waits for; without one it lasts a cycle. The script begins with a write of
// START, and the interrupt rises at its end. Registers can be written and read at once, and read as 0.

#pragma once

#include <cstdint>
#include <vector>

#include "script.h"  // rows and beats, written by tests/sim/scripted.py

inline std::vector<Row> script;
inline std::vector<Beat> beats;

struct VerilatedContext {
    void threads(unsigned) {}
};
struct Vcore___024root {};

class Vcore {
  public:
    Vcore(VerilatedContext*, const char*) : rootp(&root_) {}
    void eval();

    uint8_t clk = 0, rst = 0, __SYM__interrupt = 0;
    // AXI4-Lite
    uint8_t s_axil_awvalid = 0, s_axil_awready = 1, s_axil_wvalid = 0, s_axil_wready = 1, s_axil_wstrb = 0;
    uint8_t s_axil_bvalid = 1, s_axil_bready = 0, s_axil_arvalid = 0, s_axil_arready = 1, s_axil_rvalid = 1;
    uint8_t s_axil_rready = 0;
    uint32_t s_axil_awaddr = 0, s_axil_wdata = 0, s_axil_araddr = 0, s_axil_rdata = 0;
    // AXI4
    uint8_t m_axi_arvalid = 0, m_axi_arready = 0, m_axi_arid = 0, m_axi_arlen = 0, m_axi_arsize = 0, m_axi_arburst = 0;
    uint8_t m_axi_awvalid = 0, m_axi_awready = 0, m_axi_awid = 0, m_axi_awlen = 0, m_axi_awsize = 0, m_axi_awburst = 0;
    uint8_t m_axi_wvalid = 0, m_axi_wready = 0, m_axi_wstrb = 0, m_axi_wlast = 0;
    uint8_t m_axi_rvalid = 0, m_axi_rready = 0, m_axi_rid = 0, m_axi_rresp = 0, m_axi_rlast = 0;
    uint8_t m_axi_bvalid = 0, m_axi_bready = 0, m_axi_bid = 0, m_axi_bresp = 0;
    uint64_t m_axi_araddr = 0, m_axi_awaddr = 0, m_axi_wdata = 0, m_axi_rdata = 0;

    Vcore___024root* rootp;

  private:
    void advance();

    std::vector<Row> rows_;  // as they were at the start
    Vcore___024root root_;
    bool clk_before_ = false, running_ = false;
    uint64_t place_ = 0, cycle_ = 0;
};

inline void Vcore::eval() {
    if (clk && !clk_before_) advance();
    clk_before_ = clk;
    __SYM__interrupt = running_ && place_ == rows_.size();
    const Row row = running_ && place_ < rows_.size() ? rows_[place_] : Row{};
    m_axi_arvalid = row.arvalid;
    m_axi_araddr = row.araddr;
    m_axi_arlen = row.arlen;
    m_axi_arsize = row.arsize;
    m_axi_arburst = row.arburst;
    m_axi_arid = row.arid;
    m_axi_awvalid = row.awvalid;
    m_axi_awaddr = row.awaddr;
    m_axi_awlen = row.awlen;
    m_axi_awsize = row.awsize;
    m_axi_awburst = row.awburst;
    m_axi_awid = row.awid;
    m_axi_wvalid = row.wvalid;
    m_axi_wdata = row.wdata;
    m_axi_wstrb = row.wstrb;
    m_axi_wlast = row.wlast;
    m_axi_rready = row.rready;
    m_axi_bready = row.bready;
}

// The cycle ends, with the handshakes that are at the ports.
inline void Vcore::advance() {
    const bool written = s_axil_awvalid && s_axil_wvalid && s_axil_awaddr == kControl;
    if (rst || (written && s_axil_wdata & kReset)) running_ = false;
    const bool read = m_axi_rvalid && m_axi_rready, answered = m_axi_bvalid && m_axi_bready;
    if (running_ && place_ < rows_.size()) {
        if (read) beats.push_back({cycle_, m_axi_rid, m_axi_rdata, m_axi_rresp, m_axi_rlast});
        if (answered) beats.push_back({cycle_, m_axi_bid, 0, m_axi_bresp, 2});
        const bool happened[] = {true, bool(m_axi_arvalid && m_axi_arready), bool(m_axi_awvalid && m_axi_awready),
                                 bool(m_axi_wvalid && m_axi_wready), read, answered};
        place_ += happened[rows_[place_].waits];
        ++cycle_;
    }
    if (written && s_axil_wdata & kStart) {
        running_ = true;
        rows_ = script;
        place_ = cycle_ = 0;
        beats.clear();
    }
}

extern "C" {

inline void __attribute__((used)) scripted_rows(const Row* first, uint64_t count) { script.assign(first, first + count); }
inline uint64_t __attribute__((used)) scripted_beats(const Beat** first) {
    *first = beats.data();
    return beats.size();
}

}  // extern "C"
