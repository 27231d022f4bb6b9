"""Products of matrices and convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...graph import Constant, Expr
from ..forms import matrix_product, transposed
from ..onnx.loop import looped
from .site import Site, category, rule

Number = int | float


def product(site: Site, a: Expr, b: Expr) -> Expr:
    """As numpy.matmul. Weights that are constants become ``nn.dense``; of truth values and small integers the sums
    are those of the result's type."""
    a, b = (site.cast(x, site.dtype) for x in (a, b))
    return matrix_product(site.node, a, b)


@rule("mm.default", "bmm.default", "matmul.default", "mv.default", "dot.default", "vdot.default")
def _product(site: Site, a: Expr, b: Expr) -> Expr:
    return product(site, a, b)


@rule("linear.default")
def _linear(site: Site, x: Expr, w: Expr, bias: Expr | None = None) -> Expr:
    result = product(site, x, transposed(site.node, w)) if len(w.shape) == 2 else product(site, x, w)
    return result if bias is None else site("add", result, bias)


def _scaled(site: Site, x: Expr, factor: Number) -> Expr:
    return x if factor == 1 else site("multiply", x, int(factor) if category(x.dtype) < 2 else factor)


@rule("addmm.default", "baddbmm.default", "addmv.default", "addbmm.default")
def _add_product(site: Site, bias: Expr, a: Expr, b: Expr, *, beta: Number = 1, alpha: Number = 1) -> Expr:
    """beta * bias + alpha * a b; without beta the bias is not read, so that what is no number in it is lost."""
    total = product(site, a, b)
    if site.op.startswith("aten.addbmm"):
        total = site.call("nn.reduce_sum", total, axes=(0,), keepdims=False)
    total = _scaled(site, total, alpha)
    return total if beta == 0 else site("add", total, _scaled(site, site.cast(bias, site.dtype), beta))


@rule("_int_mm.default")
def _product_of_bytes(site: Site, a: Expr, b: Expr) -> Expr:
    """Of 8-bit integers, exactly, in 32 bits."""
    result: Expr = site.onnx("MatMulInteger", a, b)
    return result


@rule("_weight_int8pack_mm.default")
def _product_of_byte_weights(site: Site, x: Expr, w: Expr, scales: Expr) -> Expr:
    """Of x (M, C) and w (O, C), 8-bit integers with a scale a row."""
    weights = site("multiply", site.cast(w, "float32"), site.reshape(site.cast(scales, "float32"), (-1, 1)))
    return site.cast(matrix_product(site.node, site.cast(x, "float32"), transposed(site.node, weights)), site.dtype)


@rule("_scaled_mm.default")
def _product_of_scaled(
    site: Site, a: Expr, b: Expr, scale_a: Expr, scale_b: Expr, bias: Expr | None = None,
    scale_result: Expr | None = None, out_dtype: str | None = None, use_fast_accum: bool = False,
) -> Expr:  # fmt: skip
    """Of a (M, C) and b (C, O) in 8-bit floats, with one scale each, or with one a row of a and one a column of b."""
    (rows, columns), sizes = site.shape, [math.prod(scale.shape) for scale in (scale_a, scale_b)]
    if scale_result is not None or sizes[0] not in (1, rows) or sizes[1] not in (1, columns):
        raise site.error("scales of the result, or of blocks, are not supported",
                         hint="give one scale, or one for each row and column")  # fmt: skip
    scales = [site.reshape(site.cast(scale, "float32"), shape) for scale, shape in
              ((scale_a, (-1, 1)), (scale_b, (1, -1)))]  # fmt: skip
    result = matrix_product(site.node, site.cast(a, "float32"), site.cast(b, "float32"))
    for scale in scales:
        result = site("multiply", result, scale)
    if bias is not None:
        result = site("add", result, site.cast(bias, "float32"))
    return site.cast(result, site.dtype)


GATHERED_ROWS = 3
"""A row whose group's matrix is gathered moves about so many times its elements; a loop reads each matrix once."""


@rule("_grouped_mm.default")
def _product_of_groups(
    site: Site, a: Expr, b: Expr, offs: Expr | None = None, bias: Expr | None = None, out_dtype: str | None = None
) -> Expr:
    """Products of parts of an axis that end at ``offs`` (groups,), each with a matrix of its own: rows of a (M, C) with
    b (groups, C, O), columns of b (C, O) with a (groups, M, C), or both along C, which gives (groups, M, O). What
    stands behind the last end is zero. Without ``offs`` both are stacks of matrices."""
    if bias is not None:
        raise site.error("a bias is not supported", hint="add it to the result")
    a, b = (site.cast(x, "float32") for x in (a, b))
    if offs is None:
        return site.cast(matrix_product(site.node, a, b), site.dtype)
    if len(a.shape) == 2 and len(b.shape) == 2:
        return site.cast(_summed_by_groups(site, a, b, offs), site.dtype)
    if len(a.shape) == 2:
        return site.cast(_rows_by_groups(site, a, b, offs), site.dtype)
    columns = _rows_by_groups(site, site.transpose(b, (1, 0)), site.transpose(a, (0, 2, 1)), offs)
    return site.cast(site.transpose(columns, (1, 0)), site.dtype)


def _members(site: Site, offs: Expr, size: int) -> Expr:
    """Whether each of ``size`` places belongs to a group: (groups, size)."""
    ends, places = site.reshape(site.cast(offs, "int64"), (-1, 1)), Constant(np.arange(size).reshape(1, -1))
    below = site("less", places, ends)
    earlier = site.concat([Constant(np.zeros((1, size), bool)), site.slice(below, 0, 0, offs.shape[0] - 1)], 0)
    return site("xor", below, earlier)


def _summed_by_groups(site: Site, a: Expr, b: Expr, offs: Expr) -> Expr:
    """(M, C) times (C, O), the sums those of each group's places in C."""
    members = _members(site, offs, a.shape[1])
    left = site.where(site.reshape(members, (-1, 1, a.shape[1])), site.reshape(a, (1, *a.shape)), 0.0)
    right = site.where(site.reshape(members, (-1, a.shape[1], 1)), site.reshape(b, (1, *b.shape)), 0.0)
    return matrix_product(site.node, left, right)


def _rows_by_groups(site: Site, a: Expr, b: Expr, offs: Expr) -> Expr:
    """(M, C) times the matrix of each row's group, (groups, C, O)."""
    members = _members(site, offs, a.shape[0])
    nothing = Constant(np.zeros((a.shape[0], b.shape[2]), np.float32))
    if a.shape[0] * GATHERED_ROWS < b.shape[0]:
        groups = site.call("nn.arg_max", site.cast(members, "int32"), axis=0, keepdims=False)
        rows = matrix_product(site.node, site.reshape(a, (-1, 1, a.shape[1])), site.call("gather", b, groups, axis=0))
        inside = site.call("nn.reduce_max", site.cast(members, "int32"), axes=(0,), keepdims=False)
        found = site.reshape(rows, nothing.shape)
        return site.where(site.cast(site.reshape(inside, (-1, 1)), "bool"), found, nothing)

    def step(states: Sequence[Expr], items: Sequence[Expr]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        (found,), (matrix, rows) = states, items
        return (site.where(site.reshape(rows, (-1, 1)), matrix_product(site.node, a, matrix), found),), ()

    (found,), _ = looped(site.node, step, (nothing,), (b, members), (False, False))
    return found


@rule("outer.default", "ger.default")
def _outer(site: Site, a: Expr, b: Expr) -> Expr:
    a, b = site.promoted(site.reshape(a, (-1, 1)), site.reshape(b, (1, -1)))
    return site("multiply", a, b)


@rule("convolution.default")
def _convolution(
    site: Site, x: Expr, w: Expr, bias: Expr | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> Expr:  # fmt: skip
    if category(x.dtype) < 2:  # sums of integers are exact in float64, up to 2**53
        wide_type = replace(site, types=(replace(site.type, dtype="float64"),))
        x, w = (site.cast(each, "float64") for each in (x, w))
        bias = None if bias is None else site.cast(bias, "float64")
        sums = _convolution(wide_type, x, w, bias, stride, padding, dilation, transposed, output_padding, groups)
        return site.cast(sums, site.dtype)
    count = len(w.shape) - 2
    single = len(x.shape) == count + 1
    images = site.reshape(x, (1, *x.shape)) if single else x

    def wide(values: Sequence[int]) -> list[int]:
        return list(values) * count if len(values) == 1 else list(values)

    pads = wide(padding)
    attrs: dict[str, Any] = {"strides": wide(stride), "pads": pads + pads, "dilations": wide(dilation), "group": groups}
    if transposed:
        attrs["output_padding"] = wide(output_padding)
    result = site.onnx("ConvTranspose" if transposed else "Conv", images, w, bias, **attrs)
    return site.reshape(result, site.shape)


@rule("conv1d.default", "conv2d.default", "conv3d.default")
def _conv(
    site: Site, x: Expr, w: Expr, bias: Expr | None = None, stride: Sequence[int] = (1,), padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,), groups: int = 1,
) -> Expr:  # fmt: skip
    return _convolution(site, x, w, bias, stride, padding, dilation, False, (0,), groups)


@rule("bilinear.default")
def _bilinear(site: Site, a: Expr, b: Expr, w: Expr, bias: Expr | None = None) -> Expr:
    rows_a, rows_b = site.reshape(a, (-1, a.shape[-1])), site.reshape(b, (-1, b.shape[-1]))
    result: Expr = site.call("nn.einsum", rows_a, w, rows_b, equation="ni,oij,nj->no")
    result = site.reshape(result, site.shape)
    return result if bias is None else site("add", result, bias)


@rule("_trilinear.default")
def _trilinear(
    site: Site, a: Expr, b: Expr, c: Expr, expand1: Sequence[int], expand2: Sequence[int], expand3: Sequence[int],
    sumdim: Sequence[int], unroll_dim: int = 1,
) -> Expr:  # fmt: skip
    """The product of three tensors, each with axes of size 1 put in, summed along some."""
    letters = "abcdefghijklmnop"[: len(a.shape) + len(expand1)]
    own = ["".join(letter for i, letter in enumerate(letters) if i not in expanded)
           for expanded in (expand1, expand2, expand3)]  # fmt: skip
    kept = "".join(letter for i, letter in enumerate(letters) if i not in sumdim)
    return site.reshape(site.call("nn.einsum", a, b, c, equation=f"{','.join(own)}->{kept}"), site.shape)


# Matrices: whether one is singular is not told


def _inverse(site: Site, x: Expr) -> Expr:
    return site.in_float32(x, lambda wide: site.call("nn.inverse", wide))


@rule("linalg_inv_ex.default")
def _inv(site: Site, x: Expr, *, check_errors: bool = False) -> tuple[Expr, Expr]:
    return _inverse(site, x), Constant(np.zeros(x.shape[:-2], np.int32))


@rule("_linalg_solve_ex.default", without=(1, 2))
def _solve(site: Site, a: Expr, b: Expr, *, left: bool = True, check_errors: bool = False) -> tuple[Expr | None, ...]:
    is_vector = len(b.shape) == 1 or (len(b.shape) == len(a.shape) - 1 and b.shape == a.shape[:-1])
    column = site.reshape(b, (*b.shape, 1)) if is_vector else b
    inverse = _inverse(site, a)
    found = matrix_product(site.node, inverse, column) if left else matrix_product(site.node, column, inverse)
    return site.reshape(found, site.shape), None, None, Constant(np.zeros(a.shape[:-2], np.int32))


@rule("_linalg_det.default", without=(1, 2))
def _det(site: Site, x: Expr) -> tuple[Expr | None, ...]:
    return site.call("nn.determinant", x), None, None


@rule("_linalg_slogdet.default", without=(2, 3))
def _slogdet(site: Site, x: Expr) -> tuple[Expr | None, ...]:
    """In float64, each row divided by its largest element, since products of many rows leave the range of floats."""
    wide = site.cast(x, "float64")
    row = site.call("nn.reduce_max", site("abs", wide), axes=(len(x.shape) - 1,), keepdims=True)
    largest = site.where(site("equal", row, 0), 1, row)
    found = site.call("nn.determinant", site("divide", wide, largest))
    logs = site.call("nn.reduce_sum", site("log", largest), axes=(len(x.shape) - 2, len(x.shape) - 1))
    size = site("add", site("log", site("abs", found)), logs)
    return site.cast(site("sign", found), x.dtype), site.cast(size, x.dtype), None, None
