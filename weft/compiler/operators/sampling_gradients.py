"""Images read at computed places, as graphs of other operators: what the gradients of such reads are made of.

A read is a sum over neighbours, whose weights are polynomials of how far the place is from them. Which neighbours those
are has a derivative of 0; a place that padding moves has the derivative of that move, 0 where it is held at a border.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import reduce
from math import prod

import numpy as np

from ..graph.dtypes import numpy_dtype
from ..graph.ir import Array, Constant, Expr
from ..graph.registry import NoGradientError
from .build import contract, nn
from .derivatives import expanded, like, part, reshaped, times, transposed

CUBIC_COEFFICIENT = -0.75
"""Of Keys' interpolation (1981), as ONNX has it."""


def grid_sample_parts(x: Expr, grid: Expr, mode: str, padding: str, align_corners: bool) -> Expr:
    """nn.grid_sample as other operators."""
    batch, channels, *sizes = x.shape
    outer = grid.shape[1:-1]
    places = []
    for axis, size in enumerate(sizes):
        unit = _column(grid, len(sizes) - 1 - axis)  # the last coordinate is the first axis
        if align_corners:
            place = times(plus(unit, 1), (size - 1) / 2)
        else:
            place = times(plus(times(plus(unit, 1), size), -1), 0.5)
        if padding == "border" and mode != "cubic":
            place = nn.clip(place, low=0.0, high=float(size - 1))
        elif padding == "reflection":
            place = _mirrored(place, *_mirrors(size, align_corners))
        places.append(reshaped(place, (batch, prod(outer))))
    found = _sampled(x, places, mode, padding, align_corners)
    return reshaped(found, (batch, channels, *outer))


def deform_conv2d_parts(
    x: Expr, w: Expr, offset: Expr, mask: Expr, strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int],
    groups: int, offset_groups: int,
) -> Expr:  # fmt: skip
    """nn.deform_conv2d as other operators: the windows' elements side by side, then a convolution over them whose steps
    are its kernel."""
    (batch, channels, *_), (_, _, *kernel), (_, _, *out) = x.shape, w.shape, offset.shape
    taps, parts = prod(kernel), channels // offset_groups
    images = reshaped(x, (batch * offset_groups, parts, *x.shape[2:]))
    moves = reshaped(offset, (batch * offset_groups, *kernel, 2, *out))
    places = []
    for axis in range(2):
        moved = reshaped(part_at(moves, 3, axis), (batch * offset_groups, *kernel, *out))
        starts = _line(moved, 3 + axis, strides[axis], -pads[axis])
        own = _line(moved, 1 + axis, dilations[axis], 0)
        places.append(reshaped(nn.add(nn.add(moved, own), starts), (batch * offset_groups, taps * prod(out))))
    met = _sampled(images, places, "linear", "zeros", align_corners=True)
    met = reshaped(met, (batch, offset_groups, parts, taps, prod(out)))
    met = nn.multiply(met, reshaped(mask, (batch, offset_groups, 1, taps, prod(out))))
    met = transposed(reshaped(met, (batch, channels, *kernel, *out)), (0, 1, 4, 2, 5, 3))
    met = reshaped(met, (batch, channels, out[0] * kernel[0], out[1] * kernel[1]))
    return nn.conv2d(met, w, strides=tuple(kernel), groups=groups)


def roi_align_parts(
    x: Expr, rois: Expr, batch: Expr, size: Sequence[int], spatial_scale: float, sampling_ratio: int, mode: str,
    half_pixel: bool,
) -> Expr:  # fmt: skip
    """nn.roi_align as other operators. NoGradientError where a computed region decides how many samples it has."""
    if sampling_ratio:
        return _regions(x, rois, batch, size, (sampling_ratio, sampling_ratio), spatial_scale, mode, half_pixel)
    if not isinstance(rois, Constant):
        raise NoGradientError("how many samples a region has follows from its size, which is computed; "
                              "give a sampling_ratio above 0")  # fmt: skip
    alike: dict[tuple[int, int], list[int]] = {}
    for number in range(rois.shape[0]):
        alike.setdefault(_counts(rois.value[number], size, spatial_scale, half_pixel), []).append(number)
    found = [
        _regions(x, Constant(rois.value[numbers]), contract.gather(batch, Constant(np.array(numbers)), axis=0), size,
                 samples, spatial_scale, mode, half_pixel)
        for samples, numbers in alike.items()
    ]  # fmt: skip
    order = np.argsort([number for numbers in alike.values() for number in numbers])
    return contract.gather(contract.concat(*found, axis=0), Constant(order.astype(np.int64)), axis=0)


def _counts(roi: Array, size: Sequence[int], spatial_scale: float, half_pixel: bool) -> tuple[int, int]:
    """How many samples of each axis a cell of a region has where no ratio says so: one a pixel."""
    left, top, right, bottom = (float(each) * spatial_scale for each in roi)
    down, across = (
        math.ceil((extent if half_pixel else max(extent, 1.0)) / cells)
        for extent, cells in zip((bottom - top, right - left), size, strict=True)
    )
    if down < 1 or across < 1:
        raise NoGradientError(f"the region {[float(each) for each in roi]} is empty")
    return down, across


def _regions(
    x: Expr, rois: Expr, batch: Expr, size: Sequence[int], samples: tuple[int, int], spatial_scale: float, mode: str,
    half_pixel: bool,
) -> Expr:  # fmt: skip
    """Regions whose cells have ``samples`` of each axis."""
    images = contract.gather(x, batch, axis=0)
    regions, channels, *sizes = images.shape
    corners = plus(times(rois, spatial_scale), -0.5 if half_pixel else 0.0)
    lines = []
    for axis, count in enumerate(size):
        start, end = (part_at(corners, 1, place) for place in (1 - axis, 3 - axis))  # left, top, right, bottom
        extent = nn.subtract(end, start)
        extent = extent if half_pixel else nn.maximum(extent, like(extent, 1))
        steps = times(extent, 1 / (count * samples[axis]))
        row = expanded(reshaped(steps, (regions, 1)), (regions, count * samples[axis]))
        lines.append(nn.add(nn.multiply(row, _line(row, 1, 1, 0.5)), start))
    across = [size[0] * samples[0], size[1] * samples[1]]
    shaped = [reshaped(lines[0], (regions, across[0], 1)), reshaped(lines[1], (regions, 1, across[1]))]
    places = [reshaped(expanded(line, (regions, *across)), (regions, prod(across))) for line in shaped]
    inside = reduce(nn.multiply, [_between(place, -1, length) for place, length in zip(places, sizes, strict=True)])
    held = [nn.clip(place, low=0.0, high=float(length - 1)) for place, length in zip(places, sizes, strict=True)]
    met = [nn.multiply(each, reshaped(inside, (regions, 1, prod(across))))
           for each in _neighbours(images, held, "linear", "border", align_corners=True)]  # fmt: skip
    found = reduce(nn.add if mode == "avg" else nn.maximum, met)
    cells = reshaped(found, (regions, channels, size[0], samples[0], size[1], samples[1]))
    return (nn.reduce_mean if mode == "avg" else nn.reduce_max)(cells, axes=(3, 5))


def plus(x: Expr, number: float) -> Expr:
    return nn.add(x, like(x, number))


def part_at(x: Expr, axis: int, place: int) -> Expr:
    """The slice at a place of an axis, which stays with one element."""
    starts, sizes = [0] * len(x.shape), list(x.shape)
    starts[axis], sizes[axis] = place, 1
    return part(x, starts, sizes)


def _column(grid: Expr, number: int) -> Expr:
    return reshaped(part_at(grid, len(grid.shape) - 1, number), grid.shape[:-1])


def _line(x: Expr, axis: int, step: float, start: float) -> Expr:
    """``start + step * i`` along an axis, of the type of ``x``."""
    shape = [1] * len(x.shape)
    shape[axis] = x.shape[axis]
    values = start + step * np.arange(x.shape[axis])
    return Constant(values.astype(numpy_dtype(x.dtype)).reshape(shape))


def _mirrors(size: int, align_corners: bool) -> tuple[float, float]:
    return (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)


def _mirrored(place: Expr, low: float, high: float) -> Expr:
    """Places outside of low..high mirrored back into it."""
    span = high - low
    if span <= 0:
        return times(place, 0)
    distance = nn.modulo(nn.abs(plus(place, -low)), like(place, 2 * span))
    back = nn.subtract(like(place, 2 * span), distance)
    return plus(nn.where(nn.less(like(place, span), distance), back, distance), low)


def _near(distance: Expr) -> Expr:
    a = CUBIC_COEFFICIENT
    inner = plus(times(distance, a + 2), -(a + 3))
    return plus(nn.multiply(nn.multiply(inner, distance), distance), 1)


def _far(distance: Expr) -> Expr:
    a = CUBIC_COEFFICIENT
    inner = plus(nn.multiply(plus(times(distance, a), -5 * a), distance), 8 * a)
    return plus(nn.multiply(inner, distance), -4 * a)


def _weights(fraction: Expr, mode: str) -> list[Expr]:
    """Of the neighbours of a place ``fraction`` behind one of them."""
    rest = nn.subtract(like(fraction, 1), fraction)
    if mode == "linear":
        return [rest, fraction]
    return [_far(plus(fraction, 1)), _near(fraction), _near(rest), _far(plus(rest, 1))]


def _sampled(x: Expr, places: Sequence[Expr], mode: str, padding: str, align_corners: bool) -> Expr:
    """x (N, C, sizes...) at places (N, P), one tensor for each axis -> (N, C, P)."""
    if mode == "nearest":
        return _read(x, [nn.round(place) for place in places], padding, align_corners)
    return reduce(nn.add, _neighbours(x, places, mode, padding, align_corners))


def _neighbours(x: Expr, places: Sequence[Expr], mode: str, padding: str, align_corners: bool) -> list[Expr]:
    """The neighbours of places (N, P), each (N, C, P) and times its weight."""
    floors = [nn.floor(place) for place in places]
    weights = [_weights(nn.subtract(place, floor), mode) for place, floor in zip(places, floors, strict=True)]
    first = -1 if mode == "cubic" else 0
    parts: list[Expr] = []
    for corner in itertools.product(range(len(weights[0])), repeat=len(places)):
        weight = reduce(nn.multiply, [weights[axis][k] for axis, k in enumerate(corner)])
        at = [plus(floor, first + k) for floor, k in zip(floors, corner, strict=True)]
        found = _read(x, at, padding, align_corners)
        parts.append(nn.multiply(found, reshaped(weight, (x.shape[0], 1, weight.shape[1]))))
    return parts


def _between(place: Expr, low: float, high: float) -> Expr:
    """1 where a place is in low..high, 0 elsewhere."""
    both = nn.and_(nn.less_equal(like(place, low), place), nn.less_equal(place, like(place, high)))
    return nn.cast(both, to=place.dtype)


def _read(x: Expr, places: Sequence[Expr], padding: str, align_corners: bool) -> Expr:
    """x (N, C, sizes...) at whole places -> (N, C, P); ``padding`` says what lies outside."""
    batch, channels, *sizes = x.shape
    count = places[0].shape[1]
    index, inside = None, None
    for place, size in zip(places, sizes, strict=True):
        if padding == "reflection":
            place = _mirrored(place, *_mirrors(size, align_corners))
        own = nn.cast(nn.clip(place, low=0.0, high=float(size - 1)), to="int64")
        index = own if index is None else nn.add(nn.multiply(index, like(index, size)), own)
        here = nn.cast(_between(place, 0, size - 1), to=x.dtype)
        inside = here if inside is None else nn.multiply(inside, here)
    assert index is not None
    assert inside is not None
    wide = expanded(reshaped(index, (batch, 1, count)), (batch, channels, count))
    found = contract.gather_elements(reshaped(x, (batch, channels, prod(sizes))), wide, axis=2)
    return nn.multiply(found, reshaped(inside, (batch, 1, count))) if padding == "zeros" else found
