// Memories of Gowin's parts as Gowin describes them, for simulation; gowin_netlist.py makes all kinds of these two.

// 16 words of up to four bits: written at a clock's edge, read at once. Each bit has its own initial values.
module gowin_small_memory #(parameter integer WIDTH = 4, parameter [15:0] INIT_0 = 16'd0, INIT_1 = 16'd0,
                            INIT_2 = 16'd0, INIT_3 = 16'd0)
  (input [WIDTH-1:0] DI, input [3:0] WAD, input WRE, input CLK, input [3:0] RAD, output [WIDTH-1:0] DO);
  wire [63:0] first = {INIT_3, INIT_2, INIT_1, INIT_0};
  reg [WIDTH-1:0] words[0:15];
  integer place, lane;
  initial for (place = 0; place < 16; place = place + 1)
    for (lane = 0; lane < WIDTH; lane = lane + 1) words[place][lane] = first[16*lane + place];
  always @(posedge CLK) if (WRE) words[WAD] <= DI;
  assign DO = words[RAD];
endmodule

// A block RAM of 2,048 bytes of eight or nine bits with two ports. A word of several bytes is written byte by byte as
// the lowest bits of the address say. Mode 0 keeps the output while it writes, mode 1 shows what is written, mode 2
// what was there. Output registers and block selects are not in it: gowin_netlist.py refuses them.
module gowin_block_memory #(parameter integer BYTE_BITS = 8, WIDTH_A = 8, WIDTH_B = 8, WRITE_MODE_A = 0,
                            WRITE_MODE_B = 0, parameter [18431:0] CONTENT = 18432'd0)
  (input CLKA, input CEA, input WREA, input RESETA, input [13:0] ADA, input [4*BYTE_BITS-1:0] DIA,
   output reg [4*BYTE_BITS-1:0] DOA,
   input CLKB, input CEB, input WREB, input RESETB, input [13:0] ADB, input [4*BYTE_BITS-1:0] DIB,
   output reg [4*BYTE_BITS-1:0] DOB);
  localparam integer ROW = 4*BYTE_BITS;
  reg [ROW-1:0] rows[0:511];
  integer place;
  initial begin
    for (place = 0; place < 512; place = place + 1) rows[place] = CONTENT[ROW*place +: ROW];
    DOA = 0;
    DOB = 0;
  end
  wire [ROW-1:0] seen_a, data_a, mask_a, seen_b, data_b, mask_b;
  gowin_block_port #(.BYTE_BITS(BYTE_BITS), .WIDTH(WIDTH_A)) port_a(
    .address(ADA), .row(rows[ADA[13:5]]), .given(DIA), .seen(seen_a), .data(data_a), .mask(mask_a));
  gowin_block_port #(.BYTE_BITS(BYTE_BITS), .WIDTH(WIDTH_B)) port_b(
    .address(ADB), .row(rows[ADB[13:5]]), .given(DIB), .seen(seen_b), .data(data_b), .mask(mask_b));
  always @(posedge CLKA) begin
    if (RESETA) DOA <= 0;
    else if (CEA && (!WREA || WRITE_MODE_A == 2)) DOA <= seen_a;
    else if (CEA && WRITE_MODE_A == 1) DOA <= DIA;
    if (CEA && WREA) rows[ADA[13:5]] <= (rows[ADA[13:5]] & ~mask_a) | data_a;
  end
  always @(posedge CLKB) begin
    if (RESETB) DOB <= 0;
    else if (CEB && (!WREB || WRITE_MODE_B == 2)) DOB <= seen_b;
    else if (CEB && WRITE_MODE_B == 1) DOB <= DIB;
    if (CEB && WREB) rows[ADB[13:5]] <= (rows[ADB[13:5]] & ~mask_b) | data_b;
  end
endmodule

// A port's view of a row of four bytes: the word that it sees, and which bits it writes, and with what.
module gowin_block_port #(parameter integer BYTE_BITS = 8, WIDTH = 8)
  (input [13:0] address, input [4*BYTE_BITS-1:0] row, input [4*BYTE_BITS-1:0] given,
   output [4*BYTE_BITS-1:0] seen, output [4*BYTE_BITS-1:0] data, output [4*BYTE_BITS-1:0] mask);
  localparam integer ROW = 4*BYTE_BITS, BYTES = WIDTH / BYTE_BITS;
  wire [4:0] bit_ = BYTES == 0 ? address[4:0] & ~(WIDTH[4:0] - 5'd1) : 5'd0;  // of an eighth or less of a row
  wire [5:0] start = BYTES >= 4 ? 6'd0
                   : BYTES == 2 ? (address[4] ? 6'd2*BYTE_BITS[5:0] : 6'd0)
                   : BYTES == 1 ? BYTE_BITS[5:0] * {4'd0, address[4:3]}
                   : BYTE_BITS[5:0] * {4'd0, bit_[4:3]} + {3'd0, bit_[2:0]};
  wire [3:0] lanes = BYTES >= 4 ? address[3:0] : BYTES == 2 ? {2'd0, address[1:0]} : 4'd1;
  wire [ROW-1:0] enabled = BYTES == 0 ? ({{(ROW-1){1'b0}}, 1'b1} << WIDTH) - {{(ROW-1){1'b0}}, 1'b1}
    : {{BYTE_BITS{lanes[3]}}, {BYTE_BITS{lanes[2]}}, {BYTE_BITS{lanes[1]}}, {BYTE_BITS{lanes[0]}}};
  wire [ROW-1:0] whole = BYTES >= 4 ? {ROW{1'b1}} : ({{(ROW-1){1'b0}}, 1'b1} << WIDTH) - {{(ROW-1){1'b0}}, 1'b1};
  assign seen = (row >> start) & whole;
  assign mask = enabled << start;
  assign data = (given & enabled) << start;
endmodule
