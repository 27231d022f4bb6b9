"""The products of a language model's step with weights of 4 bits: weft beside onnxruntime's own kernels, in turns.

The model is a chain of all products of a step (projections, gated layers, head), with random weights in blocks, as
`MatMulNBits`; attention is left out, and a tanh stands for each norm. One thread; a time is the least processor time of
a few runs, a ratio the median over rounds that take turns. Like stands beside like: exact activations beside
onnxruntime's ``accuracy_level`` 0, activations of 8 bits in blocks beside its level 4.

    python benchmarks/cpu/weights4.py                          # SmolLM2-135M, one token
    python benchmarks/cpu/weights4.py --shape llama --rows 16  # Llama-3.2-1B, 16 tokens at once
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import weft
from onnx import TensorProto, helper, numpy_helper
from weft.compiler.targets.cpu.processor import host_target

from benchmarks.common import Record, print_table, processor, write_json
from examples.precise import fastest_session, precise_session

Array = np.ndarray[Any, Any]

LEVELS = {"exact": 0, "int8": 4}
"""onnxruntime's ``accuracy_level`` by what weft does with activations."""

WANTED = 1.0
"""Of onnxruntime's time, at most."""


@dataclass(frozen=True)
class Shape:
    layers: int
    width: int
    keys: int
    inner: int
    words: int


SHAPES = {
    "smollm2": Shape(30, 576, 192, 1536, 49152),  # SmolLM2-135M
    "llama": Shape(16, 2048, 512, 8192, 128256),  # Llama-3.2-1B
}


class Chain:
    """The nodes and weights of the model, while it is put together."""

    def __init__(self, block: int, level: int) -> None:
        self.block, self.level = block, level
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def call(self, op: str, *inputs: str) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name))
        return name

    def product(self, x: str, depth: int, columns: int) -> str:
        name, blocks = f"v{len(self.nodes)}", depth // self.block
        codes = self.random.integers(0, 256, (columns, blocks, self.block // 2), np.uint8)
        scales = (self.random.random(columns * blocks, np.float32) + 0.5) / (5 * np.float32(depth) ** 0.5)
        self.weights += [numpy_helper.from_array(codes, f"{name}.q"), numpy_helper.from_array(scales, f"{name}.s")]
        self.nodes.append(helper.make_node(
            "MatMulNBits", [x, f"{name}.q", f"{name}.s"], [name], name, domain="com.microsoft", K=depth, N=columns,
            bits=4, block_size=self.block, accuracy_level=self.level,
        ))  # fmt: skip
        return name


def model(shape: Shape, rows: int, block: int, level: int) -> onnx.ModelProto:
    chain, x = Chain(block, level), "x"
    for _ in range(shape.layers):
        normal = chain.call("Tanh", x)
        q, k, v = (chain.product(normal, shape.width, width) for width in (shape.width, shape.keys, shape.keys))
        mixed = chain.call("Add", q, chain.call("Tile", chain.call("Add", k, v), "times"))
        x = chain.call("Add", x, chain.product(mixed, shape.width, shape.width))
        normal = chain.call("Tanh", x)
        gate, up = (chain.product(normal, shape.width, shape.inner) for _ in range(2))
        inner = chain.call("Mul", chain.call("Mul", gate, chain.call("Sigmoid", gate)), up)
        x = chain.call("Add", x, chain.product(inner, shape.inner, shape.width))
    result = chain.product(chain.call("Tanh", x), shape.width, shape.words)
    times = numpy_helper.from_array(np.array([1, shape.width // shape.keys], np.int64), "times")
    graph = helper.make_graph(
        chain.nodes, "step", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, shape.width])],
        [helper.make_tensor_value_info(result, TensorProto.FLOAT, [rows, shape.words])], [*chain.weights, times],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def timed(run: Callable[[], object], repeats: int) -> float:
    """The least processor time of a few runs, in seconds."""
    best = float("inf")
    for _ in range(repeats):
        started = time.process_time_ns()
        run()
        best = min(best, (time.process_time_ns() - started) * 1e-9)
    return best


def engines(proto: onnx.ModelProto, activations: str, x: Array) -> dict[str, Callable[[], Array]]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = fastest_session(proto.SerializeToString(), options)
    module = weft.load(weft.compile(proto, target="cpu", activations=activations))
    name = proto.graph.output[0].name
    return {"weft": lambda: module.run({"x": x})[name], "onnxruntime": lambda: session.run(None, {"x": x})[0]}


def measured(
    shape: Shape, rows: int, block: int, activations: str, rounds: int
) -> tuple[dict[str, float], float, float]:
    """Median times, the median ratio, and the largest difference beside the largest result."""
    x = np.random.default_rng(1).standard_normal((rows, shape.width)).astype(np.float32)
    proto = model(shape, rows, block, LEVELS[activations])
    runs = engines(proto, activations, x)
    found, expected = runs["weft"](), precise_session(proto.SerializeToString()).run(None, {"x": x})[0]
    error = float(np.abs(found - expected).max() / np.abs(expected).max())
    repeats = max(3, 20 // rows)
    times: dict[str, list[float]] = {engine: [] for engine in runs}
    for number in range(rounds):
        for engine in sorted(runs, reverse=bool(number % 2)):
            times[engine].append(timed(runs[engine], repeats))
    ratio = statistics.median(one / other for one, other in zip(times["weft"], times["onnxruntime"], strict=True))
    return {engine: statistics.median(each) for engine, each in times.items()}, ratio, error


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="smollm2")
    parser.add_argument("--rows", type=int, default=1, help="tokens at once")
    parser.add_argument("--block", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write flat records")
    arguments = parser.parse_args()
    print(f"{processor()} ({host_target().cpu}), load {os.getloadavg()[0]:.1f}; onnxruntime {onnxruntime.__version__}")
    rows, records = [], []
    for activations, level in LEVELS.items():
        times, ratio, error = measured(SHAPES[arguments.shape], arguments.rows, arguments.block, activations,
                                       arguments.rounds)  # fmt: skip
        rows.append((activations, *(f"{times[engine] * 1e3:.2f}" for engine in ("weft", "onnxruntime")), f"{ratio:.2f}",
                     f"{WANTED:.2f}", f"{error:.1e}"))  # fmt: skip
        config = f"{arguments.shape}, {arguments.rows} rows, blocks of {arguments.block}"
        records.append(Record(config, f"activations {activations}, accuracy_level {level}", "time / onnxruntime",
                              round(ratio, 3), WANTED))  # fmt: skip
    print_table(f"products of a step of {arguments.shape}, {arguments.rows} rows, weights of 4 bits in blocks of "
                f"{arguments.block}", ["activations", "weft, ms", "onnxruntime, ms", "ratio", "wanted", "difference"],
                rows)  # fmt: skip
    if arguments.json:
        write_json(arguments.json, records)
    return int(any(float(record.value) > WANTED for record in records))


if __name__ == "__main__":
    sys.exit(main())
