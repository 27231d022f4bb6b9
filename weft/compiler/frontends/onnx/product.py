"""Products of matrices."""

from __future__ import annotations

import re
import string

from ...graph import Call, Expr
from ...graph.dtypes import FLOATS
from ..forms import add_bias, integer_bias, matrix_product, transposed
from .activation import fused_activation
from .node import Converted, Node, converter
from .quantised import dequantised, dynamically, product_of_integers, quantised, raw, raw_integers, whole


@converter("MatMul")
def _matmul(node: Node) -> Converted:
    return matrix_product(node, node.input(0), node.input(1))


@converter("MatMulInteger")
def _matmul_integer(node: Node) -> Converted:
    a, b = raw_integers(node, 0, 2, axis=len(node.input(0).shape) - 2), raw_integers(node, 1, 3, axis=1)
    return whole(node, _product_of_integers(node, a, b))


def _product_of_integers(node: Node, a: Call, b: Call) -> Expr:
    axes = (max(-2, -len(b.shape)),)
    return product_of_integers(node, a, b, a.shape[-1], axes, lambda x, w: matrix_product(node, x, w))


def product_as_floats(node: Node, a: Call, b: Call, scale: Expr, bias: int) -> Expr:
    """The product of integers times a scale, one or one a column, and operand ``bias``."""
    product = node.cast(_product_of_integers(node, a, b), "float32")
    result = node.call("nn.multiply", product, scale)
    return node.call("nn.add", result, node.input(bias)) if node.has(bias) else result


@converter("MatMulIntegerToFloat")
def _matmul_integer_to_float(node: Node) -> Converted:
    a, b = raw_integers(node, 0, 4, axis=len(node.input(0).shape) - 2), raw_integers(node, 1, 5, axis=1)
    return product_as_floats(node, a, b, node.call("nn.multiply", node.input(2), node.input(3)), 6)


@converter("DynamicQuantizeMatMul")
def _dynamic_quantize_matmul(node: Node) -> Converted:
    q, scale, zero = dynamically(node, node.input(0))
    a, b = raw(node, q, zero, 1), raw_integers(node, 1, 3, axis=1)
    return product_as_floats(node, a, b, node.call("nn.multiply", scale, node.input(2)), 4)


@converter("QLinearMatMul")
def _qlinear_matmul(node: Node) -> Converted:
    a, b = dequantised(node, 0, 1, 2), dequantised(node, 3, 4, 5, axis=1)
    return quantised(node, matrix_product(node, a, b), 6, 7)


def _gemm_product(node: Node, a: Expr, b: Expr) -> Expr:
    """alpha * a b, b (C, O) or, with transB, (O, C)."""
    if node.integer("transA", 0):
        a = node.call("transpose", a, perm=(1, 0))
    if a.dtype in FLOATS:
        weights = b if node.integer("transB", 0) else transposed(node, b)
        product: Expr = node.call("nn.dense", a, weights)
    else:
        product = node.call("nn.matmul", a, transposed(node, b) if node.integer("transB", 0) else b)
    alpha = node.number("alpha", 1.0)
    return product if alpha == 1 else node.call("nn.multiply", product, node.like(alpha, product))


@converter("Gemm")
def _gemm(node: Node) -> Converted:
    return _gemm_sum(node)


@converter("FusedGemm")
def _fused_gemm(node: Node) -> Converted:
    params = [node.number(f"activation_{name}", 0.0) for name in ("alpha", "beta")]
    return fused_activation(node, _gemm_sum(node), params)


def _gemm_sum(node: Node) -> Expr:
    result = _gemm_product(node, node.input(0), node.input(1))
    if not node.has(2):
        return result
    bias, beta = node.input(2), node.number("beta", 1.0)
    if beta != 1:
        bias = node.call("nn.multiply", bias, node.like(beta, bias))
    return node.call("nn.add", result, bias)


@converter("QGemm")
def _qgemm(node: Node) -> Converted:
    transposed_weights = bool(node.integer("transB", 0))
    a, b = dequantised(node, 0, 1, 2), dequantised(node, 3, 4, 5, axis=0 if transposed_weights else 1)
    result = _gemm_product(node, a, b)
    if node.has(6):
        scale = node.number("alpha", 1.0) * node.constant(1, "the scale").reshape(()) * node.constant(4, "the scale")
        result = add_bias(node, result, integer_bias(node, node.input(6), scale.reshape(-1)))
    return quantised(node, result, 7, 8) if node.has(7) else result


@converter("Einsum")
def _einsum(node: Node) -> Converted:
    equation = re.sub(r"\s", "", node.string("equation", ""))
    terms, arrow, result = equation.partition("->")
    inputs, operands = terms.split(","), node.tensors
    spare = [letter for letter in string.ascii_letters if letter not in equation]
    extra = [len(x.shape) - len(term.replace("...", "")) for term, x in zip(inputs, operands, strict=True)]
    dots = spare[: max((count for count, term in zip(extra, inputs, strict=True) if "..." in term), default=0)]
    if not arrow:
        letters = terms.replace("...", "").replace(",", "")
        once = sorted(letter for letter in set(letters) if letters.count(letter) == 1)
        result = ("..." if "..." in terms else "") + "".join(once)
    full = [
        term.replace("...", "".join(dots[len(dots) - count :]) if count else "")
        for term, count in zip(inputs, extra, strict=True)
    ]
    return node.call("nn.einsum", *operands, equation=f"{','.join(full)}->{result.replace('...', ''.join(dots))}")


@converter("Inverse")
def _inverse(node: Node) -> Converted:
    return node.in_float32(node.input(0), lambda x: node.call("nn.inverse", x))


@converter("CDist")
def _distances(node: Node) -> Converted:
    """Of each row of (M, K) to each of (N, K): the sum of squared differences, or its root."""
    metric = node.string("metric", "sqeuclidean")
    if metric not in ("sqeuclidean", "euclidean"):
        raise node.error(f"the metric {metric!r} is not read", "sqeuclidean and euclidean are")
    a, b = node.input(0), node.input(1)
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[1]:
        raise node.error(f"operands must be (M, K) and (N, K), not {a.type} and {b.type}")
    apart = node.call("nn.subtract", node.reshape(a, (a.shape[0], 1, a.shape[1])), node.reshape(b, (1, *b.shape)))
    total = node.call("nn.reduce_sum", node.call("nn.multiply", apart, apart), axes=(2,), keepdims=False)
    return node.call("nn.sqrt", total) if metric == "euclidean" else total


@converter("Det")
def _determinant(node: Node) -> Converted:
    return node.call("nn.determinant", node.input(0))
