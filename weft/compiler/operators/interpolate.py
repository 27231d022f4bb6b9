"""Operators that read images at computed, fractional places."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph.dtypes import FLOATS
from ..graph.gradient import through
from ..graph.ir import Array, Attrs, Call, TensorType
from ..graph.registry import REQUIRED, Family, Fusion, Operator, call, register
from .convolution import convolution_macs
from .meanings import rounded_once
from .reasons import NOT_LOWERED
from .samples import IMAGE, indices, sample_of, variable
from .sampling_gradients import CUBIC_COEFFICIENT, deform_conv2d_parts, grid_sample_parts, roi_align_parts
from .sampling_lowerings import lower_grid_sample, lower_roi_align
from .type_rules import conv_type, integer, ints, require, require_dtype

_MODES = ("linear", "nearest", "cubic")
_PADDINGS = ("zeros", "border", "reflection")


def cubic_weights(fraction: Array, coefficient: float = CUBIC_COEFFICIENT) -> list[Array]:
    """Weights of the four neighbours at -1, 0, 1, 2 of a place ``fraction`` behind neighbour 0 (Keys, 1981)."""
    a, t = coefficient, fraction

    def near(d: Array) -> Array:
        return np.asarray(((a + 2) * d - (a + 3)) * d * d + 1)

    def far(d: Array) -> Array:
        return np.asarray(((a * d - 5 * a) * d + 8 * a) * d - 4 * a)

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _reflect(place: Array, low: float, high: float) -> Array:
    """Places outside of low..high mirrored back into it."""
    span = high - low
    if span <= 0:
        return np.zeros_like(place)
    distance = np.abs(place - low) % (2 * span)
    return np.asarray(low + np.where(distance > span, 2 * span - distance, distance))


def _inside(place: Array, size: int) -> Array:
    """Places limited to 0..size - 1; NaN counts as 0."""
    return np.asarray(np.clip(np.nan_to_num(place, nan=0.0), 0, size - 1))


def _read(x: Array, places: Sequence[Array], padding: str, align_corners: bool) -> Array:
    """x (C, sizes...) at whole places, one array a spatial axis -> (C, ...); ``padding`` says what lies outside."""
    inside = np.ones(places[0].shape, bool)
    indices: list[Any] = [slice(None)]
    for place, size in zip(places, x.shape[1:], strict=True):
        if padding == "reflection":
            low, high = (0, size - 1) if align_corners else (-0.5, size - 0.5)
            place = _reflect(place, low, high)
        inside &= (place >= 0) & (place <= size - 1) | (padding != "zeros")
        indices.append(_inside(place, size).astype(np.int64))
    return np.where(inside, x[tuple(indices)], 0)


def _sample(x: Array, places: Sequence[Array], mode: str, padding: str, align_corners: bool) -> Array:
    """x (C, sizes...) interpolated at fractional places, one array a spatial axis -> (C, ...)."""
    if mode == "nearest":
        return _read(x, [np.rint(place) for place in places], padding, align_corners)
    floors = [np.floor(place) for place in places]
    fractions = [place - floor for place, floor in zip(places, floors, strict=True)]
    first = -1 if mode == "cubic" else 0
    weights = [cubic_weights(t) if mode == "cubic" else [1 - t, t] for t in fractions]
    total = np.zeros((x.shape[0], *places[0].shape), x.dtype)
    for corner in itertools.product(range(len(weights[0])), repeat=len(places)):
        weight = np.prod([weights[axis][k] for axis, k in enumerate(corner)], axis=0)
        at = [floor + first + k for floor, k in zip(floors, corner, strict=True)]
        total += weight * _read(x, at, padding, align_corners)
    return total


def _grid_sample_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, grid = operands
    require_dtype(x, "the input", *FLOATS)
    require_dtype(grid, "the grid", *FLOATS)
    require(x.rank >= 3 and grid.rank == x.rank, f"{x} and the grid {grid} do not fit")
    require(grid.shape[0] == x.shape[0] and grid.shape[-1] == x.rank - 2, f"{x} and the grid {grid} do not fit")
    require(attrs["mode"] in _MODES, f"mode must be one of {_MODES}, not {attrs['mode']!r}")
    require(attrs["padding"] in _PADDINGS, f"padding must be one of {_PADDINGS}, not {attrs['padding']!r}")
    require(attrs["mode"] != "cubic" or x.rank == 4, "cubic sampling is for images (N, C, H, W)")
    return TensorType((*x.shape[:2], *grid.shape[1:-1]), x.dtype)


def _grid_sample(x: Array, grid: Array, mode: str, padding: str, align_corners: bool) -> Array:
    sizes = x.shape[2:]
    result = np.empty((*x.shape[:2], *grid.shape[1:-1]), np.float64)
    for n in range(x.shape[0]):
        places = []
        for axis, size in enumerate(sizes):
            unit = grid[n, ..., len(sizes) - 1 - axis].astype(np.float64)  # the last coordinate is the first axis
            place = (unit + 1) / 2 * (size - 1) if align_corners else ((unit + 1) * size - 1) / 2
            if padding == "border" and mode != "cubic":  # whose neighbours are held at the border, each by itself
                place = np.clip(place, 0, size - 1)
            elif padding == "reflection":
                place = _reflect(place, *((0, size - 1) if align_corners else (-0.5, size - 0.5)))
            places.append(place)
        result[n] = _sample(x[n].astype(np.float64), places, mode, padding, align_corners)
    return result.astype(x.dtype)


def _roi_align_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, rois, batch = operands
    require_dtype(x, "the input", *FLOATS)
    require_dtype(rois, "the regions", x.dtype)
    require_dtype(batch, "the batch indices", "int64")
    fits = x.rank == 4 and rois.shape == (*batch.shape, 4) and batch.rank == 1
    require(fits, f"{x}, the regions {rois} and the batch indices {batch} do not fit")
    integer(attrs, "sampling_ratio", 0, 1 << 16)
    require(attrs["mode"] in ("avg", "max"), f"mode must be 'avg' or 'max', not {attrs['mode']!r}")
    return TensorType((rois.shape[0], x.shape[1], *ints(attrs, "size", 2)), x.dtype)


def _bilinear(x: Array, rows: Array, columns: Array) -> tuple[Array, Array]:
    """The four weighted neighbours (4, C, R, K) of x (C, H, W), and their weights (4, R, K); 0 outside of the image."""
    height, width = x.shape[1:]
    inside = ((rows >= -1) & (rows <= height))[:, None] & ((columns >= -1) & (columns <= width))[None]
    y, z = _inside(rows, height), _inside(columns, width)
    top, left = np.floor(y).astype(np.int64), np.floor(z).astype(np.int64)
    bottom, right = np.minimum(top + 1, height - 1), np.minimum(left + 1, width - 1)
    ty, tz = (y - top)[:, None], (z - left)[None]
    weights = np.stack([(1 - ty) * (1 - tz), (1 - ty) * tz, ty * (1 - tz), ty * tz]) * inside
    corners = [x[:, r][:, :, c] for r in (top, bottom) for c in (left, right)]
    return np.stack(corners), weights


def _roi_align(
    x: Array,
    rois: Array,
    batch: Array,
    size: Sequence[int],
    spatial_scale: float,
    sampling_ratio: int,
    mode: str,
    half_pixel: bool,
) -> Array:
    result = np.empty((len(batch), x.shape[1], *size), np.float64)
    image = x.astype(np.float64)
    shift = 0.5 if half_pixel else 0.0
    for n, (roi, b) in enumerate(zip(rois.astype(np.float64) * spatial_scale - shift, batch, strict=True)):
        left, top, right, bottom = roi
        extent = [bottom - top, right - left] if half_pixel else [max(bottom - top, 1.0), max(right - left, 1.0)]
        steps = [extent[i] / size[i] for i in (0, 1)]
        counts = [sampling_ratio or int(np.ceil(extent[i] / size[i])) for i in (0, 1)]
        rows, columns = (
            start + (np.arange(size[i] * counts[i]) + 0.5) * steps[i] / counts[i] for i, start in enumerate((top, left))
        )
        corners, weights = _bilinear(image[b], rows, columns)
        weighted = corners * weights[:, None]
        samples = weighted.sum(axis=0) if mode == "avg" else weighted.max(axis=0)
        cells = samples.reshape(-1, size[0], counts[0], size[1], counts[1])
        result[n] = cells.mean(axis=(2, 4)) if mode == "avg" else cells.max(axis=(2, 4))
    return result.astype(x.dtype)


def _deform_conv_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, w, offset, mask = operands
    for operand in operands:
        require_dtype(operand, "an operand", *FLOATS)
        require(operand.dtype == x.dtype, f"operands differ in type: {x} and {operand}")
    result = conv_type(x, w, attrs, x.dtype)
    places = integer(attrs, "offset_groups", 1, x.shape[1]) * w.shape[2] * w.shape[3]
    require(x.shape[1] % int(str(attrs["offset_groups"])) == 0, f"the offset groups do not divide {x}")
    for name, operand, count in (("offsets", offset, 2 * places), ("mask", mask, places)):
        wanted = TensorType((x.shape[0], count, *result.shape[2:]), x.dtype)
        require(operand == wanted, f"the {name} must be {wanted}, not {operand}")
    return result


def _deform_conv(
    x: Array,
    w: Array,
    offset: Array,
    mask: Array,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    offset_groups: int,
) -> Array:
    batch, (out_h, out_w), (kernel_h, kernel_w) = x.shape[0], offset.shape[2:], w.shape[2:]
    kernels = w.astype(np.float64).reshape(groups, w.shape[0] // groups, *w.shape[1:])
    moves = offset.astype(np.float64).reshape(batch, offset_groups, kernel_h, kernel_w, 2, out_h, out_w)
    factors = mask.astype(np.float64).reshape(batch, offset_groups, kernel_h, kernel_w, 1, out_h, out_w)
    images = x.astype(np.float64).reshape(batch, offset_groups, -1, *x.shape[2:])
    result = np.zeros((batch, groups, w.shape[0] // groups, out_h * out_w))
    rows, columns = np.meshgrid(np.arange(out_h) * strides[0] - pads[0], np.arange(out_w) * strides[1] - pads[1],
                                indexing="ij")  # fmt: skip
    for n, (i, j) in itertools.product(range(batch), itertools.product(range(kernel_h), range(kernel_w))):
        met = []
        for g in range(offset_groups):
            down, right = moves[n, g, i, j]
            places = [rows + i * dilations[0] + down, columns + j * dilations[1] + right]
            met.append(_sample(images[n, g], places, "linear", "zeros", True) * factors[n, g, i, j])
        result[n] += kernels[:, :, :, i, j] @ np.concatenate(met).reshape(groups, -1, out_h * out_w)
    return result.reshape(batch, w.shape[0], out_h, out_w).astype(x.dtype)


def _sample_grid_sample(dtype: str) -> Call:
    return call("nn.grid_sample", variable(dtype, 1, 2, 4, 5), variable(dtype, 1, 3, 2, 2, name="grid"))


def _sample_roi_align(dtype: str) -> Call:
    rois = variable(dtype, 2, 4, name="rois")
    return call("nn.roi_align", variable(dtype, 1, 2, 6, 6), rois, indices([0, 0]), size=(2, 2), sampling_ratio=2)


_SAMPLED: dict[str, Any] = {
    "family": Family.SOURCE, "fusion": Fusion.OPAQUE,
}  # fmt: skip
register(Operator(
    "nn.deform_conv2d", "x w offset mask", types=_deform_conv_type, numpy=_deform_conv,
    defaults={"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "groups": 1, "offset_groups": 1},
    macs=convolution_macs, gradient=through(deform_conv2d_parts), lower=NOT_LOWERED, **_SAMPLED,
    sample=sample_of("nn.deform_conv2d", IMAGE, (6, 2, 3, 2), (1, 24, 5, 6), (1, 12, 5, 6), groups=2,
                     pads=(1, 0, 1, 1), offset_groups=2),
    doc="nn.conv2d whose window meets x at places moved by offset (down, right), interpolated, times mask.",
))  # fmt: skip
register(Operator(
    "nn.grid_sample", "x grid", types=_grid_sample_type, numpy=_grid_sample, sample=_sample_grid_sample,
    defaults={"mode": "linear", "padding": "zeros", "align_corners": False},
    gradient=through(grid_sample_parts), lower=lower_grid_sample, **_SAMPLED,
    doc="x interpolated at the places of the grid, whose last axis holds coordinates -1..1, the last axis of x first.",
))  # fmt: skip
register(Operator(
    "nn.roi_align", "x rois batch", types=_roi_align_type, numpy=rounded_once(_roi_align), sample=_sample_roi_align,
    defaults={"size": REQUIRED, "spatial_scale": 1.0, "sampling_ratio": 0, "mode": "avg", "half_pixel": True},
    index_sizes=lambda node: node.args[0].shape[:1], index_operand=2,
    gradient=through(roi_align_parts), lower=lower_roi_align, **_SAMPLED,
    doc="Regions (left, top, right, bottom) of x, each interpolated to one size.",
))  # fmt: skip
