// Hard blocks of the ECP5 as Lattice describes them, for simulation: those that netlist.py does not write as expressions.

// 16 words of four bits: written at a clock's edge, read at once.
module TRELLIS_DPR16X4(input [3:0] DI, input [3:0] WAD, input WRE, input WCK, input [3:0] RAD, output [3:0] DO);
  parameter WCKMUX = "WCK", WREMUX = "WRE";
  parameter [63:0] INITVAL = 64'd0;
  reg [3:0] words[0:15];
  integer place;
  initial for (place = 0; place < 16; place = place + 1) words[place] = INITVAL[4*place +: 4];
  wire clock = WCK ^ (WCKMUX == "INV");
  always @(posedge clock) if (WRE ^ (WREMUX == "INV")) words[WAD] <= DI;
  assign DO = words[RAD];
endmodule

// A product of 18 by 18 bits without registers.
module MULT18X18D(input [17:0] A, input [17:0] B, input SIGNEDA, input SIGNEDB, output [35:0] P);
  wire signed [35:0] a = {{18{SIGNEDA & A[17]}}, A};
  wire signed [35:0] b = {{18{SIGNEDB & B[17]}}, B};
  assign P = a * b;
endmodule

// A block RAM of 2,048 bytes of nine bits with two ports. Words of 1, 2 and 4 bits leave the ninth out; words of 36 bits
// are written through port A and read through port B, with the data pins of both. Output registers, chip selects and
// resets are not in it: netlist.py refuses a netlist that uses them.
module DP16KD(input [17:0] DIA, input [13:0] ADA, input CEA, input CLKA, input WEA, output [17:0] DOA,
              input [17:0] DIB, input [13:0] ADB, input CEB, input CLKB, input WEB, output [17:0] DOB);
  parameter integer DATA_WIDTH_A = 18, DATA_WIDTH_B = 18;
  parameter WRITEMODE_A = "NORMAL", WRITEMODE_B = "NORMAL", CLKAMUX = "CLKA", CLKBMUX = "CLKB";
  parameter [18431:0] CONTENT = 18432'd0;  // byte after byte
  reg [8:0] bytes[0:2047];
  integer place;
  initial for (place = 0; place < 2048; place = place + 1) bytes[place] = CONTENT[9*place +: 9];
  wire clock_a = CLKA ^ (CLKAMUX == "INV"), clock_b = CLKB ^ (CLKBMUX == "INV");
  wire [35:0] seen_a, seen_b;
  reg [35:0] out_a = 36'd0, out_b = 36'd0;
  ecp5_ram_word #(.WIDTH(DATA_WIDTH_A)) word_a(
    .address(ADA), .bytes({bytes[{ADA[13:5], 2'd3}], bytes[{ADA[13:5], 2'd2}], bytes[{ADA[13:5], 2'd1}], bytes[{ADA[13:5], 2'd0}]}),
    .word(seen_a));
  ecp5_ram_word #(.WIDTH(DATA_WIDTH_B)) word_b(
    .address(ADB), .bytes({bytes[{ADB[13:5], 2'd3}], bytes[{ADB[13:5], 2'd2}], bytes[{ADB[13:5], 2'd1}], bytes[{ADB[13:5], 2'd0}]}),
    .word(seen_b));
  wire [35:0] data_a = DATA_WIDTH_A == 36 ? {DIB, DIA} : {18'd0, DIA};
  wire [35:0] mask_a, bits_a, mask_b, bits_b;
  ecp5_ram_write #(.WIDTH(DATA_WIDTH_A)) write_a(.address(ADA), .data(data_a), .mask(mask_a), .bits(bits_a));
  ecp5_ram_write #(.WIDTH(DATA_WIDTH_B)) write_b(.address(ADB), .data({18'd0, DIB}), .mask(mask_b), .bits(bits_b));
  integer lane;
  always @(posedge clock_a) if (CEA) begin
    if (!WEA || WRITEMODE_A == "READBEFOREWRITE") out_a <= seen_a;
    if (WEA) for (lane = 0; lane < 4; lane = lane + 1)
      if (|mask_a[9*lane +: 9])
        bytes[{ADA[13:5], lane[1:0]}] <= (bytes[{ADA[13:5], lane[1:0]}] & ~mask_a[9*lane +: 9]) | bits_a[9*lane +: 9];
  end
  integer other;
  always @(posedge clock_b) if (CEB) begin
    if (!WEB || WRITEMODE_B == "READBEFOREWRITE") out_b <= seen_b;
    if (WEB) for (other = 0; other < 4; other = other + 1)
      if (|mask_b[9*other +: 9])
        bytes[{ADB[13:5], other[1:0]}] <= (bytes[{ADB[13:5], other[1:0]}] & ~mask_b[9*other +: 9]) | bits_b[9*other +: 9];
  end
  assign DOA = DATA_WIDTH_B == 36 ? out_b[17:0] : out_a[17:0];
  assign DOB = DATA_WIDTH_B == 36 ? out_b[35:18] : out_b[17:0];
endmodule

// The word at an address, of four bytes.
module ecp5_ram_word(input [13:0] address, input [35:0] bytes, output [35:0] word);
  parameter integer WIDTH = 18;
  wire [8:0] byte_ = bytes[9*address[4:3] +: 9];
  assign word = WIDTH == 36 ? bytes
              : WIDTH == 18 ? {18'd0, bytes[18*address[4] +: 18]}
              : WIDTH == 9 ? {27'd0, byte_}
              : WIDTH == 4 ? {32'd0, byte_[4*address[2] +: 4]}
              : WIDTH == 2 ? {34'd0, byte_[2*address[2:1] +: 2]}
              : {35'd0, byte_[address[2:0]]};
endmodule

// Which bits of four bytes are written, and with what. Words of two and four bytes have an enable for each byte in the
// lowest bits of the address.
module ecp5_ram_write(input [13:0] address, input [35:0] data, output [35:0] mask, output [35:0] bits);
  parameter integer WIDTH = 18;
  wire [5:0] start = WIDTH == 36 ? 6'd0
                   : WIDTH == 18 ? (address[4] ? 6'd18 : 6'd0)
                   : 6'd9 * {4'd0, address[4:3]} + (WIDTH == 9 ? 6'd0
                   : WIDTH == 4 ? {3'd0, address[2], 2'd0}
                   : WIDTH == 2 ? {3'd0, address[2:1], 1'd0}
                   : {3'd0, address[2:0]});
  wire [35:0] enabled = WIDTH == 36 ? {{9{address[3]}}, {9{address[2]}}, {9{address[1]}}, {9{address[0]}}}
                      : WIDTH == 18 ? {18'd0, {9{address[1]}}, {9{address[0]}}}
                      : (36'd1 << WIDTH) - 36'd1;
  assign mask = enabled << start;
  assign bits = (data & enabled) << start;
endmodule
