"""Chains of any number of nodes: what compiling costs must grow as they do."""

from __future__ import annotations

import numpy as np
import onnx

from .placement_graph import QuantisedGraph

KINDS = ("elementwise", "conv", "residual", "concat", "matmul")
"""Elementwise operators; convolutions, each with a Relu; with a sum of what lies two behind; one concatenation of
elementwise results; products of matrices, each with a bias."""


def chain(kind: str, count: int, *, quantised: bool) -> onnx.ModelProto:
    """A model of ``count`` operators, in floats or with a pair of QuantizeLinear and DequantizeLinear behind each
    layer, which has weights of its own."""
    g = QuantisedGraph(3)

    def pair(value: str) -> str:
        return g.pair(value, 0.05) if quantised else value

    def weights(*shape: int) -> str:
        return g.weights(*shape) if quantised else g.constant(g.random.normal(0, 0.3, shape), np.float32)

    x = pair(g.input("x", 4, 16) if kind == "matmul" else g.input("x", 1, 16, 8, 8))
    values = [x, x]
    match kind:
        case "elementwise":
            for number in range(count):
                values.append(pair(g.op("Relu", values[-1]) if number % 2 else g.op("Add", values[-1], values[-1])))
        case "conv":
            for _ in range(count // 2):
                values.append(pair(g.op("Relu", g.op("Conv", values[-1], weights(16, 16, 1, 1)))))
        case "residual":
            for _ in range(count // 2):
                made = pair(g.op("Conv", values[-1], weights(16, 16, 1, 1)))
                values.append(pair(g.op("Add", made, values[-2])))
        case "concat":
            values.append(pair(g.op("Concat", *(pair(g.op("Relu", x)) for _ in range(count)), axis=1)))
        case "matmul":
            for _ in range(count // 2):
                bias = g.constant(g.random.normal(0, 1, 16), np.float32)
                values.append(pair(g.op("Add", g.op("MatMul", values[-1], weights(16, 16)), bias)))
        case _:
            raise ValueError(f"there is no kind of chain {kind!r}; choose from {', '.join(KINDS)}")
    return g.model(values[-1])
