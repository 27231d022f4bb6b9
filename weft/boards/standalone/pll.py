"""The PLL of an ECP5: which integers make the core's clock of the crystal's."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import BoardError

CRYSTAL_MHZ = (8.0, 400.0)
OUTPUT_MHZ = (10.0, 400.0)
VCO_MHZ = (400.0, 800.0)
LEAST_COMPARED_MHZ = 3.125
"""Limits of the data sheet (FPGA-DS-02012): input, output, oscillator, and the rate at which phases are compared."""

MOST = 128
"""Of each divider."""


@dataclass(frozen=True)
class Pll:
    """``crystal_mhz`` divided by ``reference``, times ``feedback``; the oscillator runs at ``output`` times that."""

    crystal_mhz: float
    reference: int
    feedback: int
    output: int

    @property
    def mhz(self) -> float:
        """The core's clock."""
        return self.crystal_mhz * self.feedback / self.reference

    @property
    def ticks(self) -> int:
        return 1  # of the PLL's model

    @property
    def formula(self) -> str:
        return f"{self.crystal_mhz:g} MHz / {self.reference} * {self.feedback} = {self.mhz:g} MHz"

    def verilog(self) -> str:
        """The PLL, with its output as its feedback."""
        return f"""\
  (* FREQUENCY_PIN_CLKI = "{self.crystal_mhz:g}", FREQUENCY_PIN_CLKOP = "{self.mhz:g}", ICP_CURRENT = "12",
     LPF_RESISTOR = "8", MFG_ENABLE_FILTEROPAMP = "1", MFG_GMCREF_SEL = "2" *)
  EHXPLLL #(
    .CLKI_DIV({self.reference}), .CLKFB_DIV({self.feedback}), .CLKOP_DIV({self.output}),
    .CLKOP_CPHASE({max(self.output // 2 - 1, 0)}), .CLKOP_ENABLE("ENABLED"), .OUTDIVIDER_MUXA("DIVA"),
    .FEEDBK_PATH("CLKOP")
  ) pll (
    .CLKI(crystal), .CLKOP(clk), .CLKFB(clk), .CLKINTFB(), .LOCK(locked), .RST(1'b0), .STDBY(1'b0), .PHASESEL0(1'b0),
    .PHASESEL1(1'b0), .PHASEDIR(1'b1), .PHASESTEP(1'b1), .PHASELOADREG(1'b1), .PLLWAKESYNC(1'b0), .ENCLKOP(1'b0)
  );"""


def find_pll(crystal_mhz: float, mhz: float) -> Pll:
    """The fastest clock that is not above ``mhz``; of equal ones, with the fastest comparison. :class:`BoardError` if
    there is none."""
    low, high = OUTPUT_MHZ
    if not math.isfinite(mhz) or not low <= mhz <= high:
        raise BoardError(f"a clock of {mhz:g} MHz is not possible", at="mhz", hint=f"{low:g}..{high:g} MHz are")
    found = [
        Pll(crystal_mhz, reference, feedback, output)
        for reference in range(1, min(MOST, int(crystal_mhz / LEAST_COMPARED_MHZ)) + 1)
        if (feedback := min(MOST, math.floor(mhz * reference / crystal_mhz + 1e-9))) >= 1
        if (output := _output_divider(crystal_mhz * feedback / reference))
    ]
    if not found:
        raise BoardError(f"no clock of {mhz:g} MHz can be made of {crystal_mhz:g} MHz", at="mhz")
    return max(found, key=lambda pll: (round(pll.mhz, 6), -pll.reference))


def _output_divider(mhz: float) -> int:
    """The divider with the oscillator in the middle of its range; 0 if there is none."""
    low, high = VCO_MHZ
    possible = [divider for divider in range(1, MOST + 1) if low <= mhz * divider <= high and mhz >= OUTPUT_MHZ[0]]
    return min(possible, key=lambda divider: abs(mhz * divider - (low + high) / 2), default=0)
