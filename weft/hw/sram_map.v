// For Yosys' techmap: a memory of two entries or more, with a clocked port to read and one to write, becomes a
// weft_sram.
(* techmap_celltype = "$mem_v2" *)
module weft_sram_map (
  RD_CLK, RD_EN, RD_ARST, RD_SRST, RD_ADDR, RD_DATA, WR_CLK, WR_EN, WR_ADDR, WR_DATA
);
  parameter MEMID = "";
  parameter SIZE = 1;
  parameter OFFSET = 0;
  parameter ABITS = 1;
  parameter WIDTH = 1;
  parameter INIT = 1'bx;
  parameter RD_PORTS = 1;
  parameter RD_CLK_ENABLE = 1;
  parameter RD_CLK_POLARITY = 1;
  parameter RD_TRANSPARENCY_MASK = 0;
  parameter RD_COLLISION_X_MASK = 0;
  parameter RD_WIDE_CONTINUATION = 0;
  parameter RD_CE_OVER_SRST = 0;
  parameter RD_ARST_VALUE = 0;
  parameter RD_SRST_VALUE = 0;
  parameter RD_INIT_VALUE = 0;
  parameter WR_PORTS = 1;
  parameter WR_CLK_ENABLE = 1;
  parameter WR_CLK_POLARITY = 1;
  parameter WR_PRIORITY_MASK = 0;
  parameter WR_WIDE_CONTINUATION = 0;

  input [RD_PORTS-1:0] RD_CLK, RD_EN, RD_ARST, RD_SRST;
  input [RD_PORTS*ABITS-1:0] RD_ADDR;
  output [RD_PORTS*WIDTH-1:0] RD_DATA;
  input [WR_PORTS-1:0] WR_CLK;
  input [WR_PORTS*WIDTH-1:0] WR_EN, WR_DATA;
  input [WR_PORTS*ABITS-1:0] WR_ADDR;

  // For each bit of WR_EN the number of its net.
  parameter _TECHMAP_BITS_CONNMAP_ = 1;
  parameter [WR_PORTS*WIDTH*_TECHMAP_BITS_CONNMAP_-1:0] _TECHMAP_CONNMAP_WR_EN_ = 0;

  wire _TECHMAP_FAIL_ = RD_PORTS != 1 || WR_PORTS != 1 || !RD_CLK_ENABLE || RD_TRANSPARENCY_MASK != 0 || ABITS == 0;

  // Bits that are written together: as many as share the lowest one's enable, if all others come in such groups.
  function [31:0] granule;
    input unused;
    integer bits, place;
    begin
      bits = 1;
      while (bits < WIDTH
             && _TECHMAP_CONNMAP_WR_EN_[bits * _TECHMAP_BITS_CONNMAP_ +: _TECHMAP_BITS_CONNMAP_]
             == _TECHMAP_CONNMAP_WR_EN_[0 +: _TECHMAP_BITS_CONNMAP_])
        bits = bits + 1;
      granule = WIDTH % bits == 0 ? bits : 1;
      for (place = 0; place < WIDTH; place = place + 1)
        if (_TECHMAP_CONNMAP_WR_EN_[place * _TECHMAP_BITS_CONNMAP_ +: _TECHMAP_BITS_CONNMAP_]
            != _TECHMAP_CONNMAP_WR_EN_[place / bits * bits * _TECHMAP_BITS_CONNMAP_ +: _TECHMAP_BITS_CONNMAP_])
          granule = 1;
    end
  endfunction
  localparam GRANULE = granule(1'b0);

  wire [WIDTH/GRANULE-1:0] write_enable;
  genvar part;
  generate
    for (part = 0; part < WIDTH / GRANULE; part = part + 1) assign write_enable[part] = WR_EN[GRANULE * part];
  endgenerate

  weft_sram #(
    .DEPTH(SIZE), .WIDTH(WIDTH), .GRANULE(GRANULE), .ADDRESS_BITS(ABITS)
  ) _TECHMAP_REPLACE_ (
    .clk(WR_CLK), .write_enable(write_enable), .write_address(WR_ADDR), .write_data(WR_DATA),
    .read_enable(RD_EN), .read_address(RD_ADDR), .read_data(RD_DATA)
  );
endmodule
