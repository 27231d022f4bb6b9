"""The module with a board's pins: the clock, the reset, and :mod:`weft.hw.standalone` in between."""

from __future__ import annotations

from ...hw.standalone.design import TOP as LOGIC
from ...hw.standalone.settings import LEDS
from . import sdram_top
from .board import StandaloneBoard
from .family import CoreClock

BOARD_TOP = "weft_board"
"""Name of the module; its ports are ``crystal``, ``reset``, ``rx``, ``tx``, ``leds`` and those of :mod:`.sdram_top`."""

LOGIC_INSTANCE = "system"


def top_verilog(board: StandaloneBoard, clock: CoreClock) -> str:
    """Verilog of :data:`BOARD_TOP`."""
    pins = board.pins
    pressed = "~reset" if pins.reset.inverted else "reset"
    leds = ", ".join(f"{'~' * pin.inverted}lights[{place}]" for place, pin in reversed([*enumerate(pins.leds)]))
    ports = [
        "input crystal",
        "input reset",
        f"input rx{'_n' * pins.rx.inverted}",
        f"output tx{'_n' * pins.tx.inverted}",
    ]
    if pins.leds:
        ports.append(f"output [{len(pins.leds) - 1}:0] leds")
    if board.sdram:
        ports += sdram_top.ports(board.sdram)
    chip, chip_blocks = (sdram_top.connections(), sdram_top.blocks()) if board.sdram else ("", "")
    rx, tx = ("~rx_n" if pins.rx.inverted else "rx"), ("tx_high" if pins.tx.inverted else "tx")
    return f"""\
`timescale 1ns/1ps
// {board.title}: {clock.formula}
module {BOARD_TOP}({", ".join(ports)});
  wire clk, locked;
  wire [{LEDS - 1}:0] lights;
{clock.verilog()}
  // The reset lasts 128 cycles after the clock is steady, and as long as the button is pressed.
  reg [7:0] since = 8'd0;
  reg [2:0] stop = 3'b111;
  reg rst = 1'b1;
  always @(posedge clk) begin
    stop <= {{ stop[1:0], ~locked | {pressed} }};
    if (stop[2]) since <= 8'd0;
    else if (!since[7]) since <= since + 8'd1;
    rst <= !since[7];
  end
{"  wire tx_high;" if pins.tx.inverted else ""}{chip_blocks}
  {LOGIC} {LOGIC_INSTANCE}(.clk(clk), .rst(rst), .rx({rx}), .tx({tx}), .leds(lights){chip});
{"  assign tx_n = ~tx_high;" if pins.tx.inverted else ""}
{f"  assign leds = {{ {leds} }};" if pins.leds else ""}
endmodule
"""
