"""Products of bfloat16 matrices on the CPU: by twos, widened to float32, and in PyTorch; one process, in turns.

An engine's time in a round is the least processor time of a few runs of one thread; a ratio is the median over the
rounds. Errors are those of the widest sums, beside the result in double precision, in units of what the operands allow:
the sum of the products' magnitudes, times 2**-24 for each of them, and half a unit of the result's last place.

    pip install torch
    python benchmarks/cpu/bfloat16.py                   # all sizes: both operands computed
    python benchmarks/cpu/bfloat16.py 512x512x512 --form weights
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import torch
import weft
from weft.compiler.graph import Attrs, Constant, Expr, Function, Module, TensorType, Var, call
from weft.compiler.targets.cpu.processor import Processor, host_target

from benchmarks.common import print_table, processor

SHAPES = (
    "64x64x64", "128x128x128", "256x256x256", "512x512x512", "1024x1024x1024", "100x201x300", "1x1024x1024",
    "8x1024x1024", "128x768x3072", "128x3072x768",
)  # fmt: skip
"""Rows, depth, columns."""

FORMS = ("matmul", "dense", "weights")
"""Both computed; both computed, the second lies turned around (columns, depth); the second is a constant."""

Array = np.ndarray[Any, Any]
Run = Callable[[], Any]


@dataclass(frozen=True)
class Measured:
    """``seconds``: median by engine. ``ratios``: of the time by twos to each other engine's. ``error``: by twos."""

    name: str
    flops: float
    seconds: dict[str, float]
    ratios: dict[str, float]
    error: float


@contextmanager
def widening() -> Iterator[None]:
    """As on a processor without the instruction."""
    kept = Processor.pairs
    Processor.pairs = property(lambda self: False)  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        Processor.pairs = kept  # type: ignore[method-assign]


def product(form: str, left: Array, right: Array) -> Module:
    a = Var("a", TensorType(left.shape, "bfloat16"))
    b: Expr = Constant(right) if form == "weights" else Var("b", TensorType(right.shape, "bfloat16"))
    value = call("nn.dense" if form == "dense" else "nn.matmul", a, b)
    params = (a, b) if isinstance(b, Var) else (a,)
    return Module(Function(params, value, Attrs({"name": "main", "outputs": ("c",)})))


def measure(shape: str, form: str, rounds: int) -> Measured:
    rows, depth, columns = map(int, shape.split("x"))
    generator = np.random.default_rng(0)
    left, right = (
        generator.standard_normal(size).astype(ml_dtypes.bfloat16)
        for size in ((rows, depth), (columns, depth) if form == "dense" else (depth, columns))
    )
    module = product(form, left, right)
    inputs = {"a": left} if form == "weights" else {"a": left, "b": right}
    runs: dict[str, Run] = {"by twos": _run(module, inputs)}
    with widening():
        runs["widened"] = _run(module, inputs)
    a, b = (torch.from_numpy(each.view(np.int16)).view(torch.bfloat16) for each in (left, right))
    out = torch.empty((rows, columns), dtype=torch.bfloat16)
    turned = b.T if form == "dense" else b
    runs["PyTorch"] = lambda: torch.mm(a, turned, out=out)
    flops = 2.0 * rows * depth * columns
    repeats = max(5, min(300, int(4e8 / flops)))
    best: dict[str, list[float]] = {engine: [] for engine in runs}
    for number in range(rounds):
        for engine in sorted(runs, reverse=bool(number % 2)):
            best[engine].append(min(timed(runs[engine]) for _ in range(repeats)))
    ratios = {
        engine: statistics.median(one / other for one, other in zip(best["by twos"], times, strict=True))
        for engine, times in best.items() if engine != "by twos"
    }  # fmt: skip
    found = np.asarray(runs["by twos"]()["c"], np.float64)
    second = right.T if form == "dense" else right
    return Measured(shape, flops, {engine: statistics.median(times) for engine, times in best.items()}, ratios,
                    error_of(found, left, second))  # fmt: skip


def error_of(found: Array, left: Array, right: Array) -> float:
    """The largest error beside what is allowed."""
    a, b = left.astype(np.float64), right.astype(np.float64)
    exact = a @ b
    allowed = (np.abs(a) @ np.abs(b)) * left.shape[1] * 2.0**-24 + np.abs(exact) * 2.0**-8
    return float((np.abs(found - exact) / np.maximum(allowed, 1e-30)).max())


def _run(module: Module, inputs: dict[str, Array]) -> Run:
    loaded = weft.load(weft.compile(module, target="cpu", threads=1))
    result = {"c": np.empty(module.main.body.shape, ml_dtypes.bfloat16)}
    return lambda: loaded.run(inputs, result)


def timed(run: Run) -> float:
    """Seconds of processor time of one run."""
    started = time.process_time_ns()
    run()
    return max(1, time.process_time_ns() - started) * 1e-9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shapes", nargs="*", default=list(SHAPES), help="rows x depth x columns")
    parser.add_argument("--form", choices=FORMS, default="matmul")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{processor()} ({host_target().cpu}), load {os.getloadavg()[0]:.1f}; PyTorch {torch.__version__}")
    measured = [measure(shape, arguments.form, arguments.rounds) for shape in arguments.shapes]
    rows = [
        (item.name, *(f"{item.flops / seconds / 1e9:.1f}" for seconds in item.seconds.values()),
         *(f"{ratio:.2f}" for ratio in item.ratios.values()), f"{item.error:.2f}")
        for item in measured
    ]  # fmt: skip
    engines = list(measured[0].seconds)
    header = ["shape", *(f"{engine}, GFLOP/s" for engine in engines), *(f"time / {each}" for each in engines[1:]),
              "error / bound"]  # fmt: skip
    print_table(f"products of bfloat16: {arguments.form}", header, rows)
    for engine in engines[1:]:
        mean = statistics.geometric_mean(item.ratios[engine] for item in measured)
        print(f"geometric mean of the times beside {engine}: {mean:.2f}")


if __name__ == "__main__":
    main()
