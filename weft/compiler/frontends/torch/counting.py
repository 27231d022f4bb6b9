"""How often values come: modes and histograms."""

from __future__ import annotations

import math

import numpy as np

from ...graph import Constant, Expr
from .reduce import sorted_along
from .running import running
from .site import Site, category, rule


@rule("mode.default")
def _mode(site: Site, x: Expr, dim: int = -1, keepdim: bool = False) -> tuple[Expr, Expr]:
    """The value that comes most often along an axis, the smallest among such, and its last place. Sorted, equal values
    stand together: each counts from where they begin."""
    if not x.shape:
        return x, site.like(0, "int64")
    axis = site.axis(dim, len(x.shape))
    size = x.shape[axis]
    values, places = sorted_along(site, x, size, axis, False)
    before, after = site.slice(values, axis, 0, size - 1), site.slice(values, axis, 1, size - 1)
    counted = np.arange(size, dtype=np.int64).reshape([-1 if i == axis else 1 for i in range(len(x.shape))])
    numbers = site.expand(Constant(counted), x.shape)
    first = site.slice(numbers, axis, 0, 1)
    begins = site.where(site("equal", before, after), 0, site.slice(numbers, axis, 1, size - 1))
    (begun,) = running(site, [site.concat([first, begins], axis)], axis,
                       lambda a, b: [site("maximum", a[0], b[0])])  # fmt: skip
    chosen = site.call("nn.arg_max", site("subtract", numbers, begun), axis=axis, keepdims=True)
    value, place = (site.reshape(site.call("gather_elements", each, chosen, axis=axis), site.shape)
                    for each in (values, places))  # fmt: skip
    return value, place


@rule("histc.default")
def _histogram(site: Site, x: Expr, bins: int = 100, min: float = 0, max: float = 0) -> Expr:
    """How many elements lie in each of the bins between two ends; the last bin has the upper end. Where the ends are
    one number they are the least and the greatest element."""
    x = site.flat(x)
    if not math.prod(x.shape):
        return site.expand(site.like(0, site.dtype), site.shape)
    numbers = x if category(x.dtype) == 2 else site.cast(x, "float64")
    low: Expr = site.like(min, numbers)
    high: Expr = site.like(max, numbers)
    if min == max:
        low, high = (site.call(f"nn.reduce_{kind}", numbers, axes=(0,), keepdims=False) for kind in ("min", "max"))
        same = site("equal", low, high)
        low, high = (site.where(same, site("add", each, step), each) for each, step in ((low, -1), (high, 1)))
    inside = site("and", site("less_equal", low, numbers), site("less_equal", numbers, high))
    place = site("multiply", site("subtract", site.where(inside, numbers, low), low), bins)
    place = site("minimum", site("floor", site("divide", place, site("subtract", high, low))), bins - 1)
    own = site.where(inside, site.cast(place, "int64"), bins)  # what lies outside has a bin of its own, which is cut
    empty = site.expand(site.like(0, "int64"), (bins + 1,))
    ones = site.expand(site.like(1, "int64"), x.shape)
    counts = site.call("scatter_elements", empty, own, ones, axis=0, reduction="add")
    return site.cast(site.slice(counts, 0, 0, bins), site.dtype)
