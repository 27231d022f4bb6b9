"""Cores on which a pixel takes several entries, and reductions over many pixels: cycles beside the bound.

Where ``block_in`` and ``block_out`` differ, a pixel of the larger block takes several entries of the smaller one: of
results and of what the vector engine reads where ``block_out`` is smaller, of the array's inputs where ``block_in`` is.
They must be stored and loaded as rows of pixels, not in bursts of one entry. PointNet reduces all of its points to one,
more of them than the accumulator holds at a time.

The bound of a network is the sum of its layers' (`weft profile`): products, vector work or bytes, whichever is most.
The exit status is not 0 where cycles are above 1.25 times that, or an integer is not the graph's.

    python benchmarks/core/narrow_entries.py
    python benchmarks/core/narrow_entries.py --networks pointnet --cores 1x16x16 --json entries.json
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import weft
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import Module, evaluate
from weft.compiler.model import CompiledModel
from weft.compiler.passes import PassManager, integer_passes
from weft.hw.config import PYNQ, CoreConfig
from weft.runtime.profile import profile
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel

from benchmarks.common import Record, each_of, print_table, write_json
from benchmarks.zoo.quantised_build import Net
from benchmarks.zoo.quantised_forms import Form, Inputs, quantised
from benchmarks.zoo.quantised_networks import network

FORM = Form("QDQ", "QInt8", "QInt8", per_channel=True, extra=("ActivationSymmetric",))
POINTS = 1024
TARGET = 1.25
"""Of the bound, at most."""

DIFFERENT = ("2x16x8", "1x16x8", "1x16x4", "1x8x16", "1x4x16")
CORES = {"ds-cnn": DIFFERENT, "pointnet": ("1x16x16", *DIFFERENT)}
"""Batch, block_in and block_out."""

MEMORIES = (DramModel(latency=100, bytes_per_cycle=8), DramModel(latency=400, bytes_per_cycle=4))


def pointnet() -> tuple[onnx.ModelProto, list[Inputs]]:
    """PointNet's classifier without its transforms: layers of one point each, the maximum over all points, two more."""
    net = Net()
    x = net.input("x", (1, 3, POINTS))
    for channels in (64, 64, 128, 256):
        x = net.node("Relu", net.conv(x, channels, 1))
    x = net.node("ReduceMax", x, axes=[2], keepdims=0)
    model = net.model(net.dense(net.node("Relu", net.dense(x, 128)), 10))
    return model, net.batches(model)


NETWORKS: dict[str, Callable[[], tuple[onnx.ModelProto, list[Inputs]]]] = {
    "ds-cnn": lambda: network("keyword-ds-cnn"),
    "pointnet": pointnet,
}


@dataclass(frozen=True)
class Measured:
    network: str
    core: str
    dram: DramModel
    cycles: int
    bound: float
    unequal: int

    @property
    def memory(self) -> str:
        return f"{self.dram.latency} cycles, {self.dram.bytes_per_cycle} B/cycle"

    @property
    def ratio(self) -> float:
        return self.cycles / self.bound

    @property
    def good(self) -> bool:
        return self.ratio <= TARGET and not self.unequal


def core_of(shape: str) -> CoreConfig:
    """``pynq`` with another array."""
    batch, block_in, block_out = map(int, shape.split("x"))
    square = batch == 1 and block_in == block_out >= 16
    return replace(PYNQ, name=shape, batch=batch, block_in=block_in, block_out=block_out, depthwise=int(square))


def measure(name: str, module: Module, inputs: Inputs, shape: str, dram: DramModel) -> Measured:
    config = core_of(shape)
    model = weft.compile(module, config, dram=dram)
    assert isinstance(model, CompiledModel)
    of_layers = profile(model, predict_runs(model, dram), "model", dram)
    wanted = evaluate(PassManager(integer_passes()).run(module), inputs)
    values = weft.load(model, weft.FsimDevice(config, timing=False)).run(inputs)
    unequal = sum(int(np.count_nonzero(values[key] != value)) for key, value in wanted.items())
    bound = sum(layer.bounds.limit for layer in of_layers.layers)
    return Measured(name, shape, dram, of_layers.cycles, bound, unequal)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=NETWORKS)
    parser.add_argument("--cores", nargs="+", metavar="BATCHxINxOUT")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = []
    for name in each_of(args.networks):
        source, batches = NETWORKS[name]()
        module = from_onnx(quantised(source, batches, FORM))
        inputs = {param.name: batches[0][param.name] for param in module.main.params}
        shapes = args.cores or CORES[name]
        found += [measure(name, module, inputs, shape, dram) for shape in shapes for dram in MEMORIES]
    print_table(
        "networks on cores whose blocks differ, cycles by the timing model",
        ["network", "core", "DRAM", "cycles", "bound", "of the bound", "equal", "reached"],
        ([item.network, item.core, item.memory, f"{item.cycles:,}", f"{item.bound:,.0f}", f"{item.ratio:.3f}",
          "NO" if item.unequal else "yes", "yes" if item.good else "NO"] for item in found),
    )  # fmt: skip
    if args.json:
        records = []
        for item in found:
            where = f"{item.core}, {item.memory}"
            records += [
                Record(where, item.network, "cycles", item.cycles, round(item.bound)),
                Record(where, item.network, "of the bound", round(item.ratio, 4), TARGET),
                Record(where, item.network, "unequal integers", item.unequal, 0),
            ]
        write_json(args.json, records)
    return 0 if all(item.good for item in found) else 1


if __name__ == "__main__":
    sys.exit(main())
