"""How far the area model is off, for each synthesised core when it is fitted to the others (leave one out).

DSP and block RAM must be exact. ``--measured`` synthesises the cores, or finds them in the cache, and writes the file
that the model is fitted to; minutes for each core that is new.

    python benchmarks/hardware/area.py
    python benchmarks/hardware/area.py --measured boards/measured_modules.json
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.boards.area import LutModel, MeasuredModules, bram36_of, dsp_of, measured_modules, modules_text
from weft.hw.synthesis import Target, synthesise

from benchmarks.common import Record, print_table, write_json
from benchmarks.hardware.synthesis import CORES

FITTED = ("tiny", "8x8", "4x16", "16x8", "2x8x8", "8x32", "pynq, no depthwise mode", "pynq")
WANTED = 0.05
"""Largest error of LUT for a core that was held out."""


@dataclass(frozen=True)
class HeldOut:
    """A core, and what a model fitted to the others says of it."""

    measured: MeasuredModules
    predicted: dict[str, float]
    alone: bool  # no other core has its mode, so nothing can be known of it

    @property
    def error(self) -> float:
        return sum(self.predicted.values()) / self.measured.total["LUT"] - 1

    @property
    def exact(self) -> bool:
        core, total = self.measured.core, self.measured.total
        return dsp_of(core) == total["DSP"] and bram36_of(core) == total["BRAM36"]


def held_out(cores: Sequence[MeasuredModules]) -> list[HeldOut]:
    """Every core against a model of the others."""
    found = []
    for core in cores:
        others = [each for each in cores if each is not core]
        alone = bool(core.core.depthwise) and not any(each.core.depthwise for each in others)
        found.append(HeldOut(core, dict(LutModel(others).parts(core.core)), alone))
    return found


def measure(names: Sequence[str]) -> list[MeasuredModules]:
    """Synthesise cores; the modules right below each core are kept."""
    cores = []
    for name in names:
        result, _ = synthesise(CORES[name], Target.XC7)
        rows = {each.module: each.figures for each in result.modules if "." not in each.module}
        cores.append(MeasuredModules(CORES[name], rows))
        print(f"{name}: {result.total['LUT']:,.0f} LUT", file=sys.stderr, flush=True)
    return cores


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measured", type=Path, help="synthesise the cores and write this file")
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    arguments = parser.parse_args()
    if arguments.measured:
        arguments.measured.write_text(modules_text(measure(FITTED)))
    cores = measured_modules()
    found = held_out(cores)
    rows = []
    for each in found:
        core, total = each.measured.core, each.measured.total
        rows.append([
            core.name, f"{core.batch}x{core.block_in}x{core.block_out}", str(core.bus_bits), f"{total['LUT']:,.0f}",
            f"{sum(each.predicted.values()):,.0f}", f"{each.error:+.1%}", f"{dsp_of(core)} ({total['DSP']:g})",
            f"{bram36_of(core):g} ({total['BRAM36']:g})", "nothing else has the mode" if each.alone else "",
        ])  # fmt: skip
    columns = ["core", "array", "bus", "LUT", "held out", "error", "DSP (measured)", "BRAM36 (measured)", ""]
    print_table("area of cores held out", columns, rows)
    comparable = [each for each in found if not each.alone]
    within = sum(abs(each.error) <= WANTED for each in comparable)
    print(f"{within} of {len(comparable)} held-out cores within {WANTED:.0%} of their LUT; "
          f"largest error {max(abs(each.error) for each in comparable):.1%}")  # fmt: skip
    wrong = [each.measured.core.name for each in found if not each.exact]
    print(f"DSP or BRAM36 not exact: {', '.join(wrong)}" if wrong else "DSP and BRAM36 exact for all")
    if arguments.json:
        write_json(arguments.json, [
            Record(each.measured.core.name, "xc7", "LUT, held out", sum(each.predicted.values()),
                   each.measured.total["LUT"]) for each in found
        ])  # fmt: skip
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
