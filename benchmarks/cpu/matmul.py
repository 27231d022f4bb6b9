"""Products of two computed matrices on the CPU beside onnxruntime: one process, engines taking turns.

In every round each engine runs the same product a few times, and the fastest of these counts; the ratio is the median
over the rounds of the ratio within a round, so that what else the machine does meets both alike. Results must agree
within 1e-5 of the largest.

    pip install -e .[bench]
    python benchmarks/cpu/matmul.py                     # all sizes, 1 thread
    python benchmarks/cpu/matmul.py 512x512x512 --threads 2
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
import weft
from onnx import helper, numpy_helper
from weft.compiler.targets.cpu.processor import host_target

from benchmarks.common import print_table, processor
from examples.precise import fastest_session, precise_session

SHAPES = (
    "64x64x64", "128x128x128", "256x256x256", "384x384x384", "512x512x512", "768x768x768", "1024x1024x1024",
    "256x8192x256", "100x200x300", "127x127x127", "1x1024x1024", "8x1024x1024", "128x768x3072", "12x128x64x128",
    "12x128x128x64", "12x197x64x197",
)  # fmt: skip
"""Batch (where there is one), rows, depth, columns."""

TOLERANCE = 1e-5
RATIO_WANTED = 1.5

Run = Callable[[], Any]
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Measured:
    """One operator. ``gigaflops``: median by engine; ``ratio``: of weft's time to onnxruntime's."""

    name: str
    threads: int
    gigaflops: dict[str, float]
    ratio: float


def matmul_model(left: Array, right: Array, weights: bool) -> onnx.ModelProto:
    """A model of one MatMul of its two inputs; with ``weights`` the second is a constant."""
    kind = onnx.TensorProto.FLOAT
    result = (*left.shape[:-1], right.shape[-1])
    given = {"a": left.shape} if weights else {"a": left.shape, "b": right.shape}
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["c"])], "matmul",
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in given.items()],
        [helper.make_tensor_value_info("c", kind, result)], [numpy_helper.from_array(right, "b")] if weights else [],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def measure(shape: str, threads: int, rounds: int, weights: bool = False) -> Measured:
    """Run one product on both engines."""
    *batch, rows, depth, columns = map(int, shape.split("x"))
    generator = np.random.default_rng(0)
    left = generator.standard_normal((*batch, rows, depth)).astype(np.float32)
    right = generator.standard_normal((*batch, depth, columns)).astype(np.float32)
    inputs = {"a": left} if weights else {"a": left, "b": right}
    model = matmul_model(left, right, weights)
    return compared(shape, model, inputs, 2.0 * left.size * columns, threads, rounds)


def compared(
    name: str, model: onnx.ModelProto, inputs: dict[str, Array], flops: float, threads: int, rounds: int
) -> Measured:
    """Run a model of one operator on both engines in turns; SystemExit if their results differ."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = fastest_session(model.SerializeToString(), options)
    module = weft.load(weft.compile(model, target="cpu", threads=threads))
    (output,) = (value.name for value in session.get_outputs())
    wanted = np.asarray(precise_session(model.SerializeToString()).run(None, inputs)[0], np.float64)
    result = {output: np.zeros(wanted.shape, np.float32)}
    runs: dict[str, Run] = {
        "weft": lambda: module.run(inputs, result)[output],
        "onnxruntime": lambda: session.run(None, inputs)[0],
    }
    found = np.asarray(runs["weft"](), np.float64)
    difference = float(np.abs(found - wanted).max() / np.abs(wanted).max())
    if difference > TOLERANCE:
        raise SystemExit(f"{name}: results differ by {difference:.1e}")
    repeats = max(3, min(200, int(2e8 / flops)))
    best: dict[str, list[float]] = {engine: [] for engine in runs}
    for number in range(rounds):
        for engine in sorted(runs, reverse=bool(number % 2)):
            best[engine].append(min(timed(runs[engine]) for _ in range(repeats)))
    ratio = statistics.median(a / b for a, b in zip(best["weft"], best["onnxruntime"], strict=True))
    speeds = {engine: flops / statistics.median(values) / 1e9 for engine, values in best.items()}
    return Measured(name, threads, speeds, ratio)


def timed(run: Run) -> float:
    """Seconds of one run."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shapes", nargs="*", default=list(SHAPES), help="[batch x] rows x depth x columns")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--weights", action="store_true", help="the second operand is a constant")
    arguments = parser.parse_args()
    measured = [measure(shape, arguments.threads, arguments.rounds, arguments.weights) for shape in arguments.shapes]
    return report("products of matrices", measured)


def report(title: str, measured: list[Measured]) -> int:
    """Print a table; 1 if a ratio is above the one wanted."""
    print(f"{processor()} ({host_target().cpu}), load {os.getloadavg()[0]:.1f}; onnxruntime {onnxruntime.__version__}")
    rows = [
        (item.name, str(item.threads), *(f"{value:.1f}" for value in item.gigaflops.values()), f"{item.ratio:.2f}")
        for item in measured
    ]
    print_table(title, ["shape", "threads", "weft GFLOP/s", "onnxruntime GFLOP/s", "time ratio"], rows)
    print(f"geometric mean of the ratios: {statistics.geometric_mean(item.ratio for item in measured):.3f}")
    missed = [item.name for item in measured if item.ratio > RATIO_WANTED]
    for name in missed:
        print(f"missed: {name} takes more than {RATIO_WANTED} x onnxruntime's time")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
