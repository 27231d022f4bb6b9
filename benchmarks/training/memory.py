"""Memory and time of a step of training within bounds: what computing forward values again costs and saves.

For each network the step is planned with all values kept, as it is by default, and within shares of the first. Peak
memory is what is allocated between kernels (`arena_bytes`); parameters, their velocities, inputs and outputs come on
top and are the same for all. Steps take turns in one process, on one thread; time is that of the processor, and the
median of the ratios to the step that keeps all. Losses after the steps must agree to 1e-4. It ends with 1 where memory
does not fall with the bound, or losses differ.

    python benchmarks/training/memory.py                       # ResNet-18 and MobileNetV2 at 64x64
    python benchmarks/training/memory.py resnet18 --batch 32 --share 0.7 --share 0.5
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import weft
from weft.compiler.frontends import for_batch, read
from weft.compiler.graph import Module
from weft.train import Step, Training, cross_entropy, sgd
from weft.train.memory import ways

from benchmarks.common import Record, print_table, write_json
from examples.models.build import build

SHARES = (0.9, 0.8, 0.7, 0.6, 0.5)
LOSS_TOLERANCE = 1e-4


def trainable(path: Path, batch: int) -> tuple[Module, dict[str, np.ndarray]]:
    """The model for so many images with its weights as inputs, and their values."""
    source, shapes = for_batch(read(path), batch)
    return weft.lift_constants(source.module(shapes, require_quantised=False))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def training_steps(path: Path, batch: int, shares: list[float]) -> tuple[dict[str, Step], dict[str, np.ndarray]]:
    """The steps by what they are called, those that can be met, and the parameters to start with."""
    module, start = trainable(path, batch)
    loss, parameters = cross_entropy(module), list(start)
    kept = sgd(loss, parameters, momentum=0.9, keep_all=True)
    found = {"all is kept": kept}
    whole = next(ways(kept, threads=1)).planned
    say(f"all is kept: {whole:,} bytes")
    bounds = [(f"{share:.0%}", int(share * whole)) for share in sorted(shares, reverse=True)]
    for way in ways(sgd(loss, parameters, momentum=0.9), threads=1):
        say(f"{way.what}: {way.planned:,} bytes")
        found.setdefault("no bound", way.step)
        while bounds and way.planned <= bounds[0][1]:
            found[bounds.pop(0)[0]] = way.step
        if not bounds:
            break
    for share, bound in bounds:
        print(f"{share}: {bound:,} bytes cannot be met")
    return found, start


def measure(name: str, size: int, batch: int, shares: list[float], rounds: int) -> list[Record]:
    steps, start = training_steps(build(name, form="float", size=size), batch, shares)
    return in_turns(f"{name} {size}x{size}, batch {batch}", steps, start, rounds)


def in_turns(workload: str, steps: dict[str, Step], start: dict[str, np.ndarray], rounds: int) -> list[Record]:
    """The planned peak of each step, its time as the median of the ratios to the first one, and its loss in the end.
    They take turns, with the same images and the same parameters to start with."""
    draw = np.random.default_rng(0)
    first = next(iter(steps))
    image = next(param for param in steps[first].module.main.params if param.name not in start)
    labels = draw.integers(0, 1000, image.type.shape[0])
    given = {image.name: draw.normal(size=image.type.shape).astype("float32"), "labels": labels}
    records, runs = [], {}
    for what, each in steps.items():
        say(f"{workload}: {what} is compiled")
        model = weft.compile(each.module, target="cpu", threads=1)
        records.append(Record(what, workload, "planned peak, bytes", model.statistics["arena_bytes"]))
        runs[what] = Training(each, start, weft.load(model))
    seconds: dict[str, list[float]] = {what: [] for what in runs}
    losses: dict[str, list[float]] = {what: [] for what in runs}
    for number in range(rounds):
        say(f"{workload}: round {number + 1} of {rounds}")
        for what, run in runs.items():
            started = time.process_time()
            losses[what].append(float(run.step(given, 1e-3)["loss"]))
            seconds[what].append(time.process_time() - started)
    for what in runs:
        ratio = statistics.median(a / b for a, b in zip(seconds[what], seconds[first], strict=True))
        records.append(Record(what, workload, "time of a step, ratio", round(ratio, 3)))
        for figure, place in (("loss before the steps", 0), ("loss after the steps", -1)):
            records.append(Record(what, workload, figure, losses[what][place], losses[first][place]))
    return records


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", default=["resnet18", "mobilenet_v2"])
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--share", type=float, action="append", help="of the memory with all values kept")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    arguments = parser.parse_args()
    failed, records = False, []
    for name in arguments.networks:
        found = measure(name, arguments.size, arguments.batch, arguments.share or list(SHARES), arguments.rounds)
        records += found
        figures = {(each.config, each.figure): each.value for each in found}
        ways = list(dict.fromkeys(each.config for each in found))
        peaks = [int(figures[way, "planned peak, bytes"]) for way in ways]
        failed |= peaks != sorted(peaks, reverse=True)
        rows = []
        for way, peak in zip(ways, peaks, strict=True):
            loss, first = float(figures[way, "loss after the steps"]), float(figures[ways[0], "loss after the steps"])
            failed |= abs(loss - first) > LOSS_TOLERANCE * abs(first)
            ratio = figures[way, "time of a step, ratio"]
            rows.append([way, f"{peak / 2**20:.1f}", f"{peak / peaks[0]:.0%}", f"{ratio:.2f}", f"{loss:.6f}"])
        print_table(found[0].workload, ["bound", "peak, MiB", "of all kept", "time", "loss"], rows)
    if arguments.json:
        write_json(arguments.json, records)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
