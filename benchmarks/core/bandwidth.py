"""Schedules for the memory that there is: cycles where DRAM is slower than the core's bus.

Each network is compiled twice, for DRAM as fast as the bus and for the DRAM of the row, and both programs are timed on
both memories (timing model, latency 100). The ResNet layers C2..C12 are compiled with one and two virtual threads.

    python benchmarks/core/bandwidth.py                       # all networks
    python benchmarks/core/bandwidth.py --networks resnet18 --core wide --bytes-per-cycle 8
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import weft
from weft.hw.config import CoreConfig, load_config
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel

from benchmarks.common import Record, print_table, write_json
from benchmarks.core.networks import packed_module
from examples.models.build import build


@dataclass(frozen=True)
class Row:
    """A network on a core whose DRAM gives so many bytes a cycle, and the most cycles that it may take there."""

    network: str
    core: str
    bytes_per_cycle: int
    target: int | None = None


ROWS = (
    Row("resnet50", "pynq", 4, 20_800_000),
    Row("resnet18", "wide", 8, 2_920_000),
    Row("mobilenet_v2", "pynq", 4, 4_730_000),
    Row("resnet18", "pynq", 4),
)


@dataclass(frozen=True)
class Measured:
    """Cycles by (bytes a cycle that the program was compiled for, bytes a cycle that it runs with)."""

    row: Row
    full: int
    cycles: dict[tuple[int, int], int]

    @property
    def good(self) -> bool:
        """Within the target, and compiling for a memory never costs there."""
        own = self.row.bytes_per_cycle
        return (self.row.target is None or self.cycles[own, own] <= self.row.target) and all(
            self.cycles[rate, rate] <= self.cycles[other, rate]
            for rate in (own, self.full)
            for other in (own, self.full)
        )


def measure(row: Row, size: int) -> Measured:
    config: CoreConfig = load_config(row.core)
    module = packed_module(build(row.network, size=size), config)
    rates = (config.bus_bytes, row.bytes_per_cycle)
    cycles = {}
    for compiled_for in rates:
        model = weft.compile(module, config, dram=DramModel(bytes_per_cycle=compiled_for))
        for run_with in rates:
            runs = predict_runs(model, DramModel(bytes_per_cycle=run_with))
            cycles[compiled_for, run_with] = sum(run.result.cycles or 0 for run in runs)
    return Measured(row, config.bus_bytes, cycles)


def table_row(measured: Measured) -> list[str]:
    row, full, cycles = measured.row, measured.full, measured.cycles
    own = row.bytes_per_cycle
    return [
        row.network, row.core, str(full), f"{cycles[full, full]:,}", f"{cycles[own, full]:,}",
        str(own), f"{cycles[full, own]:,}", f"{cycles[own, own]:,}", f"{cycles[own, own] / cycles[full, own] - 1:+.1%}",
        f"{row.target:,}" if row.target else "", "" if measured.good else "MISSED",
    ]  # fmt: skip


COLUMNS = [
    "network", "core", "bus, bytes a cycle", "compiled for it", "for slow DRAM", "DRAM, bytes a cycle",
    "compiled for the bus", "for this DRAM", "change", "target", "",
]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", default="", help="comma-separated; default: the rows with targets, and one more")
    parser.add_argument("--core", default="pynq", help="of --networks")
    parser.add_argument("--bytes-per-cycle", type=int, default=4, help="of --networks")
    parser.add_argument("--size", type=int, default=224, help="height and width of the images")
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    arguments = parser.parse_args()
    names = [name for name in arguments.networks.split(",") if name]
    rows = tuple(Row(name, arguments.core, arguments.bytes_per_cycle) for name in names) or ROWS
    if arguments.size != 224:
        rows = tuple(Row(row.network, row.core, row.bytes_per_cycle) for row in rows)

    done = []
    for row in rows:
        print(f"{row.network} on {row.core} ...", file=sys.stderr, flush=True)
        done.append(measure(row, arguments.size))
    print_table(
        f"cycles at {arguments.size}x{arguments.size}, timing model", COLUMNS, [table_row(each) for each in done]
    )
    if arguments.json:
        write_json(
            arguments.json,
            [
                Record(each.row.core, each.row.network, f"cycles, for {made} at {run} bytes a cycle", cycles,
                       each.row.target if made == run == each.row.bytes_per_cycle else None)
                for each in done
                for (made, run), cycles in each.cycles.items()
            ],
        )  # fmt: skip
    return 0 if all(each.good for each in done) else 1


if __name__ == "__main__":
    sys.exit(main())
