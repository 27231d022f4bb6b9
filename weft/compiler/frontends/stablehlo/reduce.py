"""Operations that combine elements by a region: reductions, windows, sorting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...graph import Expr
from ...graph.dtypes import FLOATS
from ..forms import crop_or_pad
from .site import Inner, Region, Result, Site, rule, splat

REDUCED = {
    "add": "reduce_sum", "multiply": "reduce_product", "maximum": "reduce_max", "minimum": "reduce_min",
    "and": "reduce_min", "or": "reduce_max",
}  # fmt: skip
"""By the one operation of a region; of truth values ``and`` is the least and ``or`` the greatest."""

COMBINED = {"add": "add", "multiply": "multiply", "maximum": "maximum", "minimum": "minimum", "and": "and", "or": "or"}


def combination(site: Site, region: Region) -> str:
    """The one operation by which a region combines its two arguments."""
    names = region.names
    places = {("argument", 0), ("argument", 1)}
    if len(names) == 1 and names[0] in REDUCED and set(region.operations[0].operands) == places:
        return names[0]
    raise site.error(f"it combines elements by {', '.join(names) or 'nothing'}; known are {', '.join(REDUCED)}")


@rule("reduce")
def _reduce(site: Site) -> Result:
    axes = site.ints("dimensions")
    count = len(site.operands) // 2
    region = site.regions[0]
    if count == 2:
        return _place_of_extreme(site, axes, region)
    if count > 2:
        raise site.error(f"it combines {count} operands at once; known are one, and a number with its place")
    x, first = site.operands
    name = combination(site, region)
    if not axes:
        return x
    if name in ("and", "or") and site.dtype != "bool":
        raise site.error(f"bits of {site.dtype} are not combined by {name!r}")
    total = site.in_float32(x, lambda wide: site.call(f"nn.{REDUCED[name]}", wide, axes=axes, keepdims=False))
    return total if _is_neutral(name, splat(first), site.dtype) else site(COMBINED[name], total, first)


def _is_neutral(name: str, first: object, dtype: str) -> bool:
    """Whether what a reduction begins with changes nothing."""
    if first is None:
        return False
    match name:
        case "add":
            return first == 0
        case "multiply":
            return first == 1
        case "and":
            return bool(first)
        case "or":
            return not first
    return dtype in FLOATS and first == (-math.inf if name == "maximum" else math.inf)


def _place_of_extreme(site: Site, axes: Sequence[int], region: Region) -> list[Expr]:
    """The greatest or least element along one axis, the first of equals, and the number that stands at its place."""
    direction = _first_direction(region)
    if direction not in ("GT", "LT", "GE", "LE") or len(axes) != 1:
        raise site.error("it combines pairs by more than which is greater")
    values, numbers = site.operands[:2]
    op = "nn.arg_max" if direction in ("GT", "GE") else "nn.arg_min"
    place = site.call(op, values, axis=axes[0], keepdims=True)
    found = [site.call("gather_elements", each, place, axis=axes[0]) for each in (values, numbers)]
    return [site.reshape(each, kind.shape) for each, kind in zip(found, site.types, strict=True)]


def _first_direction(region: Region) -> str:
    """How the region compares the first operand's two elements with each other."""
    wanted = [("argument", 0), ("argument", len(_arguments(region)) // 2)]
    for each in region.operations:
        if each.name == "compare" and list(each.operands) == wanted:
            direction = str(each.attrs["comparison_direction"])
            if direction not in ("EQ", "NE"):
                return direction
    return ""


def _arguments(region: Region) -> set[int]:
    """The arguments that are used; a region of pairs uses them all."""
    return {place[1] for each in region.operations for place in each.operands if place[0] == "argument"}


@rule("reduce_window")
def _reduce_window(site: Site) -> Result:
    if len(site.operands) != 2:
        raise site.error("windows of several operands at once are not supported")
    x, first = site.operands
    rank = len(x.shape)
    name = combination(site, site.regions[0])
    window = site.ints("window_dimensions")
    strides, dilations = site.ints("window_strides", (1,) * rank), site.ints("window_dilations", (1,) * rank)
    pads = site.pairs("padding", rank)
    if set(site.ints("base_dilations", (1,) * rank)) - {1}:
        raise site.error("elements between those of its operand are not supported")
    start = splat(first)
    if not _is_neutral(name, start, site.dtype) and not (name == "maximum" and start is not None):
        raise site.error(f"windows of {name!r} that begin with {start} are not supported")
    slid = [axis for axis in range(rank) if window[axis] > 1 or strides[axis] > 1 or any(pads[axis])]
    if not slid:
        return x
    axis = slid[0]
    running = {(window[axis] - 1, 0): False, (0, window[axis] - 1): True}
    whole = len(slid) == 1 and window[axis] == x.shape[axis] and strides[axis] == dilations[axis] == 1
    if whole and pads[axis] in running and name in ("add", "multiply"):
        op = "nn.cumulative_sum" if name == "add" else "nn.cumulative_product"
        return site.call(op, x, axis=axis, exclusive=False, reverse=running[pads[axis]])
    if name not in ("add", "maximum", "minimum") or site.dtype not in FLOATS:
        raise site.error(f"windows of {name!r} of {site.dtype} are not supported")
    if name == "minimum":
        x = site("negative", x)
    pooled = site.in_float32(x, lambda wide: _pooled(site, wide, name, window, strides, dilations, pads, slid))
    return site("negative", pooled) if name == "minimum" else pooled


def _pooled(
    site: Site, x: Expr, name: str, window: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
    pads: Sequence[tuple[int, int]], slid: Sequence[int],
) -> Expr:  # fmt: skip
    """Windows over some axes as pooling of images whose channels are the others."""
    if len(slid) > 3:
        raise site.error(f"windows over {len(slid)} axes are not supported")
    rest = [axis for axis in range(len(x.shape)) if axis not in slid]
    fill = 0.0 if name == "add" else -math.inf
    x = crop_or_pad(site, x, [low for low, _ in pads], [high for _, high in pads], fill)
    order = [*rest, *slid]
    turned = site.transpose(x, order)
    images = site.reshape(turned, (*_two(turned.shape[: len(rest)]), *turned.shape[len(rest) :]))
    given: dict[str, Any] = {
        "kernel_shape": [window[axis] for axis in slid], "strides": [strides[axis] for axis in slid],
        "dilations": [dilations[axis] for axis in slid],
    }  # fmt: skip
    if name == "add":
        mean = site.onnx("AveragePool", images, **given)
        pooled = site("multiply", mean, float(math.prod(given["kernel_shape"])))
    else:
        pooled = site.onnx("MaxPool", images, **given)
    back = site.reshape(pooled, (*turned.shape[: len(rest)], *pooled.shape[2:]))
    return site.transpose(back, [order.index(axis) for axis in range(len(order))])


def _two(shape: Sequence[int]) -> tuple[int, int]:
    """A batch and channels of the axes that no window slides over."""
    return (1, 1) if not shape else (1, shape[0]) if len(shape) == 1 else (shape[0], math.prod(shape[1:]))


@rule("sort")
def _sort(site: Site) -> Result:
    """By the first operand, upwards or downwards, equal ones in their order; the others are moved along."""
    axis = int(site.attrs.get("dimension", -1)) % len(site.x.shape)
    direction = _sort_direction(site, site.regions[0])
    _, places = site.onnx(
        "TopK", site.x, site.integers([site.x.shape[axis]]), axis=axis, largest=int(direction == "GT"), outputs=2,
    )  # fmt: skip
    return [site.call("gather_elements", each, places, axis=axis) for each in site.operands]


def _sort_direction(site: Site, region: Region) -> str:
    """LT or GT, from the comparison that the region returns, where it looks at the first operand alone."""
    if not region.operations or _arguments(region) != {0, 1}:
        raise site.error("it sorts by several operands", hint="sort by one key, or by keys one after the other")
    compared = [each for each in region.operations if each.name == "compare"]
    last: Inner | None = compared[-1] if compared else None
    directions = {"LT": "LT", "LE": "LT", "GT": "GT", "GE": "GT"}
    if last is None or last.attrs["comparison_direction"] not in directions:
        raise site.error("it sorts by no order that is known")
    return directions[str(last.attrs["comparison_direction"])]


@rule("top_k")
def _top_k(site: Site) -> Result:
    values, places = site.onnx("TopK", site.x, site.integers([int(site.attrs["k"])]), axis=-1, outputs=2)
    return [values, site.cast(places, site.types[1].dtype)]
