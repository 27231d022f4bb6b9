"""Cores of other shapes: everything compiles, is correct, and does not collapse.

For every core a network is compiled and its cycles come from the timing model (``--device rtl``: from the RTL); its
result on the functional simulator must equal the graph's. The digits network runs on the core's own RTL and must give
the same integers there. A core that takes several images at once gets as many.

    python benchmarks/core/configs.py                              # all cores
    python benchmarks/core/configs.py --cores wide,4x8x8 --device rtl
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import weft
from weft.compiler.model import CompiledModel
from weft.hw.config import PYNQ, WIDE, CoreConfig
from weft.hw.memories import SCRATCHPADS
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel

from benchmarks.common import Record, print_table, write_json
from benchmarks.core.networks import graph_layers, misplaced, packed_module
from examples.digits.data import split_digits
from examples.models.build import build
from examples.models.images import images

Array = npt.NDArray[Any]

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


@dataclass(frozen=True)
class Entry:
    """A core, the network that it is measured on, and the utilisation wanted there."""

    config: CoreConfig
    network: str = "resnet18"
    target: float | None = None


def resized(name: str, config: CoreConfig, **changes: int) -> CoreConfig:
    """``config`` with other blocks but the same bytes in every scratchpad."""
    blocks = replace(config, name=name, depthwise=0, **changes)  # the mode needs a square array
    depths = {
        f"{memory}_depth": config.depth(memory) * config.entry_bytes(memory) // blocks.entry_bytes(memory)
        for memory in SCRATCHPADS
    }
    return replace(blocks, **depths)


def scaled(name: str, config: CoreConfig, factor: float) -> CoreConfig:
    """``config`` with every scratchpad ``factor`` times as deep."""
    depths = {f"{memory}_depth": int(config.depth(memory) * factor) for memory in SCRATCHPADS}
    return replace(config, name=name, **depths)


CORES: dict[str, Entry] = {
    entry.config.name: entry
    for entry in (
        Entry(PYNQ),
        Entry(WIDE, "resnet50", 0.75),
        Entry(scaled("half scratchpads", PYNQ, 0.5)),
        Entry(scaled("double scratchpads", PYNQ, 2)),
        Entry(resized("4x8x8", PYNQ, batch=4, block_in=8, block_out=8)),
        Entry(resized("4x16x16", PYNQ, batch=4)),
        Entry(resized("1x32x16", PYNQ, block_in=32)),
        Entry(resized("1x16x32", PYNQ, block_out=32)),
        Entry(resized("1x8x32", PYNQ, block_in=8, block_out=32)),
        Entry(resized("2x32x8", PYNQ, batch=2, block_in=32, block_out=8)),
    )
}


@dataclass(frozen=True)
class Measured:
    """A core on its network. ``memory``: cycles in which everything that is loaded and stored goes over the bus;
    ``bound``: of each layer the more of that and of useful products, added up. ``equal``: on fsim; ``rtl_equal``: of
    the digits network; ``None`` where not run."""

    entry: Entry
    cycles: int
    macs: int
    memory: int
    bound: int
    seconds: float
    equal: bool | None
    rtl_equal: bool | None
    misplaced: int

    @property
    def utilisation(self) -> float:
        return self.macs / (self.cycles * self.entry.config.macs_per_cycle)

    @property
    def good(self) -> bool:
        return self.equal is not False and self.rtl_equal is not False and not self.misplaced


def same_on_graph(model: CompiledModel, expected: Mapping[str, Array], image: Array, device: weft.Device) -> bool:
    """Whether the model's outputs on ``device`` are those expected."""
    results = weft.load(model, device).run(image)
    return all(np.array_equal(results[name], value) for name, value in expected.items())


def check_digits(config: CoreConfig, dram: DramModel) -> bool:
    """The digits network on the RTL against the graph."""
    packed = packed_module(DIGITS, config)
    image = split_digits()[1].images[: config.batch]
    _, expected = graph_layers(packed, image)
    model = weft.compile(packed, config)
    return same_on_graph(model, expected, image, weft.RtlDevice(config, dram=dram))


def measure(entry: Entry, device: str, size: int, *, integers: bool, digits: bool) -> Measured:
    """Compile the network for the core, run it, compare."""
    config = entry.config
    dram = DramModel(bytes_per_cycle=config.bus_bytes)
    packed = packed_module(build(entry.network, size=size), config)
    started = time.perf_counter()
    model = weft.compile(packed, config)
    seconds = time.perf_counter() - started
    image = images(config.batch, size)
    expected = graph_layers(packed, image)[1] if integers or device == "rtl" else {}
    equal = None
    if device == "rtl":
        loaded = weft.load(model, weft.RtlDevice(config, dram=dram))
        results = loaded.run(image)
        cycles = loaded.cycles or 0
        equal = all(np.array_equal(results[name], value) for name, value in expected.items())
    else:
        cycles = sum(run.result.cycles or 0 for run in predict_runs(model, dram))
    if integers:
        equal = equal is not False and same_on_graph(model, expected, image, weft.FsimDevice(config, timing=False))
    on_core = [layer for layer in model.layers if layer.device == "core"]
    memory = [-(-(layer.bytes_loaded + layer.bytes_stored) // config.bus_bytes) for layer in on_core]
    bounds = [max(busy, layer.macs // config.macs_per_cycle) for busy, layer in zip(memory, on_core, strict=True)]
    return Measured(
        entry,
        cycles,
        sum(layer.macs for layer in model.layers),
        sum(memory),
        sum(bounds),
        seconds,
        equal,
        check_digits(config, dram) if digits else None,
        len(misplaced(model)),
    )


def kibibytes(config: CoreConfig) -> str:
    """Sizes of the scratchpads."""
    sizes = (config.depth(memory) * config.entry_bytes(memory) for memory in SCRATCHPADS)
    return "/".join(f"{size // 1024}" for size in sizes)


def row_of(item: Measured) -> list[str]:
    config, words = item.entry.config, {True: "yes", False: "NO", None: "-"}
    return [
        config.name,
        f"{config.batch}x{config.block_in}x{config.block_out}",
        kibibytes(config),
        f"{config.bus_bits}",
        item.entry.network,
        f"{item.cycles:,}",
        f"{item.cycles // config.batch:,}",
        f"{item.utilisation:.1%}",
        f"{item.memory:,}",
        f"{item.bound:,}",
        f"{item.entry.target:.0%}" if item.entry.target else "-",
        f"{item.seconds:.0f}",
        words[item.equal],
        words[item.rtl_equal],
    ]


def records_of(item: Measured, device: str) -> list[Record]:
    name, network = item.entry.config.name, item.entry.network
    figures: list[tuple[str, float | int | str, float | int | str | None]] = [
        ("device", device, None),
        ("cycles", item.cycles, round(item.macs / item.entry.config.macs_per_cycle)),
        ("utilisation", round(item.utilisation, 4), item.entry.target),
        ("cycles of the memory", item.memory, None),
        ("sum of the layers' bounds", item.bound, None),
        ("compile seconds", round(item.seconds, 1), None),
        ("operators wrongly on the host", item.misplaced, 0),
    ]
    if item.equal is not None:
        figures.append(("result equals the graph", int(item.equal), 1))
    found = [Record(name, network, *figure) for figure in figures]
    if item.rtl_equal is not None:
        found.append(Record(name, "digits", "result on rtl equals the graph", int(item.rtl_equal), 1))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cores", default=",".join(CORES), help="comma-separated cores")
    parser.add_argument("--device", default="model", choices=("model", "rtl"), help="where the cycles come from")
    parser.add_argument("--network", help="one network for all cores, instead of each core's own")
    parser.add_argument("--size", type=int, default=224, help="height and width of the images")
    parser.add_argument("--no-integers", action="store_true", help="do not run the network on the functional simulator")
    parser.add_argument("--no-digits", action="store_true", help="do not build the cores' RTL")
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    arguments = parser.parse_args()

    names = arguments.cores.split(",")
    for name in names:
        if name not in CORES:
            parser.error(f"there is no core {name!r}; choose from {', '.join(CORES)}")
    done = []
    for name in names:
        entry = CORES[name]
        if arguments.network:
            entry = replace(entry, network=arguments.network, target=None)
        done.append(
            measure(
                entry, arguments.device, arguments.size,
                integers=not arguments.no_integers, digits=not arguments.no_digits,
            )
        )  # fmt: skip
        print(f"{name} done", file=sys.stderr, flush=True)
    columns = (
        *("core", "shape", "KiB inp/wgt/acc/out", "bus", "network", "cycles", "cycles an image", "utilisation"),
        *("memory", "bound", "wanted", "compile s", "equal on fsim", "digits on rtl"),
    )
    title = f"cores of other shapes, cycles by {'the timing model' if arguments.device == 'model' else 'the RTL'}"
    print_table(title, columns, [row_of(item) for item in done])
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")
    if arguments.json:
        write_json(arguments.json, [record for item in done for record in records_of(item, arguments.device)])
    return 0 if all(item.good for item in done) else 1


if __name__ == "__main__":
    sys.exit(main())
