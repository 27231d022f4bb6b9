"""How far whole networks are from the cycles that no tiling, order, thread count or chain gets below.

For each network the cycles of its programs (the timing model's), the bound (`weft.tune.least_cycles`), their quotient,
the share of the cycles that lie in stretches within 1 % of theirs, and the seconds that the bound takes. The exit
status is not 0 if a program is below its bound, which would refute the bound, or further above it than `GAPS` says,
or if too few kernels are close.

With ``--kernels SECONDS`` kernels alone, too: branch and bound over the space of each (`weft.tune.prove`) says how far
the compiler's choice is at most above the best of it, within so many seconds of the processor a network.

    python benchmarks/core/optimality.py                              # the four networks of networks.py, and ten others
    python benchmarks/core/optimality.py resnet18 vit --config wide --bandwidth 8 --stretches
    python benchmarks/core/optimality.py resnet18 resnet50 --kernels 20
    python benchmarks/core/optimality.py --json optimality.json
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import weft
from rich.console import Console
from weft.compiler.compile import prepared
from weft.compiler.frontends import for_batch, from_onnx, read
from weft.compiler.graph import Module
from weft.compiler.model import CompiledModel
from weft.compiler.targets.accel.target import Accel, AccelOptions
from weft.hw.config import load_config
from weft.hw.dram_rate import DramRate
from weft.runtime.profile import Profile, profile
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel
from weft.tune.least_cycles import LeastCycles, least_cycles
from weft.tune.least_report import least_records, least_table
from weft.tune.prove import Proof, close_share, prove
from weft.tune.tasks import tasks_of

from benchmarks.common import Record, print_table, write_json
from benchmarks.core.other_networks import FORM
from benchmarks.zoo.quantised_forms import quantised
from benchmarks.zoo.whole_networks import float_network
from examples.models.build import ARCHITECTURES, build

OTHERS = ("mobilenet_v3_small", "efficientnet_b0", "regnet_y_400mf", "shufflenet_v2", "vit", "unet", "tiny_anomaly",
          "tiny_keywords", "tiny_images", "tiny_persons")  # fmt: skip
CLOSE = 1.01
"""Times its bound that a stretch takes at most to be called close."""

GAPS = {"resnet18": 1.025, "resnet50": 1.035, "mobilenet_v1": 1.20, "mobilenet_v2": 1.29}
"""Times the bound that is allowed on ``pynq`` with the usual memory. The bound counts no recomputed halo and no wait at
the ends of tiles, so the rest is no promise that a better program exists."""

KERNELS_CLOSE = 0.95
"""Of the kernels' cycles, wanted in those of which the best of the space is proved to be at most 1 % better."""

ZIGZAG = 9_287_334
"""Cycles of ResNet-18's convolutions by ZigZag 3.9.1, LOMA, on an array of 16 x 16 at 8 bytes a cycle: measured
separately, in 135 CPU s."""


@dataclass(frozen=True)
class Measured:
    name: str
    least: LeastCycles
    measured: Profile
    seconds: float
    proofs: Sequence[Proof] = ()

    @property
    def times(self) -> float:
        return self.measured.cycles / self.least.cycles

    @property
    def close(self) -> float:
        """Share of all cycles in stretches that are close to their bound."""
        records = least_records(self.least, self.measured)
        return sum(each["cycles"] for each in records if (each["times_the_least"] or 0) <= CLOSE) / self.measured.cycles

    def records(self) -> list[Record]:
        core = self.measured.config.name
        return [
            Record(core, self.name, "cycles", self.measured.cycles),
            Record(core, self.name, "least cycles", self.least.cycles),
            Record(core, self.name, "times the least", self.times, GAPS.get(self.name)),
            Record(core, self.name, "share of cycles within 1 %", self.close),
            Record(core, self.name, "seconds of the bound", self.seconds, 20),
            *([Record(core, self.name, "share of kernels' cycles within 1 %", close_share(self.proofs), KERNELS_CLOSE)]
              if self.proofs else []),
        ]  # fmt: skip

    def kernels(self) -> list[list[str]]:
        """Rows of a table, those with the most cycles that are open first."""
        known = [each for each in self.proofs if each.default is not None]
        known.sort(key=lambda each: -each.task.count * ((each.default or 0) - each.least))
        return [[self.name, each.task.name, str(each.task.count), f"{each.default:,}", f"{each.best:,.0f}",
                 f"{each.least:,.0f}", f"{each.gap:.2%}", str(each.measured)] for each in known]  # fmt: skip


def module_of(name: str, batch: int) -> Module:
    """A network by name, quantised, as it was read, for as many images as the core takes."""
    if name in ARCHITECTURES:
        source, shapes = for_batch(read(build(name)), batch)
        return source.module(shapes, require_quantised=True)
    return from_onnx(quantised(*float_network(name), FORM))


def measure(name: str, options: AccelOptions, kernels: float) -> Measured:
    module, rate = module_of(name, options.core.batch), options.rate
    dram = DramModel(latency=rate.latency, bytes_per_cycle=rate.bytes_per_cycle)
    layers = prepared(module, Accel(), options)
    begin = time.perf_counter()
    least = least_cycles(layers, options.core, rate, options.vthreads)
    seconds = time.perf_counter() - begin
    model = weft.compile(module, options.core, dram=rate)
    assert isinstance(model, CompiledModel)
    tasks = tasks_of(layers, options.core, rate, options.vthreads, chains=False) if kernels else []
    measured = profile(model, predict_runs(model, dram), "model", dram)
    return Measured(name, least, measured, seconds, prove(tasks, kernels))


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("networks", nargs="*", help="default: all of networks.py, and ten others")
    parser.add_argument("--config", default="pynq", help="a named core, or a file")
    parser.add_argument("--latency", type=int, default=100)
    parser.add_argument("--bandwidth", type=int, help="bytes a cycle; by default the bus's")
    parser.add_argument("--stretches", action="store_true", help="each network's stretches, too")
    parser.add_argument("--kernels", type=float, default=0, metavar="SECONDS", help="of the processor, a network")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args(arguments)


def main() -> int:
    arguments, console = parse_arguments(), Console(width=140)
    core = load_config(arguments.config)
    rate = DramRate(latency=arguments.latency, bytes_per_cycle=arguments.bandwidth or core.bus_bytes)
    options = AccelOptions(core, rate)
    guarded = core.name == "pynq" and rate == DramRate.of(core)
    found, bad = [], []
    for name in arguments.networks or (*ARCHITECTURES, *OTHERS):
        each = measure(name, options, arguments.kernels)
        found.append(each)
        if arguments.stretches:
            console.print(least_table(each.least, each.measured))
        if each.times < 1:
            bad.append(f"{name}: {each.measured.cycles:,} cycles are below the bound of {each.least.cycles:,}")
        elif guarded and each.times > GAPS.get(name, float("inf")):
            bad.append(f"{name}: {each.times:.3f} times its bound, {GAPS[name]:.3f} allowed")
        if arguments.kernels and close_share(each.proofs) < KERNELS_CLOSE:
            bad.append(f"{name}: kernels with {close_share(each.proofs):.1%} of the cycles are within 1 % of the best, "
                       f"{KERNELS_CLOSE:.0%} wanted")  # fmt: skip
    rows = [[each.name, f"{each.measured.cycles:,}", f"{each.least.cycles:,}", f"{each.times:.3f}", f"{each.close:.0%}",
             f"{each.seconds:.2f}"] for each in found]  # fmt: skip
    title = f"{core.name}, {rate}"
    if arguments.kernels:
        print_table("kernels alone, and the best of their spaces", ["network", "kernel", "times", "compiled",
                    "best measured", "no point below", "gap at most", "measured"],
                    [line for each in found for line in each.kernels()])  # fmt: skip
        print_table(
            "kernels within 1 %",
            ["network", "of the cycles", "wanted"],
            [[each.name, f"{close_share(each.proofs):.1%}", f"{KERNELS_CLOSE:.0%}"] for each in found],
        )
    columns = ["network", "cycles", "no program takes fewer than", "times that", "within 1 %", "s of the bound"]
    print_table(title, columns, rows)
    if any(each.name == "resnet18" for each in found):
        print(f"ResNet-18's convolutions by ZigZag 3.9.1 (LOMA, its own model of a like core): {ZIGZAG:,} cycles")
    for line in bad:
        print(line, file=sys.stderr)
    if arguments.json:
        write_json(arguments.json, [record for each in found for record in each.records()])
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
