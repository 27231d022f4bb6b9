"""8 bits beside float32, both weft's, at levels of x86 that this machine can execute: the processor's time, in turns.

Processors without an instruction for four products of bytes have other forms (docs/cpu.md, "Products of bytes"). In
every round each form of a network runs a few times, and its least time counts; the ratio is the median over the rounds.
``by pairs``: kernels of which weights are multiplied by pairs in 16 bits, of those that multiply bytes.

    python benchmarks/cpu/levels.py                      # networks of convolutions, at every level
    python benchmarks/cpu/levels.py resnet18 --level x86-64-v3 --rounds 15
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import weft
from weft.compiler.model import HostStep
from weft.compiler.targets.cpu.processor import PRETENDED, PROCESSORS, executable_here

from benchmarks.common import Record, print_table, processor, write_json
from benchmarks.zoo.peer_forms import NETWORKS, subject

CONVOLUTIONAL = ("resnet18", "mobilenet_v2", "squeezenet")
RATIO_ALLOWED = 0.62
BYTES = ("dot_product_", "word_product_")
"""Steps of kernels that multiply bytes."""

LEVELS = [name for name in executable_here() if name in PROCESSORS]


@dataclass(frozen=True)
class Measured:
    """Milliseconds of the processor in 8 bits and in float32, the medians over rounds, and the ratio's."""

    network: str
    level: str
    own: float
    floats: float
    ratio: float
    paired: int
    kernels: int


def loaded(path: Path, inputs: Any) -> tuple[Callable[[], Any], list[str]]:
    """A function that runs a network, and the texts of its kernels."""
    model = weft.compile(path, target="cpu")
    module = weft.load(model)
    texts = [code.text for step in model.steps if isinstance(step, HostStep) for code in step.program.kernels]
    return lambda: module.run(dict(inputs)), texts


def measure(network: str, level: str, rounds: int, repeats: int) -> Measured:
    os.environ[PRETENDED] = level
    runs: list[Callable[[], Any]] = []
    products: list[str] = []
    for bits, form in ((8, "qdq-u8"), (32, "float")):
        item = subject(network, bits)
        run, texts = loaded(item.files[form], item.inputs)
        runs.append(run)
        products += [text for text in texts if any(step in text for step in BYTES)]
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for run, found in zip(runs, times, strict=True):
            run()  # whoever ran before had the caches
            found.append(min(timed(run) for _ in range(repeats)))
    ratio = statistics.median(a / b for a, b in zip(*times, strict=True))
    own, floats = (1e3 * statistics.median(each) for each in times)
    paired = sum("paired_dot_product_" in text for text in products)
    return Measured(network, level, own, floats, ratio, paired, len(products))


def timed(run: Callable[[], Any]) -> float:
    started = time.process_time()
    run()
    return time.process_time() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", default=list(CONVOLUTIONAL), help=f"of {', '.join(NETWORKS)}")
    parser.add_argument("--level", choices=LEVELS, action="append", help="default: all that this machine executes")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--repeats", type=int, default=3, help="runs of a form in a round")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.networks if name not in NETWORKS]
    if unknown:
        parser.error(f"there is no network {unknown[0]!r}; choose from {', '.join(NETWORKS)}")
    levels = arguments.level or LEVELS
    measured = [measure(name, level, arguments.rounds, arguments.repeats) for level in levels
                for name in arguments.networks]  # fmt: skip
    print(f"{processor()}, load {os.getloadavg()[0]:.1f}, one thread")
    rows = [[item.network, item.level, f"{item.own:.2f}", f"{item.floats:.2f}", f"{item.ratio:.2f}",
             f"{item.paired} of {item.kernels}"] for item in measured]  # fmt: skip
    print_table("processor time of a run, ms", ["network", "level", "8 bits", "float32", "ratio", "by pairs"], rows)
    if arguments.json:
        write_json(arguments.json, [
            Record(item.level, item.network, "8 bits / float32", item.ratio, RATIO_ALLOWED) for item in measured
        ])  # fmt: skip
    missed = [item for item in measured if item.network in CONVOLUTIONAL and item.ratio > RATIO_ALLOWED]
    for item in missed:
        print(f"missed: {item.network} at {item.level}: {item.ratio:.2f} x float32, not {RATIO_ALLOWED}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
