"""Operations that read and write at computed places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph import Constant, Expr
from ..forms import crop_or_pad
from .reduce import combination
from .site import Result, Site, rule


def _clamped(site: Site, start: Expr, last: int) -> Expr:
    """A start inside its axis: too far ones are moved to where the slice still fits."""
    known = site.static(start)
    if known is not None:
        return Constant(np.clip(known.astype(np.int64), 0, last))
    wide = site.cast(start, "int64")
    return site("minimum", site("maximum", wide, 0), last)


@rule("dynamic_slice")
def _dynamic_slice(site: Site) -> Expr:
    x, sizes = site.x, site.ints("slice_sizes")
    for axis, (start, size) in enumerate(zip(site.operands[1:], sizes, strict=True)):
        if size == x.shape[axis]:
            continue
        place = _clamped(site, start, x.shape[axis] - size)
        if isinstance(place, Constant):
            x = site.slice(x, axis, int(place.value.reshape(())), size)
        else:
            row = site("add", site.reshape(place, (1,)), site.constant(np.arange(size, dtype=np.int64)))
            x = site.call("gather", x, row, axis=axis)
    return x


@rule("dynamic_update_slice")
def _dynamic_update_slice(site: Site) -> Expr:
    x, update = site.operands[:2]
    axes = [axis for axis, size in enumerate(update.shape) if size != x.shape[axis]]
    if not math.prod(update.shape) or not axes:
        return update if math.prod(x.shape) == math.prod(update.shape) else x
    starts = [_clamped(site, site.operands[2 + axis], x.shape[axis] - update.shape[axis]) for axis in axes]
    if all(isinstance(start, Constant) for start in starts):
        return _placed(site, x, update, axes, [int(start.value.reshape(())) for start in starts])  # type: ignore[attr-defined]
    grid = np.stack(np.meshgrid(*(np.arange(update.shape[axis]) for axis in axes), indexing="ij"), axis=-1)
    corner = site.concat([site.reshape(start, (1,)) for start in starts], 0)
    places = site("add", corner, site.constant(grid.astype(np.int64)))
    order = [*axes, *(axis for axis in range(len(x.shape)) if axis not in axes)]
    set_ = site.call("scatter_nd", site.transpose(x, order), places, site.transpose(update, order), reduction="none")
    return site.transpose(set_, [order.index(axis) for axis in range(len(order))])


def _placed(site: Site, x: Expr, update: Expr, axes: Sequence[int], starts: Sequence[int]) -> Expr:
    """``update`` at known places: what lies before and behind it along each axis is put around it."""
    if not axes:
        return update
    axis, start = axes[0], starts[0]
    size = update.shape[axis]
    inner = _placed(site, site.slice(x, axis, start, size), update, axes[1:], starts[1:])
    end = start + size
    parts = [site.slice(x, axis, 0, start)] * (start > 0) + [inner]
    parts += [site.slice(x, axis, end, x.shape[axis] - end)] * (end < x.shape[axis])
    return site.concat(parts, axis)


def _starts(site: Site, indices: Expr, vector: int) -> Expr:
    """The indices as int64, each a vector along the last axis."""
    indices = site.cast(indices, "int64")
    if vector == len(indices.shape):
        return site.reshape(indices, (*indices.shape, 1))
    rest = [axis for axis in range(len(indices.shape)) if axis != vector]
    return site.transpose(indices, [*rest, vector])


def _windows(
    site: Site, starts: Expr, window: Sequence[int], batch_axes: Sequence[int]
) -> tuple[Expr, tuple[int, ...], tuple[int, ...]]:
    """For each element of each window its place (batch..., window..., axes): ``batch_axes`` are those of the batch
    whose own number comes behind the starts. The shapes of batch and windows are returned, too."""
    batch = starts.shape[:-1]
    count = len(window)
    places = site.reshape(starts, (*batch, *(1,) * count, starts.shape[-1]))
    if count and math.prod(window) > 1:
        grid = np.stack(np.meshgrid(*map(np.arange, window), indexing="ij"), axis=-1).astype(np.int64)
        places = site("add", places, site.constant(grid.reshape((1,) * len(batch) + grid.shape)))
    whole = (*batch, *window)
    columns = [site.expand(places, (*whole, starts.shape[-1]))]
    for axis in batch_axes:
        shape = [1] * (len(whole) + 1)
        shape[axis] = batch[axis]
        own = site.constant(np.arange(batch[axis], dtype=np.int64).reshape(shape))
        columns.append(site.expand(own, (*whole, 1)))
    return site.concat(columns, len(whole)), tuple(batch), tuple(window)


@rule("gather")
def _gather(site: Site) -> Expr:
    """Slices of one size at computed places, which are moved inside."""
    x, indices = site.operands
    numbers = site.attrs["dimension_numbers"]
    sizes = site.ints("slice_sizes")
    mapped, batching = list(numbers["start_index_map"]), list(numbers["operand_batching_dims"])
    starts = _starts(site, indices, numbers["index_vector_dim"])
    batch_axes = _batch_axes(numbers["start_indices_batching_dims"], numbers["index_vector_dim"])
    limits = np.array([x.shape[axis] - sizes[axis] for axis in mapped], np.int64)
    known = site.static(starts)
    if known is not None:
        starts = site.constant(np.clip(known, 0, limits))
    else:
        starts = site("minimum", site("maximum", starts, 0), site.constant(limits))
    axes = [*mapped, *batching]
    rest = [axis for axis in range(len(x.shape)) if axis not in axes]
    for axis in rest:
        x = x if sizes[axis] == x.shape[axis] else site.slice(x, axis, 0, sizes[axis])
    window = [sizes[axis] for axis in mapped]
    places, batch, _ = _windows(site, starts, window, batch_axes)
    picked: Expr = site.call("gather_nd", site.transpose(x, [*axes, *rest]), places)  # batch..., mapped..., rest...
    dropped = [*numbers["collapsed_slice_dims"], *batching]
    kept = [axis for axis in range(len(sizes)) if axis not in dropped]
    gone = [len(batch) + place for place, axis in enumerate(mapped) if axis in dropped]
    picked = site.reshape(picked, [size for axis, size in enumerate(picked.shape) if axis not in gone])
    order = [axis for axis in mapped if axis not in dropped] + [axis for axis in rest if axis not in dropped]
    return _offsets_placed(site, picked, len(batch), order, kept, numbers["offset_dims"])


def _batch_axes(axes: Sequence[int], vector: int) -> list[int]:
    """Axes of the indices counted without the one of the vectors."""
    return [axis - (axis > vector) for axis in axes]


def _offsets_placed(
    site: Site, x: Expr, batch: int, order: Sequence[int], kept: Sequence[int], offsets: Sequence[int]
) -> Expr:
    """(batch..., slices in ``order``) with the axes of slices, in ``kept`` order, at ``offsets``."""
    inner = iter([batch + list(order).index(axis) for axis in kept])
    outer = iter(range(batch))
    perm = [next(inner) if axis in offsets else next(outer) for axis in range(len(x.shape))]
    return site.transpose(x, perm)


REDUCTIONS = ("add", "multiply", "maximum", "minimum")


@rule("scatter")
def _scatter(site: Site) -> Result:
    """Updates at computed places; those that lie outside are left out."""
    if len(site.operands) != 3:
        raise site.error("several operands at once are not supported")
    x, indices, updates = site.operands
    numbers: dict[str, Any] = site.attrs["scatter_dimension_numbers"]
    mapped, batching = list(numbers["scattered_dims_to_operand_dims"]), list(numbers["input_batching_dims"])
    dropped = [*numbers["inserted_window_dims"], *batching]
    starts = _starts(site, indices, numbers["index_vector_dim"])
    batch_axes = _batch_axes(numbers["scatter_indices_batching_dims"], numbers["index_vector_dim"])
    kept = [axis for axis in range(len(x.shape)) if axis not in dropped]
    slots = list(numbers["update_window_dims"])
    sizes = {axis: updates.shape[slot] for axis, slot in zip(kept, slots, strict=True)}
    axes = [*mapped, *batching]
    rest = [axis for axis in range(len(x.shape)) if axis not in axes]
    short = [axis for axis in rest if sizes.get(axis, 1) != x.shape[axis]]  # windows that begin at 0: places, too
    if short:
        zeros = site.constant(np.zeros((*starts.shape[:-1], len(short)), np.int64))
        starts = site.concat([starts, zeros], len(starts.shape) - 1)
        mapped += short
        axes = [*mapped, *batching]
        rest = [axis for axis in rest if axis not in short]
    window = [sizes.get(axis, 1) for axis in mapped]
    inside = _inside(site, starts, [x.shape[axis] - size for axis, size in zip(mapped, window, strict=True)])
    places, batch, _ = _windows(site, starts, window, batch_axes)
    order = [axis for axis in [*mapped, *rest] if axis not in dropped]
    scattered = [axis for axis in range(len(updates.shape)) if axis not in slots]
    turned = site.transpose(updates, [*scattered, *(slots[kept.index(axis)] for axis in order)])
    turned = site.reshape(turned, (*batch, *window, *(x.shape[axis] for axis in rest)))
    region = site.regions[0]
    reduction = combination(site, region) if region.operations else "none"
    if reduction not in (*REDUCTIONS, "none"):
        raise site.error(f"elements that meet are not combined by {region.names[0]!r}")
    base = site.transpose(x, [*axes, *rest])
    if inside is not None:  # what lies outside is written behind the end, and cut off
        base = crop_or_pad(site, base, [0] * len(base.shape), [1] + [0] * (len(base.shape) - 1), 0)
        flag = site.reshape(inside, (*inside.shape, *(1,) * (len(window) + 1)))
        outside = np.zeros(len(axes), np.int64)
        outside[0] = base.shape[0] - 1
        places = site.where(site.expand(flag, places.shape), places, site.expand(site.constant(outside), places.shape))
    result: Expr = site.call("scatter_nd", base, places, turned, reduction=reduction)
    if inside is not None:
        result = site.slice(result, 0, 0, base.shape[0] - 1)
    whole = [*axes, *rest]
    return site.transpose(result, [whole.index(axis) for axis in range(len(whole))])


def _inside(site: Site, starts: Expr, limits: Sequence[int]) -> Expr | None:
    """Which windows lie inside; None if all of them are known to."""
    known = site.static(starts)
    bounds = np.array(limits, np.int64)
    if known is not None and bool(((known >= 0) & (known <= bounds)).all()):
        return None
    if not starts.shape[-1]:
        return None
    low = site("less_equal", site.like(0, starts), starts)
    high = site("less_equal", starts, site.constant(bounds))
    both = site.cast(site("and", low, high), "uint8")
    least = site.call("nn.reduce_min", both, axes=(len(starts.shape) - 1,), keepdims=False)
    return site.cast(least, "bool")
