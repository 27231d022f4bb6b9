"""Running results along an axis for which the graph has no operator: each element with all before it, combined in
steps of 1, 2, 4, ... elements (Hillis and Steele, Communications of the ACM 29, 1986)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...graph import Constant, Expr
from ..functions import log1p
from .site import Site, rule

Combine = Callable[[Sequence[Expr], Sequence[Expr]], Sequence[Expr]]
"""What stands for a run of elements, from what does for its first and for its second part."""


def running(site: Site, values: Sequence[Expr], axis: int, combine: Combine) -> Sequence[Expr]:
    """Of tensors of one shape that belong together: at each place, all up to it along ``axis`` combined."""
    size, step = values[0].shape[axis], 1
    while step < size:
        before = [site.slice(each, axis, 0, size - step) for each in values]
        made = combine(before, [site.slice(each, axis, step, size - step) for each in values])
        values = [site.concat([site.slice(each, axis, 0, step), new], axis)
                  for each, new in zip(values, made, strict=True)]  # fmt: skip
        step *= 2
    return values


@rule("cummax.default", "cummin.default")
def _extremes(site: Site, x: Expr, dim: int) -> tuple[Expr, Expr]:
    """With the place of each: the last one among equals. What is no number stays, from the first one on."""
    if not x.shape:
        return x, site.like(0, "int64")
    axis = site.axis(dim, len(x.shape))
    numbers = site.cast(x, "uint8") if x.dtype == "bool" else x
    counted = np.arange(x.shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(x.shape))])
    places = site.expand(Constant(counted), x.shape)
    is_float = x.dtype.startswith(("float", "bfloat"))
    largest = site.op.startswith("aten.cummax")

    def combine(first: Sequence[Expr], second: Sequence[Expr]) -> Sequence[Expr]:
        low, high = (first[0], second[0]) if largest else (second[0], first[0])
        later = site("or", site("less", low, high), site("equal", low, high))
        if is_float:
            none, later_none = (site("not", site("equal", each[0], each[0])) for each in (first, second))
            later = site("or", later_none, site("and", site("not", none), later))
        return [site.where(later, b, a) for a, b in zip(first, second, strict=True)]

    found, at = running(site, (numbers, places), axis, combine)
    return site.cast(found, site.dtype), at


@rule("logcumsumexp.default")
def _sums_of_exponentials(site: Site, x: Expr, dim: int) -> Expr:
    """Logarithms of the running sums; the larger of two stands before the bracket."""
    if not x.shape:
        return x
    axis = site.axis(dim, len(x.shape))

    def combine(first: Sequence[Expr], second: Sequence[Expr]) -> Sequence[Expr]:
        (a,), (b,) = first, second
        large = site("maximum", a, b)
        apart = site("negative", site("abs", site("subtract", a, b)))
        more = site("add", large, log1p(site, site("exp", apart)))
        alike = site("and", site("equal", a, b), site("is_infinite", a))  # whose difference is no number
        return [site.where(alike, a, more)]

    return site.in_float32(x, lambda wide: running(site, (wide,), axis, combine)[0])
