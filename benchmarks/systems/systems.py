"""Several cores on one memory: throughput by items, and the RTL against the timing model.

Each network runs once on every core of a system at once, an item on each, and the throughput is compared with that of
one core. "shared": all cores on one port behind an arbiter, so that they have the bandwidth of one; "shared reads": the
same, with one read of weights for all; "own": a port of the same rate for each core, so that n cores have n times the
bandwidth. "stages": ports of their own, and a stage of the network on each core, one item after the other; "relay": the
same for a batch of items where the cores start each other, if the model can, and "rounds" where the host starts each
round, --interrupt microseconds after the end of the one before.

    python benchmarks/systems/systems.py                            # timing model, images of 224x224
    python benchmarks/systems/systems.py --rtl --size 64 --cores 2  # also in Verilator: bytes and cycles must be equal
    python benchmarks/systems/systems.py --models a.weft b.weft     # what 'weft compile' wrote, instead of networks
    python benchmarks/systems/systems.py --networks --programs 500  # random programs on random systems, in Verilator
    python benchmarks/systems/systems.py --networks --area          # what arbiters and relays take
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import weft
from amaranth.lib import wiring
from weft.compiler.model import CompiledModel
from weft.hw.bus import PAGE_BYTES
from weft.hw.config import PYNQ, CoreConfig
from weft.hw.core import page_bits
from weft.hw.interconnect import Arbiter
from weft.hw.relay import Relay
from weft.hw.relay_plan import RelayPlan
from weft.hw.synthesis import Target, synthesise_verilog
from weft.hw.system_config import SystemConfig
from weft.hw.verilog import TOP, emit_component
from weft.runtime.artifact import load as load_artifact
from weft.runtime.inputs import read_inputs
from weft.runtime.pipeline_module import WINDOWS_A_CORE, needs_no_host
from weft.runtime.profile_shared import timed
from weft.runtime.profile_system import timed_rounds
from weft.sim import system_rtl
from weft.sim.dram import DramModel
from weft.sim.fuzz_system import compare_kind, memory_bytes, random_system
from weft.sim.relay_timing import spans_of
from weft.sim.system_fsim import FunctionalSystem
from weft.sim.system_rtl import RtlSystem
from weft.sim.system_timing import predict_system
from weft.sim.timing import predict

from benchmarks.common import Record, print_table, write_json
from benchmarks.core.other_networks import FORM
from benchmarks.zoo.peer_networks import NETWORKS
from benchmarks.zoo.peer_networks import network as peer_network
from benchmarks.zoo.quantised_forms import quantised
from benchmarks.zoo.whole_networks import ARCHITECTURES, float_network
from examples.models.build import build

CORES = {"16x16": PYNQ, "8x8": replace(PYNQ, name="8x8", block_in=8, block_out=8, depthwise=0)}
MEMORY = DramModel(latency=100, bytes_per_cycle=8)

TARGETS = {
    ("resnet50", "own", 4): 3.95,
    ("mobilenet_v2", "own", 4): 3.9,
    ("resnet50", "stages", 4): 3.7,
    ("mobilenet_v2", "stages", 4): 3.5,
    ("resnet50", "shared", 2): 1.51,
    ("mobilenet_v2", "shared", 2): 1.40,
    ("resnet18", "shared", 2): 1.76,
    ("resnet50", "shared", 4): 1.65,
    ("mobilenet_v2", "shared", 4): 1.54,
    ("resnet18", "shared", 4): 2.22,
    ("resnet50", "shared reads", 2): 1.73,
    ("mobilenet_v2", "shared reads", 2): 1.71,
    ("resnet18", "shared reads", 2): 1.97,
    ("resnet50", "shared reads", 4): 2.28,
    ("mobilenet_v2", "shared reads", 4): 2.36,
    ("resnet18", "shared reads", 4): 3.40,
}
"""Throughput against one core that is wanted of 16x16 cores on images of 224x224."""

Stages = Callable[[int, Sequence[int]], CompiledModel | None]
"""The network in so many stages, for the ports of their cores (none: one each); None where there is but an artifact of
it."""

WEIGHTS = (1, 2, 4, 15)
"""Bursts of the first core's turn, where turns are tried."""

OUTSTANDING = (8, 32)
"""Bursts that the memory takes at once, where turns are tried: as the ports of a Zynq-7000, and as many as two cores
ask for."""

PORTS = ("own", "shared", "shared reads")

TOLERANCE = 0.02
"""By which a throughput may be below its target, which is rounded."""


@dataclass(frozen=True)
class Row:
    """A network on ``count`` cores with ports of their own, or one that they share; ``cycles`` bring ``items``."""

    network: str
    core: str
    ports: str
    count: int
    cycles: int
    items: int
    alone: int
    target: float | None

    @property
    def throughput(self) -> float:
        """Against one core."""
        return self.items * self.alone / self.cycles

    @property
    def good(self) -> bool:
        return self.target is None or self.throughput >= self.target - TOLERANCE


def system_of(config: CoreConfig, count: int, ports: str) -> SystemConfig:
    """So many alike cores."""
    own = tuple(range(count)) if ports == "own" else ()
    return SystemConfig(cores=(config,) * count, ports=own, shared_reads=ports == "shared reads" and count > 1)


def cycles_on(system: SystemConfig, model: CompiledModel) -> int:
    """Of an item on each core, program after program, as ``weft run --system`` lays them out."""
    rounds, shared = timed_rounds(model, system)
    return sum(predict_system(system, programs, MEMORY, shared=shared).cycles or 0 for programs in rounds)


def turns(network: str, core: str, model: CompiledModel, count: int) -> Iterator[Record]:
    """An item on each core of one port, by the weight of the first, and by the bursts that the memory takes at once:
    how much longer each core takes than alone."""
    single = alone(model)
    for outstanding, weight in itertools.product(OUTSTANDING, WEIGHTS):
        memory = replace(MEMORY, outstanding=outstanding)
        system = SystemConfig(cores=(model.config,) * count, weights=(weight, *(1,) * (count - 1)))
        rounds, shared = timed_rounds(model, system)
        runs = [predict_system(system, programs, memory, shared=shared).cores for programs in rounds]
        cycles = [sum(own.cycles or 0 for run in runs if (own := run[number])) for number in range(count)]
        where = f"{count} x {core}, weights {weight}{':1' * (count - 1)}, {outstanding} bursts at once"
        yield Record(where, network, "first core, against alone", round(cycles[0] / single, 3))
        yield Record(where, network, "slowest core, against alone", round(max(cycles) / single, 3))


def alone(model: CompiledModel) -> int:
    """Cycles on one core that has its memory alone."""
    runs = [predict(model.config, each.program, MEMORY, offset=each.program_offset) for each in model.programs]
    return sum(run.cycles or 0 for run in runs)


def measure(network: str, core: str, model: CompiledModel, counts: list[int]) -> Iterator[Row]:
    """The network on all systems, by the timing model."""
    config, size = model.config, model.inputs[0].shape[-1]
    for ports in PORTS:
        for count in counts:
            if count == 1 and ports != "own":
                continue
            cycles = cycles_on(system_of(config, count, ports), model)
            yield Row(
                network, core, ports, count, cycles, count, alone(model), wanted(network, core, ports, count, size)
            )


def wanted(network: str, core: str, ports: str, count: int, size: int) -> float | None:
    return TARGETS.get((network, ports, count)) if core == "16x16" and size == 224 else None


def measure_stages(
    network: str, core: str, cycles_alone: int, counts: list[int], compile_for: Stages, batch: int, host: int
) -> Iterator[Row]:
    """The network in stages, one on each core with a port of its own: a round, which brings an item, and a batch with
    the host's time, in cycles."""
    for count in counts:
        model = compile_for(count, ()) if count > 1 else None
        if model is None:
            continue
        cycles = [0] * count
        for step in model.programs:
            cycles[step.stage] += predict(model.config, step.program, MEMORY, offset=step.program_offset).cycles or 0
        print(f"{network}, {count} stages: {', '.join(f'{each:,}' for each in cycles)} cycles", file=sys.stderr)
        target = wanted(network, core, "stages", count, model.inputs[0].shape[-1])
        yield Row(network, core, "stages", count, max(cycles), 1, cycles_alone, target)
        rounds, relayed = batch_cycles(cycles, batch, host)
        yield Row(network, core, "rounds", count, rounds, batch, cycles_alone, None)
        if needs_no_host(model):
            yield Row(network, core, "relay", count, relayed, batch, cycles_alone, None)


def measure_stages_on_ports(
    network: str, core: str, cycles_alone: int, count: int, compile_for: Stages
) -> Iterator[Row]:
    """The network in stages on cores of which some share a port: a round, by stages cut for a port each and for these
    ports."""
    for name, ports in (("one port", (0,) * count), ("two on a port", tuple(core // 2 for core in range(count)))):
        for cut, told in (("a port each", ()), ("these", ports)):
            model = compile_for(count, told)
            if model is None:
                continue
            system = SystemConfig(cores=(model.config,) * count, ports=ports)
            cycles = predict_system(system, [timed(step) for step in model.programs], MEMORY).cycles or 0
            yield Row(network, core, f"stages, {name}, cut for {cut}", count, cycles, 1, cycles_alone, None)


def batch_cycles(cycles: list[int], items: int, host: int) -> tuple[int, int]:
    """Of so many items through stages that take ``cycles``: where the host starts each round and takes so long between
    two, and where it starts once and the cores start each other, with windows that the host fills beside them."""
    stages = len(cycles)
    rounds = sum(
        max(cycles[stage] for stage in range(stages) if 0 <= number - stage < items)
        for number in range(items + stages - 1)
    )
    plan = RelayPlan.pipeline(stages, WINDOWS_A_CORE * stages, PAGE_BYTES)
    last = spans_of(plan, [[each] for each in cycles], items)[-1][-1].stop
    return rounds + host * (items + stages - 2), last


def rtl_equals(model: CompiledModel, count: int, ports: str, quick: bool) -> str:
    """As many items as cores, in the simulators and in Verilator: the first difference."""
    system = system_of(model.config, count, "own" if ports == "stages" else ports)
    items = [read_inputs(model.inputs, None, seed) for seed in range(count)]
    system_rtl.RtlSystem = partial(RtlSystem, quick=quick)  # type: ignore[misc, assignment]
    modules = [weft.load(model, device, system=system, dram=MEMORY) for device in ("fsim", "rtl")]
    expected, real = (module.run(items) for module in modules)
    for number, (first, second) in enumerate(zip(expected, real, strict=True)):
        for name in first:
            if not np.array_equal(first[name], second[name]):
                return f"output {name!r} of item {number} differs"
    cycles = [[[core and core.cycles for core in run.cores] for run in module.results] for module in modules]
    return "" if cycles[0] == cycles[1] else f"the model says {cycles[0]} cycles, the RTL {cycles[1]}"


def campaign(programs: int, systems: int) -> Iterator[Record]:
    """Random programs on random systems, in Verilator: how many, and how many differ."""
    share = -(-programs // systems)
    for number in range(systems):
        system = random_system(number)
        size, cores = memory_bytes(len(system.cores)), ", ".join(core.name for core in system.cores)
        name = f"{cores}; ports {', '.join(map(str, system.ports))}{'; shared reads' if system.shared_reads else ''}"
        rtl, functional = (
            RtlSystem(system, size, quick=True, progress=lambda text: print(text, file=sys.stderr)),
            FunctionalSystem(system, size),
        )
        different = 0
        for seed in range(share):
            if difference := compare_kind(system, seed, functional, rtl):
                different += 1
                print(f"{name}, seed {seed}: {difference}", file=sys.stderr)
        yield Record(name, "random programs", "runs", share)
        yield Record(name, "random programs", "runs that differ", different, 0)


def areas(counts: list[int]) -> Iterator[Record]:
    """Of the arbiter for so many cores on one port, on a 7-series part, without and with shared reads, and with
    weights; of the relay."""
    for count in counts:
        weighted = Arbiter([PYNQ] * count, weights=(4, *(1,) * (count - 1)))
        parts: list[tuple[str, str, wiring.Component]] = [
            *(("arbiter", PORTS[1 + shares], Arbiter([PYNQ] * count, shares_reads=bool(shares))) for shares in (0, 1)),
            ("arbiter", "weights", weighted),
        ]
        for name, kind, part in [*parts, ("relay", "relay", Relay(count, page_bits(PYNQ)))]:
            figures = synthesise_verilog(name, emit_component(part, TOP), Target.XC7)[0].total
            where = f"{count} x 16x16, {kind}"
            yield from (Record(where, name, figure, value) for figure, value in figures.items() if value)


def network_of(name: str, size: int) -> Path | onnx.ModelProto:
    """One of the networks that `build` makes, for images of this size, or a quantised one of the zoo, which has its
    own."""
    if name in ARCHITECTURES:
        return quantised(*float_network(name), FORM)
    if name in NETWORKS:
        return quantised(*peer_network(name), FORM)
    return build(name, size=size)


def compiled_for(
    network: Path | onnx.ModelProto, config: CoreConfig, stages: int, ports: Sequence[int]
) -> CompiledModel:
    model = weft.compile(network, config, stages=stages, ports=tuple(ports))
    assert isinstance(model, CompiledModel)
    return model


def compiled(arguments: argparse.Namespace) -> Iterator[tuple[str, str, CompiledModel, Stages]]:
    """Name of the network, name of the core, model, and what compiles it in stages."""
    for path in arguments.models:
        model = load_artifact(path, None)
        core = next((name for name, config in CORES.items() if config.hash64 == model.config.hash64), model.config.name)
        yield model.name.split("-")[0], core, model, lambda *_: None
    for core in arguments.core:
        for name in arguments.networks if not arguments.models else ():
            compile_for = partial(compiled_for, network_of(name, arguments.size), CORES[core])
            yield name, core, compile_for(1, ()), compile_for


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="*", default=["resnet50", "mobilenet_v2"])
    parser.add_argument("--models", nargs="*", type=Path, default=[], help="artifacts, instead of networks")
    parser.add_argument("--core", nargs="*", default=list(CORES), choices=list(CORES))
    parser.add_argument("--cores", nargs="*", type=int, default=[1, 2, 4], help="how many")
    parser.add_argument("--size", type=int, default=224, help="height and width of the images")
    parser.add_argument("--rtl", action="store_true", help="also in Verilator, on the most cores and one port")
    parser.add_argument("--quick", action="store_true", help="RTL that builds faster and runs slower")
    parser.add_argument("--programs", type=int, default=0, help="random programs, in Verilator")
    parser.add_argument("--systems", type=int, default=8, help="random systems that share those programs")
    parser.add_argument("--batch", type=int, default=64, help="items through the stages, by one start or by rounds")
    parser.add_argument("--interrupt", type=float, default=80, help="microseconds of the host between two rounds")
    parser.add_argument("--clock", type=float, default=100, help="MHz of the cores, for these")
    parser.add_argument("--ports", action="store_true", help="also stages whose cores share ports")
    parser.add_argument("--turns", action="store_true", help="also by the weight of a port's first core")
    parser.add_argument("--area", action="store_true", help="synthesise arbiters and relays")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows: list[Row] = []
    records: list[Record] = []
    most = max(arguments.cores)
    for network, core, model, compile_for in compiled(arguments):
        rows += measure(network, core, model, arguments.cores)
        host = round(arguments.interrupt * arguments.clock)
        rows += measure_stages(network, core, alone(model), arguments.cores, compile_for, arguments.batch, host)
        if arguments.ports and most > 1:
            rows += measure_stages_on_ports(network, core, alone(model), most, compile_for)
        if arguments.turns and most > 1:
            records += turns(network, core, model, most)
        if arguments.rtl:
            in_stages = compile_for(most, ())
            tried = {"shared": model, "shared reads": model, **({"stages": in_stages} if in_stages else {})}
            for ports, each in tried.items():
                difference = rtl_equals(each, most, ports, arguments.quick)
                where = f"{most} x {core}, {ports}"
                records.append(Record(where, network, "RTL against the model", difference or "equal", "equal"))
    for row in rows:
        where = f"{row.count} x {row.core}, {row.ports}"
        records.append(Record(where, row.network, "cycles", row.cycles))
        records.append(Record(where, row.network, "throughput", round(row.throughput, 3), row.target))
    records += campaign(arguments.programs, max(1, arguments.systems)) if arguments.programs else []
    records += areas([count for count in arguments.cores if count > 1]) if arguments.area else []
    print_table(
        f"Throughput by items, latency {MEMORY.latency}, {MEMORY.bytes_per_cycle} bytes a cycle and port",
        ["network", "core", "ports", "cores", "cycles", "throughput", "wanted"],
        [
            (row.network, row.core, row.ports, str(row.count), f"{row.cycles:,}", f"{row.throughput:.2f} x",
             "" if row.target is None else f"{row.target:.2f} x{'' if row.good else ', missed'}")
            for row in rows
        ],
    )  # fmt: skip
    others = [record for record in records if record.figure not in ("cycles", "throughput")]
    if others:
        print_table("Hardware", ["system", "workload", "figure", "value"],
                    [(each.config, each.workload, each.figure, str(each.value)) for each in others])  # fmt: skip
    if arguments.json:
        write_json(arguments.json, records)
    wrong = [each for each in others if each.reference is not None and each.value != each.reference]
    return int(bool(wrong) or not all(row.good for row in rows))


if __name__ == "__main__":
    sys.exit(main())
