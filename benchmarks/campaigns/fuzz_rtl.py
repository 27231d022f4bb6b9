"""Random programs on random cores: the functional simulator and the RTL must agree in every byte, fault and cycle.

Compared are all of DRAM and every scratchpad, the fault record, and, where the memory is without jitter, the cycles
with those of the timing model. Every fourth program has something wrong. Every third random core has the array that
holds two products in a multiplier, as it is exported for xc7. Program ``n`` of core ``c`` depends on these two numbers
alone. A failing case is shrunk, printed and stored (``--store``); the campaign goes on. ``--resume FILE`` keeps what is
done in FILE and goes on from there.

    python benchmarks/campaigns/fuzz_rtl.py --cores 44 --programs 250 --resume /tmp/fuzz.json
    python benchmarks/campaigns/fuzz_rtl.py --config pynq --programs 500
    python benchmarks/campaigns/fuzz_rtl.py --config tiny --multipliers packed --set burst_beats=16
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from weft.hw.config import CoreConfig, named_config
from weft.hw.mac_array_packed import Multipliers
from weft.sim.fsim import FunctionalSimulator
from weft.sim.fuzz import MEMORY_BYTES, Case, random_case, seeded
from weft.sim.fuzz_compare import compare
from weft.sim.fuzz_configs import campaign_config, campaign_multipliers
from weft.sim.fuzz_illegal import illegal_case
from weft.sim.fuzz_store import write_case
from weft.sim.rtl import RtlSimulator
from weft.sim.shrink import shrink

from benchmarks.common import Record, print_table, write_json

WATCHDOG_CYCLES = 5_000
"""A legal program makes progress within the longest latency."""

ILLEGAL_EACH = 4
"""One program of so many has something wrong."""

SAVED_EACH = 50
"""Programs between two savings of the state."""

MOST_FAILURES = 3
"""Of one core, before the campaign goes to the next."""


@dataclass
class Tally:
    """What has been done on one core."""

    config: str = ""
    multipliers: str = Multipliers.PLAIN
    programs: int = 0
    instructions: int = 0
    timed: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0


def changed(config: CoreConfig, settings: list[str]) -> CoreConfig:
    """The configuration with ``name=value`` applied."""
    known = {item.name for item in fields(CoreConfig)}
    values: dict[str, int] = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in known or not value.isdigit():
            raise SystemExit(
                f"--set {setting}: not a field of the configuration with a number; fields: {sorted(known)}"
            )
        values[name] = int(value)
    return replace(config, name="+".join([config.name, *settings]), **values) if settings else config


def program(config: CoreConfig, core: int, number: int, most_instructions: int) -> Case:
    """Program ``number`` of a core."""
    draw = seeded(core * 1_000_003 + number)
    if number % ILLEGAL_EACH == ILLEGAL_EACH - 1:
        return illegal_case(config, draw)
    return random_case(config, draw, most_instructions=most_instructions)


class Campaign:
    """Runs programs, keeps the tallies, and the state file where one is wanted."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.deadline = time.monotonic() + options.seconds if options.seconds else float("inf")
        self.tallies: dict[str, Tally] = {}
        if options.resume and options.resume.exists():
            self.tallies = {name: Tally(**values) for name, values in json.loads(options.resume.read_text()).items()}

    def save(self) -> None:
        if self.options.resume:
            unfinished = self.options.resume.with_suffix(".tmp")
            unfinished.write_text(json.dumps({name: asdict(tally) for name, tally in self.tallies.items()}, indent=1))
            unfinished.rename(self.options.resume)

    def run_core(self, config: CoreConfig, multipliers: Multipliers, core: int, progress: Progress) -> None:
        """All programs of one core that are not done yet."""
        tally = self.tallies.setdefault(config.name, Tally())
        if (tally.config, tally.multipliers) != (config.to_json(), multipliers):
            tally = self.tallies[config.name] = Tally(config.to_json(), multipliers)
        first, last = self.options.seed + tally.programs, self.options.seed + self.options.programs
        task = progress.add_task(config.name, total=self.options.programs, completed=tally.programs)
        if first >= last or len(tally.failures) >= MOST_FAILURES:
            return
        started = time.monotonic()
        done_before = tally.seconds
        functional = FunctionalSimulator(config, MEMORY_BYTES)
        say = progress.console.print
        rtl = RtlSimulator(
            config, MEMORY_BYTES, watchdog=WATCHDOG_CYCLES, progress=say, quick=True, multipliers=multipliers
        )
        causes = Counter(tally.causes)
        for number in range(first, last):
            if time.monotonic() > self.deadline or len(tally.failures) >= MOST_FAILURES:
                break
            case = program(config, core, number, self.options.instructions)
            found = compare(case, functional, rtl)
            if found.difference:
                self.report(case, number, functional, rtl, progress)
                tally.failures.append(f"program {number}: {found.difference}")
            tally.programs += 1
            tally.instructions += len(case.program)
            tally.timed += found.timed
            causes[found.subject.fault.cause.name if found.subject.fault else "none"] += 1
            tally.causes = dict(causes)
            tally.seconds = done_before + time.monotonic() - started
            progress.update(task, completed=tally.programs)
            if number % SAVED_EACH == 0:
                self.save()
        self.save()

    def report(
        self, case: Case, number: int, functional: FunctionalSimulator, rtl: RtlSimulator, progress: Progress
    ) -> None:
        """Shrink, print and store a case that fails."""
        progress.console.print(f"{case.config.name}, program {number}: differs; shrinking")
        smallest = shrink(case, lambda smaller: bool(compare(smaller, functional, rtl).difference))
        difference = compare(smallest, functional, rtl).difference
        progress.console.print(f"{difference}\n{smallest}", markup=False)
        if self.options.store:
            self.options.store.mkdir(parents=True, exist_ok=True)
            write_case(self.options.store / f"{case.config.name}-{number}.json", smallest, difference)


def records_of(tallies: dict[str, Tally]) -> list[Record]:
    total = Counter[str]()
    records = []
    for name, tally in tallies.items():
        figures = {
            "programs": tally.programs, "instructions": tally.instructions, "cycles compared": tally.timed,
            "mismatches": len(tally.failures),
        }  # fmt: skip
        total.update(figures)
        if tally.multipliers == Multipliers.PACKED:
            total["programs on packed arrays"] += tally.programs
        records += [Record(name, "fuzz", figure, value) for figure, value in figures.items()]
        total.update({f"ended with {cause}": count for cause, count in tally.causes.items()})
    records += [Record("all", "fuzz", figure, value) for figure, value in total.items()]
    return [*records, Record("all", "fuzz", "cores", len(tallies))]


def print_tallies(tallies: dict[str, Tally]) -> None:
    rows = []
    for name, tally in tallies.items():
        config = CoreConfig.from_json(tally.config)
        rows.append([
            name, f"{config.batch} x {config.block_in} x {config.block_out} {tally.multipliers}",
            f"{config.inp_depth} {config.wgt_depth} {config.acc_depth}/{config.acc_banks} {config.out_depth}",
            f"{config.queue_depth} {config.token_depth}", f"{config.bus_bits}",
            f"{config.burst_beats} {config.read_outstanding} {config.write_outstanding}", f"{tally.programs}",
            f"{tally.instructions}", f"{tally.programs - tally.causes.get('none', 0)}", f"{tally.timed}",
            f"{len(tally.failures)}", f"{tally.seconds:.0f}",
        ])  # fmt: skip
    columns = ["core", "batch x in x out", "depths inp wgt acc/banks out", "queue token", "bus", "beats reads writes"]
    columns += ["programs", "instructions", "faults", "cycles compared", "mismatches", "s"]
    print_table("Random programs, functional simulator against RTL", columns, rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=44, help="number of random cores")
    parser.add_argument("--first-core", type=int, default=0)
    parser.add_argument("--config", help="a named configuration instead of random cores")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="change a field of --config")
    parser.add_argument(
        "--multipliers", type=Multipliers, choices=list(Multipliers), help="form of the array of all cores"
    )
    parser.add_argument("--programs", type=int, default=250, help="programs for each core")
    parser.add_argument("--seed", type=int, default=0, help="number of the first program")
    parser.add_argument("--instructions", type=int, default=60, help="most instructions of a legal program")
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument("--resume", type=Path, help="file that keeps what is done")
    parser.add_argument("--store", type=Path, help="folder for cases that fail")
    parser.add_argument("--json", type=Path, help="write the records to this file")
    options = parser.parse_args()
    if options.config:
        configs = {0: changed(named_config(options.config), options.set)}
    else:
        numbers = range(options.first_core, options.first_core + options.cores)
        configs = {number: campaign_config(number) for number in numbers}
    campaign = Campaign(options)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        cores = progress.add_task("cores", total=len(configs))
        for core, config in configs.items():
            if time.monotonic() > campaign.deadline:
                break
            chosen = Multipliers.PLAIN if options.config else campaign_multipliers(core)
            campaign.run_core(config, options.multipliers or chosen, core, progress)
            progress.advance(cores)
    print_tallies(campaign.tallies)
    records = records_of(campaign.tallies)
    rows = [[record.figure, str(record.value)] for record in records if record.config == "all"]
    print_table("All cores", ["figure", "value"], rows)
    if options.json:
        write_json(options.json, records)
    return 1 if any(tally.failures for tally in campaign.tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
