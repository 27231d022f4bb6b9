"""SVDF: a dense layer over the last steps of a sequence, of low rank, as keyword spotters have it.

A filter is a product with a row of weights at each step, whose last results are kept (``state``), and a second one with
weights over these. The sum of ``rank`` filters is a result.
"""

from __future__ import annotations

import numpy as np

from ...graph import Expr
from ...graph.dtypes import FLOATS
from .fixed import scaled_twice
from .site import Result, Site, rule


@rule("SVDF")
def _svdf(site: Site) -> tuple[Result, ...]:
    """The results (N, units), and the state (N, filters * steps) after them: as it was, a step on."""
    x, features, times, state = (site.raw(index) for index in (0, 1, 2, 4))
    rank = int(site.option("rank"))
    if not (len(x.shape) == len(features.shape) == len(times.shape) == 2):
        raise site.error(f"its operands must be matrices, not {x.type}, {features.type} and {times.type}")
    (batch, width), (filters, depth), (rows, steps) = x.shape, features.shape, times.shape
    if depth != width or rows != filters or rank < 1 or filters % rank:
        raise site.error(f"{features.type} and {times.type} of rank {rank} do not fit {x.type}")
    if state.shape not in ((batch, filters * steps), (batch, filters, steps)):
        raise site.error(f"its state must be [{batch}, {filters * steps}], not {list(state.shape)}")
    whole = x.dtype in FLOATS
    now = _features(site, x, features) if whole else _integer_features(site, x, features)
    past = site.reshape(state, (batch, filters, steps))
    if past.dtype != now.dtype:
        raise site.error(f"its state is {past.dtype}, but its filters give {now.dtype}")
    kept = [site.slice(past, 2, 0, steps - 1)] if steps > 1 else []
    seen = site.concat([*kept, site.reshape(now, (batch, filters, 1))], 2)
    weights = site.real(2).expr if whole else times
    result = (_sums if whole else _integer_sums)(site, seen, weights, filters // rank, rank)
    none = site.like(np.zeros((batch, filters, 1)), seen)
    after = site.concat([*([site.slice(seen, 2, 1, steps - 1)] if steps > 1 else []), none], 2)
    return result, site.reshape(after, state.shape)


def _features(site: Site, x: Expr, features: Expr) -> Expr:
    weights = site.cast(site.real(1).expr, x.dtype)
    return site.call("nn.matmul", x, site.transpose(weights, (1, 0)))


def _sums(site: Site, seen: Expr, weights: Expr, units: int, rank: int) -> Expr:
    products = site("multiply", seen, site.cast(weights, seen.dtype))
    by_unit = site.reshape(products, (seen.shape[0], units, rank * seen.shape[2]))
    total: Expr = site.call("nn.reduce_sum", by_unit, axes=(2,), keepdims=False)
    if site.has(3):
        total = site("add", total, site.cast(site.real(3).expr, seen.dtype))
    return site.activated(total)


def _integer_features(site: Site, x: Expr, features: Expr) -> Expr:
    """int16 in the scale of the state."""
    if x.dtype != "int8" or features.dtype != "int8" or site.raw(2).dtype != "int16":
        raise site.error(f"it is read with int8 operands and int16 weights over time, not with {x.type}, "
                         f"{features.type} and {site.raw(2).type}")  # fmt: skip
    steps = site("subtract", site.cast(x, "int32"), site.zero(0))
    total: Expr = site.call("nn.matmul", steps, site.transpose(site.cast(features, "int32"), (1, 0)))
    scaled = scaled_twice(site, total, site.scale(0) * site.scale(1) / site.scale(4))
    return site.cast(site("minimum", site("maximum", scaled, -(1 << 15)), (1 << 15) - 1), "int16")


def _integer_sums(site: Site, seen: Expr, weights: Expr, units: int, rank: int) -> Expr:
    products = site("multiply", site.cast(seen, "int32"), site.cast(weights, "int32"))
    by_unit = site.reshape(products, (seen.shape[0], units, rank * seen.shape[2]))
    total: Expr = site.call("nn.reduce_sum", by_unit, axes=(2,), keepdims=False)
    if site.has(3):
        total = site("add", total, site.cast(site.raw(3), "int32"))
    target = site.results[0].quantisation
    if target is None or target.scales.size != 1 or site.results[0].element != "int8":
        raise site.error("its result must be int8 with one scale")
    scale, zero = site.parameters(target, "int8")
    scaled = scaled_twice(site, total, site.scale(4) * site.scale(2) / float(scale.value))
    moved = site("add", scaled, int(zero.value))
    return site.cast(site("minimum", site("maximum", moved, -128), 127), "int8")
