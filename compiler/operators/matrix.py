"""Products of matrices and tensors. float16 and bfloat16 are computed in float32 and rounded once."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ..graph.dtypes import FLOATS, NUMBERS
from ..graph.ir import Array, Attrs, TensorType
from ..graph.registry import NOT_LOWERED, REQUIRED, Fusion, register
from .elementwise import NO_GRADIENT_YET, broadcast_shape, rounded_once
from .integer import require, require_dtype


def _dense_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, w = operands
    require_dtype(x, "the input", *FLOATS)
    require_dtype(w, "the weights", x.dtype)
    require(x.rank == 2 and w.rank == 2 and x.shape[1] == w.shape[1], f"{x} and weights {w} (O, C) do not fit")
    return TensorType((x.shape[0], w.shape[0]), x.dtype)


def _dense(x: Array, w: Array) -> Array:
    return (x.astype(np.float64) @ w.T.astype(np.float64)).astype(x.dtype)


def _matmul_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    a, b = operands
    require_dtype(a, "an operand", *NUMBERS)
    require_dtype(b, "the other operand", a.dtype)
    require(min(a.rank, b.rank) >= 2 and a.shape[-1] == b.shape[-2], f"{a} and {b} do not multiply")
    outer = broadcast_shape(TensorType(a.shape[:-2], a.dtype), TensorType(b.shape[:-2], b.dtype))
    return TensorType((*outer, a.shape[-2], b.shape[-1]), a.dtype)


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
    known = set(result) <= set(sizes) and len(set(result)) == len(result)
    require(known, f"the axes {result!r} of the result must be different axes of the operands {terms!r}")
    return TensorType(tuple(sizes[letter] for letter in result), operands[0].dtype)


def _einsum(*operands: Array, equation: str) -> Array:
    return np.asarray(np.einsum(equation, *operands, optimize=len(operands) > 2))


def _determinant_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x = operands[0]
    require_dtype(x, "the input", *FLOATS)
    require(x.rank >= 2 and x.shape[-1] == x.shape[-2], f"the last two axes of {x} are not square")
    return TensorType(x.shape[:-2], x.dtype)


register(
    "nn.dense", "x w", types=_dense_type, numpy=_dense, gradient=NO_GRADIENT_YET, lower=NOT_LOWERED,
    fusion=Fusion.ANCHOR, doc="x (N, C) times weights (O, C), transposed.",
)
register(
    "nn.matmul", "a b", types=_matmul_type, numpy=rounded_once(lambda a, b: np.matmul(a, b)),
    gradient=NO_GRADIENT_YET, lower=NOT_LOWERED, fusion=Fusion.ANCHOR,
    doc="Product of two computed matrices; axes before the last two broadcast.",
)
register(
    "nn.einsum", "x*", types=_einsum_type, numpy=rounded_once(_einsum), equation=REQUIRED, gradient=NO_GRADIENT_YET,
    lower=NOT_LOWERED, fusion=Fusion.ANCHOR,
    doc="Products summed over the axes that the result does not name: 'ij,jk->ik' is the product of matrices.",
)
register(
    "nn.determinant", "x", types=_determinant_type, numpy=rounded_once(lambda x: np.linalg.det(x)),
    gradient=NO_GRADIENT_YET, lower=NOT_LOWERED, fusion=Fusion.OPAQUE,
    doc="Determinant of the matrices in the last two axes.",
)
