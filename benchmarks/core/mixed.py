"""A network that the core can run in parts only: what each layer costs, and what compiled host kernels are worth.

Convolutions run on the core; GELU (erf), softmax, a resize and grid sampling between them on the host, all but the
last in kernels that the CPU target compiles. Every integer of the core and the output must equal the graph's NumPy
meaning: floats between them differ in their last digits, which quantisation takes away unless one lies on a boundary.
The host's part is timed against the NumPy meaning of the same functions in turns. The exit status is not 0 if an
integer differs, or if NumPy runs an operator that has a lowering.

    python benchmarks/core/mixed.py
    python benchmarks/core/mixed.py --device rtl --json mixed.json
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import weft
from weft.compiler.graph import (
    Call,
    Constant,
    Expr,
    Function,
    Module,
    Unsupported,
    evaluate,
    operator,
    topological_order,
)
from weft.compiler.graph.evaluate import evaluate_function
from weft.compiler.model import CompiledModel, HostStep
from weft.compiler.targets.registry import find_target
from weft.hw.config import CoreConfig, named_config
from weft.runtime.host import HostExecutor
from weft.runtime.report import layer_records

from benchmarks.common import Record, print_table, write_json
from benchmarks.core.networks import check_integers, packed_module
from benchmarks.zoo.mixed_network import Array, mixed_model
from examples.models.images import images

RATIO_WANTED = 0.5
"""Of the compiled kernels' time to NumPy's, for the same functions."""


@dataclass(frozen=True)
class Measured:
    """``layers``: a record for each layer, with the microseconds of those on the host. ``compiled``, ``in_numpy``:
    microseconds of the whole host part, medians over rounds; ``ratio``: median of the ratios within a round.
    ``unequal``: integers by layer. ``needless``: operators in NumPy that have a lowering."""

    layers: list[dict[str, Any]]
    compiled: float
    in_numpy: float
    ratio: float
    unequal: Mapping[str, int]
    compared: int
    needless: list[str]

    @property
    def numpy_layers(self) -> list[dict[str, Any]]:
        return [layer for layer in self.layers if layer["on"] == "numpy"]

    @property
    def good(self) -> bool:
        return self.compared > 0 and not any(self.unequal.values()) and not self.needless


def needless_numpy(model: CompiledModel) -> list[str]:
    """Operators that NumPy runs though they have a lowering, with the reason given."""
    return [
        f"{layer.name}: {name}: {layer.reason}"
        for layer in model.layers if layer.device == "numpy"
        for name in layer.operators if not isinstance(operator(name).lower, Unsupported)
    ]  # fmt: skip


def host_functions(module: Module, image: Array) -> list[tuple[Function, list[Array]]]:
    """The functions that run on the host, each with the operands that it gets."""
    values: dict[Expr, Array] = {module.main.params[0]: image}

    def observe(node: Expr, value: Any) -> None:
        if isinstance(node, Call):
            values[node] = value

    evaluate(module, {module.main.params[0].name: image}, observe)
    return [
        (node.op, [arg.value if isinstance(arg, Constant) else values[arg] for arg in node.args])
        for node in topological_order(module.main.body)
        if isinstance(node, Call) and isinstance(node.op, Function) and node.op.host_reason
    ]


class HostPart:
    """The steps of a model on the host, each with the values that it reads."""

    def __init__(self, model: CompiledModel, values: Mapping[str, Array]) -> None:
        target = find_target(model.target)
        self._steps: list[tuple[HostStep, HostExecutor, list[Array], list[Array]]] = []
        for step in model.steps:
            if isinstance(step, HostStep):
                executor = HostExecutor(step.program, target.host_code(step.program, trusted=True))
                inputs = [np.ascontiguousarray(values[name]) for name in step.inputs]
                outputs = [np.empty(each.shape, each.dtype) for each in step.program.outputs]
                self._steps.append((step, executor, inputs, outputs))

    def run(self) -> None:
        for _, executor, inputs, outputs in self._steps:
            executor.run(inputs, outputs)

    def layer_seconds(self) -> dict[int, float]:
        """Of one run, by the number of the layer in the model."""
        seconds: dict[int, float] = {}
        for step, executor, inputs, outputs in self._steps:
            seconds.update(enumerate(executor.run_timed(inputs, outputs), step.first_layer))
        return seconds


def timed(run: Callable[[], Any]) -> float:
    """Microseconds of one run."""
    started = time.perf_counter()
    run()
    return (time.perf_counter() - started) * 1e6


def measure(
    path: Path, config: CoreConfig, device: str, size: int, *, rounds: int, repeats: int, threads: int
) -> Measured:
    """Compile the network, compare every integer, time its parts."""
    module = packed_module(path, config)
    image = images(1, size)
    integers, _ = check_integers(module, config, image, 2, weft.FsimDevice(config, timing=False))
    model = weft.compile(module, config, threads=threads)
    loaded = weft.load(model, device)
    results = loaded.run(image, trace=True)
    records = layer_records(loaded)
    values = weft.load(weft.compile(module, config, keep=True), "fsim").run(image, keep=True)
    unequal = dict(integers.unequal)
    for name, result in results.items():
        unequal[f"output {name} on {device}"] = int(np.count_nonzero(result != values[name]))

    part, functions = HostPart(model, values), host_functions(module, image)
    compiled: list[float] = []
    in_numpy: list[float] = []
    best: dict[int, float] = {}
    for _ in range(rounds):
        compiled.append(min(timed(part.run) for _ in range(repeats)))
        in_numpy.append(min(timed(lambda: run_all(functions)) for _ in range(repeats)))
        for layer, seconds in part.layer_seconds().items():
            best[layer] = min(best.get(layer, seconds), seconds)
    layers = [
        {**record, "operators": layer.operators, "microseconds": best[number] * 1e6 if number in best else None}
        for number, (record, layer) in enumerate(zip(records, model.layers, strict=True))
    ]
    ratio = statistics.median(mine / other for mine, other in zip(compiled, in_numpy, strict=True))
    return Measured(
        layers, statistics.median(compiled), statistics.median(in_numpy), ratio, unequal, integers.compared,
        needless_numpy(model),
    )  # fmt: skip


def run_all(functions: list[tuple[Function, list[Array]]]) -> None:
    """The NumPy meaning of functions, one after another."""
    for function, operands in functions:
        evaluate_function(function, operands)


def print_layers(measured: Measured, title: str) -> None:
    rows = [
        [
            layer["layer"], layer["on"], " + ".join(name.removeprefix("packed_") for name in layer["operators"])[:60],
            "-" if layer["cycles"] is None else f"{layer['cycles']:,}",
            "-" if layer["microseconds"] is None else f"{layer['microseconds']:,.1f}", layer["reason"][:60],
        ]
        for layer in measured.layers
    ]  # fmt: skip
    print_table(title, ["layer", "on", "operators", "cycles", "us", "why not on the core"], rows)


def records_of(name: str, config: str, measured: Measured) -> list[Record]:
    """Flat figures of the network and of each of its layers."""
    host = sum(layer["microseconds"] or 0.0 for layer in measured.layers)
    numpy = sum(layer["microseconds"] or 0.0 for layer in measured.numpy_layers)
    figures: list[tuple[str, float | int, float | int | None]] = [
        ("cycles on the core", sum(layer["cycles"] or 0 for layer in measured.layers), None),
        ("us of the host part", round(measured.compiled, 1), round(measured.in_numpy, 1)),
        ("host part relative to NumPy", round(measured.ratio, 4), RATIO_WANTED),
        ("layers in NumPy", len(measured.numpy_layers), None),
        ("share of NumPy in the host's time", round(numpy / host, 4), None),
        ("operators needlessly in NumPy", len(measured.needless), 0),
        ("integers compared", measured.compared, None),
        ("integers unequal", sum(measured.unequal.values()), 0),
    ]
    records = [Record(config, name, *figure) for figure in figures]
    for number, layer in enumerate(measured.layers):
        workload = f"{name} {number} {layer['layer']}"
        if layer["cycles"] is not None:
            records.append(Record(config, workload, "cycles", layer["cycles"]))
        if layer["microseconds"] is not None:
            records.append(Record(config, workload, f"us in {layer['on']}", round(layer["microseconds"], 2)))
    return records


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="fsim", choices=("fsim", "rtl"), help="where the cycles come from")
    parser.add_argument("--config", default="pynq", help="named configuration")
    parser.add_argument("--size", type=int, default=64, help="height and width of the image: a multiple of 4")
    parser.add_argument("--threads", type=int, default=1, help="of the host")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=3, help="runs of each side in a round")
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    arguments = parser.parse_args()
    config = named_config(arguments.config)
    records: list[Record] = []
    good = True
    for name, sampled in (("mixed", False), ("mixed, sampled", True)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "mixed.onnx"
            mixed_model(path, arguments.size, sampled=sampled)
            measured = measure(
                path, config, arguments.device, arguments.size, rounds=arguments.rounds, repeats=arguments.repeats,
                threads=arguments.threads,
            )  # fmt: skip
        print_layers(measured, f"{name}: layers on {config.name}, {arguments.device}")
        records += (mine := records_of(name, config.name, measured))
        rows = [
            [each.figure, str(each.value), "-" if each.reference is None else str(each.reference)]
            for each in mine if each.workload == name
        ]  # fmt: skip
        print_table(name, ["figure", "value", "NumPy, or wanted"], rows)
        for layer in measured.numpy_layers:
            print(f"NumPy runs {layer['layer']}: {layer['reason']}")
        for text in measured.needless:
            print(f"NEEDLESSLY IN NUMPY: {text}")
        for what, count in measured.unequal.items():
            if count:
                print(f"{what}: {count:,} integers UNEQUAL to the graph")
        good = good and measured.good
    if arguments.json:
        write_json(arguments.json, records)
    print("all as wanted" if good else "NOT as wanted")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
