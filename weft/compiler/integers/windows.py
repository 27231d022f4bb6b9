"""Poolings, reductions and paddings in integers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..graph import Array, Call, Constant, Expr, Role, TensorType, Var, call, role_of
from ..graph.host import host_call
from .describer import Describer, of_operand
from .form import INT32_SAFE, SUM_SAFE, Affine, IntegerForm, Integers, Mapped, Real, Refusal, moved

_MOST_FACTOR = 127
"""A factor that stands in a tensor is int8."""

_NEAR_WHOLE = 1e-3
"""How far from a whole number one may lie that was computed in float32."""


def largest_of_window(describer: Describer, node: Call, name: str) -> IntegerForm:
    """Of windows over two axes and, where the target has volumes, over three."""
    x, axes = describer.operand(node, name), len(node.attr("kernel"))
    if isinstance(x, Refusal):
        return x
    return max_pool(x, node) if axes == 2 or (axes == 3 and describer.volumes) else _of_axes(name, axes)


@of_operand
def mean_of_window(x: Real, node: Call, name: str) -> IntegerForm:
    """Of windows over two axes."""
    axes = len(node.attr("kernel"))
    return average_pool(x, node, name) if axes == 2 else _of_axes(name, axes)


def _of_axes(name: str, axes: int) -> Refusal:
    return Refusal(f"{name} has a window of {axes} axes, not of 2")


def max_pool(x: Real, node: Call) -> Real:
    """Its integers are those of the largest values."""

    def apply_to(q: Expr) -> Expr:
        return call("max_pool", q, span=node.span, **node.attrs)

    if isinstance(x, Integers):
        return replace(x, q=apply_to(x.q), exclusive=False)
    return Mapped(x, apply_to, node.shape)


def average_pool(x: Real, node: Call, name: str) -> IntegerForm:
    """The sum over each window, and a factor."""
    if not isinstance(x, Integers):
        return Refusal(f"the input of {name} is not quantised")
    if node.attr("dilations") != (1, 1):
        return Refusal(f"{name} is dilated")
    attrs = {key: node.attr(key) for key in ("kernel", "strides", "pads")}
    accumulator: Expr = call("sum_pool", x.q, pad_value=x.zero_point, span=node.span, **attrs)
    count = int(np.prod(node.attr("kernel")))
    channels = x.shape[1]
    if any(node.attr("pads")) and not node.attr("count_include_pad"):
        return _uneven_average(x, accumulator, node, name)
    return Affine(
        accumulator, np.full(channels, -x.zero_point * count, np.int64), np.full(channels, x.scale / count),
        np.zeros(channels), np.full(channels, 256.0 * count), node.shape, span=x.span,
    )  # fmt: skip


def _uneven_average(x: Integers, total: Expr, node: Call, name: str) -> IntegerForm:
    """Windows at the edges have fewer elements: each sum is multiplied by a whole number that makes up for it."""
    pads, kernel = node.attr("pads"), node.attr("kernel")
    counts = [
        _window_sizes(x.shape[2 + i], node.shape[2 + i], kernel[i], node.attr("strides")[i], pads[i]) for i in range(2)
    ]
    if any((count < 1).any() for count in counts):
        return Refusal(f"{name} has windows without an element")
    common = [math.lcm(*(int(value) for value in count)) for count in counts]
    factors = [whole // count for whole, count in zip(common, counts, strict=True)]
    peak = 256.0 * math.prod(kernel) * math.prod(common)
    if max(int(factor.max()) for factor in factors) > _MOST_FACTOR or peak > INT32_SAFE:
        return Refusal(f"{name} divides by numbers of elements that differ too much at the edges")
    span = node.span
    offset = x.zero_point * math.prod(kernel)
    centred: Expr = call("subtract_immediate", total, value=offset, span=span) if offset else total
    for factor, shape in zip(factors, ((1, 1, -1, 1), (1, 1, 1, -1)), strict=True):
        if (factor != 1).any():
            spread = np.broadcast_to(factor.reshape(shape), node.shape).astype(np.int8)
            centred = call("multiply", centred, Constant(np.ascontiguousarray(spread)), span=span)
    channels = x.shape[1]
    return Affine(
        centred, np.zeros(channels, np.int64), np.full(channels, x.scale / math.prod(common)), np.zeros(channels),
        np.full(channels, peak), node.shape, span=x.span,
    )  # fmt: skip


def nudged_from_zero(x: Affine, y: Affine) -> Affine | None:
    """x + y, where y is x less a number, clamped to a quarter of the unit in which x counts: so halves of x are rounded
    away from that number. With v for x less it, in quarters of the unit, the sum is 4 * v + sign(v) and the number, and
    sign(v) = max(v, -1) - max(v, 1) + 1."""
    unit, bound = float(x.scale[0]), y.high
    same = x.accumulator is y.accumulator and not x.clamped and not x.host and not x.offset.any()
    uniform = all((values == values[0]).all() for values in (x.scale, y.scale, x.correction, y.correction, y.offset))
    if not same or not uniform or y.low != -bound or not 0.24 * unit < bound < 0.26 * unit or y.scale[0] != unit:
        return None
    start = float(y.correction[0]) + float(y.offset[0]) / unit
    if abs(start - round(start)) > _NEAR_WHOLE or abs(start) > SUM_SAFE or x.peak.max() * 4 + 4 > INT32_SAFE:
        return None
    sums = x.accumulator
    total: Expr = call("multiply_immediate", sums, weight=4, span=y.span)
    bounded = sums
    for place, sign in ((-1, 1), (1, -1)):
        bounded = call("maximum_immediate", bounded, value=place - round(start), span=y.span)
        total = call("multiply_accumulate", total, bounded, weight=sign, span=y.span)
    return replace(x, accumulator=total, correction=4 * x.correction + 1, scale=x.scale / 4, peak=4 * x.peak + 4)


def _window_sizes(size: int, windows: int, kernel: int, stride: int, pad: int) -> Array:
    """How many elements each window along an axis has."""
    starts = np.arange(windows) * stride - pad
    return np.asarray(np.minimum(starts + kernel, size) - np.maximum(starts, 0))


@of_operand
def least_along_axes(x: Real, node: Call, name: str) -> IntegerForm:
    """Of the integers, on the host."""
    return _reduced(x, node, name, "")


@of_operand
def reduced(x: Real, node: Call, name: str) -> IntegerForm:
    """The largest, the sum or the mean along any axes."""
    return _reduced(x, node, name, "nn.max_pool" if role_of(node) is Role.LARGEST else "nn.average_pool")


def _reduced(x: Real, node: Call, name: str, pooling: str) -> IntegerForm:
    """A reduction over any axes as a pooling over an image: the axes that stay are its channels. Without a pooling the
    host reduces."""
    if not isinstance(x, Integers):
        return Refusal(f"the input of {name} is not quantised")
    rank = len(x.shape)
    axes = sorted(int(axis) % rank for axis in node.attr("axes"))
    count = math.prod(x.shape[axis] for axis in axes)
    if not axes or not count or not math.prod(x.shape):
        return Refusal(f"{name} reduces nothing")
    if not pooling:
        reason = f"{name}: the accelerator takes maxima only"
        return replace(x, q=host_call(str(node.op), (x.q,), node.attrs, reason, node.span), exclusive=False)
    kept = [axis for axis in range(rank) if axis not in axes]
    perm = (*kept, *axes)
    q: Expr = x.q if perm == tuple(range(rank)) else call("transpose", x.q, perm=perm, span=node.span)
    batch = x.shape[kept[0]] if len(kept) > 1 else 1
    height, width = (x.shape[axis] for axis in axes) if len(axes) == 2 else (count, 1)
    image = (batch, math.prod(x.shape[axis] for axis in kept) // batch, height, width)
    q = q if q.shape == image else call("reshape", q, shape=image, span=node.span)
    pooled = call(pooling, Var("x", TensorType(image, "float32")), kernel=image[2:], span=node.span)
    value = replace(x, q=q, exclusive=False)
    result = max_pool(value, pooled) if role_of(node) is Role.LARGEST else average_pool(value, pooled, name)
    if isinstance(result, Affine) and role_of(node) is Role.SUM:
        result = replace(result, scale=result.scale * count)
    if isinstance(result, Refusal) or result.shape == node.shape:
        return result
    return moved(result, call("reshape", pooled, shape=node.shape, span=node.span))


@of_operand
def padded(x: Real, node: Call, name: str) -> IntegerForm:
    """A padding whose value the integers have."""
    if not isinstance(x, Integers):
        return Refusal(f"the input of {name} is not quantised")
    value = node.attr("value") / x.scale + x.zero_point
    if not -128.5 < value < 127.5:  # also where it is infinite or no number
        return Refusal(f"the padding value of {name} is outside of the range of its input")
    result = call("pad", x.q, pads=node.attr("pads"), value=round(value), span=node.span)
    return replace(x, q=result, exclusive=False)
