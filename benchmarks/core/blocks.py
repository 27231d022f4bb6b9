"""What the host does between the products of a block, and how near the core comes to what its loads allow.

    python benchmarks/core/blocks.py
    python benchmarks/core/blocks.py swin mobilevit --config pynq --json blocks.json
    python benchmarks/core/blocks.py swin --steps                  # each step of the host, with its reason

Each block of `block_networks` is quantised by onnxruntime, compiled, and its programs are timed by the timing model.
A step of the host is a layer that the core does not do, however small it is. The bound is what the array or the
loads need, whichever is longer, of all programs together; the share is the bound over the cycles. What is stored takes
the memory as long: "of its bytes" is the share that loads and stores need together. The exit status says whether each
block has at most 10 steps on the host and a share of 0.8.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import weft
from weft.compiler.model import CompiledModel, Layer
from weft.hw.config import CoreConfig, load_config
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel

from benchmarks.common import Record, each_of, print_table, write_json
from benchmarks.zoo.block_networks import BLOCKS, block
from benchmarks.zoo.quantised_forms import Form, quantised

FORM = Form("QDQ", "QInt8", "QInt8", per_channel=True, pre_process=True)
MOST_STEPS, LEAST_SHARE = 10, 0.8
MOVES = frozenset({"concat", "pad", "reshape", "slice", "transpose", "gather", "pack", "unpack"})
"""Operators that only move data."""
FORMS = frozenset({"quantise", "dequantise"})


@dataclass(frozen=True)
class Measured:
    """``steps``: layers on the host, by kind. ``launches``: programs of the core. ``bound``: cycles. ``moved``: those
    in which the memory can give what is loaded and take what is stored."""

    steps: Counter[str]
    launches: int
    cycles: int
    bound: int
    moved: int
    array: float

    @property
    def count(self) -> int:
        return self.steps.total()

    @property
    def of_bytes(self) -> float:
        return self.moved / self.cycles if self.cycles else 0.0

    @property
    def share(self) -> float:
        return self.bound / self.cycles if self.cycles else 0.0


def kind_of(layer: Layer) -> str:
    """What a step of the host does: "moves" alone, "forms" of numbers with moves, or its other operators."""
    rest = set(layer.operators) - MOVES - FORMS
    if rest:
        return "+".join(sorted(rest))
    return "forms" if FORMS & set(layer.operators) else "moves"


def host_layers(model: CompiledModel) -> list[Layer]:
    return [layer for layer in model.layers if layer.device != "core"]


def measured(model: CompiledModel, config: CoreConfig) -> Measured:
    core = [layer for layer in model.layers if layer.device == "core"]
    dram = DramModel(bytes_per_cycle=config.bus_bytes)
    cycles = sum(run.result.cycles or 0 for run in predict_runs(model, dram))
    array = sum(layer.macs for layer in core) / config.macs_per_cycle
    loads = sum(layer.bytes_loaded for layer in core) / config.bus_bytes
    moved = loads + sum(layer.bytes_stored for layer in core) / config.bus_bytes
    steps = Counter(map(kind_of, host_layers(model)))
    bound = round(max(array, loads))
    return Measured(steps, len(model.programs), cycles, bound, round(moved), array / max(cycles, 1))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(BLOCKS)}; default: all")
    parser.add_argument("--config", default="pynq", help="named configuration, or a JSON file")
    parser.add_argument("--steps", action="store_true", help="each step of the host, with its reason")
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    arguments = parser.parse_args(argv)
    for name in arguments.names:
        if name not in BLOCKS:
            parser.error(f"there is no block {name!r}; choose from {', '.join(BLOCKS)}")
    config = load_config(arguments.config)
    rows, kinds, records, faults = [], [], [], []
    for name in each_of(arguments.names or BLOCKS):
        source, batches = block(name)
        model = weft.compile(quantised(source, batches, FORM), target="accel", config=config)
        if not isinstance(model, CompiledModel):
            raise TypeError("the model has open sizes")
        found = measured(model, config)
        rows.append([name, f"{found.count}", f"{found.launches}", f"{found.cycles:,}", f"{found.bound:,}",
                     f"{found.share:.0%}", f"{found.of_bytes:.0%}", f"{found.array:.0%}"])  # fmt: skip
        kinds += [[name, kind, f"{count}"] for kind, count in found.steps.most_common()]
        figures = [("host steps", found.count, MOST_STEPS), ("launches", found.launches, None),
                   ("cycles", found.cycles, None), ("bound by loads", found.bound, None),
                   ("share of the bound", round(found.share, 4), LEAST_SHARE),
                   ("cycles of the bytes", found.moved, None),
                   ("share of the array", round(found.array, 4), None)]  # fmt: skip
        figures += [(f"host steps: {kind}", count, None) for kind, count in found.steps.most_common()]
        records += [Record(config.name, name, *figure) for figure in figures]
        if found.count > MOST_STEPS:
            faults.append(f"{name}: {found.count} host steps, wanted at most {MOST_STEPS}")
        if found.share < LEAST_SHARE:
            faults.append(f"{name}: {found.share:.2f} of its bound, wanted {LEAST_SHARE}")
        for layer in host_layers(model) if arguments.steps else ():
            print(f"{name}: {layer.name} [{' '.join(layer.operators)}] {layer.shape}: {layer.reason}")
    columns = ["block", "host steps", "launches", "cycles", "bound", "of it", "of its bytes", "of the array"]
    print_table(f"blocks on {config.name}", columns, rows)
    print_table("steps of the host by kind", ["block", "kind", "steps"], kinds)
    for fault in faults:
        print(f"MISSED {fault}")
    if arguments.json:
        write_json(arguments.json, records)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
