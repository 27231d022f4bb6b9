"""What a board's top has for a chip of SDRAM: ports, the blocks at them, and constraints."""

from __future__ import annotations

from collections.abc import Iterator

from ...hw.standalone.sdram_chip import BANK_BITS, DATA_BITS, DATA_BYTES, SdramChip
from .pins import SdramSites

PREFIX = "sdram_"
"""Of the top's ports; behind it stands the name of a field of :class:`~.pins.SdramSites`."""

MODELS = """\
module ODDRX1F(input SCLK, RST, D0, D1, output Q);
  assign Q = SCLK ? D0 : D1;
endmodule
module BB(input I, T, output O, inout B);
  assign B = T ? 1'bz : I;
  assign O = B;
endmodule
"""
"""For simulation: a register at both edges whose inputs are constants, and a pin that is driven or not."""


def ports(chip: SdramChip) -> list[str]:
    single = [f"output {PREFIX}{name}" for name in ("clock", "clock_enable", "select_n", "ras_n", "cas_n", "we_n")]
    vectors = (("bank", BANK_BITS), ("address", chip.row_bits), ("mask", DATA_BYTES))
    data = f"inout [{DATA_BITS - 1}:0] {PREFIX}data"
    return [*single, *(f"output [{width - 1}:0] {PREFIX}{name}" for name, width in vectors), data]


def connections() -> str:
    """Of the logic's instance."""
    return f""",
    .sdram_command({{ {PREFIX}ras_n, {PREFIX}cas_n, {PREFIX}we_n }}), .sdram_bank({PREFIX}bank),
    .sdram_address({PREFIX}address), .sdram_mask({PREFIX}mask),
    .sdram_data(data_out), .sdram_enable(data_driven), .sdram_given(data_taken)
  """


def blocks() -> str:
    """The chip's clock rises in the middle of a cycle: its pins and ours stand still then, for half a cycle both ways.
    What the chip drives is taken at the same time."""
    return f"""
  ODDRX1F chip_clock(.SCLK(clk), .RST(1'b0), .D0(1'b0), .D1(1'b1), .Q({PREFIX}clock));
  assign {PREFIX}clock_enable = 1'b1;
  assign {PREFIX}select_n = 1'b0;
  wire [{DATA_BITS - 1}:0] data_out, data_in;
  wire data_driven;
  reg [{DATA_BITS - 1}:0] data_taken;
  always @(negedge clk) data_taken <= data_in;
  genvar pin;
  generate for (pin = 0; pin < {DATA_BITS}; pin = pin + 1) begin : data_pin
    BB pad(.I(data_out[pin]), .T(~data_driven), .O(data_in[pin]), .B({PREFIX}data[pin]));
  end endgenerate"""


def constraints(sites: SdramSites) -> Iterator[str]:
    for port, site in sites.ports():
        yield f'LOCATE COMP "{PREFIX}{port}" SITE "{site}";'
        yield f'IOBUF PORT "{PREFIX}{port}" IO_TYPE=LVCMOS33 PULLMODE=NONE SLEWRATE=FAST;'
