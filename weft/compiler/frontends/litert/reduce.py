"""Sums, means, extremes and places of these along axes."""

from __future__ import annotations

from ...graph import Expr
from .site import Held, Result, Site, rule

_OPERATORS = {"MEAN": "nn.reduce_mean", "SUM": "nn.reduce_sum", "REDUCE_PROD": "nn.reduce_product",
              "REDUCE_MAX": "nn.reduce_max", "REDUCE_MIN": "nn.reduce_min", "REDUCE_ANY": "nn.reduce_max",
              "REDUCE_ALL": "nn.reduce_min"}  # fmt: skip


def without(held: Held, reduced: Expr, axes: tuple[int, ...], kept: bool) -> Held:
    """What stays of a value's order when axes of the file's tensor are reduced, or kept with size 1."""
    if kept:
        return Held(reduced, held.order)
    left = [axis for axis in held.order if axis not in axes]
    return Held(reduced, tuple(sorted(left).index(axis) for axis in left))


@rule(*_OPERATORS)
def _reduce(site: Site) -> Result:
    held = site.real(0)
    rank = len(held.order)
    axes = tuple(sorted({site.axis(each, rank) for each in site.numbers(1, "the axes")})) if rank else ()
    kept = bool(site.option("keep_dims"))
    if not axes:
        return held
    places = tuple(sorted(held.place(axis) for axis in axes))
    return without(held, site.call(_OPERATORS[site.op], held.expr, axes=places, keepdims=kept), axes, kept)


@rule("ARG_MAX", "ARG_MIN")
def _place(site: Site) -> Result:
    held = site.held(0)
    axis = site.axis(site.numbers(1, "the axis")[0], len(held.order))
    op = "nn.arg_max" if site.op == "ARG_MAX" else "nn.arg_min"
    found = site.call(op, held.expr, axis=held.place(axis), keepdims=False)
    return without(held, site.cast(found, site.results[0].element), (axis,), False)


@rule("CUMSUM")
def _running_sum(site: Site) -> Result:
    held = site.real(0)
    axis = site.axis(site.numbers(1, "the axis")[0], len(held.order))
    total = site.call(
        "nn.cumulative_sum", held.expr, axis=held.place(axis), exclusive=bool(site.option("exclusive")),
        reverse=bool(site.option("reverse")),
    )  # fmt: skip
    return Held(total, held.order)


@rule("TOPK_V2")
def _largest(site: Site) -> Result | tuple[Result, ...]:
    x = site.raw(0)
    count = site.numbers(1, "the count")[0]
    if not x.shape or not 0 <= count <= x.shape[-1]:
        raise site.error(f"{list(x.shape)} has no {count} elements in a row")
    places = site.call("top_k", x, k=count, axis=len(x.shape) - 1)
    return (site.call("gather_elements", x, places, axis=len(x.shape) - 1),
            site.cast(places, site.results[1].element if len(site.results) > 1 else "int32"))  # fmt: skip
