"""Which part of a quantised network runs on the core, in every form that quantisers give it.

    python benchmarks/core/placement.py                        # all forms x all networks
    python benchmarks/core/placement.py --networks residual plain --every 5
    python benchmarks/core/placement.py --random 50 --first 0  # quantisers placed at random
    python benchmarks/core/placement.py --config pynq --json placement.json

For each: the share of the multiply-accumulates on the core (wanted: all of those of products with 8-bit operands),
those that it computes for one useful one (sums that leave it as several digits are computed for each), bytes that cross
between host and core, functions of the host between the first and the last program, and whether the simulated core
gives what the integer graph gives, and what the model as it was read gives but for steps. The exit status says whether
all of that holds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod
from pathlib import Path

import numpy as np
import onnx
import weft
from weft.api import integer_graph
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import Module, calls, evaluate
from weft.compiler.graph.registry import operator_of
from weft.compiler.model import CompiledModel, CoreStep

from benchmarks.common import Record, each_of, print_table, write_json
from benchmarks.zoo.placement_networks import NETWORKS, SHAPE, Form, forms, network, random_forms

MOST_OFF = 0.02
"""Of the results: the share that may be more than two steps from those of the model as it was read."""


@dataclass(frozen=True)
class Placed:
    """``share``: of the useful multiply-accumulates that the core does. ``repeated``: multiply-accumulates computed for
    a useful one. ``host``: layers of the host that are no quantise, dequantise or layout. ``equal``: to the integer
    graph. ``off``: the share of results that are more than two steps from the model's."""

    share: float
    repeated: float
    crossing: int
    host: int
    equal: bool
    off: float
    error: str = ""

    @property
    def fault(self) -> str:
        if self.error:
            return self.error
        faults = ["" if self.share == 1 else f"{self.share:.0%} on the core", "" if self.equal else "other integers",
                  "" if self.off <= MOST_OFF else f"{self.off:.1%} far from the model"]  # fmt: skip
        return ", ".join(filter(None, faults))


def useful_products(module: Module) -> int:
    """Multiply-accumulates of a model as it was read."""
    entries = [(node, operator_of(node)) for node in calls(module.main.body)]
    return sum(entry.macs(node) for node, entry in entries if entry is not None)


def placed(model: onnx.ModelProto, config: str, step: float) -> Placed:
    """``step``: of the results' scale."""
    try:
        compiled = weft.compile(model, target="accel", config=config)
    except weft.WeftError as error:
        return Placed(0, 0, 0, 0, False, 1, str(error)[:160])
    if not isinstance(compiled, CompiledModel):
        raise TypeError("the model has open sizes")
    source = from_onnx(model)
    x = {"x": np.random.default_rng(1).normal(0, 1, SHAPE).astype(np.float32)}
    found = weft.load(compiled, device="fsim").run(x)
    wanted, exact = evaluate(source, x), evaluate(integer_graph(model, compiled), x)
    far = [np.abs(found[name] - value) > 2.01 * step for name, value in wanted.items()]
    equal = all(np.allclose(found[name], value, rtol=1e-5, atol=1e-5) for name, value in exact.items())
    useful = useful_products(source)
    on_core = sum(layer.macs for layer in compiled.layers if layer.device == "core")
    return Placed(
        on_core / useful, _computed(compiled) / max(on_core, 1), _crossing(compiled), _on_host(compiled), equal,
        float(np.mean(np.concatenate([each.ravel() for each in far]))),
    )  # fmt: skip


def _computed(compiled: CompiledModel) -> int:
    """Multiply-accumulates of all programs, those that repeat others included: such layers have the kind of a product,
    and as many as the first one that has their nodes."""
    first: dict[str, int] = {}
    total = 0
    for layer in compiled.layers:
        if layer.device != "core":
            continue
        key = layer.nodes[0] if layer.nodes else layer.name
        total += layer.macs or (first.get(key, 0) if layer.kind != "elementwise" else 0)
        first.setdefault(key, layer.macs)
    return total


def _crossing(compiled: CompiledModel) -> int:
    """Bytes that programs read of the host's, and that it reads of theirs."""
    if compiled.core is None:
        return 0
    steps = [step for step in compiled.steps if isinstance(step, CoreStep)]
    names = [name for step in steps for name in (*step.inputs, *step.outputs)]
    return sum(prod(compiled.core.slots[name].shape) for name in names)


def _on_host(compiled: CompiledModel) -> int:
    passive = {"quantise", "dequantise", "pad", "reshape", "transpose", "slice", "pack", "unpack"}
    return sum(layer.device != "core" and not passive.issuperset(layer.operators) for layer in compiled.layers)


def _cases(arguments: argparse.Namespace) -> Iterator[tuple[str, Form, int]]:
    names = arguments.networks or list(NETWORKS)
    if arguments.random:
        for seed in range(arguments.first, arguments.first + arguments.random):
            (form,) = islice(random_forms(seed), 1)
            yield names[seed % len(names)], form, seed
        return
    every = [(name, form, 0) for form in forms() for name in names]
    yield from every[arguments.first :: arguments.every]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="*", choices=list(NETWORKS))
    parser.add_argument("--every", type=int, default=1, help="one case in so many")
    parser.add_argument("--first", type=int, default=0, help="case, or seed, to begin with")
    parser.add_argument("--random", type=int, default=0, help="so many networks with quantisers placed at random")
    parser.add_argument("--config", default="tiny")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(argv)
    rows, records, faults = [], [], []
    for name, form, seed in each_of(_cases(arguments), lambda case: f"{case[0]}: {case[1]}"):
        step = 2.0**-4 if form.power_of_two else 0.05
        result = placed(network(name, form, seed), arguments.config, step)
        workload = f"{name}: {form}" + (f" #{seed}" if arguments.random else "")
        rows.append([workload, f"{result.share:.0%}", f"{result.repeated:.2f}", f"{result.crossing:,}",
                     f"{result.host}", f"{result.off:.1%}", result.fault])  # fmt: skip
        records += [Record(arguments.config, workload, "share on the core", result.share, 1.0),
                    Record(arguments.config, workload, "computed for a useful one", result.repeated),
                    Record(arguments.config, workload, "bytes that cross", result.crossing),
                    Record(arguments.config, workload, "layers of the host", result.host)]  # fmt: skip
        faults += [f"{workload}: {result.fault}"] if result.fault else []
    columns = ["network: form", "on core", "computed", "bytes", "host", "2 steps off", "fault"]
    print_table(f"placement on {arguments.config}, {len(rows)} cases", columns, rows)
    print(f"{len(rows) - len(faults)} of {len(rows)} as wanted")
    if arguments.json:
        write_json(arguments.json, records)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
