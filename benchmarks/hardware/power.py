"""What a core's cells take, beside the estimate of ``weft explore``: the digits network, layer by layer.

Cells: a liberty file with power tables, such as that of Debian's ``qflow-tech-osu018``. Energies are given as of 45 nm
and 0.9 V: divided by C V^2 of the library's smallest inverter / that of one of 45 nm. Fails if the cells are not the
RTL, or if a layer's estimate is further off than the manual says.

    python benchmarks/hardware/power.py --liberty osu018_stdcells.lib --cores tiny,8x8
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import weft
from weft.explore.energy import energy_pj, registers_of
from weft.explore.measure import Measure
from weft.explore.processors import PROCESSORS
from weft.hw.config import TINY, CoreConfig
from weft.power.measure import LayerPower, Power, measure_power
from weft.runtime.inputs import read_inputs

from benchmarks.common import Record, print_table, write_json

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"

CORES = {
    "tiny": TINY,
    "4x8": replace(TINY, name="4x8", block_out=8),
    "8x8": replace(TINY, name="8x8", block_in=8, block_out=8),
}

ON_CORE = ("array", "vector", "scratchpads", "control")
"""Of the estimate; the rest is DRAM and the host."""

MOST, MOST_OF_NETWORK = 0.22, 0.1
"""How far the estimate of a layer may be off, and that of the whole network."""


def estimate(config: CoreConfig, layer: LayerPower) -> float:
    """Picojoules of a layer on the core by its counts."""
    own, bounds = layer.layer, layer.layer.bounds
    counts = Measure(
        own.cycles, 1, own.layer.macs, bounds.array, bounds.vector, own.layer.bytes_loaded, own.layer.bytes_stored, ()
    )
    found = energy_pj(config, counts, PROCESSORS["cortex-a9"])
    return sum(found[name] for name in ON_CORE)


def rows_of(config: CoreConfig, power: Power) -> tuple[list[list[str]], list[float], float]:
    """A row for each layer, how far each one's estimate is off, and how far that of the network is."""
    rows, errors, whole = [], [], [0.0, 0.0]
    for layer in power.layers:
        measured, guessed = layer.picojoules / power.scale, estimate(config, layer)
        whole = [whole[0] + measured, whole[1] + guessed]
        errors.append(guessed / measured - 1)
        macs = layer.layer.layer.macs
        rows.append([
            f"{config.name}: {layer.layer.layer.name}", f"{layer.layer.cycles:,}", f"{measured * 1e-3:,.1f}",
            f"{guessed * 1e-3:,.1f}", f"{errors[-1]:+.1%}", f"{measured / macs:.1f}" if macs else "",
        ])  # fmt: skip
    return rows, errors, whole[1] / whole[0] - 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--liberty", type=Path, required=True, help="cells with power tables")
    parser.add_argument("--cores", default=",".join(CORES), help=f"of {', '.join(CORES)}")
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    arguments = parser.parse_args()
    rows: list[list[str]] = []
    summary: list[list[str]] = []
    records: list[Record] = []
    wrong = 0
    for name in arguments.cores.split(","):
        config = CORES[name]
        model = weft.compile(DIGITS, config)
        inputs = read_inputs(model.inputs, None, 0)
        power = measure_power(model, inputs, arguments.liberty, progress=lambda text: print(text, file=sys.stderr))
        own, errors, whole = rows_of(config, power)
        rows += own
        energies, macs = power.energies, sum(each.layer.layer.macs for each in power.layers)
        parts = [float(part.sum()) / power.scale for part in (energies.logic, energies.clock, energies.memories)]
        registers = int(power.registers.sum())
        summary.append([
            name, f"{int(power.cells.sum()):,}", f"{registers:,}", f"{registers_of(config) / registers - 1:+.1%}",
            *(f"{part / macs:.2f}" for part in parts), f"{sum(parts) / macs:.2f}",
            f"{energies.held.sum() / energies.clock.sum():.0%}", f"{whole:+.1%}",
            f"{power.wrong:,} of {power.compared:,}",
        ])  # fmt: skip
        records.append(Record(name, "digits", "pJ a MAC, as of 45 nm", sum(parts) / macs))
        records.append(Record(name, "digits", "estimate's error", whole, MOST_OF_NETWORK))
        wrong += bool(power.wrong) + any(abs(each) > MOST for each in errors) + (abs(whole) > MOST_OF_NETWORK)
    columns = ["layer", "cycles", "cells, nJ", "estimate, nJ", "error", "pJ a MAC"]
    print_table(f"energy by layer, as of 45 nm, cells of {power.library}", columns, rows)
    columns = ["core", "cells", "registers", "estimate", "logic, pJ a MAC", "clock", "memories", "all", "held", "error",
               "register bits wrong"]  # fmt: skip
    print_table("digits, whole network", columns, summary)
    if arguments.json:
        write_json(arguments.json, records)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
