"""Shorter bursts, as AXI3 ports ask for: what they cost a network, and how many bursts under way make up for it.

For every length of the longest burst and every number of reads and writes under way the network is compiled for that
core, and its cycles come from the timing model. With the shortest bursts and the best of these numbers they may be 1 %
above those of the core as it is; the exit status says whether that holds.

    python benchmarks/core/bursts.py
    python benchmarks/core/bursts.py --network resnet18 --beats 16 --reads 16,32 --writes 8,16,32 --latency 200
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path

import weft
from weft.hw.config import CoreConfig, named_config
from weft.runtime.profile_whatif import predict_runs

from benchmarks.common import Record, print_table, write_json
from benchmarks.core.networks import memory, packed_module
from examples.models.build import ARCHITECTURES, build

MOST_ABOVE = 0.01
"""Share of the cycles that the shortest bursts may cost."""


@dataclass(frozen=True)
class Measured:
    """A core on the network; ``reference``: the cycles of the core as it is."""

    config: CoreConfig
    cycles: int
    reference: int

    @property
    def above(self) -> float:
        return self.cycles / self.reference - 1

    @property
    def name(self) -> str:
        core = self.config
        return f"{core.name}, {core.burst_beats} beats, {core.read_outstanding} reads, {core.write_outstanding} writes"


def numbers(text: str) -> list[int]:
    """Numbers between commas."""
    return [int(part) for part in text.split(",")]


def records_of(measured: Sequence[Measured], network: str, best: Measured) -> list[Record]:
    records = [Record(item.name, network, "cycles", item.cycles, item.reference) for item in measured]
    return [*records, Record(best.name, network, "share above", round(best.above, 5), MOST_ABOVE)]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", default="mobilenet_v2", choices=ARCHITECTURES)
    parser.add_argument("--config", default="pynq", help="named configuration")
    parser.add_argument("--beats", type=numbers, default=[64, 32, 16], help="lengths of the longest burst")
    parser.add_argument("--reads", type=numbers, default=[8, 16], help="reads under way")
    parser.add_argument("--writes", type=numbers, default=[8, 16], help="writes under way")
    parser.add_argument("--latency", type=int, default=100, help="of the DRAM, in cycles")
    parser.add_argument("--size", type=int, default=224, help="height and width of the image")
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    config = named_config(arguments.config)
    dram = memory(config, arguments.latency, None)
    packed = packed_module(build(arguments.network, size=arguments.size), config)

    @cache
    def cycles(core: CoreConfig) -> int:
        return sum(run.result.cycles or 0 for run in predict_runs(weft.compile(packed, core), dram))

    reference = cycles(config)
    measured = []
    for beats, reads, writes in product(arguments.beats, arguments.reads, arguments.writes):
        core = replace(config, burst_beats=beats, read_outstanding=reads, write_outstanding=writes)
        measured.append(Measured(core, cycles(core), reference))
        print(f"{measured[-1].name} done", file=sys.stderr, flush=True)
    shortest = min(item.config.burst_beats for item in measured)
    best = min((item for item in measured if item.config.burst_beats == shortest), key=lambda item: item.cycles)
    title = (
        f"{arguments.network} by the timing model ({config.name}, DRAM {dram.latency} cycles, "
        f"{dram.bytes_per_cycle} B/cycle, {dram.outstanding} bursts)"
    )
    columns = ("longest burst", "reads under way", "writes under way", "cycles", "reference", "above")
    rows = [
        [
            f"{item.config.burst_beats}", f"{item.config.read_outstanding}", f"{item.config.write_outstanding}",
            f"{item.cycles:,}", f"{item.reference:,}", f"{item.above:+.2%}",
        ]
        for item in measured
    ]  # fmt: skip
    print_table(title, columns, rows)
    print(f"best with the shortest bursts: {best.name}: {best.above:+.2%}; wanted: at most {MOST_ABOVE:+.0%}")
    if arguments.json:
        write_json(arguments.json, records_of(measured, arguments.network, best))
    return 0 if best.above <= MOST_ABOVE else 1


if __name__ == "__main__":
    sys.exit(main())
