"""Convolutions, poolings and resizing: what reads images through windows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ...graph import Constant, Expr
from ...graph.dtypes import FLOATS
from ..forms import add_bias, integer_bias
from . import fixed, reference
from .file import Quantisation
from .schema import SAME, VALID
from .site import Held, Result, Site, channels_first, rule

Ints = tuple[int, ...]
_MOST_COUNTS = 1 << 14
"""Of a window's elements, or of what windows of different sizes have in common."""

_2D, _3D = ("h", "w"), ("d", "h", "w")


def _sizes(site: Site, name: str, axes: Ints | tuple[str, ...]) -> list[int]:
    values = [int(site.option(f"{name}_{axis}")) for axis in axes]
    if min(values) < 1:
        raise site.error(f"{name} is {values}, but must be positive")
    return values


def _padding(site: Site, size: Ints, extent: list[int], strides: list[int]) -> list[int]:
    """Before each axis, then after; the odd row of SAME comes after."""
    kind = site.option("padding")
    if kind == VALID:
        return [0] * (2 * len(size))
    if kind != SAME:
        raise site.error(f"its padding is of kind {kind}")
    total = [max((-(-n // s) - 1) * s + e - n, 0) for n, s, e in zip(size, strides, extent, strict=True)]
    return [t // 2 for t in total] + [t - t // 2 for t in total]


def bias_of(site: Site, index: int, inputs: int, weights: int) -> Expr | None:
    """A bias as real numbers. Integers count in units of the operands' scales, whatever the file says of its own."""
    if not site.has(index):
        return None
    bias = site.raw(index)
    if bias.dtype in FLOATS:
        return bias
    x, w = site.quantisation(inputs), site.quantisation(weights)
    if x is None or w is None:
        raise site.error(f"its bias is {bias.dtype}, but its operands are not quantised")
    scale = np.float32(x.scales.reshape(-1)[0]) * w.scales.astype(np.float32)
    if scale.size not in (1, math.prod(bias.shape)):
        raise site.error(f"{scale.size} scales do not fit {math.prod(bias.shape)} biases")
    return integer_bias(site.node, bias, scale)


def _convolution(site: Site, x: Expr, w: Expr, axes: tuple[str, ...], groups: int) -> Held:
    strides, dilations = _sizes(site, "stride", axes), _sizes(site, "dilation", axes)
    extent = [d * (k - 1) + 1 for d, k in zip(dilations, w.shape[2:], strict=True)]
    pads = _padding(site, x.shape[2:], extent, strides)
    if any(n + before + after < e for n, e, before, after in
           zip(x.shape[2:], extent, pads[: len(axes)], pads[len(axes) :], strict=True)):  # fmt: skip
        raise site.error(f"its window {w.shape[2:]} is larger than its image {x.shape[2:]}")
    result = site.onnx("Conv", x, w, strides=strides, dilations=dilations, pads=pads, group=groups)
    return _finished(site, result, 2, 0, 1)


def _finished(site: Site, x: Expr, bias: int, inputs: int, weights: int) -> Held:
    """With the bias and the activation."""
    offsets = bias_of(site, bias, inputs, weights)
    if offsets is not None:
        if math.prod(offsets.shape) != x.shape[1]:
            raise site.error(f"{math.prod(offsets.shape)} biases do not fit {x.shape[1]} channels")
        x = add_bias(site.node, x, offsets)
    return Held(site.activated(x), channels_first(len(x.shape)))


@rule("CONV_2D")
def _conv_2d(site: Site) -> Result:
    x, w = site.images(0), site.weights(1, (0, 3, 1, 2))
    groups, rest = divmod(x.shape[1], max(w.shape[1], 1))
    if rest or not groups or w.shape[0] % groups:
        raise site.error(f"weights over {w.shape[1]} channels do not fit {x.shape[1]} channels")
    return _convolution(site, x, w, _2D, groups)


@rule("DEPTHWISE_CONV_2D")
def _depthwise(site: Site) -> Result:
    x, w = site.images(0), site.weights(1, (3, 0, 1, 2))
    if w.shape[1] != 1 or not x.shape[1] or w.shape[0] % x.shape[1]:
        raise site.error(f"weights {list(site.held(1).shape)} do not fit {x.shape[1]} channels")
    return _convolution(site, x, w, _2D, x.shape[1])


@rule("CONV_3D")
def _conv_3d(site: Site) -> Result:
    x, w = site.images(0), site.weights(1, (4, 3, 0, 1, 2))
    if x.shape[1] != w.shape[1]:
        raise site.error(f"weights over {w.shape[1]} channels do not fit {x.shape[1]} channels")
    return _convolution(site, x, w, _3D, 1)


@rule("TRANSPOSE_CONV", "CONV_3D_TRANSPOSE")
def _transposed(site: Site) -> Result:
    """Where windows overlap, they are added; the image is cut to the size that operand 0 says."""
    wanted = site.numbers(0, "the result's shape")
    axes, order = (_2D, (3, 0, 1, 2)) if site.op == "TRANSPOSE_CONV" else (_3D, (4, 3, 0, 1, 2))
    x, w = site.images(2), site.weights(1, order)
    rank = len(axes) + 2
    if len(wanted) != rank or len(x.shape) != rank or w.shape[0] != x.shape[1]:
        raise site.error(f"weights {list(site.held(1).shape)} do not fit {x.shape[1]} channels")
    if axes == _3D and max(_sizes(site, "dilation", axes)) > 1:
        raise site.error("its window has gaps, which is not read")
    strides, kernel, target = _sizes(site, "stride", axes), w.shape[2:], tuple(wanted[1:-1])
    before = [0] * len(axes)
    if site.option("padding") == SAME:
        counts = [-(-n // s) for n, s in zip(target, strides, strict=True)]
        before = [max((c - 1) * s + k - n, 0) // 2 for c, s, k, n in zip(counts, strides, kernel, target, strict=True)]
    full = [(n - 1) * s + k for n, s, k in zip(x.shape[2:], strides, kernel, strict=True)]
    after = [f - b - n for f, b, n in zip(full, before, target, strict=True)]
    if min(target) < 1 or max(-each for each in after) > 1 << 16:
        raise site.error(f"the result's shape {wanted} does not fit the operands")
    site.made((x.shape[0], w.shape[1], *target))
    result = site.onnx(
        "ConvTranspose", x, w, strides=strides, pads=[*before, *(max(each, 0) for each in after)],
        output_padding=[max(-each, 0) for each in after],
    )  # fmt: skip
    return _finished(site, result, 3, 2, 1)


def _pool(site: Site, op: str, x: Expr, **attrs: int) -> Expr:
    strides, kernel = _sizes(site, "stride", _2D), _sizes(site, "filter", _2D)
    pads = _padding(site, x.shape[2:], kernel, strides)
    if any(n < k for n, k in zip(x.shape[2:], kernel, strict=True)) and not any(pads):
        raise site.error(f"its window {kernel} is larger than its image {x.shape[2:]}")
    result: Expr = site.onnx(op, x, kernel_shape=kernel, strides=strides, pads=pads, **attrs)
    return result


@rule("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
def _pool_2d(site: Site) -> Result:
    x = site.images(0)
    if len(x.shape) != 4:
        raise site.error_of_rank(0, "(N, H, W, C)")
    if site.op == "MAX_POOL_2D":
        result = _pool(site, "MaxPool", x)
    elif site.op == "AVERAGE_POOL_2D":
        result = _away_from_zero(site, x, _pool(site, "AveragePool", x))
    else:
        result = site("sqrt", _pool(site, "AveragePool", site("multiply", x, x)))
    return Held(site.activated(result), channels_first(4))


def _away_from_zero(site: Site, x: Expr, mean: Expr) -> Expr:
    """The interpreter rounds a mean of stored integers away from 0. Means are multiples of a fraction of the scale, so
    less than that is added to them, with their sign."""
    quantisation = site.quantisation(0)
    if quantisation is None:
        return mean
    scale, zero = float(quantisation.scales[0]), int(quantisation.zeros[0])
    counts = 1
    for axis, size in zip(_2D, x.shape[2:], strict=True):
        window, stride = int(site.option(f"filter_{axis}")), int(site.option(f"stride_{axis}"))
        before = _padding(site, (size,), [window], [stride])[0]
        starts = np.arange(mean.shape[2 + _2D.index(axis)]) * stride - before
        sizes = np.minimum(starts + window, size) - np.maximum(starts, 0)
        counts *= math.lcm(*map(int, np.unique(sizes)))
    least = scale / (4 * min(counts, _MOST_COUNTS))
    nudge = site.call("nn.clip", site("add", mean, zero * scale) if zero else mean, low=-least, high=least)
    return site("add", mean, nudge)


# Resizing


def _target(site: Site, x: Expr) -> tuple[int, int]:
    if len(x.shape) != 4:
        raise site.error_of_rank(0, "(N, H, W, C)")
    sizes = site.numbers(1, "the size")
    if len(sizes) != 2 or min(sizes) < 1 or min(x.shape[2:]) < 1:
        raise site.error(f"an image of {list(x.shape[2:])} cannot be resized to {sizes}")
    for size, target in zip(x.shape[2:], sizes, strict=True):
        site.made((size, target))
    return sizes[0], sizes[1]


@rule("RESIZE_BILINEAR")
def _bilinear(site: Site) -> Result:
    quantisation = site.quantisation(0)
    if quantisation is not None and site.tensor(0).element in ("int8", "uint8"):
        return _bilinear_bytes(site, quantisation)
    x = site.images(0)
    height, width = _target(site, x)
    mode = ("half_pixel" if site.option("half_pixel_centers") else
            "align_corners" if site.option("align_corners") else "asymmetric")  # fmt: skip
    sizes = site.integers((*x.shape[:2], height, width))
    result = site.onnx("Resize", x, None, None, sizes, mode="linear", coordinate_transformation_mode=mode)
    return Held(result, channels_first(4))


def _bilinear_bytes(site: Site, quantisation: Quantisation) -> Held:
    """Of stored integers, which the scale does not change."""
    order = channels_first(len(site.held(0).order))
    held = Held(site.ordered(site.held(0), order), order)
    plain = replace(quantisation, scales=np.ones(1, np.float32), zeros=np.zeros(1, np.int64))
    x = site.real_of(held, plain).expr
    align, half = bool(site.option("align_corners")), bool(site.option("half_pixel_centers"))
    kind = site.tensor(0).element
    weights = reference.between_pixels(kind) if site.reference else fixed.between_pixels
    matrices = [weights(size, target, align, half) for size, target in zip(x.shape[2:], _target(site, x), strict=True)]
    exact = fixed.resized(site, x, *matrices)
    resized = site("floor", site("add", exact, 0.5))
    if site.reference and kind == "int8":  # away from 0
        resized = site.where(site("less", exact, 0), site("ceil", site("subtract", exact, 0.5)), resized)
    return Held(site.quantised(site.cast(resized, "float32"), plain, kind, order), order)


@rule("RESIZE_NEAREST_NEIGHBOR")
def _nearest(site: Site) -> Result:
    """Places are computed in float32, as the interpreter does, so that both pick the same elements."""
    held = site.held(0)
    if len(held.order) != 4:
        raise site.error_of_rank(0, "(N, H, W, C)")
    x = site.ordered(held, channels_first(4))
    align, half = bool(site.option("align_corners")), bool(site.option("half_pixel_centers"))
    for number, target in enumerate(_target(site, x)):
        size = x.shape[2 + number]
        one = np.float32
        scale = one(size - 1) / one(target - 1) if align and target > 1 else one(size) / one(target)
        at = (np.arange(target, dtype=np.float32) + one(0.5 if half else 0)) * scale
        rows = np.floor(at + one(0.5) if align else at).astype(np.int64)
        x = site.call("gather", x, Constant(np.clip(rows, 0, size - 1)), axis=2 + number)
    return Held(x, channels_first(4))


# Blocks


@rule("SPACE_TO_DEPTH", "DEPTH_TO_SPACE")
def _blocks(site: Site) -> Result:
    """A block of b x b pixels lies in one, its channels one after another, those of the first pixel first."""
    held = site.held(0)
    block = int(site.option("block_size"))
    if len(held.order) != 4 or block < 1:
        raise site.error_of_rank(0, f"(N, H, W, C), and the block {block} positive")
    images, height, width, channels = held.shape
    x = site.ordered(held)
    if site.op == "SPACE_TO_DEPTH":
        if height % block or width % block:
            raise site.error(f"an image of {height} x {width} has no whole blocks of {block}")
        split = site.reshape(x, (images, height // block, block, width // block, block, channels))
        turned = site.transpose(split, (0, 1, 3, 2, 4, 5))
        return site.reshape(turned, (images, height // block, width // block, block * block * channels))
    if channels % (block * block):
        raise site.error(f"{channels} channels are no whole blocks of {block} x {block}")
    split = site.reshape(x, (images, height, width, block, block, channels // (block * block)))
    turned = site.transpose(split, (0, 1, 3, 2, 4, 5))
    return site.reshape(turned, (images, height * block, width * block, channels // (block * block)))
