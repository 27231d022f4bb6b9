"""The timing model against the RTL: cycles and cycle classes, per layer and per network, over cores and memories.

Sections: the convolution layers C1..C12 on two cores, three of them under other DRAM latencies and bandwidths, whole
networks, and random programs on odd cores. "classes" is the largest difference of one engine's cycles in one class, as
a share of all cycles; seconds are CPU time.

    python benchmarks/core/timing_model.py --networks digits,resnet18
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import weft
from weft.compiler.model import CompiledModel, CoreStep
from weft.hw.config import TINY, CoreConfig, named_config
from weft.hw.programs import assemble
from weft.runtime.device import RtlDevice
from weft.sim.dram import DramModel
from weft.sim.fuzz import MEMORY_BYTES, random_case, seeded
from weft.sim.result import RunResult
from weft.sim.rtl import RtlSimulator
from weft.sim.timing import predict

from benchmarks.common import Record, print_table, write_json
from benchmarks.core.conv_layers import SHAPES, layer, lowered
from examples.models.build import build

MEDIAN_LIMIT, WORST_LIMIT = 0.01, 0.03
"""Errors that the model may have, as shares of the RTL's cycles."""

LATENCIES, BANDWIDTHS = (20, 50, 100, 200), (4, 8, 16)
SWEPT = ("C2", "C5", "C12")
SECONDS_LIMIT = {"resnet18": 1.0, "resnet50": 3.0}
ODD_CORES = {
    "tiny": TINY,
    "tiny with one of each": replace(
        TINY, name="custom", acc_banks=1, queue_depth=2, token_depth=1, read_outstanding=1, write_outstanding=1
    ),
    "4x8x4 with a 512-bit bus": replace(TINY, name="custom", batch=4, block_in=8, bus_bits=512, acc_banks=2),
}


@dataclass(frozen=True)
class Comparison:
    """One workload (a layer, a network, a set of programs) on both sides."""

    section: str
    name: str
    config: str
    instructions: int
    rtl: RunResult
    model: RunResult
    rtl_seconds: float
    model_seconds: float

    @property
    def cycles(self) -> tuple[int, int]:
        """(RTL, model)"""
        return self.rtl.cycles or 0, self.model.cycles or 0

    @property
    def error(self) -> float:
        """Of the cycles, as a share of the RTL's."""
        return abs(self.cycles[1] - self.cycles[0]) / self.cycles[0]

    @property
    def class_error(self) -> float:
        """The largest difference of one engine in one class, as a share of the RTL's cycles."""
        differences = [0]
        for engine, kinds in self.rtl.counters.items():
            others = self.model.counters[engine]
            differences += [abs(kinds.get(kind, 0) - others.get(kind, 0)) for kind in kinds.keys() | others.keys()]
        return max(differences) / self.cycles[0]


def compare_model(section: str, name: str, model: CompiledModel, dram: DramModel) -> Iterator[Comparison]:
    """Run a compiled model on random inputs; one comparison for each of its programs."""
    random = np.random.default_rng(0)
    inputs = {}
    for slot in model.inputs:
        if slot.dtype == "float32":
            inputs[slot.name] = random.normal(size=slot.shape).astype(np.float32)
        else:
            inputs[slot.name] = random.integers(-128, 128, slot.shape).astype(slot.dtype)
    module = weft.load(model, RtlDevice(model.config, dram=dram))
    started = time.process_time()
    module.run(inputs)
    rtl_seconds = time.process_time() - started
    several = len(module.runs) > 1
    for number, run in enumerate(module.runs):
        step: CoreStep = run.step
        started = time.process_time()
        predicted = predict(model.config, step.program, dram, offset=step.program_offset)
        seconds = time.process_time() - started
        yield Comparison(
            section,
            f"{name}, program {number}" if several else name,
            model.config.name,
            len(step.program) // model.config.instruction_bytes,
            run.result,
            predicted,
            rtl_seconds / len(module.runs),
            seconds,
        )


def layers(names: list[str], config: CoreConfig, memories: dict[str, DramModel]) -> Iterator[Comparison]:
    """Convolution layers under several memories; each is compiled once."""
    for name in names:
        model = weft.compile(lowered(layer(name, SHAPES[name], 0), config), config, vthreads=2)
        for text, dram in memories.items():
            section = "layers" if dram == DramModel() else "memories"
            yield from compare_model(section, f"{name}{text}", model, dram)


def network(name: str, config: str) -> Iterator[Comparison]:
    """A whole network."""
    path = Path("examples/digits/digits.onnx") if name == "digits" else build(name)
    yield from compare_model("networks", name, weft.compile(path, config), DramModel())


def random_programs(name: str, config: CoreConfig, count: int) -> Iterator[Comparison]:
    """Programs that no compiler makes, with random memories but no jitter."""
    simulator = RtlSimulator(config, MEMORY_BYTES)
    for seed in range(count):
        case = random_case(config, seeded(seed), most_instructions=60)
        dram = replace(case.dram, jitter=0, reorder=False)
        code = assemble(config, case.instructions)
        start = case.window_start + case.program_offset
        simulator.dram[start : start + len(code)] = code
        simulator.set_dram(dram)
        started = time.process_time()
        run = simulator.run(case.program_offset, len(case.instructions), window_start=case.window_start)
        middle = time.process_time()
        predicted = predict(config, code, dram, offset=case.program_offset)
        done = time.process_time()
        yield Comparison(
            "random programs",
            f"{name}, seed {seed}",
            config.name,
            len(case.instructions),
            run,
            predicted,
            middle - started,
            done - middle,
        )


def measure(arguments: argparse.Namespace) -> Iterator[Comparison]:
    """All that the command line asks for."""
    names = arguments.layers.split(",")
    sweep = {"": DramModel()} | {
        f", latency {latency}, {bandwidth} B/cycle": DramModel(latency=latency, bytes_per_cycle=bandwidth)
        for latency in LATENCIES
        for bandwidth in BANDWIDTHS
        if DramModel(latency=latency, bytes_per_cycle=bandwidth) != DramModel()
    }
    for config in arguments.configs.split(","):
        for name in names:
            swept = name in SWEPT and config == "pynq"
            yield from layers([name], named_config(config), sweep if swept else {"": DramModel()})
    for name in filter(None, arguments.networks.split(",")):
        yield from network(name, "pynq")
    for name, core in ODD_CORES.items():
        yield from random_programs(name, core, arguments.programs)


def print_results(results: list[Comparison]) -> None:
    """A line for each workload; random programs and memories in one line each."""
    numbers = ("instructions", "rtl cycles", "model cycles", "error", "classes", "rtl s", "model s")
    rows: list[tuple[str, ...]] = []
    groups: dict[str, list[Comparison]] = {}
    for item in results:
        if item.section in ("layers", "networks"):
            rows.append(
                (
                    item.name,
                    item.config,
                    f"{item.instructions:,}",
                    *(f"{cycles:,}" for cycles in item.cycles),
                    f"{item.error:.2%}",
                    f"{item.class_error:.2%}",
                    f"{item.rtl_seconds:.2f}",
                    f"{item.model_seconds:.3f}",
                )
            )
        else:
            groups.setdefault(f"{item.section}: {item.name.split(', ')[0]}, {item.config}", []).append(item)
    print_table("timing model against rtl", ("workload", "config", *numbers), rows)
    summary = {section: [item for item in results if item.section == section] for section in ("layers", "networks")}
    lines = []
    for name, items in (summary | groups).items():
        if not items:
            continue
        errors = sorted(item.error for item in items)
        lines.append(
            (
                name,
                f"{len(items)}",
                f"{float(np.median(errors)):.3%}",
                f"{errors[-1]:.3%}",
                f"{max(item.class_error for item in items):.3%}",
                f"{sum(not item.error and not item.class_error for item in items)}",
            )
        )
    print_table("errors", ("group", "runs", "median", "worst", "worst class", "exact"), lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", default=",".join(SHAPES), help="comma-separated layers")
    parser.add_argument("--configs", default="pynq,wide", help="comma-separated named configurations, for the layers")
    parser.add_argument("--networks", default="digits,resnet18", help="comma-separated networks, on pynq")
    parser.add_argument("--programs", type=int, default=100, help="random programs for each odd core")
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    arguments = parser.parse_args()

    results = []
    for item in measure(arguments):
        results.append(item)
        print(f"{item.name} on {item.config} done", file=sys.stderr, flush=True)
    print_results(results)
    records = []
    for item in results:
        records.append(Record(item.config, item.name, "cycles", item.cycles[1], item.cycles[0]))
        records.append(Record(item.config, item.name, "largest class error", round(item.class_error, 5), 0))
        records.append(Record(item.config, item.name, "model seconds", round(item.model_seconds, 4)))
    if arguments.json:
        write_json(arguments.json, records)
    errors = [item.error for item in results]
    slow = [item.name for item in results if item.model_seconds > SECONDS_LIMIT.get(item.name, 10.0)]
    median, worst = float(np.median(errors)), max(errors)
    print(f"error: median {median:.3%} (limit {MEDIAN_LIMIT:.0%}), worst {worst:.3%} (limit {WORST_LIMIT:.0%})")
    for name in slow:
        print(f"{name}: the model took longer than {SECONDS_LIMIT.get(name, 10.0):g} s")
    return 1 if slow or median > MEDIAN_LIMIT or worst > WORST_LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
