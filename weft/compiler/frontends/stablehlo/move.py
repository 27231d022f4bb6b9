"""Operations that move elements: shapes, slices, paddings, constants."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...graph import Call, Constant, Expr
from ...graph.dtypes import numpy_dtype
from ..forms import crop_or_pad
from .site import RULES, Site, rule, splat

RULES["reshape"] = lambda site: site.reshape(site.x, site.shape)
RULES["transpose"] = lambda site: site.transpose(site.x, site.ints("permutation"))
RULES["concatenate"] = lambda site: site.concat(site.operands, int(site.attrs["dimension"]))


@rule("constant")
def _constant(site: Site) -> Expr:
    """What is one number everywhere is kept as one, and spread."""
    value = site.attrs["value"].astype(numpy_dtype(site.dtype), copy=False)
    if value.size > 1 and value.strides and not any(value.strides):
        return site.expand(Constant(value.reshape(-1)[0].reshape(()), span=site.span), site.shape)
    return site.constant(value)


@rule("iota")
def _iota(site: Site) -> Expr:
    axis = int(site.attrs["iota_dimension"])
    row = np.arange(site.shape[axis]).astype(numpy_dtype(site.dtype))
    shape = [1] * len(site.shape)
    shape[axis] = row.size
    return site.expand(site.constant(row.reshape(shape)), site.shape)


@rule("broadcast_in_dim")
def _broadcast(site: Site) -> Expr:
    x, axes = site.x, site.ints("broadcast_dimensions")
    if isinstance(x, Call) and x.op == "expand" and not x.args[0].shape:
        return site.expand(x.args[0], site.shape)
    order = sorted(range(len(axes)), key=axes.__getitem__)
    x = site.transpose(x, order)
    shape = [1] * len(site.shape)
    for place, axis in enumerate(sorted(axes)):
        shape[axis] = x.shape[place]
    return site.expand(site.reshape(x, shape if x.shape else ()), site.shape)


@rule("slice")
def _slice(site: Site) -> Expr:
    starts, ends, steps = (site.ints(name) for name in ("start_indices", "limit_indices", "strides"))
    sizes = [-(-(end - start) // step) for start, end, step in zip(starts, ends, steps, strict=True)]
    if tuple(sizes) == site.x.shape:
        return site.x
    return site.call("slice", site.x, starts=starts, sizes=sizes, steps=steps)


@rule("reverse")
def _reverse(site: Site) -> Expr:
    return reversed_along(site, site.x, site.ints("dimensions"))


def reversed_along(site: Site, x: Expr, axes: Sequence[int]) -> Expr:
    """``x`` from the back to the front along some axes."""
    if not axes or not math.prod(x.shape):
        return x
    starts = [size - 1 if axis in axes else 0 for axis, size in enumerate(x.shape)]
    steps = [-1 if axis in axes else 1 for axis in range(len(x.shape))]
    return site.call("slice", x, starts=starts, sizes=x.shape, steps=steps)


@rule("pad")
def _pad(site: Site) -> Expr:
    """Elements before, behind and between those of each axis; a negative number takes away."""
    x, value = site.operands
    before, after = site.ints("edge_padding_low"), site.ints("edge_padding_high")
    between = site.ints("interior_padding")
    fill = splat(value)
    if fill is None:
        known = site.static(value)
        if known is None:
            return _pad_by(site, x, value, before, after, between)
        fill = known.reshape(-1)[0].item()
    if any(between) and fill != 0:
        return _pad_by(site, x, value, before, after, between)
    return crop_or_pad(site, dilated(site, x, [count + 1 for count in between]), list(before), list(after), fill)


def _pad_by(
    site: Site, x: Expr, value: Expr, before: tuple[int, ...], after: tuple[int, ...], between: tuple[int, ...]
) -> Expr:
    """By a value that is no constant, or between elements by one that is not zero: where a mask of ones says so."""
    factors = [count + 1 for count in between]
    mask = site.constant(np.ones(x.shape, np.uint8))
    inside = crop_or_pad(site, dilated(site, mask, factors), list(before), list(after), 0)
    placed = crop_or_pad(site, dilated(site, x, factors), list(before), list(after), 0)
    return site.where(site.cast(inside, "bool"), placed, site.expand(value, site.shape))


def dilated(site: Site, x: Expr, factors: list[int]) -> Expr:
    """factor - 1 zeros between neighbours of each axis."""
    first = next((axis for axis, factor in enumerate(factors) if factor > 1), None)
    return x if first is None else site.call("dilate", x, factors=tuple(factors[first:]))


@rule("get_dimension_size")
def _size(site: Site) -> Expr:
    return site.constant(np.array(site.x.shape[int(site.attrs["dimension"])], numpy_dtype(site.dtype)))
