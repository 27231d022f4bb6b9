"""Latency of one item whose layers several cores share, against one core that has its memory alone.

Each layer is cut along rows, channels or both, as `weft.compile(..., split=4)` chooses; the cores have ports of their
own, so that n cores have n times the bandwidth. The cycles are those of the timing model, where the cores start each
other: of each turn its longest program, and what the relay takes from one turn to the next. Time of the host is not in
them; "host starts turns" says what an item takes if the host starts each turn, --interrupt microseconds after the last.

    python benchmarks/systems/latency.py                                    # ResNet-50 and MobileNetV2 at 224x224, ViT
    python benchmarks/systems/latency.py --networks mobilenet_v2 --layers   # and how each layer is cut
    python benchmarks/systems/latency.py --networks digits --rtl            # also in Verilator: bytes and cycles equal
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
import onnx
import weft
from weft.compiler.model import CompiledModel, CoreStep
from weft.hw.config import CoreConfig, named_config
from weft.hw.relay_plan import RelayPlan
from weft.hw.system_config import SystemConfig
from weft.runtime.inputs import read_inputs
from weft.runtime.split_module import SplitModule, stretches_of
from weft.sim.relay_timing import spans_of
from weft.sim.timing import predict

from benchmarks.common import Record, print_table, write_json
from benchmarks.systems.systems import MEMORY, TOLERANCE, network_of

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


def turns_of(model: CompiledModel) -> list[list[list[int]]]:
    """Of each stretch of turns without the host, of each turn the cycles of each core's program."""

    def cycles(step: CoreStep) -> int:
        return predict(model.config, step.program, MEMORY, offset=step.program_offset).cycles or 0

    if model.shared_by == 1:
        return [[[cycles(step)]] for step in model.programs]
    return [[[*map(cycles, turn)] for turn in stretch.turns] for stretch in stretches_of(model, relay=True)[0]]


def relayed_cycles(stretches: list[list[list[int]]]) -> int:
    """Of an item, stretch after stretch, in each of which the cores start each other."""
    total = 0
    for turns in stretches:
        plan = RelayPlan.barrier(len(turns[0]))
        total += max(spans[-1].stop for spans in spans_of(plan, list(zip(*turns, strict=True)), len(turns)))
    return total


def compiled(path: Path | onnx.ModelProto, config: CoreConfig, cores: int) -> CompiledModel:
    model = weft.compile(path, config, split=cores, progress=None)
    assert isinstance(model, CompiledModel)
    return model


def measured(
    network: str, path: Path | onnx.ModelProto, config: CoreConfig, counts: list[int], *, layers: bool
) -> Iterator[Row]:
    alone = relayed_cycles(turns_of(compiled(path, config, 1)))
    for count in counts:
        model = compiled(path, config, count)
        stretches = turns_of(model)
        turns, cycles = list(chain.from_iterable(stretches)), relayed_cycles(stretches)
        wanted = TARGETS.get((network, count)) if config.name == "pynq" else None
        relay = cycles - sum(map(max, turns))
        yield Row(network, config.name, count, cycles, relay, len(turns), len(stretches), alone, wanted)
        if layers and count > 1:
            print_layers(network, model, turns)


def print_layers(network: str, model: CompiledModel, turns: list[list[int]]) -> None:
    rows = []
    for number, cycles in enumerate(turns):
        names = dict.fromkeys(
            model.layers[layer].name for step in model.programs if step.turn == number for layer in step.layer_of
        )
        rows.append((" ".join(names), *(f"{each:,}" for each in cycles)))
    print_table(f"{network}: cycles of each turn", ["layers", *map(str, range(model.shared_by))], rows)


def rtl_difference(path: Path | onnx.ModelProto, config: CoreConfig, cores: int) -> str:
    """What is different in the Verilog of a system; empty if nothing."""
    system = SystemConfig(cores=(config,) * cores, ports=tuple(range(cores)), relay=True)
    model = compiled(path, config, cores)
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
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    config, host = named_config(arguments.core), round(arguments.interrupt * CLOCK_MHZ)
    rows: list[Row] = []
    records: list[Record] = []
    failed = False
    for network in arguments.networks:
        path = DIGITS if network == "digits" else network_of(network, arguments.size)
        found = list(measured(network, path, config, arguments.cores, layers=arguments.layers))
        rows += found if arguments.size == 224 else [replace(row, target=None) for row in found]
        if arguments.rtl and (difference := rtl_difference(path, config, max(arguments.cores))):
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
    if arguments.json:
        write_json(arguments.json, records)
    return int(failed or not all(row.good for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
