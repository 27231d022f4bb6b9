"""Layers that do little for each byte, on cores from tiny to wide: sums, products, poolings, moves, means, norms.

Each is a network of one operator (a norm: of what its integers need) with sizes that no core divides evenly, too. Its
cycles by the timing model stand beside the bound (`weft.tune.least_cycles`: bytes over the bus, lanes of the engines)
and the memory's latency, once for the first operand and once for the last result. The exit status is not 0 if one
takes more than ``WORST`` times that.

    python benchmarks/core/small_layers.py
    python benchmarks/core/small_layers.py --cores tiny small --layers mul maxpool --all --json small_layers.json
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import weft
from weft.compiler.compile import prepared
from weft.compiler.frontends import from_onnx
from weft.compiler.model import CompiledModel
from weft.compiler.targets.accel.target import Accel, AccelOptions
from weft.hw.config import PYNQ, TINY, WIDE, CoreConfig
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel
from weft.tune.least_cycles import least_cycles

from benchmarks.common import Record, each_of, print_table, write_json
from benchmarks.zoo.placement_graph import QuantisedGraph

WORST = 1.3
"""Times its bound and two latencies of the memory that a layer may take."""

CORES = {
    core.name: core
    for core in (
        TINY,
        replace(TINY, name="tiny-16", bus_bits=128),
        CoreConfig(name="small", block_in=8, block_out=8, inp_depth=1024, wgt_depth=512, acc_depth=512, out_depth=256),
        CoreConfig(name="unlike", block_in=8, block_out=16, inp_depth=2048, wgt_depth=1024, acc_depth=1024,
                   out_depth=512),
        PYNQ,
        WIDE,
    )
}  # fmt: skip

Shape = tuple[int, ...]

ROWS, PICTURES, TOKENS = (
    ((1, 24, 1, 400), (1, 13, 1, 1001)),
    ((1, 16, 32, 32), (1, 37, 29, 31), (1, 96, 14, 14), (1, 5, 100, 100)),
    ((64, 96), (50, 200)),
)


@dataclass(frozen=True)
class Layer:
    """An operator of ``inputs`` quantised tensors, as ``build`` writes it, and the shapes that it is tried on."""

    build: Callable[..., str]
    shapes: tuple[Shape, ...]
    inputs: int = 1

    def model(self, shape: Shape) -> onnx.ModelProto:
        graph = QuantisedGraph()
        read = [graph.input(f"x{number}", *shape) for number in range(self.inputs)]
        operands = [graph.pair(each, 0.02 + 0.003 * number, 3 - 5 * number) for number, each in enumerate(read)]
        return graph.model(graph.pair(self.build(graph, *operands), 0.03, -2))


def plain(kind: str, **attributes: object) -> Callable[..., str]:
    return lambda graph, *operands: graph.op(kind, *operands, **attributes)


def pool(kind: str, size: int, stride: int, pad: int) -> Layer:
    border: dict[str, Any] = {"count_include_pad": 1} if kind == "AveragePool" else {}
    return Layer(plain(kind, kernel_shape=[size] * 2, strides=[stride] * 2, pads=[pad] * 4, **border), PICTURES)


def resize(graph: QuantisedGraph, x: str) -> str:
    scales = graph.constant([1, 1, 2, 2], np.float32)
    how: dict[str, Any] = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return str(graph.op("Resize", x, "", scales, **how))


def gate(graph: QuantisedGraph, x: str, y: str) -> str:
    return str(graph.op("Mul", x, graph.pair(graph.op("GlobalAveragePool", y), 0.02, 1)))


def norm(graph: QuantisedGraph, x: str) -> str:
    """A layer norm's centred values: x less the mean of its row."""
    return str(graph.op("Sub", x, graph.pair(graph.op("ReduceMean", x, axes=[-1], keepdims=1), 0.02, 1)))


LAYERS = {
    "add": Layer(plain("Add"), (*ROWS, *PICTURES, *TOKENS), 2),
    "mul": Layer(plain("Mul"), (*ROWS, *PICTURES, *TOKENS), 2),
    "relu": Layer(plain("Relu"), (*ROWS, *PICTURES)),
    "gate": Layer(gate, PICTURES, 2),
    "max 2/2": pool("MaxPool", 2, 2, 0),
    "max 3/2": pool("MaxPool", 3, 2, 1),
    "max 3/1": pool("MaxPool", 3, 1, 1),
    "mean 2/2": pool("AveragePool", 2, 2, 0),
    "mean 3/1": pool("AveragePool", 3, 1, 1),
    "mean of all": Layer(plain("GlobalAveragePool"), PICTURES),
    "resize": Layer(resize, PICTURES),
    "concat": Layer(plain("Concat", axis=1), (*ROWS, *PICTURES), 2),
    "transpose": Layer(plain("Transpose", perm=[1, 0]), TOKENS),
    "mean of rows": Layer(plain("ReduceMean", axes=[-1], keepdims=1), TOKENS),
    "centred": Layer(norm, TOKENS),
}


@dataclass(frozen=True)
class Measured:
    core: str
    layer: str
    shape: Shape
    cycles: int
    bound: int

    @property
    def times(self) -> float:
        return self.cycles / self.bound

    @property
    def workload(self) -> str:
        return f"{self.layer} {'x'.join(map(str, self.shape))}"


def measure(core: CoreConfig, name: str, shape: Shape) -> Measured | None:
    """None if the core has nothing to do: it is all for the host."""
    module = from_onnx(LAYERS[name].model(shape))
    options = AccelOptions(core)
    rate = options.rate
    least = least_cycles(prepared(module, Accel(), options), core, rate, options.vthreads)
    if not least.programs:
        return None
    model = weft.compile(module, core)
    assert isinstance(model, CompiledModel)
    dram = DramModel(latency=rate.latency, bytes_per_cycle=rate.bytes_per_cycle)
    cycles = sum(run.result.cycles or 0 for run in predict_runs(model, dram))
    return Measured(core.name, name, shape, cycles, least.cycles + 2 * rate.latency * len(least.programs))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--cores", nargs="+", choices=CORES, default=list(CORES))
    parser.add_argument("--layers", nargs="+", choices=LAYERS, default=list(LAYERS))
    parser.add_argument("--all", action="store_true", help="print those that are good, too")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    found, host = [], 0
    cases = [(core, layer, shape) for core in arguments.cores for layer in arguments.layers
             for shape in LAYERS[layer].shapes]  # fmt: skip
    for core, layer, shape in each_of(cases, lambda case: " ".join(map(str, case))):
        each = measure(CORES[core], layer, shape)
        found += [each] if each else []
        host += each is None
    bad = [each for each in found if each.times > WORST]
    shown = sorted(found if arguments.all else bad, key=lambda each: -each.times)
    rows = [[each.core, each.workload, f"{each.cycles:,}", f"{each.bound:,}", f"{each.times:.2f}"] for each in shown]
    print_table("small layers by the timing model", ["core", "layer", "cycles", "bound", "times that"], rows)
    mean = float(np.exp(np.mean(np.log([each.times for each in found])))) if found else 0.0
    print(
        f"{len(bad)} of {len(found)} above {WORST} times their bound, {mean:.3f} in the mean; {host} for the host alone"
    )
    if arguments.json:
        records = [Record(each.core, each.workload, "cycles", each.cycles, each.bound) for each in found]
        write_json(arguments.json, records)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
