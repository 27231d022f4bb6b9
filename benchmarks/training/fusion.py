"""What fusion and the optimisation of the graph bring: chains of operators, linear + normalisation + relu, steps.

Each module is compiled as the CPU target does, with a kernel for each operator, and (steps of training) without the
passes that optimise the graph (`OPTIMISATIONS`): forward and backward as they were differentiated. All take turns in
one process, on one thread; time is that of the processor, and the ratio the median over the rounds. Memory is what is
allocated between kernels. Results must agree to 1e-4 of the largest element, those of a step, where rounding goes
through dozens of normalisations, to 1e-3.

    python benchmarks/training/fusion.py
    python benchmarks/training/fusion.py --step resnet18       # also a step of these of train_networks.py
    python benchmarks/training/fusion.py --only-steps --model resnet50 --size 64 --batch 8     # of examples/models
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
from weft.compiler.graph import Attrs, Constant, Expr, Function, Module, TensorType, Tuple, Var, call
from weft.compiler.graph.dtypes import numpy_dtype
from weft.compiler.operators import nn
from weft.compiler.passes import gradient
from weft.compiler.passes.gradient import grad
from weft.compiler.passes.manager import infer_types
from weft.compiler.targets.cpu.build import build_program
from weft.compiler.targets.cpu.kernels import loop_target
from weft.compiler.targets.cpu.processor import host_target
from weft.compiler.targets.loops.link import link_host
from weft.compiler.targets.loops.prepare import host_passes
from weft.runtime.host import HostExecutor
from weft.train import cross_entropy, sgd, step

from benchmarks.common import Record, print_table, processor, write_json
from benchmarks.training.engines import weft_training
from benchmarks.training.memory import trainable
from benchmarks.zoo.train_networks import WORKLOADS, Array, Workload
from examples.models.build import build

TOLERANCE, TOLERANCE_OF_STEPS = 1e-4, 1e-3

OPTIMISATIONS = ("fold-constants", "simplify", "cse", "dce", "moves-that-meet", "fold-known-values")
"""Passes that a graph can do without."""
ROWS, WIDTH = 256, 1024


def chain(length: int, rows: int) -> Subject:
    """Operators behind each other, each with another operand of the same shape or a row."""
    x = Var("x", TensorType((rows, WIDTH), "float32"))
    row = Var("row", TensorType((WIDTH,), "float32"))
    value: Expr = x
    for number in range(length):
        value = (nn.add(value, row), nn.multiply(value, x), nn.clip(value, low=-3.0, high=3.0))[number % 3]
    return _module((x, row), (value,), ("y",)), {}


def linear_norm_relu(backward: bool) -> Subject:
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
    return (grad(module, wrt=["x", "w", "gamma", "beta"], of="loss") if backward else module), {}


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


@dataclass(frozen=True)
class Form:
    """How a module is compiled: ``joined``, whether kernels have more than one operator; ``optimised``, whether the
    graph is."""

    name: str
    joined: bool = True
    optimised: bool = True


@contextmanager
def as_differentiated() -> Iterator[None]:
    """Gradients and steps are left as their rules make them, and keep all of their forward part."""
    with (
        mock.patch.object(gradient, "tidied", infer_types), mock.patch.object(step, "tidied", infer_types),
        mock.patch.object(step, "rematerialised", lambda module, forward_results: module),
    ):  # fmt: skip
        yield


WHOLE, APART, PLAIN = Form("whole"), Form("one each", joined=False), Form("as differentiated", optimised=False)


Subject = tuple[Module, Mapping[str, Array]]
"""A module and values of inputs by name; the others are drawn."""


def compiled(make: Callable[[], Subject], form: Form) -> Compiled:
    with nullcontext() if form.optimised else as_differentiated():
        module, given = make()
    for item in host_passes(quantised=False):
        if form.optimised or item.name not in OPTIMISATIONS:
            module = item(module)
    target = host_target()
    if not form.joined:
        target = replace(target, fusion=replace(target.fusion, depth=1, before_reductions=False))
    program = link_host(module, loop_target(target), 1)
    draw = np.random.default_rng(0)
    inputs: list[Array] = []
    for each in program.inputs:
        dtype = numpy_dtype(each.dtype)
        whole = dtype.kind in "iu"
        drawn = np.zeros(each.shape, dtype) if whole else np.asarray(draw.normal(size=each.shape), dtype)
        inputs.append(given.get(each.name, drawn))
    outputs = [np.empty(each.shape, numpy_dtype(each.dtype)) for each in program.outputs]
    return Compiled(HostExecutor(program, build_program(program, target)), inputs, outputs)


def measure(name: str, make: Callable[[], Subject], forms: Sequence[Form], rounds: int, repeats: int) -> list[Record]:
    """The records of each of ``forms`` beside those of the whole target."""
    whole, *runs = (compiled(make, form) for form in (WHOLE, *forms))
    for run in (whole, *runs):
        run.seconds()
    times = [[min(run.seconds() for _ in range(repeats)) for run in (whole, *runs)] for _ in range(rounds)]
    records = []
    for place, (form, run) in enumerate(zip(forms, runs, strict=True), 1):
        errors = [np.abs(a - b).max(initial=0) / np.abs(a).max(initial=1)
                  for a, b in zip(run.outputs, whole.outputs, strict=True)]  # fmt: skip
        error = float(np.max(errors))  # NaN where anything is
        faster = statistics.median(each[place] / each[0] for each in times)
        apart, together = run.executor.program, whole.executor.program
        records += [
            Record(form.name, name, "times as fast", round(faster, 3)),
            Record(form.name, name, "arena, share", round(together.arena_bytes / max(1, apart.arena_bytes), 3)),
            Record(form.name, name, "arena, bytes", together.arena_bytes, apart.arena_bytes),
            Record(form.name, name, "kernels", len(together.layers), len(apart.layers)),
            Record(form.name, name, "difference", error, TOLERANCE_OF_STEPS if is_step(name) else TOLERANCE),
        ]
    return records


def is_step(name: str) -> bool:
    return name.startswith("step of ")


def workload_step(workload: Workload) -> Subject:
    made, start = weft_training(workload)
    return made.module, start


def built_step(name: str, size: int, batch: int) -> Subject:
    """Forward, backward and SGD with momentum of a network of `examples/models`."""
    module, start = trainable(build(name, form="float", size=size), batch)
    return sgd(cross_entropy(module), list(start), momentum=0.9).module, start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--step", action="append", default=[], help=f"beginning of: {'; '.join(WORKLOADS)}")
    parser.add_argument("--model", action="append", default=[], help="of examples/models, in floats: its step, too")
    parser.add_argument("--size", type=int, default=64, help="height and width of a model's images")
    parser.add_argument("--batch", type=int, default=8, help="of a model")
    parser.add_argument("--only-steps", action="store_true", help="leave out what is no step of training")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    arguments = parser.parse_args()
    subjects: dict[str, Callable[[], Subject]] = {
        "chain of 3, 64 KiB": partial(chain, 3, 16), "chain of 9, 64 KiB": partial(chain, 9, 16),
        "chain of 3, 16 MiB": partial(chain, 3, 4096), "chain of 9, 16 MiB": partial(chain, 9, 4096),
        "linear + batch norm + relu": partial(linear_norm_relu, False),
        "linear + batch norm + relu, with gradients": partial(linear_norm_relu, True),
    }  # fmt: skip
    for name, workload in WORKLOADS.items():
        if arguments.step and name.startswith(tuple(arguments.step)):
            subjects[f"step of {name}"] = partial(workload_step, workload)
    for name in arguments.model:
        place = f"step of {name} {arguments.size}x{arguments.size}, batch {arguments.batch}"
        subjects[place] = partial(built_step, name, arguments.size, arguments.batch)
    if arguments.only_steps:
        subjects = {name: make for name, make in subjects.items() if is_step(name)}
    records = []
    for number, (name, make) in enumerate(subjects.items(), 1):
        print(f"{number} of {len(subjects)}: {name}", file=sys.stderr, flush=True)
        forms = (APART, PLAIN) if is_step(name) else (APART,)
        records += measure(name, make, forms, arguments.rounds, arguments.repeats)
    rows = []
    for name, form in dict.fromkeys((each.workload, each.config) for each in records):
        found = {each.figure: each for each in records if (each.workload, each.config) == (name, form)}
        kernels, arena = found["kernels"], found["arena, bytes"]
        rows.append([name, form, f"{kernels.reference} / {kernels.value}", f"{found['times as fast'].value:.2f}",
                     f"{int(arena.reference or 0) / 2**20:.1f} / {int(arena.value) / 2**20:.1f}"])  # fmt: skip
    print_table(f"{processor()}, one thread: compiled in part against the whole target",
                ["what", "compiled", "kernels", "times as fast", "arena MiB"], rows)  # fmt: skip
    if arguments.json:
        write_json(arguments.json, records)
    wrong = [
        each.workload for each in records if each.figure == "difference" and not each.value <= (each.reference or 0)
    ]
    for name in wrong:
        print(f"results differ: {name}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
