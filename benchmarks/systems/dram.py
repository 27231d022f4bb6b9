"""What a DRAM with banks costs, and whether the RTL, the timing model and the standards agree on it.

One core on each kind of memory, and four cores with ports of their own on one DDR3-1066 of 16 bits, as on a PYNQ-Z2:
cycles against the flat memory of the same port. "Apart": the four cores begin a quarter of an item after each other and
take item after item; the slowest of the items that all four cores work beside. "Share": with programs that were
compiled for a memory as fast as a core's part of this one.

    python benchmarks/systems/dram.py                             # timing model, images of 224x224
    python benchmarks/systems/dram.py --rules              # also every command against its standard: a minute a network
    python benchmarks/systems/dram.py --models a.weft             # what 'weft compile' wrote, instead of networks
    python benchmarks/systems/dram.py --networks --programs 200   # random programs in Verilator: cycles, counters, rows
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import weft
from weft.compiler.model import CompiledModel
from weft.hw.config import PYNQ, TINY
from weft.hw.dram_rate import DramRate
from weft.hw.system_config import SystemConfig
from weft.runtime.artifact import load as load_artifact
from weft.runtime.profile_dram import dram_record
from weft.runtime.profile_system import timed_rounds
from weft.sim.dram import DramModel
from weft.sim.dram_interface import DramUse
from weft.sim.dram_kinds import BankedDram, parse_dram_kind
from weft.sim.dram_rules import broken_rules
from weft.sim.fuzz_system import compare_system, memory_bytes, random_system_case
from weft.sim.system_fsim import FunctionalSystem
from weft.sim.system_rtl import RtlSystem
from weft.sim.system_run import SystemResult
from weft.sim.system_timing import predict_system

from benchmarks.common import Record, print_table, write_json
from examples.models.build import build

FLAT = DramModel(latency=100, bytes_per_cycle=8)
KINDS = ("ddr3-1066x16@100", "ddr3-1066x32@100", "ddr4-2400x64@200", "lpddr4-3200x32@200")
NARROW = "ddr3-1066x16@100"

ONE_CORE = 1.0005
"""Cycles against the flat memory that one core may take: it never notices banks."""

FOUR_CORES = {"mobilenet_v2": 1.08}
"""The same of four cores with ports of their own on :data:`NARROW`, images of 224x224: compiled for their share, begun
apart."""

ROUNDS = 4
"""In which the starts of the second items are found: when the first ones end."""

RANDOM_SYSTEMS = {
    "1 core": SystemConfig(cores=(TINY,)),
    "2 on a port, 1 apart": SystemConfig(cores=(TINY, TINY, TINY), ports=(0, 0, 1)),
    "4 with own ports": SystemConfig(cores=(TINY,) * 4, ports=(0, 1, 2, 3)),
}


@dataclass(frozen=True)
class Row:
    """A network on ``count`` cores with ports of their own on one DRAM."""

    network: str
    count: int
    memory: str
    cycles: int
    flat: int
    use: Record
    broken: list[str]
    target: float | None = None
    apart: bool = False
    share: bool = False

    @property
    def factor(self) -> float:
        """Cycles against the flat memory."""
        return self.cycles / self.flat

    @property
    def how(self) -> str:
        return (", share" if self.share else "") + (", apart" if self.apart else "")

    @property
    def good(self) -> bool:
        return not self.broken and (self.target is None or self.factor <= self.target)


def run(model: CompiledModel, count: int, dram: DramModel, *, commands: bool = False) -> tuple[int, list[DramUse]]:
    """Cycles of an item on each of ``count`` cores, and what the DRAM did in each program."""
    system = SystemConfig(cores=(model.config,) * count, ports=tuple(range(count)))
    rounds, shared = timed_rounds(model, system)
    results = [predict_system(system, programs, dram, shared=shared, trace=commands) for programs in rounds]
    return sum(each.cycles or 0 for each in results), [each.dram for each in results if each.dram is not None]


def run_apart(model: CompiledModel, count: int, dram: DramModel, flat: int) -> tuple[int, SystemResult]:
    """Cycles of the slowest item that all cores work beside, where each of ``count`` cores takes two, one after the
    other, and begins a part of an item after the one before.

    A core's second item is that of another core of a larger system, started when its first one ends.
    """
    system = SystemConfig(cores=(model.config,) * 2 * count, ports=tuple(range(2 * count)))
    (programs,), _ = timed_rounds(model, system)
    first = [core * flat // count for core in range(count)]
    second = [start + flat for start in first]
    for _ in range(ROUNDS):
        starts = [*first, *second]
        done = predict_system(
            system, [replace(each, start=at) for each, at in zip(programs, starts, strict=True)], dram
        )
        cycles = [core.cycles or 0 for core in done.cores if core is not None]
        second = [start + each for start, each in zip(first, cycles, strict=False)]
    return max(cycles[count - 1], cycles[count]), done


def share_of(banks: BankedDram, count: int) -> DramRate:
    """A memory as fast as the part of a DRAM that each of ``count`` cores has."""
    whole = banks.kind.bytes_per_second / (banks.core_mhz * 10**6)
    return DramRate(latency=FLAT.latency, bytes_per_cycle=int(whole / count))


def measure(network: str, model: CompiledModel, shared: CompiledModel | None, rules: bool) -> Iterator[Row]:
    """The network on all memories, by the timing model. ``shared``: compiled for a fourth of :data:`NARROW`."""
    flat, _ = run(model, 1, FLAT)
    for count, kind in (*((1, kind) for kind in KINDS), (2, NARROW), (4, NARROW), (4, KINDS[1])):
        banks = parse_dram_kind(kind)
        dram = replace(FLAT, banks=banks)
        cycles, uses = run(model, count, dram, commands=rules)
        record = dram_record(dram, uses, cycles)
        assert record is not None
        broken = [
            problem
            for use in uses
            if use.commands is not None
            for problem in islice(broken_rules(banks.kind.name, use.commands), 5)
        ]
        yield Row(network, count, kind, cycles, flat, record, broken, ONE_CORE if count == 1 else None)
    wanted = FOUR_CORES.get(network) if model.inputs[0].shape[-1] == 224 else None
    dram = replace(FLAT, banks=parse_dram_kind(NARROW))
    for each in (model, shared):
        if each is None or len(each.programs) != 1:
            continue
        if share := each is shared:
            cycles, uses = run(each, 4, dram)
            record = dram_record(dram, uses, cycles)
            assert record is not None
            yield Row(network, 4, NARROW, cycles, flat, record, [], share=share)
        cycles, done = run_apart(each, 4, dram, run(each, 1, FLAT)[0])
        record = dram_record(dram, [done.dram], done.cycles or 0)
        assert record is not None
        yield Row(network, 4, NARROW, cycles, flat, record, [], wanted if share else None, apart=True, share=share)


def campaign(programs: int) -> Iterator[Record]:
    """Random programs on random DRAMs, in Verilator: how many, and how many differ from the model."""
    for name, system in RANDOM_SYSTEMS.items():
        size = memory_bytes(len(system.cores))
        rtl = RtlSystem(system, size, quick=True, progress=lambda text: print(text, file=sys.stderr))
        functional = FunctionalSystem(system, size)
        different, share = 0, -(-programs // len(RANDOM_SYSTEMS))
        for seed in range(share):
            case = random_system_case(system, seed)
            banks: BankedDram = parse_dram_kind(KINDS[seed % len(KINDS)])
            latency = banks.lone_cycles + case.dram.latency
            dram = replace(case.dram, banks=banks, latency=latency)
            if difference := compare_system(replace(case, dram=dram), functional, rtl):
                different += 1
                print(f"{name}, seed {seed}: {difference}", file=sys.stderr)
        yield Record(name, "random programs", "runs", share)
        yield Record(name, "random programs", "runs that differ", different, 0)


def compiled(arguments: argparse.Namespace) -> Iterator[tuple[str, CompiledModel, CompiledModel | None]]:
    """Name of the network, model, and the model for a fourth of :data:`NARROW`, which is made of no artifact."""
    for path in arguments.models:
        model = load_artifact(path, None)
        assert isinstance(model, CompiledModel)
        yield model.name.split("-")[0], model, None
    for name in arguments.networks if not arguments.models else ():
        path = build(name, size=arguments.size)
        model, shared = weft.compile(path, PYNQ), weft.compile(path, PYNQ, dram=share_of(parse_dram_kind(NARROW), 4))
        assert isinstance(model, CompiledModel)
        assert isinstance(shared, CompiledModel)
        yield name, model, shared


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="*", default=["mobilenet_v2", "resnet50"])
    parser.add_argument("--models", nargs="*", type=Path, default=[], help="artifacts, instead of networks")
    parser.add_argument("--size", type=int, default=224, help="height and width of the images")
    parser.add_argument("--rules", action="store_true", help="check every command")
    parser.add_argument("--programs", type=int, default=0, help="random programs, in Verilator")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = [row for given in compiled(arguments) for row in measure(*given, arguments.rules)]
    records: list[Record] = []
    for row in rows:
        where = f"{row.count} x pynq, {row.memory}{row.how}"
        records.append(Record(where, row.network, "cycles against flat", round(row.factor, 4), row.target))
        if arguments.rules and not row.how:
            records.append(Record(where, row.network, "rules broken", len(row.broken), 0))
        records += [Record(where, row.network, key, value) for key, value in row.use.items() if key != "memory"]
        for problem in row.broken:
            print(f"{where}, {row.network}: {problem}", file=sys.stderr)
    programs = list(campaign(arguments.programs)) if arguments.programs else []
    print_table(
        f"Cores with ports of their own on one DRAM, in order; latency {FLAT.latency}, {FLAT.bytes_per_cycle} bytes a "
        "cycle and port",
        ["network", "cores", "memory", "cycles", "/ flat", "wanted", "row hits", "activations", "refresh", "bus",
         "rules"],
        [
            (row.network, f"{row.count}{row.how}", row.memory, f"{row.cycles:,}",
             f"{row.factor:.4f}",
             "" if row.target is None else f"{row.target}{', missed' if row.factor > row.target else ''}",
             f"{row.use['row_hits']:.1%}", f"{row.use['activations']:,}", f"{row.use['refresh_share']:.1%}",
             f"{row.use['bus_busy']:.1%}",
             "broken" if row.broken else "kept" if arguments.rules and not row.how else "")
            for row in rows
        ],
    )  # fmt: skip
    if programs:
        print_table("RTL against the model", ["system", "workload", "figure", "value"],
                    [(each.config, each.workload, each.figure, str(each.value)) for each in programs])  # fmt: skip
    if arguments.json:
        write_json(arguments.json, [*records, *programs])
    return int(not all(row.good for row in rows) or any(each.reference == 0 and each.value for each in programs))


if __name__ == "__main__":
    sys.exit(main())
