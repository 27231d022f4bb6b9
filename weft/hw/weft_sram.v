`timescale 1ns/1ps

// A memory of the core: one port to write, one to read, one clock. Put a module of the same name, parameters and ports
// in its place to use macros: what stands here is their contract, and nothing else is relied upon.
//
//   write   At a rising edge of clk with write_enable[i], bits GRANULE*i .. GRANULE*i + GRANULE - 1 of write_data
//           replace those of the entry write_address.
//   read    At a rising edge of clk with read_enable, the entry read_address appears on read_data. It stays there
//           until the next edge with read_enable, whatever is written in between.
//   both    A read and a write at the same edge are independent, unless they are of the same entry: then read_data
//           may be anything. The edge after, the entry is the new one.
//   start   Entries and read_data may be anything at first. There is no reset.
//   range   Addresses of DEPTH and above occur only where nothing of the entry is used, or while enables are low.
module weft_sram #(
  parameter DEPTH = 1,         // entries
  parameter WIDTH = 1,         // bits of an entry
  parameter GRANULE = 1,       // bits that are written together; WIDTH is a multiple of it
  parameter ADDRESS_BITS = 1
) (
  input wire clk,
  input wire [WIDTH/GRANULE-1:0] write_enable,
  input wire [ADDRESS_BITS-1:0] write_address,
  input wire [WIDTH-1:0] write_data,
  input wire read_enable,
  input wire [ADDRESS_BITS-1:0] read_address,
  output reg [WIDTH-1:0] read_data
);
  reg [WIDTH-1:0] content [0:DEPTH-1];
  integer granule;

  always @(posedge clk) begin
    for (granule = 0; granule < WIDTH / GRANULE; granule = granule + 1)
      if (write_enable[granule])
        content[write_address][GRANULE*granule +: GRANULE] <= write_data[GRANULE*granule +: GRANULE];
    if (read_enable) read_data <= content[read_address];
  end
endmodule
