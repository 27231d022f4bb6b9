"""What fusion brings: chains of elementwise operators, linear + normalisation + relu, and steps of training.

Each module is compiled twice: with a kernel for each operator, and with operators joined as the CPU target does. Both
take turns in one process, on one thread; time is that of the processor, and the ratio the median over the rounds.
Memory is what is allocated between kernels. Results must agree to 1e-4 of the largest element.

    python benchmarks/train_fusion.py
    python benchmarks/train_fusion.py --step resnet18       # also a step of these of train_networks.py
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from common import Record, print_table, write_json
from train_engines import weft_training
from train_networks import WORKLOADS, Array
from weft.compiler.graph import Attrs, Constant, Expr, Function, Module, TensorType, Tuple, Var, call
from weft.compiler.graph.dtypes import numpy_dtype
from weft.compiler.operators import nn
from weft.compiler.passes.gradient import grad
from weft.compiler.targets.cpu.build import build_program
from weft.compiler.targets.cpu.kernels import loop_target
from weft.compiler.targets.cpu.processor import host_target
from weft.compiler.targets.loops.link import link_host
from weft.compiler.targets.loops.prepare import host_passes
from weft.runtime.host import HostExecutor

TOLERANCE = 1e-4
ROWS, WIDTH = 256, 1024


def chain(length: int, rows: int) -> Module:
    """Operators behind each other, each with another operand of the same shape or a row."""
    x = Var("x", TensorType((rows, WIDTH), "float32"))
    row = Var("row", TensorType((WIDTH,), "float32"))
    value: Expr = x
    for number in range(length):
        value = (nn.add(value, row), nn.multiply(value, x), nn.clip(value, low=-3.0, high=3.0))[number % 3]
    return _module((x, row), (value,), ("y",))


def linear_norm_relu(backward: bool) -> Module:
    """Linear, batch normalisation by the statistics of the batch, relu; and its gradients for all that is learned."""
    x, w = Var("x", TensorType((ROWS, WIDTH), "float32")), Var("w", TensorType((WIDTH, WIDTH // 4), "float32"))
    gamma, beta = (Var(name, TensorType((WIDTH // 4,), "float32")) for name in ("gamma", "beta"))
    y = nn.matmul(x, w)
    mean = nn.reduce_mean(y, axes=(0,))
    centred = nn.subtract(y, call("reshape", mean, shape=(1, WIDTH // 4)))
    variance = nn.reduce_mean(nn.multiply(centred, centred), axes=(0,))
    z = nn.clip(nn.batch_norm(y, gamma, beta, mean, variance), low=0.0, high=np.inf)
    total = nn.reduce_sum(nn.multiply(z, Constant(np.float32(1 / z.tensor_type.size))), axes=(0, 1))
    module = _module((x, w, gamma, beta), (z, total), ("z", "loss"))
    return grad(module, wrt=["x", "w", "gamma", "beta"], of="loss") if backward else module


def _module(params: tuple[Var, ...], results: tuple[Expr, ...], names: tuple[str, ...]) -> Module:
    body = results[0] if len(results) == 1 else Tuple(results)
    return Module(Function(params, body, Attrs({"name": "main", "outputs": names})))


@dataclass(frozen=True)
class Compiled:
    """A module in machine code, and arrays for it."""

    executor: HostExecutor
    inputs: list[Array]
    outputs: list[Array]

    def seconds(self) -> float:
        started = time.process_time()
        self.executor.run(self.inputs, self.outputs)
        return time.process_time() - started


def compiled(module: Module, *, joined: bool) -> Compiled:
    """``joined``: whether kernels have more than one operator."""
    for item in host_passes(quantised=False):
        module = item(module)
    processor = host_target()
    if not joined:
        processor = replace(processor, fusion=replace(processor.fusion, depth=1, before_reductions=False))
    program = link_host(module, loop_target(processor), 1)
    draw = np.random.default_rng(0)
    inputs: list[Array] = []
    for each in program.inputs:
        dtype = numpy_dtype(each.dtype)
        whole = dtype.kind in "iu"
        inputs.append(np.zeros(each.shape, dtype) if whole else np.asarray(draw.normal(size=each.shape), dtype))
    outputs = [np.empty(each.shape, numpy_dtype(each.dtype)) for each in program.outputs]
    return Compiled(HostExecutor(program, build_program(program, processor)), inputs, outputs)


def measure(name: str, module: Module, rounds: int, repeats: int) -> list[Record]:
    runs = [compiled(module, joined=joined) for joined in (False, True)]
    for run in runs:
        run.seconds()
    error = max(
        float(np.abs(a - b).max(initial=0) / max(1.0, np.abs(a).max(initial=0)))
        for a, b in zip(*(run.outputs for run in runs), strict=True)
    )
    times = [[min(run.seconds() for _ in range(repeats)) for run in runs] for _ in range(rounds)]
    faster = statistics.median(apart / together for apart, together in times)
    apart, together = (run.executor.program for run in runs)
    return [
        Record("one thread", name, "times as fast", round(faster, 3)),
        Record("one thread", name, "arena, share", round(together.arena_bytes / max(1, apart.arena_bytes), 3)),
        Record("one thread", name, "arena, bytes", together.arena_bytes, apart.arena_bytes),
        Record("one thread", name, "kernels", len(together.layers), len(apart.layers)),
        Record("one thread", name, "difference", error, TOLERANCE),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--step", action="append", default=[], help=f"beginning of: {'; '.join(WORKLOADS)}")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    arguments = parser.parse_args()
    subjects = {
        "chain of 3, 64 KiB": chain(3, 16), "chain of 9, 64 KiB": chain(9, 16),
        "chain of 3, 16 MiB": chain(3, 4096), "chain of 9, 16 MiB": chain(9, 4096),
        "linear + batch norm + relu": linear_norm_relu(False),
        "linear + batch norm + relu, with gradients": linear_norm_relu(True),
    }  # fmt: skip
    for name, workload in WORKLOADS.items():
        if arguments.step and name.startswith(tuple(arguments.step)):
            subjects[f"step of {name}"] = weft_training(workload)[0].module
    records = []
    for number, (name, module) in enumerate(subjects.items(), 1):
        print(f"{number} of {len(subjects)}: {name}", file=sys.stderr, flush=True)
        records += measure(name, module, arguments.rounds, arguments.repeats)
    rows = []
    for name in subjects:
        found = {each.figure: each for each in records if each.workload == name}
        kernels, arena = found["kernels"], found["arena, bytes"]
        rows.append([name, f"{kernels.reference} / {kernels.value}", f"{found['times as fast'].value:.2f}",
                     f"{int(arena.reference or 0) / 2**20:.1f} / {int(arena.value) / 2**20:.1f}"])  # fmt: skip
    print_table("joined kernels against one for each operator", ["what", "kernels", "times as fast", "arena MiB"], rows)
    if arguments.json:
        write_json(arguments.json, records)
    wrong = [each.workload for each in records if each.figure == "difference" and not each.value <= TOLERANCE]
    for name in wrong:
        print(f"results differ: {name}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
