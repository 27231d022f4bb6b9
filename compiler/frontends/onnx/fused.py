"""Operators of onnxruntime's own domain that stand for a few of ONNX's: what its optimiser and exporters of language
models write. Those of attention are in `attention`."""

from __future__ import annotations

from ...graph import Expr
from ..forms import matrix_product, moments, transposed
from .activation import gelu
from .node import Converted, Node, converter


@converter("FastGelu")
def _fast_gelu(node: Node) -> Converted:
    x = node.input(0)
    return gelu(node, node.call("nn.add", x, node.input(1)) if node.has(1) else x, approximate=True)


@converter("BiasGelu")
def _bias_gelu(node: Node) -> Converted:
    return gelu(node, node.call("nn.add", node.input(0), node.input(1)), approximate=False)


@converter("QuickGelu")
def _quick_gelu(node: Node) -> Converted:
    """x * sigmoid(alpha * x)"""
    x = node.input(0)
    scaled = node.call("nn.multiply", x, node.like(node.number("alpha", 1.702), x))
    return node.call("nn.multiply", x, node.call("nn.sigmoid", scaled))


@converter("FusedMatMul")
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
