"""One token of a small language model: cycles, steps of the host, and what its bytes need.

Layers of width 256: root mean squares, attention of four heads that share two heads of keys and values with a cache of
63 tokens, and a gated layer of 512, all with residual sums. The bound is that of the bytes of weights and of the cache,
each once, over those of the bus. The exit status is not 0 where a target for four layers is missed, or where an integer
of the functional simulator is not the graph's.

    python benchmarks/core/decode.py
    python benchmarks/core/decode.py --layers 1 --config pynq-tables
    python benchmarks/core/decode.py --json decode.json
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import onnx
from weft.hw.config import load_config
from weft.sim.dram import DramModel

from benchmarks.common import Record, print_table, write_json
from benchmarks.core.tokens import compiled_and_run, dense
from benchmarks.zoo.quantised_build import Net
from benchmarks.zoo.quantised_forms import Inputs

WIDTH, HIDDEN, HEADS, SHARED, PAST = 256, 512, 4, 2, 63
DEPTH = WIDTH // HEADS
LAYERS, MOST_CYCLES, MOST_HOST_STEPS = 4, 330_000, 20
"""The targets are those of so many layers."""


def scaled(net: Net, x: str) -> str:
    """Over the root of the mean of its squares."""
    mean = net.mean(net.node("Pow", x, net.constant(np.float32(2))), [-1])
    root = net.node("Sqrt", net.node("Add", mean, net.constant(np.float32(1e-5))))
    return net.node("Mul", net.node("Mul", x, net.node("Reciprocal", root)), net.normal((WIDTH,), 0.1, 1))


def attention(net: Net, x: str, number: int) -> tuple[str, list[str]]:
    """What one token takes from those before it and itself; the keys and values with its own."""

    def heads(count: int) -> str:
        split = net.reshape(dense(net, x, count * DEPTH), 1, 1, count, DEPTH)
        return net.node("Transpose", split, perm=[0, 2, 1, 3])

    query = net.reshape(heads(HEADS), 1, SHARED, HEADS // SHARED, DEPTH)
    key, value = (
        net.node("Concat", net.input(f"{name}{number}", (1, SHARED, PAST, DEPTH)), heads(SHARED), axis=2)
        for name in ("keys", "values")
    )
    scores = net.node("MatMul", query, net.node("Transpose", key, perm=[0, 1, 3, 2]))
    scores = net.node("Softmax", net.node("Div", scores, net.constant(np.float32(DEPTH**0.5))), axis=-1)
    mixed = net.reshape(net.node("MatMul", scores, value), 1, 1, WIDTH)
    return dense(net, mixed, WIDTH), [key, value]


def decoder(layers: int) -> tuple[onnx.ModelProto, list[Inputs]]:
    net, caches = Net(), []
    x = net.input("x", (1, 1, WIDTH))
    for number in range(layers):
        mixed, own = attention(net, scaled(net, x), number)
        x = net.node("Add", x, mixed)
        y = scaled(net, x)
        gated = net.node("Mul", net.swish(dense(net, y, HIDDEN)), dense(net, y, HIDDEN))
        x = net.node("Add", x, dense(net, gated, WIDTH))
        caches += own
    model = net.model(x, *caches)
    return model, net.batches(model)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="pynq")
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    config, dram = load_config(args.config), DramModel()
    source, batches = decoder(args.layers)
    model, cycles, unequal = compiled_and_run(source, batches, config, dram)
    steps = len(model.steps) - len(model.programs)
    weights = 2 * WIDTH**2 + 2 * WIDTH * SHARED * DEPTH + 3 * WIDTH * HIDDEN
    bound = args.layers * (weights + 2 * SHARED * (PAST + 1) * DEPTH) / dram.for_bus(config)
    share = args.layers / LAYERS
    found = [
        ("cycles", cycles, round(share * MOST_CYCLES)),
        ("steps of the host", steps, round(share * MOST_HOST_STEPS)),
    ]
    print_table(
        f"One token, {args.layers} layers of {WIDTH}, on {config.name}",
        ["what", "measured", "wanted", "of the bound by bytes", "equal", "reached"],
        ([what, f"{value:,}", f"{most:,}", f"{value / bound:.3f}" if what == "cycles" else "",
          "NO" if unequal else "yes", "yes" if value <= most else "NO"] for what, value, most in found),
    )  # fmt: skip
    if args.json:
        records = [Record(config.name, f"{args.layers} layers", *each) for each in found]
        write_json(args.json, [*records, Record(config.name, f"{args.layers} layers", "unequal integers", unequal, 0)])
    return 0 if not unequal and all(value <= most for _, value, most in found) else 1


if __name__ == "__main__":
    sys.exit(main())
