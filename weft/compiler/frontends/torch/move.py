"""Operators that move data: shapes, parts, padding.

Values have no strides here, so a copy of a value is the value itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph import Array, Constant, Expr
from ..forms import crop_or_pad, transposed
from .site import RULES, Site, rule


@rule("clone.default", "alias.default", "detach.default", "lift_fresh_copy.default", "contiguous.default",
      "lift.default", "positive.default")  # fmt: skip
def _same(site: Site, x: Expr, *_: Any, **__: Any) -> Expr:
    return x


@rule("dropout.default")
def _dropout(site: Site, x: Expr, p: float, train: bool) -> Expr:
    if train and p:
        raise site.error(
            f"in training mode it drops elements at random (p = {p:g})", hint="call eval() before exporting"
        )
    return x


@rule("view.default", "_unsafe_view.default", "reshape.default", "view_copy.default")
def _view(site: Site, x: Expr, shape: Sequence[int]) -> Expr:
    return site.reshape(x, site.shape)


@rule("unsqueeze.default", "squeeze.dim", "squeeze.dims", "squeeze.default", "flatten.using_ints", "unflatten.int")
def _reshaped(site: Site, x: Expr, *_: Any) -> Expr:
    return site.reshape(x, site.shape)


@rule("permute.default")
def permute(site: Site, x: Expr, dims: Sequence[int]) -> Expr:
    perm = tuple(site.axis(dim, len(x.shape)) for dim in dims)
    return transposed(site.node, x) if perm == (1, 0) else site.transpose(x, perm)


@rule("transpose.int", "swapaxes.default")
def _transpose(site: Site, x: Expr, a: int, b: int) -> Expr:
    if not x.shape:
        return x
    perm = list(range(len(x.shape)))
    perm[a], perm[b] = perm[b], perm[a]
    return permute(site, x, perm)


@rule("t.default", "numpy_T.default")
def _turned(site: Site, x: Expr) -> Expr:
    return permute(site, x, tuple(reversed(range(len(x.shape)))))


@rule("expand.default", "broadcast_to.default")
def _expand(site: Site, x: Expr, size: Sequence[int], implicit: bool = False) -> Expr:
    return site.expand(x, site.shape)


@rule("repeat.default")
def _repeat(site: Site, x: Expr, repeats: Sequence[int]) -> Expr:
    whole = (*(1 for _ in range(len(repeats) - len(x.shape))), *x.shape)
    if 0 in repeats:
        return Constant(np.zeros(site.shape, site.like(0, x).value.dtype))
    result: Expr = site.onnx("Tile", site.reshape(x, whole), site.integers(repeats))
    return result


@rule("copy.default", "copy_.default")
def _copy(site: Site, target: Expr, source: Expr, non_blocking: bool = False) -> Expr:
    return site.expand(site.cast(source, site.dtype), site.shape)


@rule("cat.default", "concat.default")
def _cat(site: Site, parts: Sequence[Expr], dim: int = 0) -> Expr:
    """Tensors of shape (0,) are left out, as PyTorch does for the sake of old programs."""
    kept = [x for x in parts if x.shape != (0,)] or list(parts[:1])
    rank = len(kept[0].shape)
    return site.concat([site.cast(x, site.dtype) for x in kept], site.axis(dim, rank))


@rule("stack.default")
def _stack(site: Site, parts: Sequence[Expr], dim: int = 0) -> Expr:
    axis = site.axis(dim, len(site.shape))
    raised = [site.reshape(site.cast(x, site.dtype), (*x.shape[:axis], 1, *x.shape[axis:])) for x in parts]
    return site.concat(raised, axis)


def _range(size: int, start: int | None, end: int | None, step: int) -> range:
    return range(size)[slice(start, end, step)]


@rule("slice.Tensor", "slice_copy.Tensor")
def _slice(
    site: Site, x: Expr, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Expr:  # fmt: skip
    axis = site.axis(dim, len(x.shape))
    places = _range(x.shape[axis], start, end, step)
    return site.slice(x, axis, places.start if len(places) else 0, len(places), step)


@rule("select.int")
def _select(site: Site, x: Expr, dim: int, index: int) -> Expr:
    axis = site.axis(dim, len(x.shape))
    return site.reshape(site.slice(x, axis, index % x.shape[axis], 1), site.shape)


@rule("split_with_sizes.default", "split_with_sizes_copy.default")
def _split(site: Site, x: Expr, sizes: Sequence[int], dim: int = 0) -> tuple[Expr, ...]:
    axis, at, parts = site.axis(dim, len(x.shape)), 0, []
    for size in sizes:
        parts.append(site.slice(x, axis, at, size))
        at += size
    return tuple(parts)


@rule("split.Tensor", "chunk.default")
def _split_evenly(site: Site, x: Expr, size: int, dim: int = 0) -> tuple[Expr, ...]:
    axis = site.axis(dim, len(x.shape))
    whole = x.shape[axis]
    each = -(-whole // size) if site.op.startswith("aten.chunk") else size
    return _split(site, x, [min(each, whole - at) for at in range(0, whole, max(each, 1))] or [0], dim)


@rule("unbind.int")
def _unbind(site: Site, x: Expr, dim: int = 0) -> tuple[Expr, ...]:
    axis = site.axis(dim, len(x.shape))
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    return tuple(site.reshape(site.slice(x, axis, at, 1), rest) for at in range(x.shape[axis]))


@rule("flip.default")
def _flip(site: Site, x: Expr, dims: Sequence[int]) -> Expr:
    axes = set(site.axes(tuple(dims), len(x.shape))) if dims else set()
    if not axes or 0 in x.shape:
        return x
    starts = [size - 1 if i in axes else 0 for i, size in enumerate(x.shape)]
    steps = [-1 if i in axes else 1 for i in range(len(x.shape))]
    return site.call("slice", x, starts=starts, sizes=x.shape, steps=steps)


@rule("roll.default")
def _roll(site: Site, x: Expr, shifts: Sequence[int], dims: Sequence[int] = ()) -> Expr:
    if not dims:
        return site.reshape(_rolled(site, site.flat(x), 0, shifts[0]), x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        x = _rolled(site, x, site.axis(dim, len(x.shape)), shift)
    return x


def _rolled(site: Site, x: Expr, axis: int, shift: int) -> Expr:
    size = x.shape[axis]
    moved = shift % size if size else 0
    if not moved:
        return x
    parts = (site.slice(x, axis, size - moved, moved), site.slice(x, axis, 0, size - moved))
    return site.concat(parts, axis)


# Places that are known


def numbers(shape: Sequence[int]) -> Array:
    """The number of each element in row-major order."""
    return np.arange(math.prod(shape), dtype=np.int64).reshape(tuple(shape))


@rule("as_strided.default", "as_strided_copy.default")
def _as_strided(
    site: Site, x: Expr, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Expr:  # fmt: skip
    """Of a tensor as it lies when it is contiguous."""
    places = np.full(tuple(size), storage_offset or 0, np.int64)
    for axis, (count, step) in enumerate(zip(size, stride, strict=True)):
        places = places + (np.arange(count) * step).reshape([-1 if i == axis else 1 for i in range(len(size))])
    if places.size and places.max() >= math.prod(x.shape):
        raise site.error("it reads memory beyond its operand", hint="use ordinary slices and reshapes instead")
    return site.picked(x, places)


@rule("diagonal.default", "diagonal_copy.default")
def _diagonal(site: Site, x: Expr, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Expr:
    return site.picked(x, np.diagonal(numbers(x.shape), offset, dim1, dim2))


@rule("unfold.default", "unfold_copy.default")
def _unfold(site: Site, x: Expr, dim: int, size: int, step: int) -> Expr:
    if not x.shape:
        return site.reshape(x, (1,))
    axis = site.axis(dim, len(x.shape))
    windows = np.lib.stride_tricks.sliding_window_view(numbers(x.shape), size, axis)
    steps = [slice(None, None, step if i == axis else 1) for i in range(windows.ndim)]
    return site.picked(x, windows[tuple(steps)])


@rule("tril.default", "triu.default")
def _triangle(site: Site, x: Expr, diagonal: int = 0) -> Expr:
    result: Expr = site.onnx("Trilu", x, site.integers([diagonal]), upper=int(site.op.startswith("aten.triu")))
    return result


def _placed(site: Site, x: Expr, source: Expr, places: Array) -> Expr:
    """``x`` with ``source`` at the elements whose numbers are ``places``."""
    where = numbers(x.shape).reshape(-1)
    where[places.reshape(-1)] = where.size + np.arange(places.size)
    both = site.concat((site.flat(x), site.flat(site.cast(source, x.dtype))), 0)
    return site.picked(both, where.reshape(x.shape))


@rule("slice_scatter.default")
def _slice_scatter(
    site: Site, x: Expr, source: Expr, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Expr:
    axis = site.axis(dim, len(x.shape))
    size, places = x.shape[axis], _range(x.shape[axis], start, end, step)
    if not len(places):
        return x
    source = site.cast(source, x.dtype)
    if step == 1:
        parts = (site.slice(x, axis, 0, places.start), source, site.slice(x, axis, places.stop, size - places.stop))
        return site.concat([part for part in parts if part.shape[axis]], axis)
    return _placed(site, x, source, np.take(numbers(x.shape), list(places), axis))


@rule("select_scatter.default")
def _select_scatter(site: Site, x: Expr, source: Expr, dim: int, index: int) -> Expr:
    axis = site.axis(dim, len(x.shape))
    raised = site.reshape(source, (*source.shape[:axis], 1, *source.shape[axis:]))
    start = index % x.shape[axis]
    return _slice_scatter(site, x, raised, dim, start, start + 1)


@rule("diagonal_scatter.default")
def _diagonal_scatter(site: Site, x: Expr, source: Expr, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Expr:
    return _placed(site, x, source, np.diagonal(numbers(x.shape), offset, dim1, dim2))


@rule("as_strided_scatter.default")
def _as_strided_scatter(
    site: Site, x: Expr, source: Expr, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Expr:
    places = np.lib.stride_tricks.as_strided(
        numbers(x.shape).reshape(-1)[storage_offset or 0 :], tuple(size), tuple(8 * step for step in stride)
    )
    return _placed(site, x, source, places)


# Padding


@rule("constant_pad_nd.default")
def _pad(site: Site, x: Expr, pads: Sequence[int], value: float = 0.0) -> Expr:
    before, after = _both_sides(x, pads)
    return crop_or_pad(site.node, x, before, after, value)


def _both_sides(x: Expr, pads: Sequence[int]) -> tuple[list[int], list[int]]:
    """PyTorch names the last axis first, and for each what comes before and after it."""
    before, after = [0] * len(x.shape), [0] * len(x.shape)
    for number in range(len(pads) // 2):
        before[-1 - number], after[-1 - number] = pads[2 * number], pads[2 * number + 1]
    return before, after


@rule("reflection_pad1d.default", "reflection_pad2d.default", "reflection_pad3d.default",
      "replication_pad1d.default", "replication_pad2d.default", "replication_pad3d.default",
      "_pad_circular.default")  # fmt: skip
def _pad_by_itself(site: Site, x: Expr, pads: Sequence[int]) -> Expr:
    before, after = _both_sides(x, pads)
    mode = "reflect" if ".reflection" in site.op else "edge" if ".replication" in site.op else "wrap"
    result: Expr = site.onnx("Pad", x, site.integers(before + after), mode=mode)
    return result


@rule("pixel_shuffle.default")
def _pixel_shuffle(site: Site, x: Expr, factor: int) -> Expr:
    lead, (c, h, w) = x.shape[:-3], x.shape[-3:]
    split = site.reshape(x, (math.prod(lead), c // (factor * factor), factor, factor, h, w))
    return site.reshape(site.transpose(split, (0, 1, 4, 2, 5, 3)), site.shape)


@rule("pixel_unshuffle.default")
def _pixel_unshuffle(site: Site, x: Expr, factor: int) -> Expr:
    lead, (c, h, w) = x.shape[:-3], x.shape[-3:]
    split = site.reshape(x, (math.prod(lead), c, h // factor, factor, w // factor, factor))
    return site.reshape(site.transpose(split, (0, 1, 3, 5, 2, 4)), site.shape)


# Operators that are views in PyTorch have a form that copies, which is the same here.
for _view_of in ("alias.default", "detach.default", "expand.default", "permute.default", "select.int",
                 "split.Tensor", "squeeze.default", "squeeze.dim", "squeeze.dims", "t.default", "transpose.int",
                 "unbind.int", "unsqueeze.default"):  # fmt: skip
    _name, _, _overload = _view_of.partition(".")
    RULES[f"aten.{_name}_copy.{_overload}"] = RULES[f"aten.{_view_of}"]


@rule("narrow.default", "narrow_copy.default")
def _narrow(site: Site, x: Expr, dim: int, start: int, length: int) -> Expr:
    axis = site.axis(dim, len(x.shape))
    return site.slice(x, axis, start % max(x.shape[axis], 1) if start < 0 else start, length)
