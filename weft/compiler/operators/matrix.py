"""Products of matrices and tensors. float16 and bfloat16 are computed in float32 and rounded once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from string import ascii_letters
from typing import Any

import numpy as np

from .. import tensor as te
from ..graph.chooser import Chooser
from ..graph.dtypes import FLOATS, NUMBERS, numpy_dtype
from ..graph.ir import Array, Attrs, Call, Constant, Expr, TensorType
from ..graph.registry import REQUIRED, Anchor, Family, Fusion, Operator, Role, call, register
from ..integers import products
from ..tensor import ir as tir
from ..tensor.view import Builder, Index, NotLoweredError, View, broadcast
from .build import nn
from .derivatives import expanded, reshaped, transposed
from .meanings import rounded_once
from .reasons import NOT_LOWERED
from .samples import sample_of
from .type_rules import broadcast_shape, require, require_dtype

_PRODUCT: dict[str, Any] = {"family": Family.SOURCE, "fusion": Fusion.ANCHOR}


def _dense_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, w = operands
    require_dtype(x, "the input", *FLOATS)
    require_dtype(w, "the weights", x.dtype)
    require(x.rank == 2 and w.rank == 2 and x.shape[1] == w.shape[1], f"{x} and weights {w} (O, C) do not fit")
    return TensorType((x.shape[0], w.shape[0]), x.dtype)


def _dense(x: Array, w: Array) -> Array:
    return (x.astype(np.float64) @ w.T.astype(np.float64)).astype(x.dtype)


def _lower_dense(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, w = operands
    k = builder.axis(x.shape[1], "k")
    return builder.reduction(call.shape, lambda n, o: te.sum(x[n, k] * w[o, k], k), "product")


def _depth_macs(node: Call) -> int:
    """One for each element of the result and of the last axis of the first operand."""
    return node.tensor_type.size * node.args[0].shape[-1]


def _turned(x: Expr) -> Expr:
    """The matrices in the last two axes, transposed."""
    rank = len(x.shape)
    return transposed(x, (*range(rank - 2), rank - 1, rank - 2))


def _dense_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    x, w = node.args
    return nn.matmul(upstream, w), nn.matmul(_turned(upstream), x)


def _matmul_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    a, b = node.args
    return nn.matmul(upstream, _turned(b)), nn.matmul(_turned(a), upstream)


register(Operator(
    "nn.dense", "x w", types=_dense_type, numpy=_dense, lower=_lower_dense, gradient=_dense_gradient,
    anchor=Anchor.PRODUCT, macs=_depth_macs, sample=sample_of("nn.dense", (3, 4), (5, 4)), integer=products.weighted,
    **_PRODUCT,
    doc="x (N, C) times weights (O, C), transposed.",
))  # fmt: skip


def _matmul_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    a, b = operands
    require_dtype(a, "an operand", *NUMBERS)
    require_dtype(b, "the other operand", a.dtype)
    require(min(a.rank, b.rank) >= 2 and a.shape[-1] == b.shape[-2], f"{a} and {b} do not multiply")
    outer = broadcast_shape(TensorType(a.shape[:-2], a.dtype), TensorType(b.shape[:-2], b.dtype))
    return TensorType((*outer, a.shape[-2], b.shape[-1]), a.dtype)


def _matmul(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    a, b = operands
    if min(len(a.shape), len(b.shape)) < 2:
        raise NotLoweredError("a product of vectors")
    outer = call.shape[:-2]
    left = broadcast(a, (*outer, *a.shape[-2:]))
    right = broadcast(b, (*outer, *b.shape[-2:]))
    k = builder.axis(a.shape[-1], "k")

    def value(*index: tir.Expr) -> te.Reduction:
        first: Index = (*index[:-1], k)
        second: Index = (*index[:-2], k, index[-1])
        return te.sum(left[first] * right[second], k)

    return builder.reduction(call.shape, value, "product")


def _draw_matmul(choose: Chooser) -> Expr:
    a = choose.operand(lambda node: len(node.shape) >= 2, ("float32", "float64"))
    return call("nn.matmul", a, choose.leaf((a.shape[-1], choose.whole(1, 20)), a.dtype))


register(Operator(
    "nn.matmul", "a b", types=_matmul_type, numpy=rounded_once(lambda a, b: np.matmul(a, b)), lower=_matmul,
    gradient=_matmul_gradient, anchor=Anchor.PRODUCT, role=Role.MATRIX_PRODUCT, macs=_depth_macs,
    integer=products.product_of_computed,
    sample=sample_of("nn.matmul", (2, 1, 3, 4), (3, 4, 2)), draw=_draw_matmul,
    **_PRODUCT, doc="Product of two computed matrices; axes before the last two broadcast.",
))  # fmt: skip


_EQUATION = re.compile(r"[A-Za-z]*(,[A-Za-z]*)*->[A-Za-z]*\Z")


def _einsum_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    equation = str(attrs["equation"])
    require(bool(_EQUATION.match(equation)), f"the equation must be like 'ij,jk->ik', without dots, not {equation!r}")
    terms, result = equation.split("->")
    inputs = terms.split(",")
    require(len(inputs) == len(operands), f"{equation!r} is about {len(inputs)} operands, not {len(operands)}")
    sizes: dict[str, int] = {}
    for term, operand in zip(inputs, operands, strict=True):
        require_dtype(operand, "an operand", *NUMBERS)
        require(operand.dtype == operands[0].dtype, f"operands differ in type: {operands[0]} and {operand}")
        require(len(term) == operand.rank, f"{term!r} does not name the axes of {operand}")
        for letter, size in zip(term, operand.shape, strict=True):
            require(sizes.setdefault(letter, size) == size, f"axis {letter!r} has the sizes {sizes[letter]} and {size}")
    valid = set(result) <= set(sizes) and len(set(result)) == len(result)
    require(valid, f"the axes {result!r} of the result must be different axes of the operands {terms!r}")
    return TensorType(tuple(sizes[letter] for letter in result), operands[0].dtype)


def _einsum(*operands: Array, equation: str) -> Array:
    return np.asarray(np.einsum(equation, *operands, optimize=len(operands) > 2))


def _lower_einsum(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    inputs, result = call.attr("equation").split("->")
    terms = inputs.split(",")
    if len(terms) > 2:
        raise NotLoweredError(f"{call.op} of {len(terms)} operands, which NumPy multiplies in the best order")
    sizes = {letter: size for term, x in zip(terms, operands, strict=True)
             for letter, size in zip(term, x.shape, strict=True)}  # fmt: skip
    summed = {letter: builder.axis(size, f"r{letter}") for letter, size in sizes.items() if letter not in result}

    def product(*index: tir.Expr) -> tir.Expr:
        places: dict[str, tir.Expr] = {**dict(zip(result, index, strict=True)), **summed}
        first, *others = (x[tuple(places[letter] for letter in term)] for term, x in zip(terms, operands, strict=True))
        return first * others[0] if others else first

    if not summed:
        return View(call.shape, operands[0].dtype, lambda index: product(*index))
    return builder.reduction(call.shape, lambda *index: te.sum(product(*index), list(summed.values())), "product")


def _einsum_macs(node: Call) -> int:
    """One for each combination of the axes, where products are summed."""
    terms = node.attr("equation").split("->")[0].split(",")
    sizes = {letter: size for term, x in zip(terms, node.args, strict=True)
             for letter, size in zip(term, x.shape, strict=True)}  # fmt: skip
    return prod(sizes.values()) if len(terms) == 2 else 0


def _einsum_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    inputs, result = node.attr("equation").split("->")
    terms = inputs.split(",")

    def of(place: int) -> Expr:
        """Upstream times all other operands, summed to the axes of this one. An axis that it alone names was summed:
        all along it is alike. Of an axis that it names twice only the diagonal was read."""
        term, x = terms[place], node.args[place]
        others = [(terms[i], arg) for i, arg in enumerate(node.args) if i != place]
        known = set(result).union(*(each for each, _ in others))
        letters = "".join(dict.fromkeys(term))
        kept = "".join(letter for letter in letters if letter in known)
        names = ",".join([result, *(each for each, _ in others)])
        value: Expr = nn.einsum(upstream, *(arg for _, arg in others), equation=f"{names}->{kept}")
        sizes = dict(zip(term, x.shape, strict=True))
        value = reshaped(value, [sizes[letter] if letter in kept else 1 for letter in letters])
        value = expanded(value, [sizes[letter] for letter in letters])
        for axis, letter in enumerate(term):
            if letter in term[:axis]:
                fresh = next(each for each in ascii_letters if each not in letters + term)
                eye = Constant(np.eye(sizes[letter], dtype=numpy_dtype(x.dtype)))
                value = nn.einsum(value, eye, equation=f"{letters},{letter}{fresh}->{letters}{fresh}")
                letters, term = letters + fresh, term[:axis] + fresh + term[axis + 1 :]
        return transposed(value, [letters.index(letter) for letter in term])

    return tuple(of(place) for place in range(len(terms)))


register(Operator(
    "nn.einsum", "x*", types=_einsum_type, numpy=rounded_once(_einsum), lower=_lower_einsum, macs=_einsum_macs,
    gradient=_einsum_gradient,
    defaults={"equation": REQUIRED}, sample=sample_of("nn.einsum", (2, 3), (3, 4), equation="ij,jk->ki"), **_PRODUCT,
    doc="Products summed over the axes that the result does not name: 'ij,jk->ik' is the product of matrices.",
))  # fmt: skip


def _determinant_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x = operands[0]
    require_dtype(x, "the input", *FLOATS)
    require(x.rank >= 2 and x.shape[-1] == x.shape[-2], f"the last two axes of {x} are not square")
    return TensorType(x.shape[:-2], x.dtype)


def _inverse(x: Array) -> Array:
    """NaN where a matrix has none."""
    found = np.full_like(x, np.nan)
    for place in np.ndindex(x.shape[:-2]):
        try:
            found[place] = np.linalg.inv(x[place])
        except np.linalg.LinAlgError:
            continue
    return found


def _inverse_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    _determinant_type(operands, attrs)
    return operands[0]


def _inverse_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    turned = _turned(node)
    return (nn.negative(nn.matmul(nn.matmul(turned, upstream), turned)),)


def _determinant_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    """NaN where the matrix has no inverse."""
    factor = reshaped(nn.multiply(upstream, node), (*node.shape, 1, 1))
    return (nn.multiply(factor, _turned(nn.inverse(node.args[0]))),)


register(Operator(
    "nn.inverse", "x", family=Family.SOURCE, types=_inverse_type, numpy=rounded_once(_inverse),
    gradient=_inverse_gradient, lower=NOT_LOWERED, fusion=Fusion.OPAQUE, sample=sample_of("nn.inverse", (2, 3, 3)),
    doc="Inverse of the matrices in the last two axes; NaN where there is none.",
))  # fmt: skip
register(Operator(
    "nn.determinant", "x", family=Family.SOURCE, types=_determinant_type,
    numpy=rounded_once(lambda x: np.linalg.det(x)), gradient=_determinant_gradient, lower=NOT_LOWERED,
    fusion=Fusion.OPAQUE, sample=sample_of("nn.determinant", (2, 3, 3)),
    doc="Determinant of the matrices in the last two axes.",
))  # fmt: skip
