"""Random typed graphs on a target: its code must agree with the meaning of every operator, whatever passes run.

Graph ``n`` depends on the number ``n`` alone. Each is evaluated in NumPy, then compiled with all passes and, for the
CPU, again with every single pass left out (variants that the passes turn into the same graph are run once). Integers
must be equal; floats may differ by ``TOLERANCE`` steps of the coarsest type that they were computed from, relative to
the largest element. A failing graph is shrunk and printed as text with its inputs. ``--resume FILE`` keeps what is done
in FILE and goes on from there.

    python benchmarks/campaigns/fuzz_graphs.py --graphs 2000 --resume /tmp/graphs.json
    python benchmarks/campaigns/fuzz_graphs.py --first 1234 --graphs 1
    python benchmarks/campaigns/fuzz_graphs.py --target opencl --graphs 1000
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import weft
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from weft.compiler.graph import Array, Module, TensorType, TupleType, calls, evaluate, topological_order
from weft.compiler.graph.dtypes import is_float, step
from weft.compiler.graph.shrink import describe, shrink
from weft.compiler.operators.random_graphs import random_graph
from weft.compiler.passes import PassManager
from weft.compiler.passes.pipeline import float_passes
from weft.compiler.targets.loops.prepare import prepare
from weft.runtime.gpu.open import CUDA_VARIABLE, EMULATED

from benchmarks.common import Record, print_table, write_json

TOLERANCE = 64
SAVED_EACH = 20
MOST_FAILURES = 20


@dataclass
class Tally:
    """What has been done."""

    graphs: int = 0
    variants: int = 0
    operators: int = 0
    in_numpy: int = 0
    dtypes: dict[str, int] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


def variants(module: Module) -> Iterator[tuple[str, Module]]:
    """The module after all passes, and after all but one; each graph once."""
    passes = float_passes()
    seen: set[Module] = set()
    for left_out in ("", *dict.fromkeys(item.name for item in passes)):
        after = PassManager([item for item in passes if item.name != left_out]).run(module)
        if after not in seen:
            seen.add(after)
            yield f"without {left_out}" if left_out else "all passes", after


DEVICES = {"cuda": os.environ.get(CUDA_VARIABLE, EMULATED)}
"""What runs the code of a target: that of CUDA the interpreter, unless WEFT_CUDA_DEVICE names a GPU."""


def compiled(
    module: Module, inputs: Mapping[str, Array], tally: Tally | None = None, target: str = "cpu"
) -> Mapping[str, Array]:
    """The module's outputs from a target; an input that the passes dropped is not given."""
    model = weft.compile(prepare(module), target=target)
    if tally is not None:
        tally.variants += 1
        tally.in_numpy += sum(layer.device == "numpy" for layer in model.layers)
    return weft.load(model, DEVICES.get(target)).run({param.name: inputs[param.name] for param in module.main.params})


def steps(module: Module) -> dict[str, float]:
    """For each output the step of the coarsest float type among the values that it is computed from; 0 without any."""
    found: dict[str, float] = {}
    for name, result in zip(module.main.output_names, module.main.results, strict=True):
        tensors = (node.type for node in topological_order(result) if isinstance(node.type, TensorType))
        kinds = {kind.dtype for kind in tensors if is_float(kind.dtype)}
        found[name] = max(map(step, kinds), default=0.0)
    return found


def difference(wanted: Mapping[str, Array], found: Mapping[str, Array], allowed: Mapping[str, float]) -> str:
    """What differs between two runs, in words; empty if nothing does."""
    for name, before in wanted.items():
        after = found[name]
        if (before.dtype, before.shape) != (after.dtype, after.shape):
            return f"{name} is {after.dtype}{list(after.shape)}, not {before.dtype}{list(before.shape)}"
        if not is_float(before.dtype.name):
            if not np.array_equal(before, after):
                return f"{name} ({before.dtype}) differs"
        elif before.size:
            a, b = before.astype(np.float64), after.astype(np.float64)
            error = float(np.abs(a - b).max()) / max(1.0, float(np.abs(a).max()))
            if not error <= TOLERANCE * allowed[name]:
                return f"{name} ({before.dtype}) differs by {error:.3g} of its largest element"
    return ""


def fault(module: Module, inputs: Mapping[str, Array], tally: Tally | None = None, target: str = "cpu") -> str:
    """What is wrong with a graph on a target, in words; empty if nothing is."""
    wanted, allowed = evaluate(module, inputs), steps(module)
    for name, after in islice(variants(module), None if target == "cpu" else 1):
        try:
            wrong = difference(wanted, compiled(after, inputs, tally, target), allowed)
        except Exception as error:  # whatever it raises is a finding; the campaign goes on
            wrong = f"{type(error).__name__}: {error}"
        if wrong:
            return f"{name}: {wrong}"
    return ""


def check(seed: int, nodes: int, tally: Tally, target: str = "cpu") -> str:
    """Run graph ``seed``; the text of what is wrong, with the smallest graph that shows it."""
    graph = random_graph(seed, nodes)
    found = calls(graph.module.main.body)
    tally.graphs += 1
    tally.operators += len(found)
    for kind in (node.type for node in found):
        dtype = kind.fields[0].dtype if isinstance(kind, TupleType) else kind.dtype
        tally.dtypes[dtype] = tally.dtypes.get(dtype, 0) + 1
    wrong = fault(graph.module, graph.inputs, tally, target)
    if not wrong:
        return ""
    small, inputs = shrink(graph.module, graph.inputs, lambda module, given: bool(fault(module, given, target=target)))
    return f"graph {seed}, {wrong}\n{describe(small, inputs)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=2000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--nodes", type=int, default=12, help="operators of a graph, at most")
    parser.add_argument("--target", choices=("cpu", "opencl", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--resume", type=Path, help="keep what is done in this file, and go on from there")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()

    tally = Tally()
    if options.resume and options.resume.exists():
        tally = Tally(**json.loads(options.resume.read_text()))
    columns = (TextColumn("graphs"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    started, before = time.monotonic(), tally.seconds
    with Progress(*columns, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("", total=options.graphs, completed=tally.graphs)
        while tally.graphs < options.graphs and time.monotonic() - started < options.seconds:
            seed = options.first + tally.graphs
            wrong = check(seed, options.nodes, tally, options.target)
            tally.seconds = before + time.monotonic() - started
            if wrong:
                tally.failures[str(seed)] = wrong
                progress.console.print(wrong, markup=False, highlight=False)
            progress.advance(task)
            if options.resume and (wrong or tally.graphs % SAVED_EACH == 0):
                options.resume.write_text(json.dumps(asdict(tally), indent=1))
            if len(tally.failures) >= MOST_FAILURES:
                break
    if options.resume:
        options.resume.write_text(json.dumps(asdict(tally), indent=1))
    figures = {
        "graphs": tally.graphs, "operators": tally.operators, "compiled variants": tally.variants,
        "kernels that NumPy ran": tally.in_numpy, "failures": len(tally.failures), "seconds": round(tally.seconds),
        **{f"operators of {name}": count for name, count in sorted(tally.dtypes.items())},
    }  # fmt: skip
    print_table(
        f"Random graphs, {options.target} against NumPy",
        ("figure", "value"),
        [(k, f"{v:,}") for k, v in figures.items()],
    )
    if options.json:
        write_json(
            options.json, (Record(options.target, "random graphs", name, value) for name, value in figures.items())
        )
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
