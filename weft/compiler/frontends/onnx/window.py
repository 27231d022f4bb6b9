"""Convolutions, poolings and what else slides a window over images or reads them at computed places."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...graph import Call, Constant, Expr
from ..forms import add_bias, crop_or_pad, integer_bias
from .activation import fused_activation
from .node import CONVERTERS, Converted, Node, converter
from .quantised import dequantised, product_of_integers, quantised, raw_integers, whole

Ints = tuple[int, ...]


def _spatial(node: Node, name: str, count: int, default: int = 1) -> Ints:
    """A spatial attribute, ``default`` where it is left out."""
    value = node.integers(name, (default,) * count)
    if value is None or len(value) != count:
        raise node.error(f"attribute {name!r} must be {count} integers for windows of {count} axes, not {value}")
    return value


def _same_pads(size: Ints, extent: Ints, strides: Ints, upper: bool) -> Ints:
    total = [max((-(-n // s) - 1) * s + e - n, 0) for n, s, e in zip(size, strides, extent, strict=True)]
    small, large = [t // 2 for t in total], [t - t // 2 for t in total]
    return tuple(small + large if upper else large + small)


def _given_pads(node: Node, count: int) -> Ints:
    """Attribute ``pads``: before each axis, then after."""
    pads = node.integers("pads", (0,) * (2 * count))
    if pads is None or len(pads) != 2 * count or min(pads) < 0:
        raise node.error(f"pads must be {2 * count} integers that are not negative, not {pads}")
    return pads


def _window_pads(node: Node, size: Ints, kernel: Ints) -> Ints:
    """Pads, before each axis and then after, from ``pads`` or ``auto_pad``, with ceil_mode's extra rows at the end."""
    count = len(size)
    strides, dilations = _spatial(node, "strides", count), _spatial(node, "dilations", count)
    extent = tuple(d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True))
    auto_pad = node.string("auto_pad", "NOTSET")
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        return _same_pads(size, extent, strides, auto_pad == "SAME_UPPER")
    if auto_pad not in ("NOTSET", "VALID", ""):
        raise node.error(f"auto_pad {auto_pad!r} is not known")
    pads = (0,) * (2 * count) if auto_pad == "VALID" else _given_pads(node, count)
    if not node.integer("ceil_mode", 0):
        return pads
    after = []
    for i in range(count):
        span = size[i] + pads[i] + pads[i + count] - extent[i]
        steps = -(-span // strides[i])
        if steps * strides[i] >= size[i] + pads[i]:  # a window must not start in the padding at the end
            steps -= 1
        after.append(max(pads[i + count], steps * strides[i] + extent[i] - size[i] - pads[i]))
    return (*pads[:count], *after)


def _images(node: Node, x: Expr) -> tuple[Expr, int]:
    """``x`` with at least two spatial axes (a row becomes an image of height 1), and how many it had."""
    rank = len(x.shape)
    if rank not in (3, 4, 5):
        raise node.error(f"only windows over 1, 2 or 3 axes are supported, not over {x.tensor_type}")
    return (node.reshape(x, (*x.shape[:2], 1, x.shape[2])), 1) if rank == 3 else (x, rank - 2)


def _for_images(attrs: dict[str, Any], count: int) -> dict[str, Any]:
    """Window attributes of ``count`` axes as those of an image."""
    if count > 1:
        return attrs
    widened = {name: (1, *value) if isinstance(value, tuple) else value for name, value in attrs.items()}
    return {**widened, "pads": (0, attrs["pads"][0], 0, attrs["pads"][1])}


def _as_before(node: Node, x: Expr, count: int) -> Expr:
    return node.reshape(x, (*x.shape[:2], x.shape[3])) if count == 1 else x


def _kernel(node: Node, x: Expr, w: Expr) -> Ints:
    """The window of a convolution, which is that of its weights."""
    if len(w.shape) != len(x.shape):
        raise node.error(f"the weights must be (O, C/groups, KH, KW), not {w.tensor_type}")
    kernel = w.shape[2:]
    named = node.integers("kernel_shape", kernel)
    if named != kernel:
        raise node.error(f"attribute 'kernel_shape' is {named}, but the weights are for a window of {kernel}")
    return kernel


def _convolution(node: Node, x: Expr, w: Expr, bias: Expr | None = None) -> Expr:
    images, count = _images(node, x)
    kernel = _kernel(node, x, w)
    attrs = {
        "strides": _spatial(node, "strides", count), "dilations": _spatial(node, "dilations", count),
        "groups": node.integer("group", 1), "pads": _window_pads(node, x.shape[2:], kernel),
    }  # fmt: skip
    op = "nn.conv3d" if count == 3 else "nn.conv2d"
    result: Expr = node.call(op, images, _images(node, w)[0], **_for_images(attrs, count))
    return _as_before(node, result if bias is None else add_bias(node, result, bias), count)


@converter("Conv")
def _conv(node: Node) -> Converted:
    return _convolution(node, node.input(0), node.input(1), node.optional(2))


@converter("FusedConv")
def _fused_convolution(node: Node) -> Converted:
    """A convolution, plus another tensor, through an activation."""
    return _activated(node, _convolution(node, node.input(0), node.input(1), node.optional(2)))


@converter("NhwcFusedConv")
def _fused_convolution_ofchannels_last(node: Node) -> Converted:
    x = channels_first(node, node.input(0))
    result = _convolution(node, x, node.input(1), node.optional(2))
    return _activated(node, channels_last(node, result))


def _activated(node: Node, x: Expr) -> Expr:
    summed = node.call("nn.add", x, node.input(3)) if node.has(3) else x
    return fused_activation(node, summed, node.attrs.get("activation_params", []))


@converter("DeformConv")
def _deform_conv(node: Node) -> Converted:
    x, w, offset = node.input(0), node.input(1), node.input(2)
    node.require_image(x)
    _kernel(node, x, w)
    mask = node.optional(4)
    if mask is None:
        shape = (offset.shape[0], offset.shape[1] // 2, *offset.shape[2:])
        mask = node.call("expand", node.like(np.ones((1, 1, 1, 1)), x), shape=shape)
    result = node.call(
        "nn.deform_conv2d", x, w, offset, mask, strides=_spatial(node, "strides", 2), pads=_given_pads(node, 2),
        dilations=_spatial(node, "dilations", 2), groups=node.integer("group", 1),
        offset_groups=node.integer("offset_group", 1),
    )  # fmt: skip
    return add_bias(node, result, node.input(3)) if node.has(3) else result


def channels_first(node: Node, x: Expr) -> Expr:
    """(N, ..., C) as (N, C, ...)."""
    rank = len(x.shape)
    return node.transpose(x, (0, rank - 1, *range(1, rank - 1)))


def channels_last(node: Node, x: Expr) -> Expr:
    """(N, C, ...) as (N, ..., C)."""
    rank = len(x.shape)
    return node.transpose(x, (0, *range(2, rank), 1))


def _in_own_layout(node: Node, x: Expr, compute: Callable[[Expr], Expr]) -> Expr:
    """``compute(x)`` for channels in front, where the node's attribute says that they come last, as onnxruntime's
    optimiser lays them; weights stay as they are."""
    if not node.integer("channels_last", 0):
        return compute(x)
    return channels_last(node, compute(channels_first(node, x)))


@converter("QLinearConv")
def _qlinear_conv(node: Node) -> Converted:
    x, w = dequantised(node, 0, 1, 2), dequantised(node, 3, 4, 5, axis=0)
    bias: Expr | None = None
    if node.has(8):
        scale = np.float32(node.constant(1, "the scale").reshape(())) * node.constant(4, "the scale").reshape(-1)
        bias = integer_bias(node, node.input(8), scale)
    result = _in_own_layout(node, x, lambda first: _convolution(node, first, w, bias))
    return quantised(node, result, 6, 7)


@converter("ConvInteger")
def _conv_integer(node: Node) -> Converted:
    x, w = raw_integers(node, 0, 2), raw_integers(node, 1, 3, axis=0)
    axes = tuple(range(1, len(w.shape)))
    depth = math.prod(w.shape[1:])
    return whole(node, product_of_integers(node, x, w, depth, axes, lambda a, b: _convolution(node, a, b)))


def _transpose_pads(node: Node, size: Ints, extent: Ints, strides: Ints, output_padding: Ints) -> tuple[list[int], ...]:
    """What a transposed convolution takes away before and after each axis."""
    count = len(size)
    wanted = node.integers("output_shape")
    auto_pad = node.string("auto_pad", "NOTSET")
    if wanted is None and auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        # Never more than without padding, as onnx's shape inference and onnxruntime have it.
        most = (s * (n - 1) + o + e for n, s, e, o in zip(size, strides, extent, output_padding, strict=True))
        wanted = tuple(min(n * s, m) for n, s, m in zip(size, strides, most, strict=True))
    if wanted is None:
        pads = _given_pads(node, count)
        return list(pads[:count]), list(pads[count:])
    total = [
        s * (n - 1) + o + e - w
        for n, s, e, o, w in zip(size, strides, extent, output_padding, wanted[-count:], strict=True)
    ]
    half = [max(t, 0) // 2 for t in total]  # a negative total adds zeros at the end
    rest = [max(t, 0) - h for t, h in zip(total, half, strict=True)]
    before, after = (half, rest) if auto_pad == "SAME_UPPER" else (rest, half)
    return before, [a + min(t, 0) for a, t in zip(after, total, strict=True)]


@converter("ConvTranspose")
def _conv_transpose(node: Node) -> Converted:
    """A convolution of the input with zeros put between its elements, with the kernel turned around."""
    x, count = _images(node, node.input(0))
    _kernel(node, node.input(0), node.input(1))
    w = _images(node, node.input(1))[0]
    own = len(node.input(0).shape) - 2
    lift = (1,) * (2 - count) if count < 2 else ()
    strides, dilations = lift + _spatial(node, "strides", own), lift + _spatial(node, "dilations", own)
    extra = (0,) * len(lift) + _spatial(node, "output_padding", own, 0)
    groups, kernel = node.integer("group", 1), w.shape[2:]
    extent = tuple(d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True))
    skip = len(lift)
    before, after = _transpose_pads(
        node, x.shape[2 + skip :], extent[skip:], strides[skip:], extra[skip:]
    )  # fmt: skip
    before, after = [0] * skip + before, [0] * skip + after
    spread = node.call("dilate", x, factors=strides) if any(s > 1 for s in strides) else x
    spread = crop_or_pad(
        node, spread,
        [0, 0, *(e - 1 - b for e, b in zip(extent, before, strict=True))],
        [0, 0, *(e - 1 - a + o for e, a, o in zip(extent, after, extra, strict=True))], 0.0,
    )  # fmt: skip
    group_in, group_out = w.shape[0] // groups, w.shape[1]
    split = node.reshape(w, (groups, group_in, group_out, *kernel))
    swapped = node.transpose(split, (0, 2, 1, *range(3, 3 + len(kernel))))
    weights = node.reshape(swapped, (groups * group_out, group_in, *kernel))
    turned = node.call(
        "slice", weights, starts=(0, 0, *(k - 1 for k in kernel)), sizes=weights.shape,
        steps=(1, 1, *(-1 for _ in kernel)),
    )  # fmt: skip
    op = "nn.conv3d" if count == 3 else "nn.conv2d"
    result: Expr = node.call(
        op, spread, turned, dilations=dilations, groups=groups, strides=(1,) * len(kernel), pads=(0, 0) * len(kernel)
    )
    return _as_before(node, add_bias(node, result, node.input(2)) if node.has(2) else result, count)


# Pooling


def _pool_attrs(node: Node, x: Expr) -> dict[str, Any]:
    count = len(x.shape) - 2
    kernel = node.integers("kernel_shape")
    if kernel is None or len(kernel) != count:
        raise node.error(f"attribute 'kernel_shape' must be {count} integers for {x.tensor_type}, not {kernel}")
    return {
        "kernel": kernel, "strides": _spatial(node, "strides", count), "dilations": _spatial(node, "dilations", count),
        "pads": _window_pads(node, x.shape[2:], kernel),
    }  # fmt: skip


def _pool(node: Node, op: str, x: Expr, attrs: dict[str, Any]) -> Expr:
    images, count = _images(node, x)
    return _as_before(node, node.call(op, images, **_for_images(attrs, count)), count)


def _without_scale(node: Node, x: Expr) -> Call:
    return node.call("dequantise", x, Constant(np.ones((), np.float32)), Constant(np.zeros((), x.dtype)))


@converter("NhwcMaxPool")
def _max_pool_ofchannels_last(node: Node) -> Converted:
    found = _maximum(node, channels_first(node, node.input(0)))
    return channels_last(node, found) if isinstance(found, Expr) else found


@converter("MaxPool")
def _max_pool(node: Node) -> Converted:
    return _maximum(node, node.input(0))


def _maximum(node: Node, x: Expr) -> Converted:
    attrs = _pool_attrs(node, x)
    if x.dtype in ("int8", "uint8") and not node.wants(1):  # the form in which legalise finds it
        wide = _without_scale(node, x)
        return node.call("quantise", _pool(node, "nn.max_pool", wide, attrs), wide.args[1], wide.args[2])
    result = _pool(node, "nn.max_pool", x, attrs)
    if not node.wants(1):
        return result
    column_major = bool(node.integer("storage_order", 0))
    return result, _pool(node, "nn.max_pool_indices", x, {**attrs, "column_major": column_major})


def _average(node: Node, x: Expr) -> Expr:
    attrs = _pool_attrs(node, x)
    include, count = bool(node.integer("count_include_pad", 0)), len(x.shape) - 2
    if include and node.integer("ceil_mode", 0) and node.string("auto_pad", "NOTSET") == "NOTSET":
        given = _given_pads(node, count)
        if given != attrs["pads"]:  # what ceil_mode adds does not count, so the rest becomes part of the input
            x = crop_or_pad(node, x, [0, 0, *given[:count]], [0, 0, *given[count:]], 0.0)
            rest = tuple(full - part for full, part in zip(attrs["pads"], given, strict=True))
            return _pool(node, "nn.average_pool", x, {**attrs, "pads": rest})
    return _pool(node, "nn.average_pool", x, {**attrs, "count_include_pad": include})


def _global_average(node: Node, x: Expr) -> Expr:
    if len(x.shape) == 4:
        return node.call("nn.average_pool", x, kernel=x.shape[2:])
    return node.call("nn.reduce_mean", x, axes=tuple(range(2, len(x.shape))), keepdims=True)


CONVERTERS["AveragePool"] = lambda node: _average(node, node.input(0))
CONVERTERS["GlobalAveragePool"] = lambda node: _global_average(node, node.input(0))


@converter("QLinearAveragePool")
def _qlinear_average_pool(node: Node) -> Converted:
    def average(x: Expr) -> Expr:
        # onnxruntime's operator, unlike its AveragePool, counts what ceil_mode adds as well.
        counted = {**_pool_attrs(node, x), "count_include_pad": bool(node.integer("count_include_pad", 0))}
        return _pool(node, "nn.average_pool", x, counted)

    return quantised(node, _in_own_layout(node, dequantised(node, 0, 1, 2), average), 3, 4)


@converter("QLinearGlobalAveragePool")
def _qlinear_global_average_pool(node: Node) -> Converted:
    average = _in_own_layout(node, dequantised(node, 0, 1, 2), lambda x: _global_average(node, x))
    return quantised(node, average, 3, 4)


@converter("GlobalMaxPool")
def _global_max_pool(node: Node) -> Converted:
    x = node.input(0)
    return node.call("nn.reduce_max", x, axes=tuple(range(2, len(x.shape))), keepdims=True)


@converter("LpPool")
def _lp_pool(node: Node) -> Converted:
    x = node.input(0)
    attrs = _pool_attrs(node, x)
    p = node.integer("p", 2) if node.opset >= 2 else node.number("p", 2.0)
    powers = node.call("nn.power", node.call("nn.abs", x), node.like(p, x))
    mean = _pool(node, "nn.average_pool", powers, {**attrs, "count_include_pad": True})
    total = node.call("nn.multiply", mean, node.like(math.prod(attrs["kernel"]), x))
    return node.call("nn.power", total, node.like(1 / p, x))


@converter("GlobalLpPool")
def _global_lp_pool(node: Node) -> Converted:
    x, p = node.input(0), node.integer("p", 2)
    powers = node.call("nn.power", node.call("nn.abs", x), node.like(p, x))
    total = node.call("nn.reduce_sum", powers, axes=tuple(range(2, len(x.shape))), keepdims=True)
    return node.call("nn.power", total, node.like(1 / p, x))


@converter("MaxUnpool")
def _max_unpool(node: Node) -> Converted:
    x, indices = node.input(0), node.input(1)
    count = len(x.shape) - 2
    kernel, strides = _spatial(node, "kernel_shape", count), _spatial(node, "strides", count)
    pads = _given_pads(node, count)
    own = [(n - 1) * s + k - pads[i] - pads[i + count]
           for i, (n, s, k) in enumerate(zip(x.shape[2:], strides, kernel, strict=True))]  # fmt: skip
    shape, size = (*x.shape[:2], *own), math.prod(x.shape)
    flat = node.call(
        "scatter_elements", node.like(np.zeros(math.prod(shape)), x), node.reshape(indices, (size,)),
        node.reshape(x, (size,)),
    )  # fmt: skip
    image = node.reshape(flat, shape)
    if not node.has(2):
        return image
    wanted = node.known_integers(2, "the shape of the output")
    return crop_or_pad(node, image, [0] * len(shape), [w - s for w, s in zip(wanted, shape, strict=True)], 0.0)


@converter("Col2Im")
def _columns_to_image(node: Node) -> Converted:
    """The sum of what each place of the block puts into the image."""
    x = node.input(0)
    image = node.known_integers(1, "the shape of the image")
    block = node.known_integers(2, "the shape of the block")
    count = len(image)
    strides, dilations = _spatial(node, "strides", count), _spatial(node, "dilations", count)
    pads = _given_pads(node, count)
    padded = [size + pads[i] + pads[i + count] for i, size in enumerate(image)]
    steps = [(size - d * (k - 1) - 1) // s + 1 for size, d, k, s in zip(padded, dilations, block, strides, strict=True)]
    channels = x.shape[1] // math.prod(block)
    columns = node.reshape(x, (x.shape[0], channels, math.prod(block), *steps))
    total: Expr | None = None
    for number, place in enumerate(itertools.product(*(range(k) for k in block))):
        part = node.reshape(node.slice(columns, 2, number, 1), (x.shape[0], channels, *steps))
        spread = node.call("dilate", part, factors=strides)
        before = [d * i for d, i in zip(dilations, place, strict=True)]
        after = [p - b - n for p, b, n in zip(padded, before, spread.shape[2:], strict=True)]
        placed = crop_or_pad(node, spread, [0, 0, *before], [0, 0, *after], 0)
        total = placed if total is None else node.call("nn.add", total, placed)
    if total is None:
        raise node.error("the block is empty")
    return crop_or_pad(node, total, [0, 0, *(-p for p in pads[:count])], [0, 0, *(-p for p in pads[count:])], 0)


# Reading at computed places

_SAMPLING = {"bilinear": "linear", "bicubic": "cubic", "linear": "linear", "cubic": "cubic", "nearest": "nearest"}


@converter("GridSample")
def _grid_sample(node: Node) -> Converted:
    mode = node.string("mode", "linear")
    if mode not in _SAMPLING:
        raise node.error(f"the mode {mode!r} is not known")
    return node.call(
        "nn.grid_sample", node.input(0), node.input(1), mode=_SAMPLING[mode],
        padding=node.string("padding_mode", "zeros"), align_corners=bool(node.integer("align_corners", 0)),
    )  # fmt: skip


@converter("RoiAlign")
def _roi_align(node: Node) -> Converted:
    mode = node.string("coordinate_transformation_mode", "half_pixel" if node.opset >= 16 else "output_half_pixel")
    return node.call(
        "nn.roi_align", *node.tensors, size=(node.integer("output_height", 1), node.integer("output_width", 1)),
        spatial_scale=node.number("spatial_scale", 1.0), sampling_ratio=node.integer("sampling_ratio", 0),
        mode=node.string("mode", "avg"), half_pixel=mode == "half_pixel",
    )  # fmt: skip
