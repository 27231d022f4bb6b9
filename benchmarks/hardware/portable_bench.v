// One program on the exported core, with the DRAM of sim/harness.cpp (no jitter, answers in order) written in plain
// Verilog: each cycle the memory drives the core's inputs, the handshakes are taken, then the clock rises. What a
// simulator prints at the end are the fault, the cycles by the core's own counter, and every byte in after.hex.
//
// settings.vh, made by benchmarks/hardware/portable.py, has the sizes, the registers' addresses and the program's place.

`timescale 1ns/1ps
`include "settings.vh"

module bench;
  localparam LANES = `BUS_BYTES;
  localparam MOST_CREDIT = LANES + `RATE - 1;
  localparam SLOTS = 64;  // more bursts than `OUTSTANDING
  localparam BEATS = 256;

  reg clk = 0, rst = 1;
  wire interrupt;

  wire [`ADDRESS_BITS-1:0] araddr, awaddr;
  wire [7:0] arlen, awlen;
  wire [2:0] arsize, awsize;
  wire [1:0] arburst, awburst, arid, awid;
  wire arvalid, rready, awvalid, wvalid, wlast, bready;
  wire [8*LANES-1:0] wdata;
  wire [LANES-1:0] wstrb;
  reg arready = 0, rvalid = 0, rlast = 0, awready = 0, wready = 0, bvalid = 0;
  reg [1:0] rid = 0, bid = 0;
  reg [8*LANES-1:0] rdata = 0;

  reg [`REGISTER_BITS-1:0] lite_address = 0;
  reg [31:0] lite_data = 0;
  reg lite_awvalid = 0, lite_wvalid = 0, lite_bready = 0, lite_arvalid = 0, lite_rready = 0;
  wire lite_awready, lite_wready, lite_bvalid, lite_arready, lite_rvalid;
  wire [31:0] lite_rdata;

  weft_core core (
    .clk(clk), .rst(rst), .interrupt(interrupt),
    .m_axi_araddr(araddr), .m_axi_arlen(arlen), .m_axi_arsize(arsize), .m_axi_arburst(arburst), .m_axi_arid(arid),
    .m_axi_arvalid(arvalid), .m_axi_arready(arready), .m_axi_rid(rid), .m_axi_rdata(rdata), .m_axi_rresp(2'b00),
    .m_axi_rlast(rlast), .m_axi_rvalid(rvalid), .m_axi_rready(rready),
    .m_axi_awaddr(awaddr), .m_axi_awlen(awlen), .m_axi_awsize(awsize), .m_axi_awburst(awburst), .m_axi_awid(awid),
    .m_axi_awvalid(awvalid), .m_axi_awready(awready), .m_axi_wdata(wdata), .m_axi_wstrb(wstrb), .m_axi_wlast(wlast),
    .m_axi_wvalid(wvalid), .m_axi_wready(wready), .m_axi_bid(bid), .m_axi_bresp(2'b00), .m_axi_bvalid(bvalid),
    .m_axi_bready(bready),
    .s_axil_awaddr(lite_address), .s_axil_awprot(3'b000), .s_axil_awvalid(lite_awvalid), .s_axil_awready(lite_awready),
    .s_axil_wdata(lite_data), .s_axil_wstrb(4'b1111), .s_axil_wvalid(lite_wvalid), .s_axil_wready(lite_wready),
    .s_axil_bvalid(lite_bvalid), .s_axil_bready(lite_bready),
    .s_axil_araddr(lite_address), .s_axil_arprot(3'b000), .s_axil_arvalid(lite_arvalid), .s_axil_arready(lite_arready),
    .s_axil_rdata(lite_rdata), .s_axil_rvalid(lite_rvalid), .s_axil_rready(lite_rready)
  );

  // The memory. Bursts stand in rings; counters only grow, and are taken modulo SLOTS.
  reg [7:0] memory [0:`MEMORY_BYTES-1];
  integer now = 0, credit = 0, lane, beat, wrong = 0;
  reg write_turn = 0, read_offered = 0, response_offered = 0;

  integer read_head = 0, read_tail = 0, read_done = 0;
  reg [`ADDRESS_BITS-1:0] read_address [0:SLOTS-1];
  integer read_due [0:SLOTS-1], read_beats [0:SLOTS-1];
  reg [1:0] read_id [0:SLOTS-1];

  integer write_head = 0, write_collecting = 0, write_tail = 0, write_beats = 0;
  reg [`ADDRESS_BITS-1:0] write_address [0:SLOTS-1];
  integer write_due [0:SLOTS-1], write_length [0:SLOTS-1];
  reg [1:0] write_id [0:SLOTS-1];
  reg [8*LANES-1:0] write_data [0:SLOTS*BEATS-1];
  reg [LANES-1:0] write_strobe [0:SLOTS*BEATS-1];

  task offer_read;
    integer place;
    begin
      if (!read_offered && credit >= LANES && read_head != read_tail && read_due[read_head % SLOTS] <= now) begin
        place = read_address[read_head % SLOTS] - `BASE + read_done * LANES;
        for (lane = 0; lane < LANES; lane = lane + 1) rdata[8*lane +: 8] = memory[place + lane];
        rid = read_id[read_head % SLOTS];
        read_done = read_done + 1;
        rlast = read_done == read_beats[read_head % SLOTS];
        if (rlast) begin
          read_head = read_head + 1;
          read_done = 0;
        end
        credit = credit - LANES;
        read_offered = 1;
        write_turn = 1;
      end
    end
  endtask

  // Written bytes become visible with the response.
  task answer_write;
    integer place;
    begin
      for (beat = 0; beat < write_length[write_head % SLOTS]; beat = beat + 1) begin
        place = write_address[write_head % SLOTS] - `BASE + beat * LANES;
        for (lane = 0; lane < LANES; lane = lane + 1)
          if (write_strobe[(write_head % SLOTS) * BEATS + beat][lane] !== 1'b0)
            memory[place + lane] = write_data[(write_head % SLOTS) * BEATS + beat][8*lane +: 8];
      end
      response_offered = 1;
    end
  endtask

  task drive;
    begin
      credit = credit + `RATE > MOST_CREDIT ? MOST_CREDIT : credit + `RATE;
      arready = read_tail - read_head < `OUTSTANDING;
      awready = write_tail - write_head < `OUTSTANDING;
      if (!(write_turn && wvalid && write_collecting != write_tail && credit < 2 * LANES)) offer_read;
      wready = write_collecting != write_tail && credit >= LANES;
      if (!response_offered && write_head != write_collecting && write_due[write_head % SLOTS] <= now) answer_write;
      rvalid = read_offered;
      bvalid = response_offered;
      bid = write_id[write_head % SLOTS];
    end
  endtask

  task sample;
    begin
      if (!rst && (^{arvalid, rready, awvalid, wvalid, bready, interrupt}) === 1'bx) wrong = wrong + 1;
      if (arvalid && arready) begin
        if (arburst !== 2'b01 || (1 << arsize) !== LANES) wrong = wrong + 1;
        read_address[read_tail % SLOTS] = araddr;
        read_due[read_tail % SLOTS] = now + `LATENCY;
        read_beats[read_tail % SLOTS] = arlen + 1;
        read_id[read_tail % SLOTS] = arid;
        read_tail = read_tail + 1;
      end
      if (rvalid && rready) read_offered = 0;
      if (bvalid && bready) begin
        response_offered = 0;
        write_head = write_head + 1;
      end
      if (wvalid && wready) begin
        write_data[(write_collecting % SLOTS) * BEATS + write_beats] = wdata;
        write_strobe[(write_collecting % SLOTS) * BEATS + write_beats] = wstrb;
        write_beats = write_beats + 1;
        if (wlast !== (write_beats == write_length[write_collecting % SLOTS])) wrong = wrong + 1;
        if (write_beats == write_length[write_collecting % SLOTS]) begin
          write_due[write_collecting % SLOTS] = now + `LATENCY;
          write_collecting = write_collecting + 1;
          write_beats = 0;
        end
        credit = credit > LANES ? credit - LANES : 0;
        write_turn = 0;
      end
      if (awvalid && awready) begin
        if (awburst !== 2'b01 || (1 << awsize) !== LANES) wrong = wrong + 1;
        write_address[write_tail % SLOTS] = awaddr;
        write_length[write_tail % SLOTS] = awlen + 1;
        write_id[write_tail % SLOTS] = awid;
        write_tail = write_tail + 1;
      end
      now = now + 1;
    end
  endtask

  task tick;
    begin
      drive;
      #4 sample;
      clk = 1;
      #5 clk = 0;
      #1;
    end
  endtask

  reg taken_address, taken_data, answered;
  integer patience;

  task write_register(input [`REGISTER_BITS-1:0] address, input [31:0] value);
    begin
      lite_address = address;
      lite_data = value;
      lite_awvalid = 1;
      lite_wvalid = 1;
      lite_bready = 1;
      answered = 0;
      for (patience = 0; patience < 1000 && !answered; patience = patience + 1) begin
        #1;
        taken_address = lite_awready;
        taken_data = lite_wready;
        answered = lite_bvalid;
        tick;
        if (taken_address) lite_awvalid = 0;
        if (taken_data) lite_wvalid = 0;
      end
      lite_bready = 0;
    end
  endtask

  reg [31:0] value;

  task read_register(input [`REGISTER_BITS-1:0] address);
    begin
      lite_address = address;
      lite_arvalid = 1;
      lite_rready = 1;
      answered = 0;
      for (patience = 0; patience < 1000 && !answered; patience = patience + 1) begin
        #1;
        taken_address = lite_arready;
        answered = lite_rvalid;
        value = lite_rdata;
        tick;
        if (taken_address) lite_arvalid = 0;
      end
      lite_rready = 0;
    end
  endtask

  integer i, waited;
  reg [31:0] low, fault;

  initial begin
    $readmemh("before.hex", memory);
    for (i = 0; i < 16; i = i + 1) tick;
    rst = 0;
    tick;
    credit = MOST_CREDIT;
    write_register(`INTERRUPT_ENABLE, 1);
    write_register(`WINDOW_BASE_LO, `BASE);
    write_register(`WINDOW_BASE_HI, 0);
    write_register(`WINDOW_SIZE_LO, `WINDOW_BYTES);
    write_register(`WINDOW_SIZE_HI, 0);
    write_register(`PROGRAM_OFFSET, `OFFSET);
    write_register(`PROGRAM_COUNT, `COUNT);
    write_register(`WATCHDOG, `WATCHDOG_CYCLES);
    write_register(`CONTROL, `CLEAR_INTERRUPT);
    write_register(`CONTROL, `START);
    for (waited = 0; interrupt !== 1'b1 && waited < `CYCLE_LIMIT; waited = waited + 1) tick;
    value = `BUS_BUSY;
    for (i = 0; i < 10000 && (value & `BUS_BUSY) != 0; i = i + 1) read_register(`STATUS);
    read_register(`FAULT_CAUSE);
    fault = value;
    read_register(`CYCLES_LO);
    low = value;
    $writememh("after.hex", memory);
    $display("weft interrupt=%b fault=%0d cycles=%0d wrong=%0d", interrupt, fault, low, wrong);
    $finish;
  end
endmodule
