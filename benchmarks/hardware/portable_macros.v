// weft_sram of macros, as ASIC flows have them: each has 64 entries of 32 bits, its chip selects and its write enable
// are low, its inputs are taken at a rising edge and its output comes at the falling edge behind it. Everything that
// weft_sram does not promise is unknown: the entry that is read at the edge of its write, what is there at first, what a
// read of no entry gives. Sizes below 1,024 bits are registers.

`timescale 1ns/1ps

module macro_64x32 (
  input wire clk0, input wire csb0, input wire web0, input wire [31:0] wmask0, input wire [5:0] addr0,
  input wire [31:0] din0,
  input wire clk1, input wire csb1, input wire [5:0] addr1, output reg [31:0] dout1
);
  reg [31:0] rows [0:63];
  reg read = 0, unknown = 0;
  reg [5:0] address = 0;

  always @(posedge clk0) if (!csb0 && !web0) rows[addr0] <= rows[addr0] & ~wmask0 | din0 & wmask0;
  always @(posedge clk1) begin
    read <= !csb1;
    address <= addr1;
    unknown <= !csb0 && !web0 && !csb1 && addr0 === addr1;
  end
  always @(negedge clk1) if (read) dout1 <= unknown ? 32'hx : rows[address];
endmodule

module weft_sram #(parameter DEPTH = 1, parameter WIDTH = 1, parameter GRANULE = 1, parameter ADDRESS_BITS = 1) (
  input wire clk,
  input wire [WIDTH/GRANULE-1:0] write_enable,
  input wire [ADDRESS_BITS-1:0] write_address,
  input wire [WIDTH-1:0] write_data,
  input wire read_enable,
  input wire [ADDRESS_BITS-1:0] read_address,
  output wire [WIDTH-1:0] read_data
);
  localparam BANKS = (DEPTH + 63) / 64, COLUMNS = (WIDTH + 31) / 32, PADDED = 32 * COLUMNS;
  wire [ADDRESS_BITS+5:0] written = {6'd0, write_address}, wanted = {6'd0, read_address};

  always @(posedge clk) begin
    if (|write_enable && write_address >= DEPTH) $display("weft_sram: no entry %0d to write", write_address);
    if (read_enable && read_address >= DEPTH) $display("weft_sram: no entry %0d to read", read_address);
  end

  genvar i, bank, column;
  generate
    if (DEPTH * WIDTH < 1024) begin : registers
      reg [WIDTH-1:0] rows [0:DEPTH-1];
      reg [WIDTH-1:0] data;
      for (i = 0; i < WIDTH / GRANULE; i = i + 1) begin : granules
        always @(posedge clk)
          if (write_enable[i]) rows[write_address][GRANULE*i +: GRANULE] <= write_data[GRANULE*i +: GRANULE];
      end
      always @(posedge clk)
        if (read_enable) data <= |write_enable && write_address === read_address ? {WIDTH{1'bx}} : rows[read_address];
      assign read_data = data;
    end else begin : macros
      wire [PADDED-1:0] bits, given;
      wire [PADDED*BANKS-1:0] answers;
      reg [ADDRESS_BITS-1:0] answering;
      for (i = 0; i < PADDED; i = i + 1) begin : lanes
        assign bits[i] = i < WIDTH ? write_enable[(i < WIDTH ? i : 0) / GRANULE] : 1'b0;
        assign given[i] = i < WIDTH ? write_data[i < WIDTH ? i : 0] : 1'b0;
      end
      always @(posedge clk) if (read_enable) answering <= read_address;
      for (bank = 0; bank < BANKS; bank = bank + 1) begin : banks
        for (column = 0; column < COLUMNS; column = column + 1) begin : columns
          macro_64x32 macro (
            .clk0(clk), .csb0(!(|write_enable && write_address / 64 == bank)), .web0(~|write_enable),
            .wmask0(bits[32*column +: 32]), .addr0(written[5:0]), .din0(given[32*column +: 32]),
            .clk1(clk), .csb1(!(read_enable && read_address / 64 == bank)), .addr1(wanted[5:0]),
            .dout1(answers[PADDED*bank + 32*column +: 32])
          );
        end
      end
      assign read_data = answers[PADDED * (answering / 64) +: WIDTH];
    end
  endgenerate
endmodule
