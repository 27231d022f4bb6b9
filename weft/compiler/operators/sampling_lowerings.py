"""Operators that read images at computed, fractional places as loops.

Where an element of the result reads is worked out once for all channels, axis by axis, in stages of its own: the
neighbours of its place (-1 for one that counts as 0) and their weights. The result is the sum over all neighbours.
Numbers are of double precision, as they are in NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_, mul
from typing import NamedTuple

from .. import tensor as te
from ..graph.ir import Call
from ..tensor import ir as tir
from ..tensor.view import Builder, Index, NotLoweredError, Read, View
from .index import read_place
from .sampling_gradients import CUBIC_COEFFICIENT


class _Neighbours(NamedTuple):
    """Along one axis of the image. Each is read at the index of a place and the number of a neighbour."""

    positions: View
    weights: View


def lower_grid_sample(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    (x, grid), rank = operands, len(call.shape) - 2
    out = (call.shape[0], *call.shape[2:])

    def coordinate(axis: int) -> Read:
        """The last one is that of the first axis."""
        return lambda index: grid[(*index, tir.Const(rank - 1 - axis))]

    neighbours = [_grid_neighbours(builder, call, coordinate(axis), out, x.shape[2 + axis]) for axis in range(rank)]
    taps = [builder.axis(each.weights.shape[-1], f"tap{axis}") for axis, each in enumerate(neighbours)]

    def value(*index: tir.Expr) -> te.Reduction:
        place = (index[0], *index[2:])
        return te.sum(_term(x, index[:2], place, neighbours, taps), taps)

    total = builder.reduction(call.shape, value, "total")
    return View(call.shape, x.dtype, lambda index: total[index].astype(x.dtype))


def _term(x: View, image: Index, place: Index, neighbours: Sequence[_Neighbours], taps: Sequence[tir.Expr]) -> tir.Expr:
    """A neighbour of a place times its weight."""
    found = [each.positions[(*place, tap)] for each, tap in zip(neighbours, taps, strict=True)]
    weight = reduce(mul, (each.weights[(*place, tap)] for each, tap in zip(neighbours, taps, strict=True)))
    inside = reduce(and_, (each >= 0 for each in found))
    pixel = x[(*image, *(tir.clamp(each, 0, size - 1) for each, size in zip(found, x.shape[2:], strict=True)))]
    return weight * tir.select(inside, pixel.astype("float64"), tir.Const(0, "float64"))


def _grid_neighbours(builder: Builder, call: Call, grid: Read, shape: tuple[int, ...], size: int) -> _Neighbours:
    mode, padding, corners = map(call.attr, ("mode", "padding", "align_corners"))
    count, first = {"nearest": (1, 0), "linear": (2, 0), "cubic": (4, -1)}[mode]
    low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)

    def place(index: Index) -> tir.Expr:
        unit = grid(index).astype("float64") + 1.0
        at = unit / 2.0 * float(size - 1) if corners else (unit * float(size) - 1.0) / 2.0
        if padding == "border" and mode != "cubic":
            return tir.clamp(at, 0.0, float(size - 1))
        return _reflected(at, low, high) if padding == "reflection" else at

    places = builder.stored(View(shape, "float64", place), "places")
    start = te.round if mode == "nearest" else te.floor

    def position(index: Index) -> tir.Expr:
        at = start(places[index[:-1]]) + (index[-1] + first).astype("float64")
        if padding == "reflection":
            at = _reflected(at, low, high)
        known = tir.clamp(tir.select(at.ne(at), tir.Const(0, "float64"), at), 0.0, float(size - 1)).astype("int64")
        return tir.select((at >= 0.0) & (at <= float(size - 1)), known, tir.Const(-1)) if padding == "zeros" else known

    def weight(index: Index) -> tir.Expr:
        fraction = places[index[:-1]] - te.floor(places[index[:-1]])
        if mode == "nearest":
            return tir.Const(1, "float64")
        if mode == "linear":
            return tir.select(index[-1].eq(0), 1.0 - fraction, fraction)
        return _cubic(fraction - (index[-1] + first).astype("float64"))

    return _Neighbours(
        builder.stored(View((*shape, count), "int64", position), "positions"),
        builder.stored(View((*shape, count), "float64", weight), "weights"),
    )


def _reflected(place: tir.Expr, low: float, high: float) -> tir.Expr:
    """Mirrored back into low..high."""
    span = high - low
    if span <= 0:
        return tir.Const(0, "float64")
    distance = tir.maximum(place - low, low - place)
    rest = distance - te.floor(distance / (2 * span)) * (2 * span)
    return tir.minimum(rest, 2 * span - rest) + low


def _cubic(distance: tir.Expr) -> tir.Expr:
    """The weight of a neighbour so far from a place, after `interpolate.cubic_weights`."""
    a = CUBIC_COEFFICIENT
    d = tir.maximum(distance, distance * -1.0)
    near = ((a + 2) * d - (a + 3)) * d * d + 1.0
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return tir.select(d <= 1.0, near, far)


def lower_roi_align(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, rois, batch = operands
    count = call.attr("sampling_ratio")
    if not count:
        raise NotLoweredError(f"{call.op} of as many samples as fit a region, which only a run knows")
    image = read_place(call, batch)
    neighbours = [_roi_neighbours(builder, call, rois, axis, x.shape[2 + axis]) for axis in (0, 1)]
    samples = [builder.axis(count, f"sample{axis}") for axis in (0, 1)]
    taps = [builder.axis(2, f"tap{axis}") for axis in (0, 1)]

    def term(index: Index) -> tir.Expr:
        number = image((index[0],), x.shape[0])
        pixel: list[tir.Expr] = []
        weights: list[tir.Expr] = []
        for axis, each in enumerate(neighbours):
            at = (index[0], index[2 + axis] * count + samples[axis], taps[axis])
            pixel.append(tir.clamp(each.positions[at], 0, x.shape[2 + axis] - 1))
            weights.append(each.weights[at])
        value = x[(number, index[1], *pixel)].astype("float64")
        return value * (weights[0] * weights[1])

    over = [*samples, *taps]
    how = te.sum if call.attr("mode") == "avg" else te.max
    found = builder.reduction(call.shape, lambda *index: how(term(index), over), "found")
    parts = float(count * count) if call.attr("mode") == "avg" else 1.0
    return View(call.shape, x.dtype, lambda index: (found[index] / parts).astype(x.dtype))


def _roi_neighbours(builder: Builder, call: Call, rois: View, axis: int, size: int) -> _Neighbours:
    """Of all samples of each region along an axis; the weight of one outside of the image is 0."""
    count, cells, half = call.attr("sampling_ratio"), call.attr("size")[axis], call.attr("half_pixel")
    shape = (rois.shape[0], cells * count)

    def edge(region: tir.Expr, number: int) -> tir.Expr:
        """Left, top, right, bottom."""
        scaled = rois[(region, tir.Const(number))].astype("float64") * float(call.attr("spatial_scale"))
        return scaled - (0.5 if half else 0.0)

    def place(index: Index) -> tir.Expr:
        start, end = edge(index[0], 1 - axis), edge(index[0], 3 - axis)
        extent = end - start if half else tir.maximum(end - start, 1.0)
        return start + (index[1].astype("float64") + 0.5) * (extent / float(cells)) / float(count)

    places = builder.stored(View(shape, "float64", place), "places")

    def inside(at: tir.Expr) -> tir.Expr:
        return tir.clamp(tir.select(at.ne(at), tir.Const(0, "float64"), at), 0.0, float(size - 1))

    def position(index: Index) -> tir.Expr:
        return tir.minimum(te.floor(inside(places[index[:-1]])).astype("int64") + index[-1], size - 1)

    def weight(index: Index) -> tir.Expr:
        at = places[index[:-1]]
        fraction = inside(at) - te.floor(inside(at))
        chosen = tir.select(index[-1].eq(0), 1.0 - fraction, fraction)
        return tir.select((at >= -1.0) & (at <= float(size)), chosen, tir.Const(0, "float64"))

    return _Neighbours(
        builder.stored(View((*shape, 2), "int64", position), "positions"),
        builder.stored(View((*shape, 2), "float64", weight), "weights"),
    )
