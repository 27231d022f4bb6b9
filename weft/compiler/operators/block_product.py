"""Products of integers in blocks along the depth, each with scales of its own: small weights times rounded rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .. import tensor as te
from ..graph.dtypes import NARROW_INTEGERS
from ..graph.ir import Array, Attrs, Call, TensorType
from ..graph.registry import REQUIRED, Family, Fusion, Operator, call, register, unsupported
from ..tensor import ir as tir
from ..tensor.view import Builder, View
from .quantise import numbers_of
from .samples import variable
from .type_rules import integer, require, require_dtype


def _types(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, x_scale, w, w_scale, w_zero = operands
    require_dtype(x, "the rows", "int8")
    require_dtype(w, "the weights", *NARROW_INTEGERS)
    require_dtype(w_zero, "the zero points", w.dtype)
    require(x.rank == 2 and w.rank == 2 and x.shape[1] == w.shape[1], f"{x} and weights {w} (O, K) do not fit")
    block = integer(attrs, "block", 1, x.shape[1])
    require(x.shape[1] % block == 0, f"the depth {x.shape[1]} is no multiple of the block {block}")
    blocks = x.shape[1] // block
    for scale, rows, what in ((x_scale, x.shape[0], "rows"), (w_scale, w.shape[0], "weights")):
        wanted = TensorType((rows, blocks), "float32")
        require(scale == wanted, f"the scales of the {what} must be {wanted}, not {scale}")
    require(w_zero.shape == w_scale.shape, f"the zero points must be {list(w_scale.shape)}, not {list(w_zero.shape)}")
    return TensorType((x.shape[0], w.shape[0]), "float32")


def _meaning(x: Array, x_scale: Array, w: Array, w_scale: Array, w_zero: Array, block: int) -> Array:
    blocks = x_scale.shape[1]
    centred = w.astype(np.int32).reshape(len(w), blocks, block) - w_zero.astype(np.int32)[:, :, None]
    sums = np.einsum("nbk,obk->nob", x.astype(np.float64).reshape(len(x), blocks, block), centred.astype(np.float64))
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = sums.astype(np.float32) * (x_scale[:, None, :] * w_scale)
        return np.asarray(scaled.sum(-1, dtype=np.float64), np.float32)


def _lower(builder: Builder, node: Call, operands: tuple[View, ...]) -> View:
    x, x_scale, _, w_scale, _ = operands
    w, w_zero = (numbers_of(operands[place], node.args[place].dtype) for place in (2, 4))
    block = node.attr("block")
    blocks = x.shape[1] // block
    k, b = builder.axis(block, "k"), builder.axis(blocks, "b")

    def of_block(n: tir.Expr, o: tir.Expr, b: tir.Expr) -> te.Reduction:
        factor = w[(o, b * block + k)].astype("int32") - w_zero[(o, b)].astype("int32")
        return te.sum(x[(n, b * block + k)].astype("int32") * factor, k)

    sums = builder.reduction((*node.shape, blocks), of_block, "sums")

    def value(n: tir.Expr, o: tir.Expr) -> te.Reduction:
        return te.sum(sums[(n, o, b)].astype("float32") * (x_scale[(n, b)] * w_scale[(o, b)]), b)

    return builder.reduction(node.shape, value, "product")


def _sample(dtype: str) -> Call:
    operands = (
        variable("int8", 3, 8), variable("float32", 3, 2, name="x_scale"), variable(dtype, 5, 8, name="w"),
        variable("float32", 5, 2, name="w_scale"), variable(dtype, 5, 2, name="w_zero"),
    )  # fmt: skip
    return call("nn.block_product", *operands, block=4)


register(Operator(
    "nn.block_product", "x x_scale w w_scale w_zero", family=Family.SOURCE, types=_types, numpy=_meaning, lower=_lower,
    defaults={"block": REQUIRED}, fusion=Fusion.ANCHOR, sample=_sample,
    macs=lambda node: node.tensor_type.size * node.args[0].shape[1],
    gradient=unsupported("its rows were rounded to integers, which trains nothing"),
    doc="Integers x (N, K) times w - w_zero (O, K), summed up exactly in blocks of K, times x_scale (N, K / block) and "
    "w_scale (O, K / block): float32 (N, O).",
))  # fmt: skip
