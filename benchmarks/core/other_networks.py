"""Whole networks that nobody tuned the core for: cycles, utilisation, what the host does, for how long and why.

Each network of `whole_networks` is quantised by onnxruntime (int8, one scale a channel of weights), compiled, and run
on the functional simulator. Every layer on the core and every result must equal the integer graph's NumPy meaning. The
cycles are the timing model's, or with ``--device rtl`` those of the RTL, whose results must be the same. Utilisation is
useful multiply-accumulates on the core / (cycles x multiply-accumulates a cycle); "on the core" is their share of the
model's. Host time is the least of several runs of each layer there, in microseconds. The exit status is not 0 if an
integer differs, or if NumPy runs an operator. ``timm:NAME`` is a network of PyTorch Image Models (extra ``bench``).

    python benchmarks/core/other_networks.py
    python benchmarks/core/other_networks.py tiny_images tiny_persons --device rtl
    python benchmarks/core/other_networks.py vit --json vit.json
    python benchmarks/core/other_networks.py timm:convnext_tiny timm:mixer_s16_224
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import weft
from weft.compiler.compile import prepared
from weft.compiler.frontends import from_onnx
from weft.compiler.model import CompiledModel
from weft.compiler.targets.registry import find_target
from weft.compiler.targets.target import target_options
from weft.hw.config import CoreConfig, load_config
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel

from benchmarks.campaigns.quantised_graphs import equal, graph_layers
from benchmarks.common import Record, print_table, write_json
from benchmarks.core.mixed import HostPart
from benchmarks.zoo.exported_networks import PREFIX, NotExportedError, exported_network
from benchmarks.zoo.quantised_forms import Form, Inputs, quantised
from benchmarks.zoo.whole_networks import ARCHITECTURES, float_network

FORM = Form("QDQ", "QInt8", "QInt8", per_channel=True, pre_process=True)
ROUNDS = 5
"""Runs of the host's part."""


@dataclass(frozen=True)
class Measured:
    """``config``: name of the core.

    ``macs``: of the model; ``core_macs``: of them on the core. ``host``: microseconds by reason. ``in_numpy``:
    operators that NumPy runs. ``launches``: of the core. ``unequal``: integers by layer, and results."""

    name: str
    config: str
    macs: int
    core_macs: int
    cycles: int
    per_cycle: int
    launches: int
    on_core: int
    on_host: int
    host: Counter[str] = field(default_factory=Counter)
    in_numpy: tuple[str, ...] = ()
    compared: int = 0
    unequal: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def utilisation(self) -> float:
        return self.core_macs / (self.cycles * self.per_cycle) if self.cycles else 0.0

    @property
    def good(self) -> bool:
        return not self.unequal and not self.in_numpy


def measure(name: str, config: CoreConfig, dram: DramModel, device: str) -> Measured:
    """Quantise, compile, run, compare, time."""
    source, batches = exported_network(name) if name.startswith(PREFIX) else float_network(name)
    started = time.perf_counter()
    module = from_onnx(quantised(source, batches, FORM))
    accel = find_target("accel")
    packed = prepared(module, accel, target_options(accel, {"config": config}))
    model = replace(weft.compile(packed, config), name=name)
    seconds = time.perf_counter() - started
    inputs = {param.name: batches[0][param.name] for param in module.main.params}
    kept = weft.compile(packed, config, keep=True)
    values = weft.load(kept, weft.FsimDevice(config, timing=False) if kept.core else None).run(inputs, keep=True)
    layers, outputs = graph_layers(packed, inputs)
    on_core = [layer for layer in kept.layers if layer.device == "core"]
    unequal = {
        layer.name: int(np.count_nonzero(values[layer.output] != wanted))
        for layer, wanted in zip(on_core, layers, strict=True) if not np.array_equal(values[layer.output], wanted)
    }  # fmt: skip
    unequal |= {f"output {key}": wanted.size for key, wanted in outputs.items() if not equal(values[key], wanted)}
    results, cycles = run(model, config, dram, device, inputs)
    for key, value in results.items():
        if not np.array_equal(value, values[key]):
            unequal[f"output {key} on {device}"] = value.size
    core = [layer for layer in model.layers if layer.device == "core"]
    return Measured(
        name, config.name, sum(layer.macs for layer in model.layers), sum(layer.macs for layer in core), cycles,
        config.macs_per_cycle, len(model.programs), len(core), len(model.layers) - len(core),
        host_times(model, {**inputs, **values}),
        tuple(f"{layer.name}: {layer.reason}" for layer in model.layers if layer.device == "numpy"),
        sum(value.size for value in layers), unequal, seconds,
    )  # fmt: skip


def run(model: CompiledModel, config: CoreConfig, dram: DramModel, device: str, inputs: Inputs) -> tuple[Inputs, int]:
    """The results, and the cycles of all launches."""
    if not model.programs:
        return weft.load(model).run(inputs), 0
    if device == "rtl":
        loaded = weft.load(model, weft.RtlDevice(config, dram=dram))
        return loaded.run(inputs), loaded.cycles or 0
    cycles = sum(run.result.cycles or 0 for run in predict_runs(model, dram))
    return weft.load(model, weft.FsimDevice(config, timing=False)).run(inputs), cycles


def host_times(model: CompiledModel, values: Inputs) -> Counter[str]:
    """Microseconds of the layers on the host, by their reasons without names and numbers: the least of some rounds."""
    part, least = HostPart(model, values), dict[int, float]()
    for _ in range(ROUNDS):
        for layer, seconds in part.layer_seconds().items():
            least[layer] = min(least.get(layer, seconds), seconds)
    found: Counter[str] = Counter()
    for layer, seconds in least.items():
        found[re.sub(r" ?'[^']*'|\b\d[\d,.]*\b ?", "", model.layers[layer].reason) or "no reason"] += seconds * 1e6
    return found


def row_of(item: Measured) -> list[str]:
    return [
        item.name, f"{item.macs / 1e6:,.1f}", f"{item.core_macs / max(item.macs, 1):.0%}", f"{item.cycles:,}",
        f"{item.utilisation:.1%}", str(item.launches), str(item.on_core), str(item.on_host), str(len(item.in_numpy)),
        f"{item.host.total() / 1e3:,.2f}", f"{item.seconds:.0f}", f"{item.compared:,}", "NO" if item.unequal else "yes",
    ]  # fmt: skip


COLUMNS = (
    *("network", "MMAC", "on the core", "cycles", "utilisation", "launches", "layers there", "on the host", "in NumPy"),
    *("host ms", "compile s", "integers compared", "equal"),
)


def print_host(measured: Sequence[Measured]) -> None:
    """What the host does, for each network."""
    rows = [
        [item.name, reason[:110], f"{spent:,.0f}", f"{spent / item.host.total():.0%}"]
        for item in measured for reason, spent in item.host.most_common()
    ]  # fmt: skip
    print_table("the host's part", ("network", "why", "us", "of its time"), rows)


def records_of(item: Measured, device: str) -> list[Record]:
    figures: list[tuple[str, float | int | str, float | int | None]] = [
        ("device", device, None),
        ("MACs", item.macs, None),
        ("MACs on the core", item.core_macs, item.macs),
        ("cycles", item.cycles, round(item.core_macs / item.per_cycle)),
        ("utilisation", round(item.utilisation, 4), None),
        ("launches", item.launches, 1),
        ("layers on the core", item.on_core, None),
        ("layers on the host", item.on_host, None),
        ("layers in NumPy", len(item.in_numpy), 0),
        ("us of the host", round(item.host.total(), 1), None),
        ("compile seconds", round(item.seconds, 1), None),
        ("integers compared", item.compared, None),
        ("integers unequal", sum(item.unequal.values()), 0),
        *((f"us: {reason}", round(spent, 1), None) for reason, spent in item.host.most_common()),
    ]
    return [Record(item.config, item.name, *figure) for figure in figures]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(ARCHITECTURES)}; default: all")
    parser.add_argument("--device", default="model", choices=("model", "rtl"), help="where the cycles come from")
    parser.add_argument("--config", default="pynq", help="named configuration, or a JSON file")
    parser.add_argument("--latency", type=int, default=100, help="of the DRAM, in cycles")
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    options = parser.parse_args()
    for name in options.names:
        if name not in ARCHITECTURES and not name.startswith(PREFIX):
            parser.error(f"there is no network {name!r}; choose from {', '.join(ARCHITECTURES)}, or {PREFIX}NAME")
    config = load_config(options.config)
    dram = DramModel(latency=options.latency, bytes_per_cycle=config.bus_bytes)
    done = []
    for name in options.names or ARCHITECTURES:
        try:
            done.append(measure(name, config, dram, options.device))
        except NotExportedError as error:
            parser.error(str(error))
        print(", ".join(row_of(done[-1])), file=sys.stderr, flush=True)
    source = "the timing model" if options.device == "model" else "the RTL"
    print_table(f"other networks on {config.name}, cycles by {source}", COLUMNS, map(row_of, done))
    print_host(done)
    for item in done:
        for text in item.in_numpy:
            print(f"{item.name}: IN NUMPY: {text}")
        for layer, count in item.unequal.items():
            print(f"{item.name}: {layer}: {count:,} integers UNEQUAL to the graph")
    if options.json:
        write_json(options.json, [record for item in done for record in records_of(item, options.device)])
    return 0 if all(item.good for item in done) else 1


if __name__ == "__main__":
    sys.exit(main())
