"""Operators that combine elements along axes, sort them, or add them up one after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph import Constant, Expr
from .site import RULES, Rule, Site, category, rule

Axes = int | Sequence[int] | None


def reduced(site: Site, op: str, x: Expr, axes: tuple[int, ...], keepdims: bool) -> Expr:
    return site.call(f"nn.{op}", x, axes=axes, keepdims=keepdims) if axes else x


@rule("sum.dim_IntList", "sum.default")
def _sum(site: Site, x: Expr, dim: Axes = None, keepdim: bool = False, dtype: str | None = None) -> Expr:
    x = site.cast(x, site.dtype)
    return site.in_float32(x, lambda wide: reduced(site, "reduce_sum", wide, site.axes(dim, len(x.shape)), keepdim))


@rule("mean.dim", "mean.default")
def _mean(site: Site, x: Expr, dim: Axes = None, keepdim: bool = False, dtype: str | None = None) -> Expr:
    x = site.cast(x, site.dtype)
    axes = site.axes(dim, len(x.shape))
    if axes == (2, 3) and len(x.shape) == 4 and x.dtype == "float32" and min(x.shape[2:]):
        mean = site.call("nn.average_pool", x, kernel=x.shape[2:])  # which the accelerator has
        return mean if keepdim else site.reshape(mean, x.shape[:2])
    return site.in_float32(x, lambda wide: reduced(site, "reduce_mean", wide, axes, keepdim))


@rule("prod.default")
def _prod(site: Site, x: Expr, dtype: str | None = None) -> Expr:
    x = site.cast(x, site.dtype)
    return reduced(site, "reduce_product", x, tuple(range(len(x.shape))), False)


@rule("prod.dim_int")
def _prod_dim(site: Site, x: Expr, dim: int, keepdim: bool = False, dtype: str | None = None) -> Expr:
    x = site.cast(x, site.dtype)
    return reduced(site, "reduce_product", x, site.axes(dim, len(x.shape)), keepdim)


@rule("amax.default", "amin.default")
def _extreme(site: Site, x: Expr, dim: Axes = (), keepdim: bool = False) -> Expr:
    op = "reduce_max" if site.op.startswith("aten.amax") else "reduce_min"
    return reduced(site, op, x, site.axes(dim, len(x.shape)), keepdim)


@rule("max.default", "min.default")
def _extreme_of_all(site: Site, x: Expr) -> Expr:
    op = "reduce_max" if site.op.startswith("aten.max") else "reduce_min"
    return reduced(site, op, x, tuple(range(len(x.shape))), False)


@rule("any.default", "any.dim", "any.dims", "all.default", "all.dim", "all.dims")
def _truth(site: Site, x: Expr, dim: Axes = None, keepdim: bool = False) -> Expr:
    op = "reduce_max" if site.op.startswith("aten.any") else "reduce_min"
    axes = site.axes(dim, len(x.shape))
    return site.cast(reduced(site, op, site.cast(x, "bool"), axes, keepdim), site.dtype)


@rule("max.dim", "min.dim")
def _extreme_with_place(site: Site, x: Expr, dim: int, keepdim: bool = False) -> tuple[Expr, Expr]:
    most = site.op.startswith("aten.max")
    if not x.shape:
        return x, site.like(0, "int64")
    axis = site.axis(dim, len(x.shape))
    number = site.cast(x, "uint8") if x.dtype == "bool" else x
    place = site.call("nn.arg_max" if most else "nn.arg_min", number, axis=axis, keepdims=True)
    value: Expr = site.call("gather_elements", x, place, axis=axis)
    if keepdim:
        return value, place
    kept = (*x.shape[:axis], *x.shape[axis + 1 :])
    return site.reshape(value, kept), site.reshape(place, kept)


@rule("argmax.default", "argmin.default")
def _place(site: Site, x: Expr, dim: int | None = None, keepdim: bool = False) -> Expr:
    op = "nn.arg_max" if site.op.startswith("aten.argmax") else "nn.arg_min"
    flat = site.flat(x) if dim is None or not x.shape else x
    axis = 0 if dim is None or not x.shape else site.axis(dim, len(x.shape))
    return site.reshape(site.call(op, flat, axis=axis, keepdims=False), site.shape)


def variance(site: Site, x: Expr, axes: tuple[int, ...], correction: float, keepdim: bool) -> tuple[Expr, Expr]:
    """Variance and mean along axes: squares are divided by their number less the correction, not below 0."""
    mean = reduced(site, "reduce_mean", x, axes, True)
    centred = site("subtract", x, mean)
    total = reduced(site, "reduce_sum", site("multiply", centred, centred), axes, keepdim)
    count = max(math.prod(x.shape[axis] for axis in axes) - correction, 0)
    spread = site("divide", total, count)
    return spread, mean if keepdim else site.reshape(mean, spread.shape)


@rule("var.correction", "std.correction")
def _var(site: Site, x: Expr, dim: Axes = None, correction: float | None = None, keepdim: bool = False) -> Expr:
    axes = site.axes(dim, len(x.shape))
    divided = 1 if correction is None else correction

    def compute(wide: Expr) -> Expr:
        spread = variance(site, wide, axes, divided, keepdim)[0]
        return site("sqrt", spread) if site.op.startswith("aten.std") else spread

    return site.in_float32(x, compute)


@rule("var.dim", "std.dim")
def _var_dim(site: Site, x: Expr, dim: Axes = None, unbiased: bool = True, keepdim: bool = False) -> Expr:
    return _var(site, x, dim, 1 if unbiased else 0, keepdim)


@rule("var_mean.correction")
def _var_mean(
    site: Site, x: Expr, dim: Axes = None, correction: float | None = None, keepdim: bool = False
) -> tuple[Expr, Expr]:
    return variance(site, x, site.axes(dim, len(x.shape)), 1 if correction is None else correction, keepdim)


@rule("linalg_vector_norm.default")
def _vector_norm(
    site: Site, x: Expr, ord: float = 2, dim: Axes = None, keepdim: bool = False, dtype: str | None = None
) -> Expr:
    axes = site.axes(dim, len(x.shape))

    def compute(wide: Expr) -> Expr:
        size = site("abs", wide)
        if math.isinf(ord):
            return reduced(site, "reduce_max" if ord > 0 else "reduce_min", size, axes, keepdim)
        if ord == 0:
            present = site.cast(site("not", site("equal", wide, 0)), wide.dtype)
            return reduced(site, "reduce_sum", present, axes, keepdim)
        if ord == 1:
            return reduced(site, "reduce_sum", size, axes, keepdim)
        if ord == 2:
            return site("sqrt", reduced(site, "reduce_sum", site("multiply", wide, wide), axes, keepdim))
        return site("power", reduced(site, "reduce_sum", site("power", size, ord), axes, keepdim), 1 / ord)

    return site.in_float32(site.cast(x, site.dtype), compute)


@rule("logsumexp.default")
def _logsumexp(site: Site, x: Expr, dim: Axes, keepdim: bool = False) -> Expr:
    result: Expr = site.onnx("ReduceLogSumExp", site.cast(x, site.dtype), axes=site.axes(dim, len(x.shape)),
                             keepdims=int(keepdim))  # fmt: skip
    return result


def _running(op: str) -> Rule:
    def convert(site: Site, x: Expr, dim: int, dtype: str | None = None) -> Expr:
        x = site.cast(x, site.dtype)
        if not x.shape:
            return x
        return site.in_float32(x, lambda wide: site.call(f"nn.{op}", wide, axis=site.axis(dim, len(x.shape))))

    return convert


RULES["aten.cumsum.default"] = _running("cumulative_sum")
RULES["aten.cumprod.default"] = _running("cumulative_product")


@rule("_softmax.default", "softmax.int")
def _softmax(site: Site, x: Expr, dim: int, half_to_float: Any = False) -> Expr:
    x = site.cast(x, site.dtype)
    if not x.shape:
        return site.reshape(site.call("nn.softmax", site.reshape(x, (1,)), axis=0), ())
    return site.call("nn.softmax", x, axis=site.axis(dim, len(x.shape)))


@rule("_log_softmax.default", "log_softmax.int")
def _log_softmax(site: Site, x: Expr, dim: int, half_to_float: Any = False) -> Expr:
    x = site.cast(x, site.dtype)
    if not x.shape:
        return site("subtract", x, x)
    result: Expr = site.onnx("LogSoftmax", x, axis=dim)
    return result


# Order


def _number(site: Site, x: Expr) -> Expr:
    return site.cast(x, "uint8") if x.dtype == "bool" else x


def sorted_along(site: Site, x: Expr, count: int, axis: int, largest: bool) -> tuple[Expr, Expr]:
    """The first elements in order, and their places."""
    places = site.call("top_k", _number(site, x), k=count, axis=axis, largest=largest)
    return site.call("gather_elements", x, places, axis=axis), places


@rule("topk.default")
def _topk(
    site: Site, x: Expr, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Expr, Expr]:  # fmt: skip
    if not x.shape:
        return x, site.like(0, "int64")
    return sorted_along(site, x, k, site.axis(dim, len(x.shape)), largest)


@rule("sort.default")
def _sort(site: Site, x: Expr, dim: int = -1, descending: bool = False) -> tuple[Expr, Expr]:
    if not x.shape:
        return x, site.like(0, "int64")
    axis = site.axis(dim, len(x.shape))
    return sorted_along(site, x, x.shape[axis], axis, descending)


@rule("sort.stable")
def _sort_stable(
    site: Site, x: Expr, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Expr, Expr]:
    return _sort(site, x, dim, descending)


@rule("kthvalue.default")
def _kth(site: Site, x: Expr, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Expr, Expr]:
    if not x.shape:
        return x, site.like(0, "int64")
    axis = site.axis(dim, len(x.shape))
    values, places = sorted_along(site, x, x.shape[axis], axis, False)
    kept = [1 if i == axis else size for i, size in enumerate(x.shape)]
    shape = kept if keepdim else [size for i, size in enumerate(x.shape) if i != axis]
    value, place = (site.reshape(site.slice(each, axis, k - 1, 1), shape) for each in (values, places))
    return value, place


@rule("median.dim", "nanmedian.dim")
def _median(site: Site, x: Expr, dim: int, keepdim: bool = False) -> tuple[Expr, Expr]:
    """Of an even number the lower one. What is no number is the median of all, or is left out; sorted it comes last."""
    if not x.shape:
        return x, site.like(0, "int64")
    axis = site.axis(dim, len(x.shape))
    values, places = sorted_along(site, x, x.shape[axis], axis, False)
    middle: Expr = site.expand(site.like((x.shape[axis] - 1) // 2, "int64"), _with(x.shape, axis, 1))
    if category(x.dtype) == 2:
        last = x.shape[axis] - 1
        absent = site.cast(site("is_nan", values), "int64")
        count = site.call("nn.reduce_sum", absent, axes=(axis,), keepdims=True)
        if site.op.startswith("aten.nan"):
            present = site("subtract", site.like(last, "int64"), count)
            middle = site("divide", site("maximum", present, 0), 2)
        else:
            middle = site.where(site("equal", count, 0), middle, last)
    found = (site.call("gather_elements", each, middle, axis=axis) for each in (values, places))
    value, place = (site.reshape(each, site.shape) for each in found)
    return value, place


@rule("median.default", "nanmedian.default")
def _median_of_all(site: Site, x: Expr) -> Expr:
    return _median(site, site.flat(x), 0)[0]


def _with(shape: Sequence[int], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])


@rule("nonzero_static.default")
def _nonzero_static(site: Site, x: Expr, *, size: int, fill_value: int = -1) -> Expr:
    """The places of the first ``size`` elements that are not zero, in rows."""
    rank, count = len(x.shape), math.prod(x.shape)
    if not site.shape[0] or not rank:
        return site.expand(site.like(fill_value, "int64"), site.shape)
    numbers = Constant(np.arange(count, dtype=np.int64))
    ends = Constant(np.full(size, count, np.int64))
    keys = site.concat([site.where(site.cast(site.flat(x), "bool"), numbers, count), ends], 0)
    first = sorted_along(site, keys, size, 0, False)[0]
    rows = Constant(np.stack([*(each.ravel() for each in np.indices(x.shape))], 1).astype(np.int64))
    filled = site.concat([rows, Constant(np.full((1, rank), fill_value, np.int64))], 0)
    return site.call("gather", filled, first, axis=0)


@rule("bucketize.Tensor", "bucketize.Scalar", "searchsorted.Tensor", "searchsorted.Scalar")
def _bucket(
    site: Site, first: Expr | float, second: Expr | float, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Expr | None = None,
) -> Expr:  # fmt: skip
    """How many boundaries lie below a value (or at it, with ``right``)."""
    given, x = (second, first) if site.op.startswith("aten.bucketize") else (first, second)
    bounds = given if isinstance(given, Expr) else site.like(given, "float32")
    x = x if isinstance(x, Expr) else site.like(x, "int64" if isinstance(x, int) else "float32")
    if sorter is not None:
        bounds = site.call("gather_elements", bounds, site.cast(sorter, "int64"), axis=len(bounds.shape) - 1)
    if len(bounds.shape) > 1:  # a row of boundaries for each row of values
        bounds = site.reshape(bounds, (*bounds.shape[:-1], 1, bounds.shape[-1]))
    bounds, x = site.promoted(bounds, site.reshape(x, (*x.shape, 1)))
    below = site("less_equal", bounds, x) if right or side == "right" else site("less", bounds, x)
    count = site.call("nn.reduce_sum", site.cast(below, "int64"), axes=(len(x.shape) - 1,), keepdims=False)
    return site.cast(count, site.dtype)


@rule("_cdist_forward.default")
def _cdist(site: Site, a: Expr, b: Expr, p: float, compute_mode: int | None = None) -> Expr:
    """The distance between each row of a and each row of b."""
    rows = site.reshape(a, (*a.shape[:-1], 1, a.shape[-1]))
    others = site.reshape(b, (*b.shape[:-2], 1, *b.shape[-2:]))
    difference = site("subtract", rows, others)
    return _vector_norm(site, difference, p, -1)


@rule("_pdist_forward.default")
def _pdist(site: Site, x: Expr, p: float = 2) -> Expr:
    first, second = np.triu_indices(x.shape[0], 1)
    a, b = (site.call("gather", x, Constant(rows.astype(np.int64)), axis=0) for rows in (first, second))
    return _vector_norm(site, site("subtract", a, b), p, -1)


@rule("dist.default")
def _dist(site: Site, a: Expr, b: Expr, p: float = 2) -> Expr:
    return _vector_norm(site, site("subtract", *site.promoted(a, b)), p)
