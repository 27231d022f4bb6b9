"""Operators that read and write at computed places."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...graph import Constant, Expr
from ...graph.dtypes import limits, numpy_dtype
from .site import Site, category, rule


def _from_front(site: Site, index: Expr, size: int) -> Expr:
    """Places counted from the front, as int64: negative ones count from the end."""
    index = site.cast(index, "int64")
    if isinstance(index, Constant):
        return Constant(np.where(index.value < 0, index.value + size, index.value))
    return site.where(site("less", index, 0), site("add", index, size), index)


@rule("embedding.default")
def _embedding(site: Site, table: Expr, indices: Expr, *_: object) -> Expr:
    return site.call("gather", table, site.cast(indices, "int64"), axis=0)


@rule("index_select.default")
def _index_select(site: Site, x: Expr, dim: int, index: Expr) -> Expr:
    if not x.shape:
        return x
    axis = site.axis(dim, len(x.shape))
    flat = _from_front(site, site.flat(index), x.shape[axis])
    return site.call("gather", x, flat, axis=axis)


@rule("take.default")
def _take(site: Site, x: Expr, index: Expr) -> Expr:
    return site.call("gather", site.flat(x), _from_front(site, index, math.prod(x.shape)), axis=0)


@rule("gather.default")
def _gather(site: Site, x: Expr, dim: int, index: Expr, *, sparse_grad: bool = False) -> Expr:
    """The places may be fewer than the elements along the other axes."""
    if not x.shape:
        return site.reshape(x, index.shape)
    if not math.prod(index.shape):
        return Constant(np.zeros(index.shape, numpy_dtype(x.dtype)))
    axis = site.axis(dim, len(x.shape))
    kept = _cut(site, x, index.shape, axis)
    return site.call("gather_elements", kept, site.cast(index, "int64"), axis=axis)


def _cut(site: Site, x: Expr, shape: Sequence[int], but: int) -> Expr:
    """The first elements along every axis but one."""
    for i, size in enumerate(shape):
        if i != but:
            x = site.slice(x, i, 0, size)
    return x


# Indices of several axes, as in x[:, i, j]


def _known_masks(site: Site, x: Expr, indices: Sequence[Expr | None]) -> list[Expr | None]:
    """Masks, whose number of true elements decides the shape, as places; they must be constants."""
    result: list[Expr | None] = []
    for index in indices:
        if index is None or index.dtype not in ("bool", "uint8"):
            result.append(index)
            continue
        mask = site.known(index, "the mask that picks elements").astype(bool)
        result.extend(Constant(places.astype(np.int64)) for places in mask.nonzero())
    return result


def _places(site: Site, x: Expr, indices: Sequence[Expr | None]) -> tuple[tuple[int, ...], Expr]:
    """The axes that are indexed, and the places (..., number of axes)."""
    axes = tuple(i for i, index in enumerate(indices) if index is not None)
    given = [_from_front(site, index, x.shape[i]) for i, index in enumerate(indices) if index is not None]
    shape = np.broadcast_shapes(*(index.shape for index in given))
    raised = [site.reshape(site.expand(index, shape), (*shape, 1)) for index in given]
    return axes, site.concat(raised, len(shape))


@rule("index.Tensor", "_unsafe_index.Tensor")
def _index(site: Site, x: Expr, indices: Sequence[Expr | None]) -> Expr:
    known = _known_masks(site, x, indices)
    axes, places = _places(site, x, known)
    rank, rest = len(x.shape), tuple(i for i in range(len(x.shape)) if i not in axes)
    if len(axes) == 1:  # one axis: its places stand where it was
        flat = site.reshape(places, places.shape[:-1])
        return site.call("gather", x, flat, axis=axes[0])
    picked = site.call("gather_nd", site.transpose(x, (*axes, *rest)), places)
    own = len(places.shape) - 1
    if axes != tuple(range(axes[0], axes[0] + len(axes))):  # apart: their result comes first
        return picked
    before = sum(1 for axis in rest if axis < axes[0])
    perm = (*range(own, own + before), *range(own), *range(own + before, own + rank - len(axes)))
    return site.transpose(picked, perm)


@rule("index_put.default", "_unsafe_index_put.default", "_index_put_impl_.default")
def _index_put(
    site: Site, x: Expr, indices: Sequence[Expr | None], values: Expr, accumulate: bool = False, unsafe: bool = False
) -> Expr:
    mask = indices[0]
    if len(indices) == 1 and mask is not None and mask.dtype == "bool" and not mask.static:
        return _put_at_mask(site, x, mask, values, accumulate)
    axes, places = _places(site, x, _known_masks(site, x, indices))
    rest = tuple(i for i in range(len(x.shape)) if i not in axes)
    order = (*axes, *rest)
    own = places.shape[:-1]
    together = axes == tuple(range(axes[0], axes[0] + len(axes)))
    before = sum(1 for axis in rest if axis < axes[0]) if together else 0
    kept = tuple(x.shape[axis] for axis in rest)
    whole = site.expand(site.cast(values, x.dtype), (*kept[:before], *own, *kept[before:]))
    count = len(own)
    updates = site.transpose(
        whole, (*range(before, before + count), *range(before), *range(before + count, count + len(kept)))
    )
    placed = site.call("scatter_nd", site.transpose(x, order), places, updates,
                       reduction="add" if accumulate else "none")  # fmt: skip
    return site.transpose(placed, [order.index(axis) for axis in range(len(order))])


@rule("put.default")
def _put(site: Site, x: Expr, index: Expr, source: Expr, accumulate: bool = False) -> Expr:
    """At places that count all elements."""
    return site.reshape(_index_put(site, site.flat(x), [site.flat(index)], site.flat(source), accumulate), x.shape)


@rule("index_add.default", "index_copy.default")
def _index_add(site: Site, x: Expr, dim: int, index: Expr, source: Expr, *, alpha: float = 1) -> Expr:
    if alpha != 1:
        source = site("multiply", source, alpha)
    adds = site.op.startswith("aten.index_add")
    if not x.shape:
        return site("add", x, site.reshape(source, ())) if adds else site.reshape(source, ())
    before: list[Expr | None] = [None] * site.axis(dim, len(x.shape))
    return _index_put(site, x, [*before, site.flat(index)], source, accumulate=adds)


@rule("index_fill.int_Scalar", "index_fill.int_Tensor")
def _index_fill(site: Site, x: Expr, dim: int, index: Expr, value: Expr | float) -> Expr:
    filling = value if isinstance(value, Expr) else site.like(value, x)
    if not x.shape:
        return site.cast(filling, x.dtype)
    before: list[Expr | None] = [None] * site.axis(dim, len(x.shape))
    return _index_put(site, x, [*before, site.flat(index)], filling)


# Scatters


def scattered(site: Site, x: Expr, dim: int, index: Expr, source: Expr, reduction: str) -> Expr:
    if not x.shape:
        raised = scattered(site, site.reshape(x, (1,)), 0, site.reshape(index, (1,)), site.reshape(source, (1,)),
                           reduction)  # fmt: skip
        return site.reshape(raised, ())
    axis = site.axis(dim, len(x.shape))
    for i, size in enumerate(index.shape):  # what the places do not reach is not used
        source = site.slice(source, i, 0, size)
    return site.call("scatter_elements", x, site.cast(index, "int64"), source, axis=axis, reduction=reduction)


_BY_NAME = {"sum": "add", "prod": "multiply", "amax": "maximum", "amin": "minimum", "add": "add",
            "multiply": "multiply"}  # fmt: skip


@rule("scatter.src", "scatter.value", "scatter.reduce", "scatter.value_reduce", "scatter_add.default")
def _scatter(site: Site, x: Expr, dim: int, index: Expr, source: Expr | float, *, reduce: str | None = None) -> Expr:
    if not math.prod(index.shape):
        return x
    reduction = "add" if site.op.startswith("aten.scatter_add") else _BY_NAME[reduce] if reduce else "none"
    values = source if isinstance(source, Expr) else site.expand(site.like(source, x), index.shape)
    return scattered(site, x, dim, index, values, reduction)


@rule("scatter_reduce.two")
def _scatter_reduce(
    site: Site, x: Expr, dim: int, index: Expr, source: Expr, reduce: str, *, include_self: bool = True
) -> Expr:
    if not math.prod(index.shape):
        return x
    if not include_self:  # what is reached begins with what changes nothing
        low, high = limits(x.dtype)
        infinite = category(x.dtype) == 2
        begin = {"sum": 0, "mean": 0, "prod": 1, "amax": -math.inf if infinite else low,
                 "amin": math.inf if infinite else high}[reduce]  # fmt: skip
        x = scattered(site, x, dim, index, site.expand(site.like(begin, x), index.shape), "none")
    if reduce != "mean":
        return scattered(site, x, dim, index, source, _BY_NAME[reduce])
    ones = site.expand(site.like(1, "float32"), index.shape)
    counts = site.expand(site.like(1, "float32"), x.shape)
    if not include_self:
        zeros = site.expand(site.like(0, "float32"), index.shape)
        counts = scattered(site, counts, dim, index, zeros, "none")
    counts = site.cast(site("maximum", scattered(site, counts, dim, index, ones, "add"), 1), x.dtype)
    total = scattered(site, x, dim, index, source, "add")
    if category(x.dtype) == 2:
        return site("divide", total, counts)
    return site("divide", site("subtract", total, site("modulo", total, counts)), counts)  # towards -inf


@rule("index_reduce.default")
def _index_reduce(
    site: Site, x: Expr, dim: int, index: Expr, source: Expr, reduce: str, *, include_self: bool = True
) -> Expr:
    if not x.shape:
        x, source = site.reshape(x, (1,)), site.reshape(source, (1,))
    axis = site.axis(dim, len(x.shape))
    shape = [1] * len(x.shape)
    shape[axis] = math.prod(index.shape)
    places = site.expand(site.reshape(index, shape), source.shape)
    return site.reshape(_scatter_reduce(site, x, axis, places, source, reduce, include_self=include_self), site.shape)


@rule("_embedding_bag_forward_only.default", "_embedding_bag.default", without=(1, 2, 3))
def _embedding_bag(
    site: Site, table: Expr, indices: Expr, offsets: Expr, scale_grad_by_freq: bool = False, mode: int = 0,
    sparse: bool = False, per_sample_weights: Expr | None = None, include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Expr | None, ...]:  # fmt: skip
    """Sums (mode 0), means (1) or maxima (2) of rows: a bag begins at each offset."""
    indices, offsets = (site.cast(each, "int64") for each in (indices, offsets))
    bags, count = site.shape[0], indices.shape[0]
    starts = site.slice(offsets, 0, 0, bags)
    numbers = Constant(np.arange(count, dtype=np.int64).reshape(-1, 1))
    begun = site.cast(site("less_equal", site.reshape(starts, (1, bags)), numbers), "int64")
    own = site("subtract", site.call("nn.reduce_sum", begun, axes=(1,), keepdims=True), 1)
    if padding_idx >= 0:  # into a bag behind all others
        own = site.where(site("equal", site.reshape(indices, (-1, 1)), padding_idx), bags, own)
    rows: Expr = site.call("gather", table, indices, axis=0)
    if per_sample_weights is not None:
        rows = site("multiply", rows, site.reshape(site.cast(per_sample_weights, rows.dtype), (-1, 1)))

    def collected(values: Expr, begin: float, how: str) -> Expr:
        empty = site.expand(site.like(begin, values), (bags + 1, *values.shape[1:]))
        return site.slice(site.call("scatter_nd", empty, own, values, reduction=how), 0, 0, bags)

    if mode == 0:
        return collected(rows, 0.0, "add"), None, None, None
    members = collected(site.expand(site.like(1, rows), (count, 1)), 0.0, "add")
    if mode == 1:
        return site("divide", collected(rows, 0.0, "add"), site("maximum", members, 1)), None, None, None
    return site.where(site("equal", members, 0), 0.0, collected(rows, -math.inf, "maximum")), None, None, None


@rule("masked_scatter.default")
def _masked_scatter(site: Site, x: Expr, mask: Expr, source: Expr) -> Expr:
    """True elements take the source's, one after the other."""
    x, mask = site.expand(x, site.shape), site.expand(mask, site.shape)
    taken = site.call("gather", site.flat(source), _number_of_true(site, mask, math.prod(source.shape)), axis=0)
    return site.where(mask, site.reshape(site.cast(taken, x.dtype), x.shape), x)


def _number_of_true(site: Site, mask: Expr, count: int) -> Expr:
    """For each element of a mask, flattened, how many true ones stand before it, and at most ``count - 1``."""
    flat = site.cast(site.flat(mask), "int64")
    before = site("subtract", site.call("nn.cumulative_sum", flat, axis=0), 1)
    return site("minimum", site("maximum", before, 0), max(count - 1, 0))


def _put_at_mask(site: Site, x: Expr, mask: Expr, values: Expr, accumulate: bool) -> Expr:
    """A mask over the first axes: each true element takes the next row of the values, or their only one."""
    own, rest = len(mask.shape), x.shape[len(mask.shape) :]
    values = site.cast(values, x.dtype)
    if len(values.shape) > len(rest) and values.shape[0] != 1:
        rows = site.call("gather", values, _number_of_true(site, mask, values.shape[0]), axis=0)
        values = site.reshape(site.expand(rows, (math.prod(mask.shape), *rest)), x.shape)
    elif len(values.shape) > len(rest):
        values = site.reshape(values, values.shape[1:])
    chosen = site.reshape(mask, (*mask.shape, *(1 for _ in x.shape[own:])))
    new = site.expand(values, x.shape)
    total = site("or" if x.dtype == "bool" else "add", x, new) if accumulate else new
    return site.call("nn.where", chosen, total, x)
