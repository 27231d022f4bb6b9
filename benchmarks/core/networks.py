"""Whole networks, batch 1, from the first node to the last: cycles, utilisation, bytes, placement, integers.

Utilisation is useful multiply-accumulates of the model / (cycles x multiply-accumulates a cycle), no padding counted.
The integers of every layer must equal the graph's NumPy meaning; only quantisation, softmax and layout at the two ends
may run on the host. The exit status says whether that holds.

    python benchmarks/core/networks.py resnet18 resnet50 --device model  # the timing model alone: cycles, no integers
    python benchmarks/core/networks.py resnet18 --device fsim            # every layer's integers, predicted cycles
    python benchmarks/core/networks.py resnet18 --device rtl             # the same, cycles and result of the RTL
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import weft
from rich.console import Console
from weft.compiler.compile import prepared
from weft.compiler.frontends import for_batch, read
from weft.compiler.graph import Call, Expr, Function, Module, evaluate, operator
from weft.compiler.model import CompiledModel
from weft.compiler.targets.accel.target import Accel, AccelOptions
from weft.hw.config import CoreConfig, named_config
from weft.runtime.device import Device
from weft.runtime.profile import Profile, profile
from weft.runtime.profile_report import bound_table, cause_table
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel

from benchmarks.common import Record, print_table, write_json
from examples.models.build import ARCHITECTURES, build
from examples.models.images import images

Array = npt.NDArray[Any]

DEVICES = ("model", "fsim", "rtl")
TARGETS = {"resnet18": 0.95, "resnet50": 0.90, "mobilenet_v1": 0.60, "mobilenet_v2": 0.40}
"""Utilisation that is wanted on ``pynq``."""


@dataclass(frozen=True)
class Reference:
    """A published figure for another accelerator; ``scope`` says what of the network it is about."""

    who: str
    utilisation: float
    scope: str
    source: str


_DPU = "Vitis DPU, KV260"
REFERENCES: dict[str, tuple[Reference, ...]] = {
    "resnet18": (
        Reference("VTA, its cycle simulator", 6.62 / 7.73, "offloaded convolutions only: 7.73 Mcycles", "tvm-vta#30"),
        Reference("VTA on PYNQ, tuned", 0.75, "offloaded convolutions only", "TopHub logs"),
        Reference(_DPU, 0.71, "network", "published throughput"),
    ),
    "resnet50": (
        Reference("NVDLA, 256 int8 MACs", 0.69, "network", "vendor's estimate, 5 B/cycle"),
        Reference("Gemmini, 256 int8 MACs", 0.54, "network", "Gemmini PR 91"),
        Reference(_DPU, 0.62, "network", "published throughput"),
    ),
    "mobilenet_v1": (Reference(_DPU, 0.40, "network", "published throughput"),),
    "mobilenet_v2": (Reference(_DPU, 0.17, "network", "published throughput"),),
}


@dataclass
class Integers:
    """All layers against the graph: unequal integers by layer; ``absent`` could not be compared."""

    compared: int = 0
    unequal: dict[str, int] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return self.compared > 0 and not self.absent and not any(self.unequal.values())


@dataclass
class Measured:
    """A network on a device. ``integers`` and ``output_equal`` are ``None`` where nothing was computed."""

    name: str
    profile: Profile
    model: CompiledModel
    bytes_read: int
    bytes_written: int
    predicted: int
    misplaced: list[str]
    integers: Integers | None = None
    output_equal: bool | None = None

    @property
    def utilisation(self) -> float:
        return self.profile.utilisation(self.profile.macs, self.profile.cycles)

    @property
    def good(self) -> bool:
        return not self.misplaced and (self.integers is None or self.integers.good) and self.output_equal is not False


def packed_module(path: Path, config: CoreConfig) -> Module:
    """The network as the target sees it, for as many images as the core takes: calls of fused, packed functions."""
    source, shapes = for_batch(read(path), config.batch)
    return prepared(source.module(shapes, require_quantised=True), Accel(), AccelOptions(config))


def graph_layers(module: Module, image: Array) -> tuple[dict[str, Array], dict[str, Array]]:
    """What every function on the accelerator gives in NumPy, packed, by tensor name; and the network's outputs."""
    layers: dict[str, Array] = {}

    def observe(node: Expr, value: Any) -> None:
        if isinstance(node, Call) and isinstance(node.op, Function) and node.op.is_primitive:
            layers[node.span.tensor] = value

    outputs = evaluate(module, {module.main.params[0].name: image}, observe)
    return layers, outputs


def compare_layers(model: CompiledModel, values: dict[str, Array], graph: dict[str, Array]) -> Integers:
    """Compare every layer on the core, all lanes, with the graph; ``model`` must keep all results."""
    result = Integers()
    for layer in model.layers:
        if layer.device != "core":
            continue
        if layer.output not in values or layer.output not in graph:
            result.absent.append(layer.name)
            continue
        result.compared += graph[layer.output].size
        result.unequal[layer.name] = int(np.count_nonzero(values[layer.output] != graph[layer.output]))
    return result


def misplaced(model: CompiledModel) -> list[str]:
    """Operators on the host that belong on the accelerator, with the reason."""
    return [
        f"{layer.name}: {name}: {layer.reason}"
        for layer in model.layers if layer.device != "core"
        for name in sorted(set(layer.operators)) if not operator(name).passive
    ]  # fmt: skip


def check_integers(
    module: Module, config: CoreConfig, image: Array, vthreads: int, device: Device
) -> tuple[Integers, dict[str, Array]]:
    """Every layer on ``device`` against the graph, and the network's outputs by the graph."""
    kept = weft.compile(module, config, vthreads=vthreads, keep=True)
    graph, outputs = graph_layers(module, image)
    values = weft.load(kept, device).run(image, keep=True)
    integers = compare_layers(kept, values, graph)
    for name, expected in outputs.items():
        integers.unequal[f"output {name}"] = int(np.count_nonzero(values[name] != expected))
    return integers, outputs


def measure(
    name: str, path: Path, config: CoreConfig, dram: DramModel, device: str, vthreads: int, *, every_layer_on_rtl: bool,
    size: int = 224,
) -> Measured:  # fmt: skip
    """Compile a network, run it on ``device`` and account for it."""
    module = packed_module(path, config)
    model = replace(weft.compile(module, config, vthreads=vthreads), name=name)
    runs = predict_runs(model, dram)
    predicted = sum(run.result.cycles or 0 for run in runs)
    integers: Integers | None = None
    output_equal: bool | None = None
    if device != "model":
        image = images(1, size)
        checked = weft.RtlDevice(config, dram=dram) if every_layer_on_rtl else weft.FsimDevice(config, timing=False)
        integers, expected = check_integers(module, config, image, vthreads, checked)
        if device == "rtl":
            loaded = weft.load(model, weft.RtlDevice(config, dram=dram))
            results = loaded.run(image, trace=True)
            runs = list(loaded.runs)
        else:
            results = weft.load(model, weft.FsimDevice(config, timing=False)).run(image)
        output_equal = all(np.array_equal(results[output], value) for output, value in expected.items())
    return Measured(
        name=name,
        profile=profile(model, runs, device, dram),
        model=model,
        bytes_read=sum(run.result.bytes_read for run in runs),
        bytes_written=sum(run.result.bytes_written for run in runs),
        predicted=predicted,
        misplaced=misplaced(model),
        integers=integers,
        output_equal=output_equal,
    )


def records_of(measured: Measured) -> list[Record]:
    """Flat figures of the network and of each of its layers."""
    config, name, account = measured.profile.config.name, measured.name, measured.profile
    wanted = TARGETS.get(name) if config == "pynq" else None
    figures: list[tuple[str, float | int | str, float | int | str | None]] = [
        ("device", account.device, None),
        ("cycles", account.cycles, round(account.macs / account.config.macs_per_cycle)),
        ("utilisation", round(measured.utilisation, 4), wanted),
        ("cycles, timing model", measured.predicted, None),
        ("bytes read", measured.bytes_read, None),
        ("bytes written", measured.bytes_written, None),
        ("operators wrongly on the host", len(measured.misplaced), 0),
    ]
    if measured.integers is not None:
        figures.append(("integers compared", measured.integers.compared, None))
        figures.append(("integers unequal", sum(measured.integers.unequal.values()), 0))
    if measured.output_equal is not None:
        figures.append((f"output on {account.device} equal", int(measured.output_equal), 1))
    for reference in REFERENCES.get(name, ()):
        figures.append((f"utilisation, {reference.who}", round(reference.utilisation, 4), None))
    records = [Record(config, name, *figure) for figure in figures]
    for item in account.layers:
        workload = f"{name} {item.layer.name}"
        records.append(Record(config, workload, "cycles", item.cycles, item.bounds.limit))
        if item.layer.macs:
            share = account.utilisation(item.layer.macs, item.cycles)
            records.append(Record(config, workload, "utilisation", round(share, 4)))
        for cause, count in item.causes.items():
            records.append(Record(config, workload, f"cycles {cause.name.lower()}", count))
        if measured.integers is not None:
            unequal = measured.integers.unequal.get(item.layer.name, -1)
            records.append(Record(config, workload, "integers unequal", unequal, 0))
    return records


def summary_row(measured: Measured) -> list[str]:
    account, target = measured.profile, TARGETS.get(measured.name)
    integers = measured.integers
    on_core = sum(layer.device == "core" for layer in measured.model.layers)
    return [
        measured.name,
        f"{account.macs / 1e6:,.0f}",
        f"{account.cycles:,}",
        f"{measured.utilisation:.1%}",
        f"{target:.0%}" if target and account.config.name == "pynq" else "-",
        f"{measured.predicted / account.cycles - 1:+.2%}" if account.device == "rtl" else "-",
        f"{measured.bytes_read / 1e6:.1f}",
        f"{measured.bytes_written / 1e6:.1f}",
        f"{(measured.bytes_read + measured.bytes_written) / account.cycles:.1f}",
        f"{on_core} in {len(measured.model.programs)}",
        str(len(measured.misplaced)),
        "-" if integers is None else f"{integers.compared:,}",
        "-" if integers is None else ("yes" if measured.good else "NO"),
    ]


SUMMARY_COLUMNS = (
    *("network", "MMAC", "cycles", "utilisation", "wanted", "model error", "MB read", "MB written", "B/cycle"),
    *("layers, programs", "wrongly on host", "integers compared", "equal"),
)


def print_details(console: Console, measured: Measured) -> None:
    """Tables of the layers, and what is wrong."""
    console.print(cause_table(measured.profile))
    console.print(bound_table(measured.profile))
    for text in measured.misplaced:
        console.print(f"{measured.name}: WRONGLY ON THE HOST: {text}")
    if measured.integers is not None:
        for layer, count in measured.integers.unequal.items():
            if count:
                console.print(f"{measured.name}: {layer}: {count:,} integers UNEQUAL to the graph")
        for layer in measured.integers.absent:
            console.print(f"{measured.name}: {layer}: could NOT be compared with the graph")
    if measured.output_equal is False:
        console.print(f"{measured.name}: the output on {measured.profile.device} is UNEQUAL to the graph's")


def print_references(measured: Iterable[Measured]) -> None:
    rows = [
        [item.name, other.who, f"{other.utilisation:.0%}", f"{item.utilisation:.1%}", other.scope, other.source]
        for item in measured for other in REFERENCES.get(item.name, ())
    ]  # fmt: skip
    if rows:
        print_table("published figures of others", ["network", "who", "theirs", "ours", "of what", "source"], rows)


def memory(config: CoreConfig, latency: int, bandwidth: int | None) -> DramModel:
    """The DRAM; its bandwidth is that of the core's bus unless given."""
    return DramModel(latency=latency, bytes_per_cycle=bandwidth or config.bus_bytes)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"networks ({', '.join(ARCHITECTURES)}); default: all")
    parser.add_argument("--device", default="rtl", choices=DEVICES)
    parser.add_argument("--config", default="pynq", help="named configuration")
    parser.add_argument("--vthreads", type=int, default=2, help="virtual threads")
    parser.add_argument("--latency", type=int, default=100, help="of the DRAM, in cycles")
    parser.add_argument("--bandwidth", type=int, help="of the DRAM, in bytes a cycle; default: the bus's")
    parser.add_argument("--size", type=int, default=224, help="height and width of the image")
    parser.add_argument("--every-layer-on-rtl", action="store_true", help="check every layer on rtl too")
    parser.add_argument("--brief", action="store_true", help="no tables of layers")
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    parsed = parser.parse_args(arguments)
    for name in parsed.names:
        if name not in ARCHITECTURES:
            parser.error(f"there is no network {name!r}; choose from {', '.join(ARCHITECTURES)}")
    return parsed


def main() -> int:
    arguments = parse_arguments()
    config = named_config(arguments.config)
    dram = memory(config, arguments.latency, arguments.bandwidth)
    console, progress = Console(width=None if sys.stdout.isatty() else 200), Console(stderr=True)
    done: list[Measured] = []
    for name in arguments.names or ARCHITECTURES:
        with progress.status(f"{name} on {arguments.device}"):
            path = build(name, size=arguments.size)
            measured = measure(
                name, path, config, dram, arguments.device, arguments.vthreads,
                every_layer_on_rtl=arguments.every_layer_on_rtl, size=arguments.size,
            )  # fmt: skip
        done.append(measured)
        if not arguments.brief:
            print_details(console, measured)
    title = (
        f"networks on {arguments.device} ({config.name}, {arguments.vthreads} virtual threads, DRAM "
        f"{dram.latency} cycles, {dram.bytes_per_cycle} B/cycle)"
    )
    print_table(title, SUMMARY_COLUMNS, map(summary_row, done))
    print_references(done)
    if arguments.json:
        write_json(arguments.json, [record for measured in done for record in records_of(measured)])
    return 0 if all(measured.good for measured in done) else 1


if __name__ == "__main__":
    sys.exit(main())
