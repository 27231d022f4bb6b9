"""Poolings, resizing, and reading images at computed places."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...graph import Array, Constant, Expr
from .site import Site, category, rule

Sizes = Sequence[int]


def _axes(site: Site) -> int:
    """How many axes an operator slides over, from its name."""
    name = site.op.split(".")[1]
    return next((count for count in (1, 2, 3) if f"{count}d" in name), 2)


def _wide(values: Sizes | int, count: int) -> list[int]:
    given = [values] if isinstance(values, int) else list(values)
    return given * count if len(given) == 1 else given


def _batched(site: Site, x: Expr, count: int) -> Expr:
    return site.reshape(x, (1, *x.shape)) if len(x.shape) == count + 1 else x


@rule("max_pool2d_with_indices.default", "max_pool3d_with_indices.default", "max_pool2d.default",
      "max_pool1d.default", "max_pool3d.default")  # fmt: skip
def _max_pool(
    site: Site, x: Expr, kernel: Sizes, stride: Sizes = (), padding: Sizes = (0,), dilation: Sizes = (1,),
    ceil_mode: bool = False,
) -> tuple[Expr, Expr] | Expr:  # fmt: skip
    count = _axes(site)
    pads = _wide(padding, count)
    images = _batched(site, x, count)
    attrs: dict[str, Any] = {
        "kernel_shape": _wide(kernel, count), "strides": _wide(stride or kernel, count), "pads": pads + pads,
        "dilations": _wide(dilation, count), "ceil_mode": int(ceil_mode),
    }  # fmt: skip
    if "_with_indices" not in site.op:
        return site.reshape(site.onnx("MaxPool", images, **attrs), site.shape)
    result, places = site.onnx("MaxPool", images, outputs=2, **attrs)
    plane = math.prod(images.shape[2:])  # PyTorch counts within each channel
    return site.reshape(result, site.shape), site.reshape(site("modulo", places, plane), site.shape)


@rule("avg_pool1d.default", "avg_pool2d.default", "avg_pool3d.default")
def _avg_pool(
    site: Site, x: Expr, kernel: Sizes, stride: Sizes = (), padding: Sizes = (0,), ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Expr:  # fmt: skip
    if category(x.dtype) < 2:  # the quotient of a sum of integers, towards zero
        wide = replace(site, types=(replace(site.type, dtype="float64"),))
        mean = _avg_pool(wide, site.cast(x, "float64"), kernel, stride, padding, ceil_mode, count_include_pad,
                         divisor_override)  # fmt: skip
        near = site("multiply", mean, 1 + 1e-12)
        return site.cast(near, site.dtype)
    count = _axes(site)
    window, pads = _wide(kernel, count), _wide(padding, count)
    images = _batched(site, x, count)
    attrs: dict[str, Any] = {"kernel_shape": window, "strides": _wide(stride or kernel, count), "pads": pads + pads,
             "ceil_mode": int(ceil_mode)}  # fmt: skip
    if divisor_override is None:
        mean = site.onnx("AveragePool", images, count_include_pad=int(count_include_pad), **attrs)
        return site.reshape(mean, site.shape)
    total = site.onnx("LpPool", site("abs", images), p=1, **attrs)  # of magnitudes, so twice: x = |x| - 2 max(-x, 0)
    below = site.onnx("LpPool", site("maximum", site("negative", images), 0), p=1, **attrs)
    signed = site("subtract", total, site("multiply", below, 2))
    return site.reshape(site("divide", signed, divisor_override), site.shape)


def _along(site: Site, x: Expr, axis: int, matrix: Array) -> Expr:
    """``x`` with one axis multiplied by a matrix (target, size)."""
    last = len(x.shape) - 1
    perm = [last if i == axis else axis if i == last else i for i in range(last + 1)]
    return site.transpose(site.call("nn.matmul", site.transpose(x, perm), site.like(matrix.T, x)), perm)


def _regions(size: int, target: int) -> list[tuple[int, int]]:
    """Where each window of an adaptive pool begins and ends."""
    return [(i * size // target, -(-(i + 1) * size // target)) for i in range(target)]


@rule("_adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default", "adaptive_avg_pool1d.default",
      "adaptive_avg_pool2d.default", "adaptive_avg_pool3d.default")  # fmt: skip
def _adaptive_average(site: Site, x: Expr, output_size: Sizes) -> Expr:
    count = _axes(site)
    images = _batched(site, x, count)
    sizes = images.shape[2:]
    targets = site.shape[-count:]
    if all(target and size % target == 0 for size, target in zip(sizes, targets, strict=True)):
        window = [size // target for size, target in zip(sizes, targets, strict=True)]
        mean = site.onnx("AveragePool", images, kernel_shape=window, strides=window)
        return site.reshape(mean, site.shape)
    for number, (size, target) in enumerate(zip(sizes, targets, strict=True)):
        weights = np.zeros((target, size))
        for row, (begin, end) in enumerate(_regions(size, target)):
            weights[row, begin:end] = 1 / (end - begin)
        images = _along(site, images, 2 + number, weights)
    return site.reshape(images, site.shape)


@rule("adaptive_max_pool1d.default", "adaptive_max_pool2d.default", "adaptive_max_pool3d.default")
def _adaptive_max(site: Site, x: Expr, output_size: Sizes) -> tuple[Expr, Expr]:
    """Windows as long as the longest, in which shorter ones repeat their last element."""
    count = _axes(site)
    images = _batched(site, x, count)
    sizes, targets = images.shape[2:], site.shape[-count:]
    index = np.arange(math.prod(sizes)).reshape(sizes)
    for number, (size, target) in enumerate(zip(sizes, targets, strict=True)):
        regions = _regions(size, target)
        longest = max((end - begin for begin, end in regions), default=1)
        rows = np.array([[min(begin + k, end - 1) for k in range(longest)] for begin, end in regions])
        index = np.take(index, rows, axis=2 * number)  # (..., target, longest, ...)
    order = (*range(0, 2 * count, 2), *range(1, 2 * count, 2))
    windows = index.transpose(order).reshape(*targets, -1)
    flat = site.reshape(images, (*images.shape[:2], math.prod(sizes)))
    picked = site.call("gather", flat, Constant(windows.astype(np.int64)), axis=2)
    best = site.call("nn.arg_max", picked, axis=2 + count, keepdims=True)
    value = site.call("gather_elements", picked, best, axis=2 + count)
    spread = np.broadcast_to(windows, (*images.shape[:2], *windows.shape)).astype(np.int64)
    place = site.call("gather_elements", Constant(spread), best, axis=2 + count)
    return site.reshape(value, site.shape), site.reshape(place, site.shape)


@rule("col2im.default")
def _columns_to_image(
    site: Site, x: Expr, output_size: Sizes, kernel: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes
) -> Expr:
    columns = site.reshape(x, (1, *x.shape)) if len(x.shape) == 2 else x
    pads = _wide(padding, 2)
    image = site.onnx(
        "Col2Im", columns, site.integers(output_size), site.integers(_wide(kernel, 2)), strides=_wide(stride, 2),
        dilations=_wide(dilation, 2), pads=pads + pads,
    )  # fmt: skip
    return site.reshape(image, site.shape)


@rule("im2col.default")
def _image_to_columns(
    site: Site, x: Expr, kernel: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes
) -> Expr:  # fmt: skip
    images = _batched(site, x, 2)
    window, steps, apart, pads = (_wide(values, 2) for values in (kernel, stride, dilation, padding))
    padded = site.onnx("Pad", images, site.integers([0, 0, *pads, 0, 0, *pads]))
    places = np.arange(math.prod(padded.shape[2:])).reshape(padded.shape[2:])
    counts = [(size - d * (k - 1) - 1) // s + 1
              for size, k, d, s in zip(places.shape, window, apart, steps, strict=True)]  # fmt: skip
    rows = [
        places[i * apart[0] : i * apart[0] + steps[0] * counts[0] : steps[0],
               j * apart[1] : j * apart[1] + steps[1] * counts[1] : steps[1]].reshape(-1)
        for i, j in itertools.product(*(range(k) for k in window))
    ]  # fmt: skip
    flat = site.reshape(padded, (*padded.shape[:2], -1))
    return site.reshape(site.call("gather", flat, Constant(np.array(rows, np.int64)), axis=2), site.shape)


# Resizing


def _resized(
    site: Site, x: Expr, mode: str, scales: Sequence[float | None] | None, coordinates: str, **attrs: Any
) -> Expr:
    """Factors that the model gives decide where elements lie; else the sizes do."""
    sizes, factors = None, None
    if scales is not None and all(scale is not None for scale in scales) and coordinates != "align_corners":
        factors = Constant(np.array([1, 1, *scales], np.float32))
        kept = all(math.floor(np.float32(scale) * size) == target
                   for size, scale, target in zip(x.shape[2:], scales, site.shape[2:], strict=True))  # fmt: skip
        if not kept:
            raise site.error(f"the factors {list(scales)} and the size {list(site.shape[2:])} contradict each other",
                             hint="resize to a size, or by a factor that gives a whole size")  # fmt: skip
    if factors is None:
        sizes = site.integers((*x.shape[:2], *site.shape[2:]))
    result: Expr = site.onnx("Resize", x, None, factors, sizes, mode=mode,
                             coordinate_transformation_mode=coordinates, **attrs)  # fmt: skip
    return result


def _factors(site: Site, args: tuple[object, ...]) -> list[float | None] | None:
    """The factors of a resize: a list (``vec``), or one number an axis."""
    if site.op.endswith(".vec"):
        given = args[0] if args else None
        return list(given) if isinstance(given, (list, tuple)) else None
    return list(args) if args and any(arg is not None for arg in args) else None  # type: ignore[arg-type]


@rule(*(f"{kind}{count}d.{form}" for kind in ("upsample_nearest", "_upsample_nearest_exact") for count in (1, 2, 3)
        for form in ("vec", "default")))  # fmt: skip
def _nearest(site: Site, x: Expr, output_size: Sizes | None, *scales: object) -> Expr:
    exact = "_exact" in site.op
    return _resized(site, x, "nearest", _factors(site, scales), "half_pixel" if exact else "asymmetric",
                    nearest_mode="round_prefer_ceil" if exact else "floor")  # fmt: skip


@rule(*(f"upsample_{kind}.{form}" for kind in ("linear1d", "bilinear2d", "trilinear3d", "bicubic2d")
        for form in ("vec", "default")))  # fmt: skip
def _interpolated(site: Site, x: Expr, output_size: Sizes | None, align_corners: bool, *scales: object) -> Expr:
    mode = "cubic" if "bicubic" in site.op else "linear"
    coordinates = "align_corners" if align_corners else "half_pixel"
    return _resized(site, x, mode, _factors(site, scales), coordinates)


@rule(*(f"_upsample_{kind}2d_aa.{form}" for kind in ("bilinear", "bicubic") for form in ("vec", "default")))
def _antialiased(site: Site, x: Expr, output_size: Sizes | None, align_corners: bool, *scales: object) -> Expr:
    """Where an image shrinks, the window is as wide as the step; what lies outside of the image has no weight."""
    if align_corners:
        raise site.error("corners are not aligned where aliasing is suppressed", hint="resize with align_corners=False")
    mode = "cubic" if "bicubic" in site.op else "linear"
    return _resized(site, x, mode, _factors(site, scales), "half_pixel", antialias=1, exclude_outside=1,
                    cubic_coeff_a=-0.5)  # fmt: skip


@rule("grid_sampler_2d.default", "grid_sampler_3d.default", "grid_sampler.default")
def _grid_sampler(
    site: Site, x: Expr, grid: Expr, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Expr:
    result: Expr = site.onnx(
        "GridSample", x, grid, mode=("linear", "nearest", "cubic")[interpolation_mode],
        padding_mode=("zeros", "border", "reflection")[padding_mode], align_corners=int(align_corners),
    )  # fmt: skip
    return result


# Of torchvision


@rule("torchvision.deform_conv2d.default")
def _deformed(
    site: Site, x: Expr, w: Expr, offset: Expr, mask: Expr, bias: Expr, stride_h: int, stride_w: int, pad_h: int,
    pad_w: int, dilation_h: int, dilation_w: int, groups: int, offset_groups: int, use_mask: bool,
) -> Expr:  # fmt: skip
    result: Expr = site.onnx(
        "DeformConv", x, w, offset, bias, mask if use_mask else None, strides=[stride_h, stride_w],
        pads=[pad_h, pad_w] * 2, dilations=[dilation_h, dilation_w], group=groups, offset_group=offset_groups,
    )  # fmt: skip
    return result


@rule("torchvision.roi_align.default")
def _pooled_regions(
    site: Site, x: Expr, boxes: Expr, scale: float, height: int, width: int, samples: int, aligned: bool
) -> Expr:
    """Of boxes (count, 5) the first column is the picture's number."""
    count = boxes.shape[0]
    numbers = site.reshape(site.slice(boxes, 1, 0, 1), (count,))
    result: Expr = site.onnx(
        "RoiAlign", x, site.slice(boxes, 1, 1, 4), site.cast(numbers, "int64"), output_height=height,
        output_width=width, sampling_ratio=max(samples, 0), spatial_scale=float(scale), mode="avg",
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
    )  # fmt: skip
    return result
