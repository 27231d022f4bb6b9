"""The module with a board's pins: the PLL, the reset, and :mod:`weft.hw.standalone` in between."""

from __future__ import annotations

from collections.abc import Iterator

from ...hw.standalone.design import TOP as LOGIC
from ...hw.standalone.settings import LEDS
from . import sdram_top
from .board import Pin, StandaloneBoard
from .pll import Pll

BOARD_TOP = "weft_board"
"""Name of the module; its ports are ``crystal``, ``reset``, ``rx``, ``tx``, ``leds`` and those of :mod:`.sdram_top`."""

LOGIC_INSTANCE = "system"

PLL_MODEL = """\
module EHXPLLL(input CLKI, CLKFB, RST, STDBY, PHASESEL0, PHASESEL1, PHASEDIR, PHASESTEP, PHASELOADREG, PLLWAKESYNC,
               input ENCLKOP, output CLKOP, CLKINTFB, LOCK);
  parameter CLKI_DIV = 1, CLKFB_DIV = 1, CLKOP_DIV = 1, CLKOP_CPHASE = 0;
  parameter FEEDBK_PATH = "", CLKOP_ENABLE = "", OUTDIVIDER_MUXA = "";
  assign CLKOP = CLKI;
  assign CLKINTFB = 1'b0;
  assign LOCK = ~RST & ~STDBY;
endmodule
"""
"""For simulation: the core's clock is the crystal's."""


def top_verilog(board: StandaloneBoard, pll: Pll) -> str:
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
// {board.title}: {pll.crystal_mhz:g} MHz / {pll.reference} * {pll.feedback} = {pll.mhz:g} MHz
module {BOARD_TOP}({", ".join(ports)});
  wire clk, locked;
  wire [{LEDS - 1}:0] lights;
  (* FREQUENCY_PIN_CLKI = "{pll.crystal_mhz:g}", FREQUENCY_PIN_CLKOP = "{pll.mhz:g}", ICP_CURRENT = "12",
     LPF_RESISTOR = "8", MFG_ENABLE_FILTEROPAMP = "1", MFG_GMCREF_SEL = "2" *)
  EHXPLLL #(
    .CLKI_DIV({pll.reference}), .CLKFB_DIV({pll.feedback}), .CLKOP_DIV({pll.output}),
    .CLKOP_CPHASE({max(pll.output // 2 - 1, 0)}), .CLKOP_ENABLE("ENABLED"), .OUTDIVIDER_MUXA("DIVA"),
    .FEEDBK_PATH("CLKOP")
  ) pll (
    .CLKI(crystal), .CLKOP(clk), .CLKFB(clk), .CLKINTFB(), .LOCK(locked), .RST(1'b0), .STDBY(1'b0), .PHASESEL0(1'b0),
    .PHASESEL1(1'b0), .PHASEDIR(1'b1), .PHASESTEP(1'b1), .PHASELOADREG(1'b1), .PLLWAKESYNC(1'b0), .ENCLKOP(1'b0)
  );
  // The reset lasts 128 cycles after the PLL has locked, and as long as the button is pressed.
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


def constraints(board: StandaloneBoard) -> str:
    """The pins and the crystal's clock, as nextpnr reads them (LPF)."""
    lines = [
        *_pin("crystal", board.pins.clock),
        f'FREQUENCY PORT "crystal" {board.clock.crystal_mhz:g} MHZ;',
        *_pin("reset", board.pins.reset),
        *_pin("rx" + "_n" * board.pins.rx.inverted, board.pins.rx),
        *_pin("tx" + "_n" * board.pins.tx.inverted, board.pins.tx),
    ]
    for place, pin in enumerate(board.pins.leds):
        lines += _pin(f"leds[{place}]", pin)
    if board.pins.sdram:
        lines += sdram_top.constraints(board.pins.sdram)
    return "\n".join(lines) + "\n"


def _pin(port: str, pin: Pin) -> Iterator[str]:
    yield f'LOCATE COMP "{port}" SITE "{pin.site}";'
    yield f'IOBUF PORT "{port}" IO_TYPE={pin.standard} PULLMODE={pin.pull};'
