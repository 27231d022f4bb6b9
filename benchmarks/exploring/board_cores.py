"""Which core each board gets: what fits by synthesis, and what is fastest by the timing model.

For every board and every measured core: the shares of the part, and the images a second that the timing model
predicts for whole int8 networks at the board's clock. Memory gives what DDR's peak rate and the port's width leave a
cycle, after a latency of 100 cycles. Nothing here was taken on a board; the clock is asked for, not reached.

    python benchmarks/exploring/board_cores.py --networks resnet18,mobilenet_v2
    python benchmarks/exploring/board_cores.py --networks none                   # only what fits
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import weft
from weft.boards.board import Board, all_boards
from weft.boards.design import fitted_core, make_design
from weft.boards.errors import BoardError
from weft.boards.fit import Fit, fit, measured_cores
from weft.hw.config import CoreConfig
from weft.hw.synthesis_report import SHARE_LIMIT
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel

from benchmarks.common import Record, print_table, write_json
from benchmarks.core.networks import packed_module
from examples.models.build import build

NETWORKS = "resnet18,resnet50,mobilenet_v1,mobilenet_v2"
MARK = "<!-- measured: everything below is written by benchmarks/exploring/board_cores.py -->\n"
RESOURCES = ("LUT", "FF", "DSP", "BRAM36")
SMALLEST = 64
"""Multiply-accumulates a cycle below which no network is compiled: such a core is no candidate for a board."""


@dataclass(frozen=True)
class Candidate:
    """A measured core on a board; ``images`` are predicted images a second by network, where it fits."""

    found: Fit
    refused: str
    images: Mapping[str, float]

    @property
    def chosen(self) -> bool:
        return self.found.core.hash64 == self.found.board.default_core.hash64


@cache
def predicted_cycles(core: CoreConfig, network: str, size: int, bytes_per_cycle: int) -> int:
    """Cycles of a network of one image."""
    dram = DramModel(bytes_per_cycle=bytes_per_cycle)
    model = weft.compile(packed_module(build(network, size=size), core), core, dram=dram)
    return sum(run.result.cycles or 0 for run in predict_runs(model, dram))


def bytes_per_cycle(board: Board, core: CoreConfig) -> int:
    """What a cycle of the core's clock can move at most: the port's width, or DDR's peak if that is less."""
    peak = int(board.ddr.bytes_per_second / (board.clock.clock().mhz * 1e6))
    return min(core.bus_bytes, peak)


def candidate(board: Board, measured: CoreConfig, networks: Sequence[str], size: int) -> Candidate:
    """A measured core on a board, with the address bits that the board asks for."""
    core = fitted_core(board, measured)
    found = fit(board, core)
    refused = "; ".join(found.shortages)
    try:
        make_design(board, core)
    except BoardError as error:
        refused = refused or error.message
    images = {}
    if not refused and core.macs_per_cycle >= SMALLEST:
        for network in networks:
            # The number of address bits changes no cycle, and equal cores share their prediction.
            cycles = predicted_cycles(measured, network, size, bytes_per_cycle(board, core))
            images[network] = board.clock.clock().mhz * 1e6 / cycles
    return Candidate(found, refused, images)


def rows(candidates: Sequence[Candidate], networks: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    columns = ["board", "core", "array", *RESOURCES, "MHz", *networks, ""]
    table = []
    for each in candidates:
        core, board = each.found.core, each.found.board
        shares = [f"{each.found.shares[name]:.0%}" for name in RESOURCES]
        images = [f"{each.images[network]:.1f}" if network in each.images else "" for network in networks]
        array = f"{core.batch}x{core.block_in}x{core.block_out}"
        remark = "default" if each.chosen else each.refused
        if short := [name for name in RESOURCES if each.found.shares[name] > SHARE_LIMIT]:
            remark = f"too few {', '.join(short)}"
        table.append([board.name, core.name, array, *shares, f"{board.clock.clock().mhz:.0f}", *images, remark])
    return columns, table


def markdown(columns: Sequence[str], table: Sequence[Sequence[str]]) -> str:
    head = [columns, [":--", ":--", *("--:" for _ in columns[2:-1]), ":--"]]
    return "\n".join("| " + " | ".join(row) + " |" for row in [*head, *table]) + "\n"


def wrong_defaults(candidates: Sequence[Candidate]) -> list[str]:
    """Boards on which another core that fits is faster on all networks than the default."""
    wrong = []
    for board in {each.found.board.name: each.found.board for each in candidates}.values():
        here = [each for each in candidates if each.found.board == board and each.images]
        default = [each for each in here if each.chosen]
        if here and not default:
            wrong.append(f"{board.name}: the default core was not measured or does not fit")
        for each in here:
            for mine in default:
                if all(each.images[name] > 1.01 * mine.images[name] for name in each.images):
                    wrong.append(f"{board.name}: {each.found.core.name} is faster than {mine.found.core.name}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", default=NETWORKS, help="comma-separated; none: only what fits")
    parser.add_argument("--size", type=int, default=224, help="height and width of the images")
    parser.add_argument("--docs", type=Path, help="write the table into this page")
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    arguments = parser.parse_args()

    networks = [] if arguments.networks == "none" else arguments.networks.split(",")
    candidates = [
        candidate(board, core, networks, arguments.size)
        for board in all_boards().values()
        for core in measured_cores()
    ]  # fmt: skip
    columns, table = rows(candidates, networks)
    print_table(
        f"cores on boards; networks: predicted images a second at {arguments.size}x{arguments.size}", columns, table
    )
    if arguments.docs:
        before, mark, _ = arguments.docs.read_text().partition(MARK)
        if not mark:
            raise SystemExit(f"{arguments.docs} has no line {MARK.strip()!r}")
        arguments.docs.write_text(before + mark + "\n" + markdown(columns, table))
    if arguments.json:
        write_json(
            arguments.json,
            [
                Record(f"{each.found.board.name}, {each.found.core.name}", network, "predicted images a second", images)
                for each in candidates
                for network, images in each.images.items()
            ],
        )
    wrong = wrong_defaults(candidates)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
