"""Faults of the memory while the whole core runs a convolution (ResNet-18's C9): what the core makes of them.

Each kind of fault is injected at random moments of the run. It must be reported with the right cause, or leave the
result as it was; the core must stop within the watchdog's time, and the next run must be correct.

The good run is simulated once: at every moment the process forks, and the child goes on with the fault in it.

    python benchmarks/campaigns/faults.py --moments 200
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import weft
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from weft.hw.config import CoreConfig, named_config
from weft.runtime.device import RtlDevice
from weft.sim.fault_injection import GOOD, KINDS, WATCHDOG_CYCLES, Campaign, Workload
from weft.sim.result import RunResult
from weft.sim.rtl import RtlSimulator

from benchmarks.common import Record, print_table, write_json
from benchmarks.core.conv_layers import SHAPES, Shape, layer, lowered

SMALL = Shape(8, 16, 16, 3, 1)
"""The layer of most second runs; every ``--full-each``-th is the same layer again."""


class RecordingDevice(RtlDevice):
    """Keeps what the window held before and after the program."""

    def execute(self, offset: int, count: int, trace: bool) -> RunResult:
        before = self.memory().copy()
        result = super().execute(offset, count, trace)
        self.workload = Workload(offset, count, before, self.memory().copy(), result.cycles or 0)
        return result


def good_run(name: str, shape: Shape, config: CoreConfig) -> Workload:
    """Compile a layer and run it without faults; its integers must be those of the functional simulator."""
    module = lowered(layer(name, shape, 0), config)
    model = weft.compile(module, config, vthreads=2)
    x = np.random.default_rng(1).integers(-128, 128, module.main.params[0].shape).astype(np.int8)
    device = RecordingDevice(config)
    result = weft.load(model, device).run({"x": x})["y"]
    if not np.array_equal(result, weft.load(model, "fsim").run({"x": x})["y"]):
        raise SystemExit(f"{name}: the good run is not good")
    return device.workload


def print_outcomes(outcomes: dict[str, Counter[tuple[str, str]]]) -> None:
    """A row for each kind, a column for each outcome."""
    columns = list(dict.fromkeys([*GOOD, *(outcome for found in outcomes.values() for outcome, _ in found)]))
    rows = []
    for name, found in outcomes.items():
        causes = ", ".join(sorted({cause for _, cause in found if cause}))
        counts = (sum(count for (outcome, _), count in found.items() if outcome == column) for column in columns)
        rows.append([name, str(found.total()), *map(str, counts), causes])
    print_table("Faults of the memory during C9", ["kind", "runs", *columns, "causes reported"], rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=200, help="of each kind of fault")
    parser.add_argument("--config", default="pynq")
    parser.add_argument("--layer", default="C9", choices=sorted(SHAPES))
    parser.add_argument("--full-each", type=int, default=20, help="every so many runs the next one is the layer again")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    arguments = parser.parse_args()
    config = named_config(arguments.config)
    workload = good_run(arguments.layer, SHAPES[arguments.layer], config)
    following = good_run("small", SMALL, config)
    print(f"{arguments.layer}: {workload.count} instructions, {workload.cycles:,} cycles", flush=True)
    size = max(len(workload.before), len(following.before))
    simulator = RtlSimulator(config, size, watchdog=WATCHDOG_CYCLES)
    campaign = Campaign(simulator, workload, following, full_each=arguments.full_each)
    outcomes: dict[str, Counter[tuple[str, str]]] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        for kind in KINDS:
            choice = random.Random(f"{arguments.seed} {kind.name}")
            moments = [choice.randrange(workload.cycles) for _ in range(arguments.moments)]
            task = progress.add_task(kind.name, total=len(moments))
            outcomes[kind.name] = campaign.run(kind, moments, arguments.seed, lambda task=task: progress.advance(task))
            counts = ", ".join(f"{count} {' '.join(key).strip()}" for key, count in outcomes[kind.name].items())
            progress.console.print(f"{kind.name}: {counts}", highlight=False)
    print_outcomes(outcomes)
    records = [
        Record(config.name, f"{arguments.layer}, {name}", " ".join(filter(None, key)), count)
        for name, found in outcomes.items() for key, count in found.items()
    ]  # fmt: skip
    if arguments.json:
        write_json(arguments.json, records)
    bad = sum(count for found in outcomes.values() for (outcome, _), count in found.items() if outcome not in GOOD)
    print(f"{sum(found.total() for found in outcomes.values())} runs, {bad} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
