"""Softmax and normalisations of 8-bit values: in integers against in floats, operator by operator, on the host.

Networks of `whole_networks`, quantised by onnxruntime. Each operator gets the 8-bit values that the model as read has
there; its result in integers must be within 1 of the floats, quantised. Both forms are compiled and timed in turns, the
least of several runs. The exit status is not 0 if a result is further off.

    python benchmarks/core/integer_rows.py
    python benchmarks/core/integer_rows.py vit --json rows.json
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import weft
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import Attrs, Call, Expr, Function, Module, Var, calls, evaluate
from weft.compiler.graph.visit import substitute
from weft.compiler.passes import PassManager, integer_passes
from weft.compiler.scope import Scope
from weft.runtime.module import LoadedModule

from benchmarks.common import Record, each_of, print_table, write_json
from benchmarks.core.other_networks import FORM
from benchmarks.zoo.quantised_forms import quantised
from benchmarks.zoo.whole_networks import ARCHITECTURES, float_network

NETWORKS = ("bert_tiny", "vit")
ROUNDS = 30

Array = np.ndarray[Any, Any]


@dataclass
class Measured:
    """``values``: that were compared, of which so many ``differ``, by at most ``largest``. Microseconds of all."""

    operators: int = 0
    values: int = 0
    differ: int = 0
    largest: int = 0
    floats: float = 0.0
    integers: float = 0.0
    shapes: set[tuple[int, ...]] = field(default_factory=set)


def islands(module: Module) -> list[tuple[str, Call, Call]]:
    """For each row operator its name, and in the model as read the 8-bit value before it and the quantise behind."""
    source = {node.span.tensor: node for node in calls(module.main.body) if node.op == "quantise"}
    found = []
    whole = PassManager(integer_passes(scope=Scope.ALL)).run(module)
    for node in calls(whole.main.body):
        body = node.op.body if isinstance(node.op, Function) else None
        if isinstance(body, Call) and body.op in ("softmax", "normalise"):
            found.append((str(body.op), source[node.args[0].span.tensor], source[node.span.tensor]))
    return found


def compiled(before: Call, behind: Call, scope: Scope) -> LoadedModule:
    x = Var("x", before.tensor_type)
    main = Function((x,), substitute(behind, {before: x}), Attrs({"name": "main", "outputs": ("y",)}))
    return weft.load(weft.compile(Module(main), target="cpu", integers=str(scope), strict=True))


def measure(name: str) -> dict[str, Measured]:
    """By the kind of operator."""
    source, batches = float_network(name)
    module = from_onnx(quantised(source, batches, FORM))
    values: dict[str, Array] = {}

    def observe(node: Expr, value: Any) -> None:
        if isinstance(node, Call) and node.op == "quantise":
            values[node.span.tensor] = value

    evaluate(module, {param.name: batches[0][param.name] for param in module.main.params}, observe)
    result: dict[str, Measured] = defaultdict(Measured)
    for kind, before, behind in islands(module):
        inputs = {"x": values[before.span.tensor]}
        forms = [compiled(before, behind, scope) for scope in Scope]
        floats, integers = (form.run(inputs)["y"].astype(int) for form in forms)
        item = result[kind]
        item.operators += 1
        item.values += floats.size
        item.differ += np.count_nonzero(floats != integers)
        item.largest = max(item.largest, int(np.abs(floats - integers).max()))
        item.shapes.add(before.shape)
        least = [float("inf")] * len(forms)
        for _ in range(ROUNDS):
            for number, form in enumerate(forms):
                started = time.perf_counter()
                form.run(inputs)
                least[number] = min(least[number], time.perf_counter() - started)
        item.floats += least[0] * 1e6
        item.integers += least[1] * 1e6
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of whole_networks; default: {' '.join(NETWORKS)}")
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    options = parser.parse_args()
    for name in options.names:
        if name not in ARCHITECTURES:
            parser.error(f"there is no network {name!r}; choose from {', '.join(ARCHITECTURES)}")
    done = [
        (name, kind, item)
        for name in each_of(options.names or NETWORKS)
        for kind, item in sorted(measure(name).items())
    ]
    rows = [
        [
            name, kind, str(item.operators), " ".join("x".join(map(str, shape)) for shape in sorted(item.shapes)),
            f"{item.values:,}", str(item.differ), str(item.largest), f"{item.floats:,.0f}", f"{item.integers:,.0f}",
        ]
        for name, kind, item in done
    ]  # fmt: skip
    columns = (
        "network", "operator", "times", "shapes", "values", "differ", "at most by", "us in floats", "us in integers",
    )  # fmt: skip
    print_table("rows of 8-bit values", columns, rows)
    if options.json:
        records = [
            Record("host", name, f"{kind}: {what}", value, wanted)
            for name, kind, item in done
            for what, value, wanted in (
                ("values", item.values, None), ("differ", item.differ, None), ("largest", item.largest, 1),
                ("us in floats", round(item.floats, 1), None), ("us in integers", round(item.integers, 1), None),
            )
        ]  # fmt: skip
        write_json(options.json, records)
    return 0 if all(item.largest <= 1 for _, _, item in done) else 1


if __name__ == "__main__":
    sys.exit(main())
