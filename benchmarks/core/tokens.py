"""Rows of tokens on the core: gated layers of few rows, whose weights must be loaded once.

A gated layer is ``down(act(gate(x)) * up(x)) + x`` behind a Relu, of width 256 and 512, for 1 to 32 rows, as (1, 1, D),
(1, T, D) and (T, D). Its bound is the larger of two: the bytes of its weights, of the parameters of its products and of
its activations, each once for the layer that reads or writes it, over the bytes of the bus; its products over those of
the array. The exit status is not 0 where cycles are above 1.10 times the bound, or where an integer of the functional
simulator is not the graph's.

    python benchmarks/core/tokens.py
    python benchmarks/core/tokens.py --config pynq-tables --act Sigmoid --rows 1 2 4
    python benchmarks/core/tokens.py --json tokens.json
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import weft
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import evaluate
from weft.compiler.model import CompiledModel
from weft.compiler.passes import PassManager, integer_passes
from weft.hw.config import CoreConfig, load_config
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel

from benchmarks.common import Record, each_of, print_table, write_json
from benchmarks.zoo.quantised_build import Net
from benchmarks.zoo.quantised_forms import Form, Inputs, quantised

FORM = Form("QDQ", "QInt8", "QInt8", per_channel=True, extra=("ActivationSymmetric",))
WIDTH, HIDDEN = 256, 512
ROWS = (1, 2, 4, 8, 16, 32)
TARGET = 1.10
"""Of the bound, at most."""

BYTES_OF_PARAMETERS = 12
"""Of a channel: bias, multiplier and shift of one requantise."""


@dataclass(frozen=True)
class Measured:
    name: str
    cycles: int
    bound: float
    loaded: int
    weights: int
    host_steps: int
    unequal: int

    @property
    def good(self) -> bool:
        return self.cycles <= TARGET * self.bound and not self.unequal


def dense(net: Net, x: str, outputs: int) -> str:
    inputs = net.shapes[x][-1]
    return net.node("MatMul", x, net.normal((inputs, outputs), inputs**-0.5))


def gated_layer(shape: Sequence[int], act: str) -> tuple[onnx.ModelProto, list[Inputs]]:
    net = Net()
    x = net.node("Relu", net.input("x", shape))
    gate = dense(net, x, HIDDEN)
    gate = net.swish(gate) if act == "Sigmoid" else net.node(act, gate)
    y = dense(net, net.node("Mul", gate, dense(net, x, HIDDEN)), WIDTH)
    model = net.model(net.node("Add", y, x))
    return model, net.batches(model)


def bound_of(rows: int, config: CoreConfig, dram: DramModel) -> float:
    """The larger of what bytes and products need, in cycles: ``rows`` of both products' operand, of the gate and of the
    gated product, written and read, of what is added, and of the result."""
    weights, channels = 3 * WIDTH * HIDDEN, 2 * HIDDEN + WIDTH
    moved = weights + BYTES_OF_PARAMETERS * channels + rows * (4 * WIDTH + 4 * HIDDEN)
    return max(rows * weights / config.macs_per_cycle, moved / dram.for_bus(config))


def compiled_and_run(
    source: onnx.ModelProto, batches: Sequence[Inputs], config: CoreConfig, dram: DramModel
) -> tuple[CompiledModel, int, int]:
    """A float model in 8 bits: compiled, its cycles, and how many integers of the first batch are not the graph's."""
    module = from_onnx(quantised(source, batches, FORM))
    model = weft.compile(module, config)
    assert isinstance(model, CompiledModel)
    inputs = {param.name: batches[0][param.name] for param in module.main.params}
    wanted = evaluate(PassManager(integer_passes()).run(module), inputs)
    values = weft.load(model, weft.FsimDevice(config, timing=False)).run(inputs)
    unequal = sum(int(np.count_nonzero(values[key] != value)) for key, value in wanted.items())
    return model, sum(run.result.cycles or 0 for run in predict_runs(model, dram)), unequal


def measure(shape: Sequence[int], act: str, config: CoreConfig, dram: DramModel) -> Measured:
    source, batches = gated_layer(shape, act)
    model, cycles, unequal = compiled_and_run(source, batches, config, dram)
    rows = math.prod(shape[:-1])
    return Measured(
        f"{act} {tuple(shape)}", cycles, bound_of(rows, config, dram),
        sum(layer.bytes_loaded for layer in model.layers), sum(layer.macs for layer in model.layers) // rows,
        len(model.steps) - len(model.programs), unequal,
    )  # fmt: skip


def shapes_of(rows: int) -> list[tuple[int, ...]]:
    return [(rows, WIDTH), (1, rows, WIDTH)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="pynq")
    parser.add_argument("--act", nargs="+", default=["Relu", "Sigmoid"])
    parser.add_argument("--rows", nargs="+", type=int, default=list(ROWS))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    config, dram = load_config(args.config), DramModel()
    found = [
        measure(shape, act, config, dram)
        for act, shape in each_of([(act, shape) for act in args.act for rows in args.rows for shape in shapes_of(rows)])
    ]  # fmt: skip
    print_table(
        f"Gated layers {WIDTH} -> {HIDDEN} -> {WIDTH} on {config.name}",
        ["network", "cycles", "bound", "of the bound", "bytes loaded", "of weights", "host steps", "equal", "reached"],
        ([item.name, f"{item.cycles:,}", f"{item.bound:,.0f}", f"{item.cycles / item.bound:.3f}", f"{item.loaded:,}",
          f"{item.weights:,}", str(item.host_steps), "NO" if item.unequal else "yes", "yes" if item.good else "NO"]
         for item in found),
    )  # fmt: skip
    if args.json:
        records = []
        for item in found:
            records += [
                Record(config.name, item.name, "cycles", item.cycles, round(item.bound)),
                Record(config.name, item.name, "of the bound", round(item.cycles / item.bound, 4), TARGET),
                Record(config.name, item.name, "bytes loaded", item.loaded, item.weights),
                Record(config.name, item.name, "host steps", item.host_steps),
                Record(config.name, item.name, "unequal integers", item.unequal, 0),
            ]
        write_json(args.json, records)
    return 0 if all(item.good for item in found) else 1


if __name__ == "__main__":
    sys.exit(main())
