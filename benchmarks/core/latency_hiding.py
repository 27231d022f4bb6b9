"""What latency hiding is worth, step by step: the experiment of section 4.4 of the TVM paper (arXiv:1802.04799).

First no two engines work at the same time; then engines wait for data only, with one tile and with two virtual
threads; then tiles and layers lie in rings of entries; at last chains of layers stay on chip. Each layer of ResNet-18
alone, and whole networks. All programs have passed the checker; ``--device`` runs the layers on a simulator, whose
integers must equal NumPy's and whose cycles must equal the timing model's.

    python benchmarks/core/latency_hiding.py --device rtl --plot docs/pictures/latency_hiding.svg

The paper's core reaches at most 70 % of its array on a layer without latency hiding and 88 % with it (there by two
virtual threads). The exit status says whether each step helps C2..C12 and each network, and whether all integers are
equal.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import weft
from rich.console import Console
from weft.compiler.model import CompiledModel
from weft.hw.config import CoreConfig, named_config
from weft.sim.dram import DramModel

from benchmarks.common import Record, print_table, write_json
from benchmarks.core.conv_layers import SHAPES, layer, lowered, predicted, run
from benchmarks.core.latency_hiding_plot import Point, draw
from examples.models.build import ARCHITECTURES, build

NOISE = 1.002
"""A step may cost a layer or network that much: tilings are ranked by an estimate."""


@dataclass(frozen=True)
class Step:
    """A way to compile: options of the accelerator."""

    name: str
    hiding: str
    vthreads: int
    chains: bool = False

    def compile(self, model: object, config: CoreConfig) -> CompiledModel:
        compiled = weft.compile(model, config, hiding=self.hiding, vthreads=self.vthreads, chains=self.chains)
        if not isinstance(compiled, CompiledModel):
            raise SystemExit("the model leaves sizes open: give a file with fixed shapes")
        return compiled


STEPS = (
    Step("engines in turn", "none", 1),
    Step("one tile at a time", "vthreads", 1),
    Step("virtual threads", "vthreads", 2),
    Step("rings", "rings", 2),
)
CHAINS = Step("chains", "rings", 2, chains=True)
"""A layer by itself has none."""


def layers(names: list[str], config: CoreConfig, dram: DramModel, device: str) -> tuple[dict[str, list[Point]], bool]:
    """Each layer's points, one for each step; whether all that ran was right."""
    points: dict[str, list[Point]] = {}
    right = True
    for name in names:
        module = layer(name, SHAPES[name], 0)
        packed = lowered(module, config)
        for step in STEPS:
            model = step.compile(packed, config)
            cycles, moved = predicted(model, dram)
            if device != "model":
                measured, _, equal = run(model, module, device, dram, 0)
                if not equal or measured != cycles:
                    print(f"{name}, {step.name}: integers equal: {equal}, {measured:,} cycles, predicted {cycles:,}")
                    right = False
            points.setdefault(name, []).append(Point(SHAPES[name].macs, cycles, moved))
    return points, right


def networks(names: list[str], size: int, config: CoreConfig, dram: DramModel) -> dict[str, list[Point]]:
    """Whole networks by the timing model, one point for each step."""
    points: dict[str, list[Point]] = {}
    with Console(stderr=True).status("networks") as status:
        for name in names:
            path = build(name, size=size)
            for step in (*STEPS, CHAINS):
                status.update(f"{name}, {step.name}")
                model = step.compile(path, config)
                cycles, moved = predicted(model, dram)
                macs = sum(each.macs for each in model.layers if each.device == "core")
                points.setdefault(name, []).append(Point(macs, cycles, moved))
    return points


def together(points: Mapping[str, list[Point]]) -> list[Point]:
    """C2..C12 as one workload."""
    chosen = [each for name, each in points.items() if name != "C1"] or list(points.values())
    return [
        Point(sum(p.macs for p in step), sum(p.cycles for p in step), sum(p.bytes_moved for p in step))
        for step in zip(*chosen, strict=True)
    ]


def show(title: str, points: Mapping[str, list[Point]], steps: tuple[Step, ...], config: CoreConfig) -> list[Record]:
    """Print the table; its figures."""
    peak = config.macs_per_cycle
    rows = [[name, *(f"{p.cycles:,}  {p.rate / peak:6.1%}" for p in each)] for name, each in points.items()]
    print_table(title, ["", *(step.name for step in steps)], rows)
    return [
        Record(config.name, f"{name}, {step.name}", figure, value, reference)
        for name, each in points.items()
        for step, point in zip(steps, each, strict=True)
        for figure, value, reference in (
            ("cycles", point.cycles, -(-point.macs // peak)), ("utilisation", round(point.rate / peak, 4), 1.0)
        )
    ]  # fmt: skip


def losses(points: Mapping[str, list[Point]], steps: tuple[Step, ...]) -> list[str]:
    """Steps that cost cycles."""
    return [
        f"{name}: {step.name} takes {after.cycles:,} cycles, the step before {before.cycles:,}"
        for name, each in points.items()
        for step, before, after in zip(steps[1:], each, each[1:], strict=False)
        if after.cycles > NOISE * before.cycles
    ]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="model", choices=("model", "fsim", "rtl"), help="runs the layers too")
    parser.add_argument("--config", default="pynq", help="named configuration")
    parser.add_argument("--layers", default=",".join(SHAPES), help="comma-separated layers")
    parser.add_argument("--networks", default=",".join(ARCHITECTURES), help="comma-separated networks; may be empty")
    parser.add_argument("--size", type=int, default=224, help="height and width of the networks' image")
    parser.add_argument("--latency", type=int, default=100, help="of the DRAM, in cycles")
    parser.add_argument("--bandwidth", type=int, help="of the DRAM, in bytes a cycle; default: the bus's")
    parser.add_argument("--plot", type=Path, help="write the roofline of the layers as this picture")
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    config = named_config(arguments.config)
    dram = DramModel(latency=arguments.latency, bytes_per_cycle=arguments.bandwidth or config.bus_bytes)
    title = f"cycles and utilisation ({config.name}, DRAM {dram.latency} cycles, {dram.bytes_per_cycle} B/cycle)"
    points, right = layers(arguments.layers.split(","), config, dram, arguments.device)
    total = {"C2..C12": together(points)}
    records = show(f"{title}, layers on {arguments.device}", points | total, STEPS, config)
    lost = losses(total, STEPS)
    if arguments.networks:
        whole = networks(arguments.networks.split(","), arguments.size, config, dram)
        records += show(f"{title}, {arguments.size}x{arguments.size}, timing model", whole, (*STEPS, CHAINS), config)
        lost += losses(whole, (*STEPS, CHAINS))
    for line in lost:
        print(line)
    if arguments.plot:
        draw(arguments.plot, points, [step.name for step in STEPS], config.macs_per_cycle, dram.bytes_per_cycle)
    if arguments.json:
        write_json(arguments.json, records)
    return 0 if right and not lost else 1


if __name__ == "__main__":
    sys.exit(main())
