"""Normalisations. Layer, group and RMS normalisation are read through the functions by which ONNX defines them."""

from __future__ import annotations

import math

import numpy as np

from ...graph import Expr
from ..forms import crop_or_pad, moments
from .node import Converted, Node, converter


@converter("BatchNormalization")
def _batch_normalization(node: Node) -> Converted:
    x = node.input(0)
    training = node.integer("training_mode", 0) or (node.opset < 7 and not node.integer("is_test", 0))
    if training and node.scope.reading.quantised:
        raise node.error("training mode is not supported", hint="export the model in inference mode")
    gamma, beta, mean, variance = (node.cast(node.input(i), x.dtype) for i in range(1, 5))
    epsilon = node.number("epsilon", 1e-5)
    if not training:
        return node.call("nn.batch_norm", x, gamma, beta, mean, variance, epsilon=epsilon)
    axes = tuple(i for i in range(len(x.shape)) if i != 1)
    own_mean, own_variance = moments(node, x, axes, keepdims=False)
    momentum = node.number("momentum", 0.9)

    def running(old: Expr, new: Expr) -> Expr:
        kept = node.call("nn.multiply", old, node.like(momentum, old))
        return node.call("nn.add", kept, node.call("nn.multiply", new, node.like(1 - momentum, new)))

    result = node.call("nn.batch_norm", x, gamma, beta, own_mean, own_variance, epsilon=epsilon)
    return result, running(mean, own_mean), running(variance, own_variance)


@converter("InstanceNormalization")
def _instance_normalization(node: Node) -> Converted:
    x = node.input(0)
    shape = (1, x.shape[1], *(1 for _ in x.shape[2:]))
    mean, variance = moments(node, x, tuple(range(2, len(x.shape))), keepdims=True)
    deviation = node.call("nn.sqrt", node.call("nn.add", variance, node.like(node.number("epsilon", 1e-5), x)))
    unit = node.call("nn.divide", node.call("nn.subtract", x, mean), deviation)
    scaled = node.call("nn.multiply", unit, node.reshape(node.input(1), shape))
    return node.call("nn.add", scaled, node.reshape(node.input(2), shape))


@converter("LpNormalization")
def _lp_normalization(node: Node) -> Converted:
    x = node.input(0)
    axis = node.axis(len(x.shape), -1)
    if node.integer("p", 2) == 1:
        norm: Expr = node.call("nn.reduce_sum", node.call("nn.abs", x), axes=(axis,), keepdims=True)
    else:
        squares = node.call("nn.multiply", x, x)
        norm = node.call("nn.sqrt", node.call("nn.reduce_sum", squares, axes=(axis,), keepdims=True))
    zero = node.like(0, x)
    return node.call("nn.where", node.call("nn.equal", norm, zero), zero, node.call("nn.divide", x, norm))


@converter("LRN")
def _local_response_normalization(node: Node) -> Converted:
    """x / (bias + alpha / size * sum of squares over ``size`` neighbouring channels) ** beta"""
    x, size = node.input(0), node.integer("size", 1)
    squares = node.call("nn.multiply", x, x)
    before = [(size - 1) // 2 if i == 1 else 0 for i in range(len(x.shape))]
    after = [size - 1 - (size - 1) // 2 if i == 1 else 0 for i in range(len(x.shape))]
    padded = crop_or_pad(node, squares, before, after, 0.0)
    total = node.slice(padded, 1, 0, x.shape[1])
    for start in range(1, size):
        total = node.call("nn.add", total, node.slice(padded, 1, start, x.shape[1]))
    scaled = node.call("nn.multiply", total, node.like(node.number("alpha", 1e-4) / size, x))
    base = node.call("nn.add", scaled, node.like(node.number("bias", 1.0), x))
    return node.call("nn.divide", x, node.call("nn.power", base, node.like(node.number("beta", 0.75), x)))


@converter("MeanVarianceNormalization")
def _mean_variance_normalization(node: Node) -> Converted:
    x = node.input(0)
    axes = tuple(sorted(node.checked_axis(axis, len(x.shape)) for axis in node.integers("axes", (0, 2, 3)) or ()))
    mean, variance = moments(node, x, axes, keepdims=True)
    deviation = node.call("nn.add", node.call("nn.sqrt", variance), node.like(1e-9, x))
    return node.call("nn.divide", node.call("nn.subtract", x, mean), deviation)


@converter("LayerNormalization")
def _layer_normalization(node: Node) -> Converted:
    x = node.input(0)
    axis = node.axis(len(x.shape), -1)
    wide = node.cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x
    mean, variance = moments(node, wide, tuple(range(axis, len(x.shape))), keepdims=True)
    shifted = node.call("nn.add", variance, node.like(node.number("epsilon", 1e-5), wide))
    inverse = node.call("nn.divide", node.like(1, wide), node.call("nn.sqrt", shifted))
    unit = node.cast(node.call("nn.multiply", node.call("nn.subtract", wide, mean), inverse), x.dtype)
    result: Expr = node.call("nn.multiply", unit, node.input(1))
    result = node.call("nn.add", result, node.input(2)) if node.has(2) else result
    return result, mean, inverse


@converter("GroupNormalization")
def _group_normalization(node: Node) -> Converted:
    x, groups = node.input(0), node.integer("num_groups", 1)
    split = node.reshape(x, (x.shape[0], groups, math.prod(x.shape[1:]) // max(groups, 1)))
    wide = node.cast(split, "float32") if x.dtype in ("float16", "bfloat16") else split
    mean, variance = moments(node, wide, (2,), keepdims=True)
    shifted = node.call("nn.add", variance, node.like(node.number("epsilon", 1e-5), wide))
    unit = node.call("nn.divide", node.call("nn.subtract", wide, mean), node.call("nn.sqrt", shifted))

    def per_channel(values: Expr) -> Expr:
        if values.shape != (x.shape[1],):  # before opset 21: one value a group
            repeated = np.repeat(np.arange(groups), x.shape[1] // groups)
            values = node.call("gather", values, node.like(repeated, "int64"))
        return node.reshape(values, (1, x.shape[1], *(1 for _ in x.shape[2:])))

    scaled = node.call("nn.multiply", node.cast(node.reshape(unit, x.shape), x.dtype), per_channel(node.input(1)))
    return node.call("nn.add", scaled, per_channel(node.input(2)))
