"""A memory that the compiler is told of: it must never cost cycles there.

Each network is compiled for DRAM that nobody names, and for each memory by name; both programs are timed on that
memory by the timing model. The exit status is not 0 where the program that was made for a memory is slower there than
the other.

    python benchmarks/core/told.py
    python benchmarks/core/told.py --networks keyword-ds-cnn mobilenet_v2 --memories 4 8,400 --size 96 --json told.json
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import weft
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import Module
from weft.compiler.model import CompiledModel
from weft.hw.config import CoreConfig, load_config
from weft.hw.dram_rate import parse_dram_rate
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel

from benchmarks.common import Record, print_table, write_json
from benchmarks.core.networks import packed_module
from benchmarks.zoo.quantised_forms import Form, quantised
from benchmarks.zoo.quantised_networks import NETWORKS, network
from examples.models.build import build

FORM = Form("QDQ", "QInt8", "QInt8", per_channel=True, extra=("ActivationSymmetric",))
USED = (
    "keyword-ds-cnn", "mobilenet-v3-block", "efficientnet-block", "unet", "audio-net", "vit-block", "shufflenet-block",
    "densenet-block", "resnet18", "mobilenet_v1", "mobilenet_v2",
)  # fmt: skip
MEMORIES = ("8,400", "8,1000", "4", "4,400", "4,1000", "2", "2,400")


@dataclass(frozen=True)
class Measured:
    network: str
    memory: str
    untold: int
    told: int

    @property
    def ratio(self) -> float:
        return self.told / self.untold


def module_of(name: str, size: int, config: CoreConfig) -> Module:
    if name not in NETWORKS:
        return packed_module(build(name, size=size), config)
    model, batches = network(name)
    return from_onnx(quantised(model, batches, FORM))


def cycles_of(model: CompiledModel, dram: DramModel) -> int:
    return sum(run.result.cycles or 0 for run in predict_runs(model, dram))


def measure(name: str, size: int, memories: Sequence[str], config: CoreConfig) -> list[Measured]:
    module = module_of(name, size, config)
    untold = weft.compile(module, config)
    found = []
    for memory in memories:
        rate = parse_dram_rate(memory)
        dram = DramModel(latency=rate.latency, bytes_per_cycle=rate.bytes_per_cycle)
        told = weft.compile(module, config, dram=rate)
        found.append(Measured(name, memory, cycles_of(untold, dram), cycles_of(told, dram)))
        print(found[-1], f"{found[-1].ratio:.4f}", file=sys.stderr, flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="pynq")
    parser.add_argument("--networks", nargs="+", default=list(USED))
    parser.add_argument("--memories", nargs="+", default=list(MEMORIES), metavar="BYTES,LATENCY")
    parser.add_argument("--size", type=int, default=64, help="height and width of the images of whole networks")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    config = load_config(args.config)
    found = [each for name in args.networks for each in measure(name, args.size, args.memories, config)]
    by_network: dict[str, list[Measured]] = {}
    for each in found:
        by_network.setdefault(each.network, []).append(each)
    print_table(
        f"cycles, told of a memory (bytes a cycle, latency) / not told of it, on {config.name}",
        ["network", *args.memories],
        ([name, *(f"{each.ratio:.3f}" for each in row)] for name, row in by_network.items()),
    )
    if args.json:
        write_json(
            args.json,
            [Record(f"{config.name}, {each.memory}", each.network, "cycles, told", each.told, each.untold)
             for each in found],
        )  # fmt: skip
    return 0 if all(each.ratio <= 1 for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
