"""Operators that pick or place elements at indices."""

from __future__ import annotations

import math

import numpy as np

from ...graph import Constant, Expr
from .node import Converted, Node, converter

_REDUCTIONS = {"none": "none", "add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}


def _reduction(node: Node) -> str:
    name = node.string("reduction", "none")
    if name not in _REDUCTIONS:
        raise node.error(f"the reduction {name!r} is not known")
    return _REDUCTIONS[name]


@converter("Gather")
def _gather(node: Node) -> Converted:
    x = node.input(0)
    return node.call("gather", x, node.input(1), axis=node.axis(len(x.shape), 0))


@converter("GatherElements")
def _gather_elements(node: Node) -> Converted:
    x = node.input(0)
    return node.call("gather_elements", x, node.input(1), axis=node.axis(len(x.shape), 0))


@converter("GatherND")
def _gather_nd(node: Node) -> Converted:
    return node.call("gather_nd", node.input(0), node.input(1), batch_dims=node.integer("batch_dims", 0))


@converter("ScatterElements", "Scatter")
def _scatter_elements(node: Node) -> Converted:
    x = node.input(0)
    axis = node.axis(len(x.shape), 0)
    return node.call("scatter_elements", *node.tensors, axis=axis, reduction=_reduction(node))


@converter("ScatterND")
def _scatter_nd(node: Node) -> Converted:
    return node.call("scatter_nd", *node.tensors, reduction=_reduction(node))


@converter("ai.onnx.ml.ArrayFeatureExtractor")
def _array_feature_extractor(node: Node) -> Converted:
    x, indices = node.input(0), node.input(1)
    return node.call("gather", x, node.reshape(indices, (math.prod(indices.shape),)), axis=len(x.shape) - 1)


@converter("TensorScatter")
def _tensor_scatter(node: Node) -> Converted:
    """past (B, ..., L, ...) with update (B, ..., S, ...) written from write_indices[b] on, along axis."""
    past, update = node.input(0), node.input(1)
    rank, axis = len(past.shape), node.axis(len(past.shape), -2)
    steps = np.arange(update.shape[axis])
    spread = node.like(steps.reshape([-1 if i == axis else 1 for i in range(rank)]), "int64")
    first: Expr = node.like(np.zeros(past.shape[0]), "int64")
    if node.has(2):
        first = node.cast(node.input(2), "int64")
    start = node.reshape(first, (past.shape[0], *(1 for _ in range(rank - 1))))
    places: Expr = node.call("nn.add", spread, start)
    if node.string("mode", "linear") == "circular":
        places = node.call("nn.modulo", places, node.like(past.shape[axis], "int64"))
    places = node.call("expand", places, shape=update.shape) if places.shape != update.shape else places
    return node.call("scatter_elements", past, places, update, axis=axis)


@converter("TopK")
def _top_k(node: Node) -> Converted:
    x = node.input(0)
    axis = node.axis(len(x.shape), -1)
    k = node.integer("k", 1) if node.opset < 10 else int(node.constant(1, "k").reshape(()))
    indices = node.call("top_k", x, k=k, axis=axis, largest=bool(node.integer("largest", 1)))
    return node.call("gather_elements", x, indices, axis=axis), indices


@converter("OneHot")
def _one_hot(node: Node) -> Converted:
    indices, values = node.input(0), node.input(2)
    depth = int(node.constant(1, "the depth").reshape(()))
    rank = len(indices.shape) + 1
    axis = node.axis(rank, -1)
    whole = node.cast(indices, "int64")
    wrapped = node.call("nn.where", node.call("nn.less", whole, node.like(0, whole)),
                        node.call("nn.add", whole, node.like(depth, whole)), whole)  # fmt: skip
    shape = [1 if i == axis else size for i, size in enumerate(np.insert(np.array(indices.shape, int), axis, 1))]
    places = np.arange(depth).reshape([-1 if i == axis else 1 for i in range(rank)])
    hit = node.call("nn.equal", node.reshape(wrapped, [int(size) for size in shape]), node.like(places, "int64"))
    off, on = node.slice(values, 0, 0, 1), node.slice(values, 0, 1, 1)
    return node.call("nn.where", hit, node.reshape(on, ()), node.reshape(off, ()))


@converter("ReverseSequence")
def _reverse_sequence(node: Node) -> Converted:
    """Of each batch, the first lengths[b] steps in reverse order."""
    x, lengths = node.input(0), node.input(1)
    rank = len(x.shape)
    time, batch = node.axis(rank, 0, "time_axis"), node.axis(rank, 1, "batch_axis")
    return reversed_steps(node, x, lengths, time, batch)


def reversed_steps(node: Node, x: Expr, lengths: Expr, time: int, batch: int) -> Expr:
    """``x`` whose first ``lengths[b]`` steps stand in reverse order along axis ``time``."""
    rank = len(x.shape)
    steps = node.like(np.arange(x.shape[time]).reshape([-1 if i == time else 1 for i in range(rank)]), "int64")
    shape = [x.shape[batch] if i == batch else 1 for i in range(rank)]
    count = node.reshape(node.cast(lengths, "int64"), shape)
    mirrored = node.call("nn.subtract", node.call("nn.subtract", count, node.like(1, "int64")), steps)
    places = node.call("nn.where", node.call("nn.less", steps, count), mirrored, steps)
    return node.call("gather_elements", x, node.call("expand", places, shape=x.shape), axis=time)


@converter("Compress")
def _compress(node: Node) -> Converted:
    x = node.input(0)
    chosen = np.flatnonzero(node.constant(1, "the condition"))
    if "axis" not in node.attrs:
        x = node.reshape(x, (math.prod(x.shape),))
        return node.call("gather", x, Constant(chosen.astype(np.int64)), axis=0)
    return node.call("gather", x, Constant(chosen.astype(np.int64)), axis=node.axis(len(x.shape), 0))
