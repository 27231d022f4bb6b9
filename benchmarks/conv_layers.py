"""ResNet-18's twelve convolution shapes (C1..C12 of the TVM paper) with fused requantise, on a simulated core.

Every layer goes the way of a network's first layer: unfolded where that pays, fused, packed, scheduled, tensorized,
emitted, checked. The integers must equal NumPy's. Utilisation is useful multiply-accumulates / (cycles x
multiply-accumulates a cycle).

    python benchmarks/conv_layers.py --vthreads 1,2 --device rtl
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from common import Record, print_table, write_json
from weft.compiler.compile import compile_model
from weft.compiler.compiled import CompiledModel
from weft.compiler.graph import Attrs, Blocks, Constant, Function, Module, Span, TensorType, Var, call, evaluate
from weft.compiler.graph.numerics import quantise_multiplier
from weft.compiler.passes import target_passes
from weft.hw.config import CoreConfig, named_config
from weft.runtime.module import load

COMPILE_SECONDS = 20.0
"""What a layer may take to compile."""


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
    return Module(Function((x,), y, Attrs({"name": name, "outputs": ("y",)})))


def lowered(module: Module, config: CoreConfig) -> Module:
    """The layer as a packed kernel, with what the host does before and behind it."""
    blocks = Blocks(config.batch, config.block_in, config.block_out)
    for item in target_passes(blocks, config.bus_bytes):
        module = item(module)
    return module


def run(model: CompiledModel, module: Module, device: str, seed: int) -> tuple[int | None, bool]:
    """Cycles, and whether the integers equal NumPy's."""
    random = np.random.default_rng(seed + 1)
    x = random.integers(-128, 128, module.main.params[0].shape).astype(np.int8)
    loaded = load(model, device)
    result = loaded.run({"x": x})["y"]
    return loaded.cycles, bool(np.array_equal(result, evaluate(module, {"x": x})["y"]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vthreads", default="1,2", help="comma-separated numbers of virtual threads")
    parser.add_argument("--device", default="rtl", choices=("rtl", "fsim"))
    parser.add_argument("--config", default="pynq", help="named configuration")
    parser.add_argument("--layers", default=",".join(SHAPES), help="comma-separated layers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    arguments = parser.parse_args()

    config = named_config(arguments.config)
    threads = [int(count) for count in arguments.vthreads.split(",")]
    rows, records, failures = [], [], 0
    totals = dict.fromkeys(threads, 0)
    macs = 0
    for name in arguments.layers.split(","):
        shape = SHAPES[name]
        module = layer(name, shape, arguments.seed)
        packed = lowered(module, config)
        macs += shape.macs
        row = [name, f"{shape.size}", f"{shape.channels} -> {shape.filters}", f"{shape.kernel}, {shape.stride}"]
        row.append(f"{shape.macs / 1e6:.1f}")
        for count in threads:
            started = time.perf_counter()
            model = compile_model(packed, config, vthreads=count)
            seconds = time.perf_counter() - started
            cycles, equal = run(model, module, arguments.device, arguments.seed)
            share = shape.macs / (cycles * config.macs_per_cycle) if cycles else None
            failures += (not equal) + (seconds > COMPILE_SECONDS)
            workload = f"{name} vthreads={count}"
            records.append(Record(config.name, workload, "integers equal NumPy", int(equal), 1))
            records.append(Record(config.name, workload, "compile seconds", round(seconds, 2), COMPILE_SECONDS))
            if cycles is not None and share is not None:
                totals[count] += cycles
                records.append(Record(config.name, workload, "cycles", cycles, shape.macs / config.macs_per_cycle))
                records.append(Record(config.name, workload, "utilisation", round(share, 4), 1.0))
            row += [f"{cycles:,}" if cycles else "-", f"{share:.1%}" if share else "-", f"{seconds:.1f}"]
            row.append("yes" if equal else "NO")
        rows.append(row)
        print(f"{name} done", file=sys.stderr, flush=True)
    columns = ["layer", "H=W", "channels", "K, S", "MMAC"]
    for count in threads:
        columns += [f"cycles, {count} vt", "utilisation", "compile s", "equal"]
    print_table(f"convolution layers on {arguments.device} ({config.name})", columns, rows)
    for count, cycles in totals.items():
        if cycles:
            share = macs / (cycles * config.macs_per_cycle)
            print(f"all layers, {count} virtual threads: {cycles:,} cycles, utilisation {share:.1%}")
            records.append(Record(config.name, f"all vthreads={count}", "utilisation", round(share, 4), 1.0))
    if arguments.json:
        write_json(arguments.json, records)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
