"""Products of matrices, and convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...graph import Expr
from ...graph.dtypes import FLOATS
from ..forms import crop_or_pad, matrix_product
from .move import dilated, reversed_along
from .site import Site, rule


def _rest(rank: int, *taken: Sequence[int]) -> list[int]:
    return [axis for axis in range(rank) if not any(axis in axes for axes in taken)]


@rule("dot_general")
def _dot_general(site: Site) -> Expr:
    """As products of matrices: batches first, then what is free, then what is summed up."""
    a, b = (site.cast(each, site.dtype) for each in site.operands)
    numbers = site.attrs["dot_dimension_numbers"]
    batch_a, batch_b = numbers["lhs_batching_dimensions"], numbers["rhs_batching_dimensions"]
    sum_a, sum_b = numbers["lhs_contracting_dimensions"], numbers["rhs_contracting_dimensions"]
    free_a, free_b = _rest(len(a.shape), batch_a, sum_a), _rest(len(b.shape), batch_b, sum_b)
    batches = [a.shape[axis] for axis in batch_a]
    depth = math.prod(a.shape[axis] for axis in sum_a)
    rows = [a.shape[axis] for axis in free_a]
    columns = [b.shape[axis] for axis in free_b]
    left = site.transpose(a, [*batch_a, *free_a, *sum_a])
    right = site.transpose(b, [*batch_b, *sum_b, *free_b])
    left = site.reshape(left, (*batches, math.prod(rows), depth))
    right = site.reshape(right, (*batches, depth, math.prod(columns)))
    return site.reshape(matrix_product(site, left, right), site.shape)


@rule("dot")
def _dot(site: Site) -> Expr:
    a, b = (site.cast(each, site.dtype) for each in site.operands)
    return site.reshape(matrix_product(site, a, b), site.shape)


@rule("convolution")
def _convolution(site: Site) -> Expr:
    """Batch, channels and pixels in the order that the operation says; sums of integers are exact in float64."""
    x, w = site.operands
    if site.dtype not in FLOATS:
        wide = "float64"
        sums = _images(site, site.cast(x, wide), site.cast(w, wide))
        return site.cast(sums, site.dtype)
    return _images(site, site.cast(x, site.dtype), site.cast(w, site.dtype))


def _images(site: Site, x: Expr, w: Expr) -> Expr:
    numbers = site.attrs["dimension_numbers"]
    order_x = [numbers["input_batch_dimension"], numbers["input_feature_dimension"],
               *numbers["input_spatial_dimensions"]]  # fmt: skip
    order_w = [numbers["kernel_output_feature_dimension"], numbers["kernel_input_feature_dimension"],
               *numbers["kernel_spatial_dimensions"]]  # fmt: skip
    order_y = [numbers["output_batch_dimension"], numbers["output_feature_dimension"],
               *numbers["output_spatial_dimensions"]]  # fmt: skip
    count = len(order_x) - 2
    if int(site.attrs.get("batch_group_count", 1)) != 1:
        raise site.error("groups of a batch are not supported: gradients of grouped convolutions have them")
    images, kernels = site.transpose(x, order_x), site.transpose(w, order_w)
    flags = site.ints("window_reversal", (0,) * count)
    kernels = reversed_along(site, kernels, [axis + 2 for axis, flag in enumerate(flags) if flag])
    images = dilated(site, images, [1, 1, *site.ints("lhs_dilation", (1,) * count)])
    pads = site.pairs("padding", count)
    inner = [(min(low, 0), min(high, 0)) for low, high in pads]
    images = crop_or_pad(site, images, [0, 0, *(low for low, _ in inner)], [0, 0, *(high for _, high in inner)], 0.0)
    axes = [] if count else [1]
    images, kernels = (site.reshape(each, (*each.shape, *axes)) for each in (images, kernels))
    result = site.onnx(
        "Conv", images, kernels, None,
        strides=site.ints("window_strides", (1,) * count) or (1,), group=int(site.attrs["feature_group_count"]),
        pads=(*(max(low, 0) for low, _ in pads), *(max(high, 0) for _, high in pads)) or (0, 0),
        dilations=site.ints("rhs_dilation", (1,) * count) or (1,),
    )  # fmt: skip
    if not count:
        result = site.reshape(result, result.shape[:2])
    return site.transpose(result, [order_y.index(axis) for axis in range(len(order_y))])
