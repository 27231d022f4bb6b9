"""The digits network from end to end: accuracy, and the integers of every layer on four levels of the stack.

All test images run on ``fsim``, the first ones on ``rtl``; the integers of each layer must equal the graph's NumPy
reference on both, and be close to onnxruntime's.

    python benchmarks/core/digits.py --json digits.json
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import weft
from rich.console import Console
from rich.progress import track
from weft.compiler.compile import prepared
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import Call, Expr, Function, Module, evaluate
from weft.compiler.model import CompiledModel, Layer
from weft.compiler.targets.accel.operators import packed_layout
from weft.compiler.targets.accel.target import Accel, AccelOptions
from weft.hw.config import named_config

from benchmarks.common import Record, print_table, write_json
from examples.digits.data import split_digits
from examples.precise import precise_session

Array = npt.NDArray[Any]

MODEL = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
ACCURACY = 0.97
EQUAL = 0.999


@dataclass
class Tally:
    """Integers of one layer, compared over all images."""

    integers: int = 0
    unequal_to_graph: int = 0
    unequal_to_onnxruntime: int = 0
    worst: int = 0
    on: set[str] = field(default_factory=set)

    @property
    def equal(self) -> float:
        """Share of integers equal to onnxruntime's."""
        return 1 - self.unequal_to_onnxruntime / max(1, self.integers)


class Reference:
    """What each layer gives in NumPy (packed) and in onnxruntime (plain), by the name of its tensor."""

    def __init__(self, module: Module, tensors: Iterable[str]) -> None:
        self.module = module
        model = onnx.load(MODEL)
        self.image = model.graph.input[0].name
        self.tensors = list(tensors)
        known = {output.name for output in model.graph.output}
        names = {name for node in model.graph.node for name in node.output}
        extra = [name for name in self.tensors if name in names - known]
        model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in extra)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        self.session = precise_session(model.SerializeToString(), options)
        self.outputs = [*extra, *sorted(known)]

    def graph(self, image: Array) -> dict[str, Array]:
        """Results of the kernels, packed."""
        found: dict[str, Array] = {}

        def observe(node: Expr, value: Any) -> None:
            if isinstance(node, Call) and isinstance(node.op, Function) and node.op.is_primitive:
                found[node.span.tensor] = value

        evaluate(self.module, {self.image: image}, observe)
        return found

    def onnxruntime(self, image: Array) -> dict[str, Array]:
        """Tensors of the model, plain."""
        return dict(zip(self.outputs, self.session.run(self.outputs, {self.image: image}), strict=True))


def compare(
    tallies: dict[str, Tally], layers: list[Layer], values: dict[str, Array], graph: dict[str, Array],
    theirs: dict[str, Array], device: str,
) -> None:  # fmt: skip
    """Add one image's integers to the tallies."""
    for layer in layers:
        tally = tallies[layer.name]
        tally.on.add(device)
        tally.integers += graph[layer.output].size
        tally.unequal_to_graph += int(np.count_nonzero(values[layer.output] != graph[layer.output]))
        plain = packed_layout.unpack(values[layer.output], layer.shape).astype(np.int32)
        apart = np.abs(plain.reshape(-1) - theirs[layer.output].astype(np.int32).reshape(-1))
        tally.unequal_to_onnxruntime += int(np.count_nonzero(apart))
        tally.worst = max(tally.worst, int(apart.max()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="pynq", help="named configuration")
    parser.add_argument("--rtl-images", type=int, default=50, help="images that also run on rtl")
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    arguments = parser.parse_args()

    console = Console(stderr=True)
    config = named_config(arguments.config)
    _, test = split_digits()
    model: CompiledModel = weft.compile(MODEL, config, keep=True)
    module = prepared(from_onnx(MODEL), Accel(), AccelOptions(config))
    layers = [layer for layer in model.layers if layer.device == "core"]
    reference = Reference(module, [layer.output for layer in layers])
    tallies = {layer.name: Tally() for layer in layers}
    right = {"fsim": 0, "rtl": 0, "onnxruntime": 0}
    same_scores = 0
    fsim = weft.load(model, "fsim")
    with console.status("building the core"):
        rtl = weft.load(model, "rtl")
    for number, image in enumerate(track(test.images[:, None], "images", console=console)):
        graph, theirs = reference.graph(image), reference.onnxruntime(image)
        scores = {"onnxruntime": theirs["logits"]}
        devices = {"fsim": fsim, "rtl": rtl} if number < arguments.rtl_images else {"fsim": fsim}
        for name, device in devices.items():
            values = device.run(image, keep=True)
            compare(tallies, layers, values, graph, theirs, name)
            scores[name] = values["logits"]
        for name, score in scores.items():
            right[name] += int(score.argmax() == test.labels[number])
        same_scores += int("rtl" in scores and np.array_equal(scores["rtl"], scores["fsim"]))

    counts = {"fsim": len(test.labels), "rtl": arguments.rtl_images, "onnxruntime": len(test.labels)}
    accuracy = {name: right[name] / max(1, count) for name, count in counts.items()}
    records = [
        Record(config.name, "digits", f"accuracy on {name}, {counts[name]} images", round(value, 4), ACCURACY)
        for name, value in accuracy.items()
    ]
    records.append(Record(config.name, "digits", "images with rtl equal to fsim", same_scores, arguments.rtl_images))
    records.append(Record(config.name, "digits", "cycles an image", rtl.cycles or 0))
    print_table("digits", ["figure", "value", "wanted"], [[r.figure, str(r.value), str(r.reference)] for r in records])
    print_table(
        f"digits on {config.name}: integers of every layer",
        ["layer", "on", "integers", "unequal to graph", "equal to onnxruntime", "worst LSB"],
        [
            [name, ", ".join(sorted(t.on)), f"{t.integers:,}", str(t.unequal_to_graph), f"{t.equal:.4%}", str(t.worst)]
            for name, t in tallies.items()
        ],
    )
    for name, tally in tallies.items():
        records.append(Record(config.name, f"digits {name}", "integers unequal to graph", tally.unequal_to_graph, 0))
        records.append(Record(config.name, f"digits {name}", "equal to onnxruntime", round(tally.equal, 6), EQUAL))
        records.append(Record(config.name, f"digits {name}", "worst LSB", tally.worst, 1))
    if arguments.json:
        write_json(arguments.json, records)
    good = (
        accuracy["fsim"] >= ACCURACY
        and same_scores == arguments.rtl_images
        and all(t.unequal_to_graph == 0 and t.worst <= 1 and t.equal >= EQUAL for t in tallies.values())
    )
    print("all as wanted" if good else "NOT as wanted")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
