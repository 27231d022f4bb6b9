"""Gradients of every rule, against central differences, machine code and PyTorch.

    python benchmarks/training/gradients.py                      # all parts; PyTorch comes with the extra ``bench``
    python benchmarks/training/gradients.py rules --filter conv  # one part
    python benchmarks/training/gradients.py graphs --graphs 1000 --first 500 --json graphs.json

Parts: ``rules`` (every case of `gradient_cases` in float64: its gradient and the gradient of that against central
differences, and against PyTorch), ``cpu`` (the same gradients in float32 by machine code against NumPy), ``onnx``
(ONNX's own node tests with floats, in float64, against central differences), ``graphs`` (random graphs: NumPy = machine
code, and in float64 NumPy = PyTorch). Exits with 1 when anything differs, or when fewer rules were met than is wanted.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import weft
from rich.progress import track
from weft.compiler.graph import Array, GraphError, Module, Unsupported, evaluate, operators, topological_order
from weft.compiler.graph.dtypes import FLOATS, is_float, numpy_dtype, step
from weft.compiler.graph.ir import TensorType
from weft.compiler.operators.gradient_cases import (
    Case,
    allowed_error,
    are_finite,
    cases,
    differentiable,
    moved_off_kinks,
    slope_error,
    values_of,
    widened,
)
from weft.compiler.operators.random_graphs import random_graph
from weft.compiler.passes.gradient import GradientError, grad

from benchmarks.common import Record, print_table, write_json

WANTED_FORMS = 120
STEPS = 64
"""Of the coarsest type of floats: by how much machine code may differ from NumPy, relative to the largest element."""
AGAINST_PYTORCH = 1e-9

RELAX = {
    "add": "nn.add", "subtract": "nn.subtract", "multiply": "nn.multiply", "divide": "nn.divide", "power": "nn.power",
    "maximum": "nn.maximum", "minimum": "nn.minimum", "equal": "nn.equal", "not_equal": "nn.equal", "less": "nn.less",
    "less_equal": "nn.less_equal", "greater": "nn.less", "greater_equal": "nn.less_equal", "zeros": "expand",
    "ones": "expand", "zeros_like": "expand", "ones_like": "expand", "full_like": "expand", "triu": "nn.where",
    "tril": "nn.where", "abs": "nn.abs", "cos": "nn.cos", "exp": "nn.exp", "log": "nn.log", "negative": "nn.negative",
    "sigmoid": "nn.sigmoid", "sin": "nn.sin", "sqrt": "nn.sqrt", "tanh": "nn.tanh", "sum": "nn.reduce_sum",
    "mean": "nn.reduce_mean", "variance": "MeanVarianceNormalization", "cumsum": "nn.cumulative_sum",
    "where": "nn.where", "permute_dims": "transpose", "concat": "concat", "split": "Split", "reshape": "reshape",
    "expand_dims": "Unsqueeze", "squeeze": "Squeeze", "broadcast_to": "expand", "take": "gather", "matmul": "nn.matmul",
    "astype": "nn.cast", "relu": "Relu", "silu": "Swish", "softmax": "nn.softmax", "log_softmax": "LogSoftmax",
    "nll_loss": "NegativeLogLikelihoodLoss", "conv2d": "nn.conv2d", "max_pool2d": "nn.max_pool",
    "avg_pool2d": "nn.average_pool",
}  # fmt: skip
"""Operators with a gradient that TVM Relax is known for, 52, and the operator of weft or ONNX that stands for each."""


@dataclass
class Tally:
    """``met``: operators (of weft and of ONNX) whose gradient was compared; ``faults``: what differs, in words;
    ``passed_over``: what was not compared, by reason; ``worst``: the largest difference of each comparison."""

    met: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    passed_over: Counter[str] = field(default_factory=Counter)
    worst: dict[str, float] = field(default_factory=dict)

    def compared(self, what: str, name: str, error: float, allowed: float) -> None:
        self.counts[what] += 1
        self.worst[what] = max(self.worst.get(what, 0.0), error)
        if not error <= allowed:
            self.faults.append(f"{what}: {name} differs by {error:.3g}, more than {allowed:.3g}")


Autograd = Callable[[Module, Mapping[str, Array], Mapping[str, Array], list[str]], list[Array]]


def pytorch() -> Autograd | None:
    """PyTorch's autograd on our graphs, where it is installed."""
    try:
        from benchmarks.frontends import torch_graph
    except ImportError:
        return None
    return torch_graph.gradients  # type: ignore[no-any-return]


def against_autograd(
    autograd: Autograd, module: Module, found: Mapping[str, Array], values: Mapping[str, Array], wrt: list[str]
) -> float:
    """The largest difference, relative to the largest element or 1."""
    seeds = {name.removeprefix("seed_"): value for name, value in values.items() if name.startswith("seed_")}
    worst = 0.0
    for name, wanted in zip(wrt, autograd(module, values, seeds, wrt), strict=True):
        worst = max(worst, relative(found[f"grad_{name}"], wanted))
    return worst


def relative(found: Array, wanted: Array) -> float:
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    error = np.abs(a - b).max(initial=0.0) / max(1.0, np.abs(b).max(initial=0.0))
    return float(error) if np.isfinite(error) else float("inf")


def check_rules(tally: Tally, options: argparse.Namespace, autograd: Autograd | None) -> None:
    for case in track(list(_filtered(cases(drawn=options.drawn), options.filter)), "rules", disable=_quiet()):
        first = grad(case.module, wrt=case.wrt, seed=True, values=False)
        tally.compared("slopes", case.name, slope_error(case.module, first), allowed_error(case.module))
        second = grad(first, wrt=case.wrt, seed=True, values=False)
        tally.compared("slopes of slopes", case.name, slope_error(first, second), allowed_error(case.module))
        tally.met.add(case.op)
        tally.counts["forms"] += 1
        if autograd is None:
            continue
        values = values_of(first, 0, case.module)
        if values is None:
            tally.faults.append(f"PyTorch: {case.name} is finite nowhere")
            continue
        allowed = AGAINST_PYTORCH if allowed_error(case.module) < 1e-6 else 1e-5
        with _passed_over(tally, f"PyTorch: {case.name}"):
            error = against_autograd(autograd, case.module, evaluate(first, values), values, case.wrt)
            tally.compared("PyTorch", case.name, error, allowed)


def check_cpu(tally: Tally, options: argparse.Namespace) -> None:
    for case in track(list(_filtered(cases("float32", options.drawn), options.filter)), "cpu", disable=_quiet()):
        gradients = grad(case.module, wrt=case.wrt, seed=True, values=False)
        values = values_of(gradients, 0, case.module)
        if values is None:
            tally.faults.append(f"machine code: {case.name} is finite nowhere")
            continue
        tally.compared("machine code", case.name, _on_cpu(gradients, values, tally), _allowed(gradients))


def _on_cpu(module: Module, values: Mapping[str, Array], tally: Tally) -> float:
    """The largest difference between machine code and NumPy."""
    model = weft.compile(module, target="cpu")
    tally.counts["kernels"] += len(model.layers)
    tally.counts["kernels that NumPy ran"] += sum(layer.device == "numpy" for layer in model.layers)
    found, wanted = weft.load(model).run(values), evaluate(module, values)
    return max(relative(found[name], wanted[name]) for name in wanted)


def _allowed(module: Module) -> float:
    kinds = [node.type for node in topological_order(module.main.body)]
    return STEPS * max(step(kind.dtype) for kind in kinds if isinstance(kind, TensorType) and is_float(kind.dtype))


def onnx_tests(pattern: str) -> Iterator[tuple[str, set[str], Module, dict[str, Array]]]:
    """ONNX's node tests with inputs and outputs of floats, read by our front end: name, operators, module, inputs."""
    from onnx.backend.test.case.node import collect_testcases
    from weft.compiler.frontends.onnx.specialise import specialise

    with warnings.catch_warnings(), open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        warnings.simplefilter("ignore")
        tests = collect_testcases(None)
    for test in tests:
        if not re.search(pattern, test.name) or test.model is None or "expanded" in test.name:
            continue
        try:
            names = [value.name for value in test.model.graph.input]
            found = specialise(test.model, dict(zip(names, test.data_sets[0][0], strict=False)))
        except Exception:  # what our front end refuses is the business of onnx_suite.py
            continue
        floats = [param for param in found.module.main.params if param.type.dtype in FLOATS]
        if floats and any(result.dtype in FLOATS for result in found.module.main.results):
            yield test.name, {node.op_type for node in test.model.graph.node}, found.module, dict(found.inputs)


def check_onnx(tally: Tally, options: argparse.Namespace) -> None:
    """Inputs are those of the test, a little moved."""
    for name, kinds, read, inputs in track(list(onnx_tests(options.filter)), "onnx", disable=_quiet()):
        try:
            module = widened(read)
        except GraphError:
            tally.passed_over["ONNX: quantised, or another operator without float64"] += 1
            continue
        wrt = [param.name for param in module.main.params if param.type.dtype in FLOATS]
        of = [each for each, value in zip(module.main.output_names, module.main.results, strict=True)
              if value.dtype in FLOATS]  # fmt: skip
        try:
            gradients = grad(module, wrt=wrt, of=of, seed=True, values=False)
        except GradientError as error:
            for line in str(error).splitlines()[1:-1]:
                tally.passed_over[f"ONNX: {line.split(' (')[0].strip()}: {line.split(': ', 1)[-1]}"] += 1
            continue
        generator = np.random.default_rng(0)
        values = moved_off_kinks({
            each.name: inputs[each.name] if each.name in inputs else generator.normal(size=each.type.shape)
            for each in gradients.main.params
        }, 0)  # fmt: skip
        own = {each.name: values[each.name] for each in module.main.params}
        results = evaluate(module, own)
        if not are_finite({each: results[each] for each in of}) or not are_finite(evaluate(gradients, values)):
            tally.passed_over["ONNX: the inputs of the test give infinities"] += 1
            continue
        tally.compared("ONNX", name, slope_error(module, gradients, 0, values), 10 * allowed_error(module))
        tally.met |= kinds


def check_graphs(tally: Tally, options: argparse.Namespace, autograd: Autograd | None) -> None:
    seeds = range(options.first, options.first + options.graphs)
    for seed in track(seeds, "graphs", disable=_quiet()):
        graph = random_graph(seed, options.nodes)
        main = graph.module.main
        wrt = [param.name for param in main.params if param.type.dtype in FLOATS]
        of = [name for name, value in zip(main.output_names, main.results, strict=True) if value.dtype in FLOATS]
        if not wrt or not of:
            tally.passed_over["graphs: no floats at one of the ends"] += 1
            continue
        try:
            gradients = grad(graph.module, wrt=wrt, of=of, seed=True, values=False)
        except GradientError:
            tally.passed_over["graphs: an operator without a rule"] += 1
            continue
        generator = np.random.default_rng(seed)
        values = {
            param.name: graph.inputs[param.name] if param.name in graph.inputs
            else generator.normal(size=param.type.shape).astype(numpy_dtype(param.type.dtype))
            for param in gradients.main.params
        }  # fmt: skip
        allowed = _allowed(graph.module)
        if not _is_stable(gradients, values, allowed):
            tally.passed_over["graphs: small errors make a great difference, or infinities"] += 1
        else:
            tally.compared("graphs by machine code", str(seed), _on_cpu(gradients, values, tally), allowed)
        if autograd is not None:
            _wide_graph(tally, autograd, seed, graph.module, wrt, of, values)


def _wide_graph(
    tally: Tally,
    autograd: Autograd,
    seed: int,
    module: Module,
    wrt: list[str],
    of: list[str],
    values: Mapping[str, Array],
) -> None:
    """The same graph in float64, against PyTorch."""
    wide = moved_off_kinks(values, seed)
    try:
        module = widened(module)
        gradients = grad(module, wrt=wrt, of=of, seed=True, values=False)
    except GraphError:
        tally.passed_over["graphs: quantised, or another operator without float64"] += 1
        return
    found = evaluate(gradients, wide)
    if not are_finite(found) or not _is_stable(gradients, wide, 1e-7):
        tally.passed_over["graphs in float64: a kink, or infinities"] += 1
        return
    before = tally.passed_over.total()
    with _passed_over(tally, "graphs in PyTorch, which were compared with slopes instead"):
        tally.compared("graphs in PyTorch", str(seed), against_autograd(autograd, module, found, wide, wrt), 1e-7)
    if tally.passed_over.total() > before:
        error, allowed = slope_error(module, gradients, seed, wide), allowed_error(module)
        others = (slope_error(module, gradients, seed, wide, width) for width in (0.4, 0.05, 0.01))
        if error > allowed and any(abs(other - error) > error / 4 for other in others):
            tally.passed_over["graphs: slopes that change within a difference, as next to a pole"] += 1
        else:
            tally.compared("graphs whose slopes were compared", str(seed), error, allowed)


def _is_stable(module: Module, values: Mapping[str, Array], allowed: float) -> bool:
    """Whether the results stay when inputs move by a few steps of their type."""
    generator = np.random.default_rng(1)
    moved = {
        name: (value * (1 + 4 * step(value.dtype.name) * generator.choice((-1, 1), value.shape))).astype(value.dtype)
        if value.dtype.name in FLOATS else value
        for name, value in values.items()
    }  # fmt: skip
    before, after = evaluate(module, values), evaluate(module, moved)
    return are_finite(before) and all(relative(after[name], before[name]) <= allowed / 4 for name in before)


@contextlib.contextmanager
def _passed_over(tally: Tally, what: str) -> Iterator[None]:
    """What PyTorch cannot be asked is counted; any other error is a fault."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ == "NotComparedError":
            tally.passed_over[f"{what}: {error}"] += 1
        else:
            tally.faults.append(f"{what}: {type(error).__name__}: {error}")


def _filtered(found: Iterator[Case], pattern: str) -> Iterator[Case]:
    return (case for case in found if re.search(pattern, case.name))


def _quiet() -> bool:
    return not sys.stderr.isatty()


def missing(tally: Tally) -> list[str]:
    """What a run of all parts has to have met, and has not. Comparisons have the gradient 0, and need none."""
    is_zero = {
        entry.name for entry in operators() if isinstance(entry.gradient, Unsupported) and entry.gradient.is_zero
    }
    lacking = [f"rule of {entry.name} was not met" for entry in differentiable() if entry.name not in tally.met]
    known = tally.met | is_zero
    lacking += [f"relax.{name}: {ours} was not met" for name, ours in RELAX.items() if ours not in known]
    if tally.counts["forms"] < WANTED_FORMS:
        lacking.append(f"{tally.counts['forms']} forms of operators are fewer than {WANTED_FORMS}")
    return lacking


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="rules, cpu, onnx, graphs; all by default")
    parser.add_argument("--filter", default="", help="cases and tests whose name contains a match")
    parser.add_argument("--drawn", type=int, default=2, help="random calls of each operator that draws itself")
    parser.add_argument("--graphs", type=int, default=100, help="random graphs")
    parser.add_argument("--first", type=int, default=0, help="number of the first random graph")
    parser.add_argument("--nodes", type=int, default=8, help="operators of a random graph, at most")
    parser.add_argument("--without-pytorch", action="store_true", help="leave out what needs it")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    known = {"rules", "cpu", "onnx", "graphs"}
    parts = set(options.parts) or known
    if parts - known:
        parser.error(f"there is no part {min(parts - known)!r}")
    autograd = None if options.without_pytorch else pytorch()
    if autograd is None and not options.without_pytorch:
        parser.error("PyTorch is not installed: pip install 'weft[bench]', or --without-pytorch")

    tally, started = Tally(), time.monotonic()
    if "rules" in parts:
        check_rules(tally, options, autograd)
    if "cpu" in parts:
        check_cpu(tally, options)
    if "onnx" in parts:
        check_onnx(tally, options)
    if "graphs" in parts:
        check_graphs(tally, options, autograd)
    if parts == known and not options.filter:
        tally.faults += missing(tally)

    figures: dict[str, float | int] = {
        "operators with a rule": len(differentiable()), **tally.counts,
        **{f"largest difference, {what}": error for what, error in tally.worst.items()},
        "passed over": sum(tally.passed_over.values()), "faults": len(tally.faults),
        "seconds": round(time.monotonic() - started),
    }  # fmt: skip
    rows = [(name, f"{value:.2g}" if isinstance(value, float) else f"{value:,}") for name, value in figures.items()]
    print_table("Gradients", ("figure", "value"), rows)
    print_table("Passed over", ("reason", "times"), [(k, str(v)) for k, v in tally.passed_over.most_common()])
    for fault in tally.faults:
        print(fault)
    if options.json:
        write_json(options.json, (Record("gradients", "all", name, value) for name, value in figures.items()))
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
