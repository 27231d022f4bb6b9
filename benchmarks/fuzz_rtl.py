"""Random programs on both simulators: every byte of every memory must be equal.

Program ``n`` depends on the configuration and on ``n`` alone: ``--seed S --programs N`` runs S..S+N-1, so a campaign
goes on where another ended. A failure is shrunk and printed as a disassembly.

    python benchmarks/fuzz_rtl.py --config tiny --programs 2000 --seed 0
"""

from __future__ import annotations

import argparse
import time
from dataclasses import fields, replace
from pathlib import Path

from common import Record, print_table, write_json
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from weft.hw.config import CoreConfig, named_config
from weft.hw.isa import Engine
from weft.sim.fsim import FunctionalSimulator
from weft.sim.fuzz import MEMORY_BYTES, Case, mismatch, random_case, seeded, shrink
from weft.sim.verilated import RtlSimulator

WATCHDOG_CYCLES = 100_000
"""A legal program makes progress within the longest latency."""


def changed(config: CoreConfig, settings: list[str]) -> CoreConfig:
    """The configuration with ``name=value`` applied."""
    known = {field.name for field in fields(CoreConfig)}
    values: dict[str, int] = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in known or not value.isdigit():
            raise SystemExit(
                f"--set {setting}: not a field of the configuration with a number; fields: {sorted(known)}"
            )
        values[name] = int(value)
    return replace(config, name="+".join([config.name, *settings]), **values) if settings else config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="tiny")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="change a field, e.g. batch=2")
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="number of the first program")
    parser.add_argument("--instructions", type=int, default=40, help="most instructions of a program")
    parser.add_argument("--json", type=Path, help="write the records to this file")
    options = parser.parse_args()
    config = changed(named_config(options.config), options.set)
    functional = FunctionalSimulator(config, MEMORY_BYTES)
    rtl = RtlSimulator(config, MEMORY_BYTES, watchdog=WATCHDOG_CYCLES, progress=print)

    def difference(case: Case) -> str:
        rtl.set_dram(case.dram)
        return mismatch(case, functional, rtl)

    started = time.perf_counter()
    instructions = dict.fromkeys(["all", *(engine.name.lower() for engine in Engine)], 0)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        for number in progress.track(range(options.seed, options.seed + options.programs), description=config.name):
            case = random_case(config, seeded(number), most_instructions=options.instructions)
            if difference(case):
                progress.console.print(f"program {number} differs; shrinking")
                smallest = shrink(case, lambda smaller: bool(difference(smaller)))
                progress.console.print(f"{difference(smallest)}\n{smallest}", markup=False)
                raise SystemExit(f"repeat with: --config {options.config} --programs 1 --seed {number}")
            instructions["all"] += len(case.plain)
            for part in case.plain:
                instructions[part.engine.name.lower()] += 1
    seconds = time.perf_counter() - started
    records = [
        Record(config.name, "fuzz", "programs equal", options.programs, options.programs),
        Record(config.name, "fuzz", "first program", options.seed),
        *(Record(config.name, "fuzz", f"instructions, {name}", count) for name, count in instructions.items()),
        Record(config.name, "fuzz", "seconds", round(seconds, 1)),
    ]
    rows = [[r.figure, str(r.value), "" if r.reference is None else str(r.reference)] for r in records]
    print_table(f"Random programs, {config.name}", ["figure", "value", "reference"], rows)
    if options.json:
        write_json(options.json, records)


if __name__ == "__main__":
    main()
