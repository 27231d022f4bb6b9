"""Operators of onnxruntime's own domain that stand for a few of ONNX's: what its optimiser and exporters of language
models write. Those of attention are in `attention`."""

from __future__ import annotations

import math

import numpy as np

from ...graph import Expr
from ..forms import matrix_product, moments, transposed
from .activation import gelu, swish
from .node import Converted, Node, converter
from .window import channels_first, channels_last


@converter("FastGelu")
def _fast_gelu(node: Node) -> Converted:
    x = node.input(0)
    return gelu(node, node.call("nn.add", x, node.input(1)) if node.has(1) else x, approximate=True)


@converter("BiasGelu")
def _bias_gelu(node: Node) -> Converted:
    return gelu(node, node.call("nn.add", node.input(0), node.input(1)), approximate=False)


@converter("QuickGelu")
def _quick_gelu(node: Node) -> Converted:
    return swish(node, node.input(0), node.number("alpha", 1.702))


@converter("FusedMatMul", "TransposeMatMul")
def _fused_matmul(node: Node) -> Converted:
    """alpha times the product of two matrices, or stacks of them, whose axes may be swapped."""
    product = matrix_product(node, _turned(node, 0, "A"), _turned(node, 1, "B"))
    alpha = node.number("alpha", 1.0)
    return product if alpha == 1 else node.call("nn.multiply", product, node.like(alpha, product))


def _turned(node: Node, index: int, which: str) -> Expr:
    x = node.input(index)
    axes = list(range(len(x.shape)))
    if node.integer(f"transBatch{which}", 0):
        if len(axes) < 3:
            raise node.error(f"transBatch{which} needs a stack of matrices, but operand {index} is {x.type}")
        axes = [*axes[1:-1], 0, axes[-1]]
    if node.integer(f"trans{which}", 0) and len(axes) > 1:
        if len(axes) == 2:
            return transposed(node, x)
        axes[-2:] = axes[:-3:-1]
    return node.transpose(x, axes)


@converter("BiasSplitGelu")
def _bias_split_gelu(node: Node) -> Converted:
    """Of x + bias, cut in two along the last axis: the first half times the GELU of the second."""
    x = node.call("nn.add", node.input(0), node.input(1))
    axis, half = len(x.shape) - 1, x.shape[-1] // 2
    if x.shape[-1] % 2:
        raise node.error(f"{x.type} has no two halves along its last axis")
    gate = gelu(node, node.slice(x, axis, half, half), approximate=False)
    return node.call("nn.multiply", node.slice(x, axis, 0, half), gate)


@converter("BiasAdd")
def _bias_add(node: Node) -> Converted:
    return node.call("nn.add", node.call("nn.add", node.input(0), node.input(1)), node.input(2))


@converter("ExpandDims")
def _expand_dims(node: Node) -> Converted:
    x, (axis,) = node.input(0), node.known_integers(1, "the axis")
    axis = node.checked_axis(axis, len(x.shape) + 1)
    return node.reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))


def _widened(node: Node, x: Expr) -> Expr:
    return node.cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x


def _unit(node: Node, x: Expr, axes: tuple[int, ...], *, centred: bool, epsilon: float) -> tuple[Expr, Expr]:
    """``x`` over its deviation along axes, or over the root of its mean square; and one over what it was divided by.
    Of 16-bit floats in float32."""
    wide = _widened(node, x)
    if centred:
        mean, square = moments(node, wide, axes, keepdims=True)
        wide = node.call("nn.subtract", wide, mean)
    else:
        square = node.call("nn.reduce_mean", node.call("nn.multiply", wide, wide), axes=axes, keepdims=True)
    root = node.call("nn.sqrt", node.call("nn.add", square, node.like(epsilon, wide)))
    inverse = node.call("nn.divide", node.like(1, wide), root)
    return node.cast(node.call("nn.divide", wide, root), x.dtype), inverse


def root_mean_square_unit(node: Node, x: Expr, weights: Expr, epsilon: float) -> Expr:
    """The last axis over the root of its mean square, times weights."""
    unit, _ = _unit(node, x, (len(x.shape) - 1,), centred=False, epsilon=epsilon)
    return node.call("nn.multiply", unit, weights)


@converter("SimplifiedLayerNormalization")
def _simplified_layer_normalization(node: Node) -> Converted:
    x = node.input(0)
    axes = tuple(range(node.axis(len(x.shape), -1), len(x.shape)))
    unit, inverse = _unit(node, x, axes, centred=False, epsilon=node.number("epsilon", 1e-5))
    return node.call("nn.multiply", unit, node.input(1)), inverse


def _skip(node: Node, *, centred: bool) -> Converted:
    """The normalisation of a sum, and the sum, which is the fourth output."""
    x = node.call("nn.add", node.input(0), node.input(1))
    if node.has(4 if centred else 3):
        x = node.call("nn.add", x, node.input(4 if centred else 3))
    if x.shape != node.input(0).shape:
        raise node.error(f"the skip is {node.input(1).type}, but the input {node.input(0).type}")
    unit, _ = _unit(node, x, (len(x.shape) - 1,), centred=centred, epsilon=node.number("epsilon", 1e-12))
    result = node.call("nn.multiply", unit, node.input(2))
    if centred and node.has(3):
        result = node.call("nn.add", result, node.input(3))
    return result, None, None, x


@converter("SkipLayerNormalization")
def _skip_layer_normalization(node: Node) -> Converted:
    return _skip(node, centred=True)


@converter("SkipSimplifiedLayerNormalization")
def _skip_simplified_layer_normalization(node: Node) -> Converted:
    return _skip(node, centred=False)


@converter("GatedRMSNorm")
def _gated_rms_norm(node: Node) -> Converted:
    """The RMS normalisation of each ``len(scale)`` values, times a scale, times a function of a gate."""
    x, scale, gate = node.input(0), node.input(1), _widened(node, node.input(2))
    name = node.string("activation", "silu")
    if name not in ("silu", "swish", "sigmoid"):
        raise node.error(f"activation {name!r} is not known")
    count = scale.shape[-1] if scale.shape else 1
    if x.shape[-1] % count:
        raise node.error(f"{x.type} does not hold groups of {count} values")
    groups = node.reshape(_widened(node, x), (*x.shape[:-1], x.shape[-1] // count, count))
    unit, _ = _unit(node, groups, (len(groups.shape) - 1,), centred=False, epsilon=node.number("epsilon", 1e-6))
    scaled = node.reshape(node.call("nn.multiply", unit, _widened(node, scale)), x.shape)
    opened: Expr = node.call("nn.sigmoid", gate)
    if name != "sigmoid":
        opened = node.call("nn.multiply", gate, opened)
    return node.cast(node.call("nn.multiply", scaled, opened), x.dtype)


def _grouped(node: Node, x: Expr) -> Expr:
    """Group normalisation with one gamma and beta a channel, and the SiLU that may follow it."""
    last = node.integer("channels_last", 1)
    rank, groups = len(x.shape), node.integer("groups", 0)
    first = channels_first(node, x) if last else x
    batch, channels = first.shape[:2]
    if groups < 1 or channels % groups:
        raise node.error(f"{channels} channels are not {groups} groups of one size")
    split = _widened(node, node.reshape(first, (batch, groups, math.prod(first.shape[1:]) // groups)))
    unit, _ = _unit(node, split, (2,), centred=True, epsilon=node.number("epsilon", 1e-5))
    unit = node.reshape(unit, first.shape)
    shape = (1, channels, *(1 for _ in range(rank - 2)))
    gamma, beta = (node.reshape(_widened(node, node.input(index)), shape) for index in (1, 2))
    result: Expr = node.call("nn.add", node.call("nn.multiply", unit, gamma), beta)
    if node.integer("activation", 0):
        result = swish(node, result)
    result = node.cast(result, x.dtype)
    return channels_last(node, result) if last else result


@converter("GroupNorm")
def _group_norm(node: Node) -> Converted:
    return _grouped(node, node.input(0))


@converter("SkipGroupNorm")
def _skip_group_norm(node: Node) -> Converted:
    """The normalisation of x + skip + bias, and that sum."""
    x, skip = node.input(0), node.input(3)
    last = node.integer("channels_last", 1)

    def for_images(value: Expr) -> Expr:
        """(C) or (N, C) beside images."""
        batch, channels = (1, *value.shape)[-2:]
        return node.reshape(value, (batch, 1, 1, channels) if last else (batch, channels, 1, 1))

    total: Expr = node.call("nn.add", x, for_images(skip) if len(skip.shape) == 2 else skip)
    if node.has(4):
        total = node.call("nn.add", total, for_images(node.input(4)))
    if total.shape != x.shape:
        raise node.error(f"the skip is {skip.type}, but the input {x.type}")
    return _grouped(node, total), total


@converter("EmbedLayerNormalization")
def _embed_layer_normalization(node: Node) -> Converted:
    """The normalised sum of the embeddings of words, positions and segments; how many words each row has; the sum."""
    ids, words = node.input(0), node.input(2)
    batch, length = ids.shape
    positions: Expr = node.slice(node.input(3), 0, 0, length)
    if node.has(8):
        positions = node.call("gather", node.input(3), node.input(8), axis=0)
    total: Expr = node.call("nn.add", node.call("gather", words, ids, axis=0), positions)
    if node.has(1) and node.has(4):
        total = node.call("nn.add", total, node.call("gather", node.input(4), node.input(1), axis=0))
    unit, _ = _unit(node, total, (2,), centred=True, epsilon=node.number("epsilon", 1e-12))
    result = node.call("nn.add", node.call("nn.multiply", unit, node.input(5)), node.input(6))
    if node.has(7):
        counts: Expr = node.call("nn.reduce_sum", node.input(7), axes=(1,), keepdims=False)
    else:
        counts = node.like(np.zeros(batch), "int32")
    return result, counts, total
