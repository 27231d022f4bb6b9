"""Memory and time of a step of training in mixed precision, beside the same step in float32.

Each network is trained for a few steps with values stored in float32, bfloat16, and float16 with a scaled loss. Peak
memory is what is allocated between kernels (`arena_bytes`). Steps take turns in one process, on one thread; time is
that of the processor, and the median of the ratios to float32. It ends with 1 where 16 bits take more memory than
float32, or the first loss is further from that of float32 than 16 units in the last place of the type. A scaled loss
has all gradients there, in 16 bits, before it is known whether they are finite: float16 may take so much on top.

    python benchmarks/training/precision.py                    # ResNet-18 and MobileNetV2 at 64x64, batch 16
    python benchmarks/training/precision.py resnet18 --batch 8 --rounds 3
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from weft.compiler.graph.dtypes import HALVES
from weft.compiler.graph.dtypes import step as unit_of
from weft.train import LossScaling, Step, cross_entropy, mixed, sgd

from benchmarks.common import Record, print_table, write_json
from benchmarks.training.memory import in_turns, trainable
from examples.models.build import build

UNITS = 16
"""In the last place of a type: by so much a loss may differ."""

FIGURES = ("planned peak, bytes", "time of a step, ratio", "loss before the steps", "loss after the steps")

SCALED = "float16"
"""The type that needs a scaled loss."""


def training_steps(path: Path, batch: int) -> tuple[dict[str, Step], dict[str, np.ndarray]]:
    """The steps by their type, float32 first, and the parameters to start with."""
    module, start = trainable(path, batch)
    steps = {"float32": sgd(cross_entropy(module), list(start), momentum=0.9)}
    for dtype in HALVES:
        scaling = LossScaling(2.0**8) if dtype == SCALED else None
        steps[dtype] = sgd(cross_entropy(mixed(module, dtype)), list(start), momentum=0.9, loss_scaling=scaling)
    return steps, start


def faults(workload: str, figures: dict[tuple[str, str], float], gradients: int) -> list[str]:
    """What 16 bits must not do. ``figures``: by type and figure; ``gradients``: bytes of all of them in 16 bits."""
    found = []
    peak, loss = (figures["float32", figure] for figure in ("planned peak, bytes", "loss before the steps"))
    for dtype in HALVES:
        taken, reached = (figures[dtype, figure] for figure in ("planned peak, bytes", "loss before the steps"))
        held = gradients if dtype == SCALED else 0
        if taken - held > peak:
            text = f"{workload}: {dtype} takes {taken:,.0f} bytes, {held:,} of them gradients; float32 {peak:,.0f}"
            found.append(text)
        if not abs(reached - loss) <= UNITS * unit_of(dtype) * abs(loss):
            found.append(f"{workload}: the loss is {reached:.6f} in {dtype}, and {loss:.6f} in float32")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", default=["resnet18", "mobilenet_v2"])
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    arguments = parser.parse_args()
    records: list[Record] = []
    wrong: list[str] = []
    for name in arguments.networks:
        workload = f"{name} {arguments.size}x{arguments.size}, batch {arguments.batch}"
        steps, start = training_steps(build(name, form="float", size=arguments.size), arguments.batch)
        found = in_turns(workload, steps, start, arguments.rounds)
        records += found
        figures = {(each.config, each.figure): float(each.value) for each in found}
        wrong += faults(workload, figures, sum(2 * value.size for value in start.values()))
        rows = []
        for dtype in steps:
            peak, ratio, *losses = (figures[dtype, figure] for figure in FIGURES)
            share = peak / figures["float32", FIGURES[0]]
            shown = [f"{loss:.4f}" for loss in losses]
            rows.append([dtype, f"{peak / 1e6:.1f}", f"{share:.0%}", f"{ratio:.2f}", *shown])
        print_table(workload, ["stored in", "peak, MB", "of float32", "time", "first loss", "last loss"], rows)
    for text in wrong:
        print(f"wrong: {text}")
    if arguments.json:
        write_json(arguments.json, records)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
