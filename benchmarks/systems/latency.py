"""Latency of one item whose layers several cores share, against one core that has its memory alone.

Each layer is cut along rows, channels or both, or branches lie side by side, as `weft.compile(..., split=4)` chooses;
the cores have ports of their own, so that n cores have n times the bandwidth, if not --one-port. The cycles are those
of the timing model, where the cores start each other: of each turn its longest program, and what the relay takes from
one turn to the next. Time of the host is not in them; "host starts turns" says what an item takes if the host starts
each turn, --interrupt microseconds after the last.

    python benchmarks/systems/latency.py                                    # ResNet-50 and MobileNetV2 at 224x224, ViT
    python benchmarks/systems/latency.py --networks mobilenet_v2 --layers   # and how each layer is cut
    python benchmarks/systems/latency.py --networks digits --rtl            # also in Verilator: bytes and cycles equal
    python benchmarks/systems/latency.py --networks googlenet --one-port    # cores on one port
    python benchmarks/systems/latency.py --networks googlenet --no-branches # all layers shared, none side by side
    python benchmarks/systems/latency.py --networks --branching 40          # random networks with branches, Verilator
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import weft
from weft.compiler.model import CompiledModel
from weft.hw.config import TINY, CoreConfig, named_config
from weft.hw.system_config import SystemConfig
from weft.runtime.inputs import read_inputs
from weft.runtime.profile_shared import profile_shared
from weft.runtime.split_module import SplitModule
from weft.sim.timing import predict

from benchmarks.common import Record, print_table, write_json
from benchmarks.systems.systems import MEMORY, TOLERANCE, network_of
from tests.compiler.branching import random_branches

DIGITS = Path(weft.__file__).parents[1] / "examples" / "digits" / "digits.onnx"

TARGETS = {("resnet50", 4): 3.8, ("mobilenet_v2", 4): 2.9}
"""Times that one core's latency is wanted to be longer, of `pynq` and images of 224x224."""

CLOCK_MHZ = 100


@dataclass(frozen=True)
class Row:
    """A network on so many cores: cycles of an item, in so many turns, with those of the relay. The host starts it so
    often."""

    network: str
    core: str
    cores: int
    cycles: int
    relay: int
    turns: int
    starts: int
    alone: int
    target: float | None

    @property
    def times(self) -> float:
        """By which it is sooner there than from one core."""
        return self.alone / self.cycles

    @property
    def good(self) -> bool:
        return self.target is None or self.times >= self.target - TOLERANCE


@dataclass(frozen=True)
class Ways:
    """How the cores are connected, and what the compiler may do."""

    one_port: bool = False
    branches: bool = True

    def system(self, config: CoreConfig, cores: int) -> SystemConfig:
        ports = (0,) * cores if self.one_port else tuple(range(cores))
        return SystemConfig(cores=(config,) * cores, ports=ports, relay=True)

    def compiled(self, path: Path | onnx.ModelProto, config: CoreConfig, cores: int) -> CompiledModel:
        ports = self.system(config, cores).ports if self.one_port and cores > 1 else ()
        model = weft.compile(path, config, split=cores, ports=ports, branches=self.branches, progress=None)
        assert isinstance(model, CompiledModel)
        return model


def alone(model: CompiledModel) -> int:
    """Cycles of an item on one core."""
    runs = [predict(model.config, each.program, MEMORY, offset=each.program_offset) for each in model.programs]
    return sum(run.cycles or 0 for run in runs)


def measured(
    network: str, path: Path | onnx.ModelProto, config: CoreConfig, counts: list[int], ways: Ways, *, layers: bool
) -> Iterator[Row]:
    whole = ways.compiled(path, config, 1)
    single, starts = alone(whole), len(whole.programs)
    for count in counts:
        if count == 1:
            yield Row(network, config.name, 1, single, 0, starts, starts, single, None)
            continue
        model = ways.compiled(path, config, count)
        done = profile_shared(model, ways.system(config, count), MEMORY)
        turns = [[work.cycles for work in turn] for turn in zip(*done.work, strict=True)]
        wanted = TARGETS.get((network, count)) if config.name == "pynq" and not ways.one_port else None
        relay = done.cycles - sum(map(max, turns))
        yield Row(network, config.name, count, done.cycles, relay, len(turns), done.starts, single, wanted)
        if layers:
            print_layers(network, model, turns)


def print_layers(network: str, model: CompiledModel, turns: list[list[int]]) -> None:
    rows = []
    for number, cycles in enumerate(turns):
        names = dict.fromkeys(
            model.layers[layer].name for step in model.programs if step.turn == number for layer in step.layer_of
        )
        rows.append((" ".join(names), *(f"{each:,}" for each in cycles)))
    print_table(f"{network}: cycles of each turn", ["layers", *map(str, range(model.shared_by))], rows)


def branching(count: int) -> Iterator[Record]:
    """Random networks with branches on two to four small cores, with a port each or one for all, in Verilator."""
    different = turns = 0
    for seed in range(count):
        cores, ways = 2 + seed % 3, Ways(one_port=bool(seed // 3 % 2))
        with TemporaryDirectory() as folder:
            path = random_branches(seed, Path(folder))
            turns += branching_turns(ways.compiled(path, TINY, cores))
            if difference := rtl_difference(path, TINY, cores, ways):
                print(f"seed {seed}: {difference}", file=sys.stderr)
                different += 1
    yield Record("2 to 4 x tiny", "random branches", "networks", count)
    yield Record("2 to 4 x tiny", "random branches", "turns with branches", turns)
    yield Record("2 to 4 x tiny", "random branches", "networks that differ", different, 0)


def branching_turns(model: CompiledModel) -> int:
    """Turns in which cores that have layers have unlike ones."""
    count = 0
    for turn in range(1 + max(step.turn for step in model.programs)):
        layers = [frozenset(step.layer_of[:-1].tolist()) - {-1} for step in model.programs if step.turn == turn]
        count += len({own for own in layers if own}) > 1
    return count


def rtl_difference(path: Path | onnx.ModelProto, config: CoreConfig, cores: int, ways: Ways) -> str:
    """What is different in the Verilog of a system; empty if nothing."""
    system = ways.system(config, cores)
    model = ways.compiled(path, config, cores)
    item = read_inputs(model.inputs, None, 0)
    loaded = [weft.load(model, system=system, device=device, dram=MEMORY) for device in ("fsim", "rtl")]
    modules = [module for module in loaded if isinstance(module, SplitModule)]
    (first,), (second,) = (module.run([item]) for module in modules)
    if any(not np.array_equal(first[name], second[name]) for name in first):
        return "results differ"
    spans = [[done.spans for done in module.relayed] for module in modules]
    return "" if spans[0] == spans[1] else f"cycles differ: {spans}"


def with_host(row: Row, host: int) -> int:
    """Cycles of an item where the host starts each turn, which takes it so many."""
    return row.cycles - row.relay + host * (row.turns - 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="*", default=["resnet50", "mobilenet_v2", "vit"])
    parser.add_argument("--core", default="pynq", help="name of a configuration")
    parser.add_argument("--cores", nargs="*", type=int, default=[1, 2, 4], help="how many")
    parser.add_argument("--size", type=int, default=224, help="height and width of the images")
    parser.add_argument("--interrupt", type=float, default=80, help="microseconds of the host between two turns")
    parser.add_argument("--layers", action="store_true", help="print the cycles of each turn")
    parser.add_argument("--rtl", action="store_true", help="also in Verilator, on the most cores")
    parser.add_argument("--one-port", action="store_true", help="all cores on one port")
    parser.add_argument("--no-branches", action="store_true", help="no branches side by side")
    parser.add_argument("--branching", type=int, default=0, help="so many random networks with branches, in Verilator")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    config, host = named_config(arguments.core), round(arguments.interrupt * CLOCK_MHZ)
    ways = Ways(one_port=arguments.one_port, branches=not arguments.no_branches)
    rows: list[Row] = []
    records: list[Record] = []
    failed = False
    for network in arguments.networks:
        path = DIGITS if network == "digits" else network_of(network, arguments.size)
        found = list(measured(network, path, config, arguments.cores, ways, layers=arguments.layers))
        rows += found if arguments.size == 224 else [replace(row, target=None) for row in found]
        if arguments.rtl and (difference := rtl_difference(path, config, max(arguments.cores), ways)):
            print(f"{network}: {difference}", file=sys.stderr)
            failed = True
    for row in rows:
        where = f"{row.cores} x {row.core}"
        records += [
            Record(where, row.network, "cycles", row.cycles, row.alone),
            Record(where, row.network, "cycles of the relay", row.relay),
            Record(where, row.network, "turns", row.turns),
            Record(where, row.network, "starts by the host", row.starts),
            Record(where, row.network, "times sooner", round(row.times, 3), row.target),
            Record(where, row.network, "cycles where the host starts turns", with_host(row, host)),
        ]
    table = [
        (row.network, str(row.cores), f"{row.cycles:,}", f"{row.relay:,}", str(row.turns), str(row.starts),
         f"{row.times:.2f} x", f"{row.alone / with_host(row, host):.2f} x", f"{row.target} x" if row.target else "")
        for row in rows
    ]  # fmt: skip
    started = f"host starts turns, {arguments.interrupt:g} us"
    columns = ["network", "cores", "cycles", "of the relay", "turns", "starts", "sooner", started, "wanted"]
    print_table(f"Latency of an item on {arguments.core} cores", columns, table)
    for record in branching(arguments.branching) if arguments.branching else ():
        print(f"{record.workload}: {record.figure}: {record.value}")
        failed |= record.reference is not None and record.value != record.reference
        records.append(record)
    if arguments.json:
        write_json(arguments.json, records)
    return int(failed or not all(row.good for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
