"""Exploring cores: points an hour, and how soon the samplers reach what the whole grid has.

The grid of a space is measured once, by as many processes as asked for; the database keeps it, so that a second call
only compares. Then each algorithm searches the same space many times, answered from that grid: the hypervolume of its
front against the grid's, in cycles and area, both relative to the worst point of the grid.

    python benchmarks/exploring/explore.py --workers 2                       # the digits network on small cores
    python benchmarks/exploring/explore.py --space study.toml --networks resnet18.onnx
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from weft.compiler.tune.database import Database
from weft.explore.front import hypervolume
from weft.explore.measure import Measure, Network, open_network
from weft.explore.outcome import Outcome
from weft.explore.space import Design, Space, load_space
from weft.explore.study import Study, explore

from benchmarks.common import Record, print_table, write_json

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
SPACE = {
    "name": "small cores for digits",
    "base": "tiny",
    "core": {
        "batch": [1, 2], "block_in": [4, 8, 16], "block_out": [4, 8, 16], "inp_kib": [1, 2], "wgt_kib": [4, 16],
        "bus_bits": [64, 128], "acc_banks": [2, 4],
    },
    "compiler": {"chains": [False]},
    "constraints": {"part": "xc7z020"},
}  # fmt: skip
ALGORITHMS = ("random", "nsga2", "tpe")
TRIALS = (25, 50, 100)
WANTED, WANTED_TRIALS = 0.98, 100
"""Share of the grid's hypervolume that TPE has to reach, and in how many trials."""


def found_volume(points: Sequence[Outcome], grid: Study) -> float:
    """Hypervolume of some points, in units of the worst of the grid, without what the whole grid leaves out."""
    objectives = grid.objectives
    costs = np.array([each.cost(objectives) for each in grid.points if each.status == "measured"])
    low, high = costs.min(axis=0), costs.max(axis=0)
    mine = np.array([each.cost(objectives) for each in points if each.status == "measured"])
    return hypervolume(((mine - low) / (high - low)).tolist(), [1.0] * len(objectives))


class Known:
    """Measures of a grid, by core, memory, knobs and network: what a search is answered from."""

    def __init__(self, grid: Study) -> None:
        self._measures: Mapping[tuple[Design, str], Measure] = {
            (each.design, name): measure
            for each in grid.points if each.design
            for name, measure in each.measures.items()
        }  # fmt: skip

    def __call__(self, design: Design, network: Network) -> Measure:
        return self._measures[design, network.name]


class Forgetful:
    """A database that keeps nothing: every search starts anew."""

    def results(self, key: object) -> list[object]:
        return []

    def add(self, *_: object, **__: object) -> None: ...


def volumes(grid: Study, algorithm: str, seed: int, trials: Sequence[int]) -> list[float]:
    """Shares of the grid's hypervolume after so many trials of one search."""
    plan = {"algorithm": algorithm, "trials": max(trials), "seed": seed, "objectives": grid.objectives}
    space = Space.model_validate(grid.space.model_dump() | {"search": plan})
    known = Known(grid)
    study = explore(space, grid.networks, Forgetful(), workers=0, measurer=known, judge=known)  # type: ignore[arg-type]
    measured = [each for each in study.points if each.status == "measured"]
    whole = found_volume(grid.points, grid)
    return [found_volume(measured[:count], grid) / whole for count in trials]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--space", type=Path, help="a space file instead of small cores")
    parser.add_argument("--networks", type=Path, nargs="+", default=[DIGITS])
    parser.add_argument("--database", type=Path, default=Path("build") / "explore.sqlite")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    arguments = parser.parse_args()

    space = load_space(arguments.space) if arguments.space else Space.model_validate(SPACE)
    space = Space.model_validate(space.model_dump() | {"search": {"objectives": space.search.objectives}})
    networks = [open_network(path) for path in arguments.networks]
    arguments.database.parent.mkdir(exist_ok=True)

    def report(study: Study) -> None:
        text = f"{len(study.outcomes)} of {space.size} points, {study.measured} measured"
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    started = time.process_time()
    with Database(arguments.database) as database:
        grid = explore(space, networks, database, workers=arguments.workers, report=report)
    print(file=sys.stderr)
    counts = ", ".join(f"{grid.count(status)} {status}" for status in ("measured", "refused", "failed"))
    print(f"grid of {space.size} points: {counts}; {len(grid.front())} on the front")
    records = []
    if grid.measured:
        rate = 3600 * grid.measured / grid.seconds / len(networks)
        own = (time.process_time() - started) / max(1, grid.measured)
        print(f"{rate:,.0f} points an hour with {arguments.workers} workers: {grid.measured} compilations in "
              f"{grid.seconds:.0f} s, {own:.3f} s each in the process that decides")  # fmt: skip
        records.append(Record(space.name, "grid", "points an hour", round(rate)))
    rows, reached = [], True
    for algorithm in ALGORITHMS:
        found = np.array([volumes(grid, algorithm, seed, TRIALS) for seed in range(arguments.seeds)])
        rows.append([algorithm, *(f"{np.mean(column):.3f} ({np.min(column):.3f})" for column in found.T)])
        records += [Record(space.name, algorithm, f"share of the grid's hypervolume after {count}", float(value))
                    for count, value in zip(TRIALS, found.mean(axis=0), strict=True)]  # fmt: skip
        if algorithm == "tpe":
            reached = bool(found.mean(axis=0)[TRIALS.index(WANTED_TRIALS)] >= WANTED)
    title = f"share of the grid's hypervolume, mean (least) of {arguments.seeds} seeds"
    print_table(title, ["", *(f"{count} trials" for count in TRIALS)], rows)
    print(f"TPE reaches {WANTED:.0%} in {WANTED_TRIALS} trials: {'yes' if reached else 'NO'}")
    if arguments.json:
        write_json(arguments.json, records)
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
