"""ResNet-18's twelve convolution shapes (C1..C12 of the TVM paper) with fused requantise, on a simulated core.

Every layer goes the way of a network's first layer: unfolded where that pays, fused, packed, scheduled, tensorized,
emitted, checked. The integers must equal NumPy's. Utilisation is useful multiply-accumulates / (cycles x
multiply-accumulates a cycle), each layer alone, from its first instruction to its last store.

    python benchmarks/core/conv_layers.py --vthreads 1,2 --device rtl
    python benchmarks/core/conv_layers.py --device model --sweep build/conv_sweep.png  # other DRAM rates
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import weft
from weft.compiler.graph import Attrs, Constant, Function, Module, Span, TensorType, Var, call, calls, evaluate
from weft.compiler.model import CompiledModel
from weft.compiler.operators.numerics import quantise_multiplier
from weft.compiler.targets.accel.operators.packed_layout import Blocks
from weft.compiler.targets.accel.passes import accel_passes
from weft.hw.config import CoreConfig, named_config
from weft.runtime.device import FsimDevice, RtlDevice
from weft.sim.dram import DramModel
from weft.sim.timing import predict

from benchmarks.common import Record, print_table, write_json
from benchmarks.core.conv_sweep import draw

COMPILE_SECONDS = 20.0
"""What a layer may take to compile."""

WEIGHTED_TARGET, MEAN_TARGET, LEAST_TARGET, FIRST_TARGET = 0.96, 0.92, 0.85, 0.85
"""Utilisation wanted with 2 virtual threads: C2..C12 weighted by work, their plain mean, the lowest of them, C1."""

BOUND_TARGET = 1.08
"""A layer below ``LEAST_TARGET`` may take this many times the cycles of its own memory bound."""

LATENCIES, BANDWIDTHS = (20, 50, 100, 200), (4, 8, 16)
"""Of the DRAM in a sweep: cycles, bytes a cycle."""


@dataclass(frozen=True)
class Shape:
    """A convolution, batch 1, SAME padding."""

    size: int
    channels: int
    filters: int
    kernel: int
    stride: int

    @property
    def output(self) -> int:
        return -(-self.size // self.stride)

    @property
    def pads(self) -> tuple[int, int, int, int]:
        """(top, left, bottom, right)"""
        total = max((self.output - 1) * self.stride + self.kernel - self.size, 0)
        before = total // 2
        return before, before, total - before, total - before

    @property
    def macs(self) -> int:
        return self.output**2 * self.channels * self.filters * self.kernel**2


SHAPES = {
    "C1": Shape(224, 3, 64, 7, 2),
    "C2": Shape(56, 64, 64, 3, 1),
    "C3": Shape(56, 64, 64, 1, 1),
    "C4": Shape(56, 64, 128, 3, 2),
    "C5": Shape(56, 64, 128, 1, 2),
    "C6": Shape(28, 128, 128, 3, 1),
    "C7": Shape(28, 128, 256, 3, 2),
    "C8": Shape(28, 128, 256, 1, 2),
    "C9": Shape(14, 256, 256, 3, 1),
    "C10": Shape(14, 256, 512, 3, 2),
    "C11": Shape(14, 256, 512, 1, 2),
    "C12": Shape(7, 512, 512, 3, 1),
}


def layer(name: str, shape: Shape, seed: int) -> Module:
    """The convolution with random weights and per-channel parameters, in the integer contract."""
    random = np.random.default_rng(seed)
    weights = random.integers(-128, 128, (shape.filters, shape.channels, shape.kernel, shape.kernel)).astype(np.int8)
    spread = np.sqrt(shape.channels * shape.kernel**2) * 74 * 74
    multiplier, shift = quantise_multiplier(random.uniform(20, 60, shape.filters) / spread)
    bias = random.integers(-5000, 5000, shape.filters).astype(np.int32)
    x = Var("x", TensorType((1, shape.channels, shape.size, shape.size), "int8"))
    strides, zero_point = (shape.stride, shape.stride), int(random.integers(-20, 20))
    span = Span((name,), "y")
    acc = call("conv2d", x, Constant(weights), strides=strides, pads=shape.pads, pad_value=zero_point, span=span)
    y = call("requantise", acc, Constant(bias), Constant(multiplier), Constant(shift), zero_point=5, span=span)
    return Module(Function((x,), y, Attrs({"name": name, "outputs": ("y",)})), "integer")


def lowered(module: Module, config: CoreConfig) -> Module:
    """The layer as a packed kernel, with what the host does before and behind it."""
    for item in accel_passes(Blocks.of(config), config.bus_bytes):
        module = replace(item(module), stage=item.stage or module.stage)
    return module


def memory_bound(module: Module, config: CoreConfig, dram: DramModel) -> int:
    """Cycles in which the DRAM moves everything once: what is used of the input, weights, parameters, results."""
    functions = [node.op for node in calls(module.main.body) if isinstance(node.op, Function)]
    function = next(function for function in functions if function.is_primitive)
    moved = 0
    for node in calls(function.body):
        moved += sum(arg.value.nbytes for arg in node.args if isinstance(arg, Constant))
        if node.op == "packed_conv2d":
            shape = node.args[0].shape  # (N/n, C/c, H, W, ...)
            kernel = node.args[1].shape[2:4]
            strides, pads = node.attrs["strides"], node.attrs["pads"]
            used = 1
            for axis in (0, 1):
                outputs = range(node.shape[2 + axis])
                taps = range(kernel[axis])
                places = {step * strides[axis] + tap - pads[axis] for step in outputs for tap in taps}
                used *= len(places & set(range(shape[2 + axis])))
            moved += int(np.prod(shape)) // (shape[2] * shape[3]) * used
    moved += int(np.prod(function.body.shape))
    return -(-moved // min(dram.bytes_per_cycle, 2 * config.bus_bytes))


@dataclass(frozen=True)
class Measured:
    """A layer with a number of virtual threads on a device; ``equal`` is ``None`` where no integers were computed."""

    name: str
    threads: int
    cycles: int
    share: float
    bound: int
    bytes_moved: int
    seconds: float
    equal: bool | None

    @property
    def good(self) -> bool:
        """Not slower than the layer may be."""
        if self.name == "C1":
            return self.share >= FIRST_TARGET
        return self.share >= LEAST_TARGET or self.cycles <= BOUND_TARGET * self.bound


def predicted(model: CompiledModel, dram: DramModel) -> tuple[int, int]:
    """Cycles and bytes by the timing model."""
    runs = [predict(model.config, step.program, dram, offset=step.program_offset) for step in model.programs]
    return sum(run.cycles or 0 for run in runs), sum(run.bytes_read + run.bytes_written for run in runs)


def run(model: CompiledModel, module: Module, device: str, dram: DramModel, seed: int) -> tuple[int, int, bool | None]:
    """Cycles, bytes, and whether the integers equal NumPy's."""
    if device == "model":
        return *predicted(model, dram), None
    random = np.random.default_rng(seed + 1)
    x = random.integers(-128, 128, module.main.params[0].shape).astype(np.int8)
    target = RtlDevice(model.config, dram=dram) if device == "rtl" else FsimDevice(model.config, dram=dram)
    loaded = weft.load(model, target)
    result = loaded.run({"x": x})["y"]
    moved = sum(step.result.bytes_read + step.result.bytes_written for step in loaded.runs)
    return loaded.cycles or 0, moved, bool(np.array_equal(result, evaluate(module, {"x": x})["y"]))


def averages(measured: list[Measured]) -> dict[str, tuple[float, float]]:
    """What C2..C12 reach together, and what is wanted: weighted by work (sum of ideal cycles / sum of cycles), plain
    mean, lowest."""
    shares = {item.name: item.share for item in measured if item.name != "C1"}
    if not shares:
        return {}
    cycles = sum(item.cycles for item in measured if item.name != "C1")
    weighted = sum(item.share * item.cycles for item in measured if item.name != "C1") / cycles
    return {
        "weighted": (weighted, WEIGHTED_TARGET),
        "mean": (sum(shares.values()) / len(shares), MEAN_TARGET),
        "lowest": (min(shares.values()), LEAST_TARGET),
    }


def records_of(item: Measured, config: CoreConfig, ideal: float) -> list[Record]:
    workload = f"{item.name} vthreads={item.threads}"
    figures: list[tuple[str, float | int, float | int | None]] = [
        ("cycles", item.cycles, ideal),
        ("utilisation", round(item.share, 4), 1.0),
        ("memory bound, cycles", item.bound, None),
        ("bytes", item.bytes_moved, None),
        ("compile seconds", round(item.seconds, 2), COMPILE_SECONDS),
    ]
    if item.equal is not None:
        figures.append(("integers equal NumPy", int(item.equal), 1))
    return [Record(config.name, workload, *figure) for figure in figures]


def sweep(models: dict[tuple[str, int], CompiledModel], path: Path) -> list[Record]:
    """All layers under all memories by the timing model, as a picture (``path`` and its SVG twin); the figures."""
    shares: dict[tuple[int, int, int], dict[str, float]] = {}
    records = []
    for bandwidth in BANDWIDTHS:
        for latency in LATENCIES:
            dram = DramModel(latency=latency, bytes_per_cycle=bandwidth)
            for (name, threads), model in models.items():
                cycles, _ = predicted(model, dram)
                share = SHAPES[name].macs / (cycles * model.config.macs_per_cycle)
                shares.setdefault((threads, latency, bandwidth), {})[name] = share
                workload = f"{name} vthreads={threads} latency={latency} bandwidth={bandwidth}"
                records.append(Record(model.config.name, workload, "utilisation", round(share, 4), 1.0))
    weighted = {
        memory: sum(SHAPES[name].macs for name in chosen) / sum(SHAPES[name].macs / chosen[name] for name in chosen)
        for memory, values in shares.items()
        if (chosen := {name: share for name, share in values.items() if name != "C1"} or values)
    }
    counts = sorted({threads for _, threads in models})
    rows = [
        [f"{latency}", f"{bandwidth}", *(f"{weighted[count, latency, bandwidth]:.1%}" for count in counts)]
        for bandwidth in BANDWIDTHS for latency in LATENCIES
    ]  # fmt: skip
    columns = ["latency", "bytes a cycle", *(f"weighted, {count} vt" for count in counts)]
    print_table("C2..C12 under other memories, by the timing model", columns, rows)
    draw(path, shares, weighted)
    return records


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vthreads", default="1,2", help="comma-separated numbers of virtual threads")
    parser.add_argument("--device", default="rtl", choices=("rtl", "fsim", "model"))
    parser.add_argument("--config", default="pynq", help="named configuration")
    parser.add_argument("--layers", default=",".join(SHAPES), help="comma-separated layers")
    parser.add_argument("--latency", type=int, default=100, help="of the DRAM, in cycles")
    parser.add_argument("--bandwidth", type=int, help="of the DRAM, in bytes a cycle; default: the bus's")
    parser.add_argument("--sweep", type=Path, help="also try other memories, by the timing model; write this picture")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    config = named_config(arguments.config)
    dram = DramModel(latency=arguments.latency, bytes_per_cycle=arguments.bandwidth or config.bus_bytes)
    threads = [int(count) for count in arguments.vthreads.split(",")]
    rows, records, failures = [], [], 0
    measured: dict[int, list[Measured]] = {count: [] for count in threads}
    models: dict[tuple[str, int], CompiledModel] = {}
    for name in arguments.layers.split(","):
        shape = SHAPES[name]
        module = layer(name, shape, arguments.seed)
        packed = lowered(module, config)
        bound = memory_bound(packed, config, dram)
        ideal = shape.macs / config.macs_per_cycle
        row = [name, f"{shape.size}", f"{shape.channels} -> {shape.filters}", f"{shape.kernel}, {shape.stride}"]
        row += [f"{shape.macs / 1e6:.1f}", f"{min(1.0, ideal / bound):.1%}"]
        for count in threads:
            started = time.perf_counter()
            model = models[name, count] = weft.compile(packed, config, vthreads=count)
            seconds = time.perf_counter() - started
            cycles, moved, equal = run(model, module, arguments.device, dram, arguments.seed)
            item = Measured(name, count, cycles, ideal / cycles, bound, moved, seconds, equal)
            measured[count].append(item)
            failures += (equal is False) + (seconds > COMPILE_SECONDS)
            records += records_of(item, config, ideal)
            row += [f"{cycles:,}", f"{item.share:.1%}", f"{moved / 1e3:,.0f}", f"{seconds:.1f}"]
            row.append({True: "yes", False: "NO", None: "-"}[equal])
        rows.append(row)
        print(f"{name} done", file=sys.stderr, flush=True)
    columns = ["layer", "H=W", "channels", "K, S", "MMAC", "memory allows"]
    for count in threads:
        columns += [f"cycles, {count} vt", "utilisation", "kB", "compile s", "equal"]
    print_table(
        f"convolution layers on {arguments.device} ({config.name}, DRAM {dram.latency} cycles, "
        f"{dram.bytes_per_cycle} B/cycle)", columns, rows,
    )  # fmt: skip
    for count, items in measured.items():
        for figure, (value, wanted) in averages(items).items():
            print(f"C2..C12, {count} virtual threads, {figure} utilisation: {value:.1%} (wanted: {wanted:.0%})")
            workload = f"C2..C12 vthreads={count}"
            records.append(Record(config.name, workload, f"utilisation, {figure}", round(value, 4), wanted))
        for item in items:
            if not item.good and count > 1:
                print(f"{item.name}, {count} virtual threads: {item.share:.1%} is below what is wanted")
    if arguments.sweep:
        records += sweep(models, arguments.sweep)
    if arguments.json:
        write_json(arguments.json, records)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
