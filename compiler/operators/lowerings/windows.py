"""Convolutions and poolings over 2 or 3 axes, in whatever layout the operand's view has."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable

from ... import tensor as te
from ...graph.ir import Call
from ...tensor import ir as tir
from .view import Builder, Index, NotLoweredError, Rule, View, register_rules


def padded_read(x: View, pads: tuple[int, ...], fill: tir.Const) -> Callable[[Index], tir.Expr]:
    """Reads (n, c, ...) at places that count from the padding's first; outside it is ``fill``."""
    count = len(pads) // 2
    if count == 2 and x.fill == fill.value and all(h >= wanted for h, wanted in zip(x.halo, pads, strict=True)):
        return lambda index: x[index[0], index[1], index[2] - pads[0], index[3] - pads[1]]

    def read(index: Index) -> tir.Expr:
        places = [place - before for place, before in zip(index[2:], pads[:count], strict=True)]
        inside: tir.Expr | None = None
        for axis, place in enumerate(places):
            for wanted, condition in (
                (pads[axis], tir.Const(0) <= place), (pads[count + axis], place < x.shape[2 + axis]),
            ):  # fmt: skip
                if wanted:
                    inside = condition if inside is None else inside & condition
        value = x[(*index[:2], *places)]
        return value if inside is None else tir.select(inside, value, fill)

    return read


def clamped_read(x: View, pads: tuple[int, ...]) -> Callable[[Index], tir.Expr]:
    """As `padded_read`, but outside it gives the nearest element: right for a maximum over an undilated window."""
    count = len(pads) // 2

    def clamp(place: tir.Expr, axis: int) -> tir.Expr:
        before, after = pads[axis], pads[count + axis]
        place = place - before
        place = tir.maximum(place, 0) if before else place
        return tir.minimum(place, x.shape[2 + axis] - 1) if after else place

    return lambda index: x[(*index[:2], *(clamp(place, axis) for axis, place in enumerate(index[2:])))]


def _window_axes(builder: Builder, kernel: tuple[int, ...]) -> list[te.ReduceAxis]:
    """The places of a window of 2 or 3 axes."""
    return [builder.axis(size, name) for size, name in zip(kernel, ("kd", "kh", "kw")[-len(kernel) :], strict=True)]


def _met(
    index: Index, window: list[te.ReduceAxis], strides: tuple[int, ...], dilations: tuple[int, ...]
) -> tuple[tir.Expr, ...]:
    """Where a place of the window meets the padded input, for a result at ``index``: its axes after the channel."""
    return tuple(
        place * stride + offset * dilation
        for place, offset, stride, dilation in zip(index[2:], window, strides, dilations, strict=True)
    )


def _convolution(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, w = operands
    if x.dtype not in (*tir.FLOATS, "int8"):
        raise NotLoweredError(f"{call.op} of {x.dtype}")
    out_channels, group_in, *kernel = w.shape
    group_out = out_channels // call.attr("groups")
    fill = tir.Const(call.attrs.get("pad_value", 0), x.dtype)  # type: ignore[arg-type]
    read = padded_read(x, call.attr("pads"), fill)
    kc, window = builder.axis(group_in, "kc"), _window_axes(builder, tuple(kernel))
    wide: tir.DType = x.dtype if x.dtype in tir.FLOATS else "int32"

    def value(*index: tir.Expr) -> te.Reduction:
        n, o = index[:2]
        channel = kc if group_out == out_channels else o // group_out * group_in + kc
        places = _met(index, window, call.attr("strides"), call.attr("dilations"))
        return te.sum(read((n, channel, *places)).astype(wide) * w[(o, kc, *window)].astype(wide), [kc, *window])

    return builder.reduction(call.shape, value, "acc")


def pooled(
    builder: Builder, call: Call, read: Callable[[Index], tir.Expr], reducer: Callable[..., te.Reduction]
) -> View:
    """Windows of ``read`` combined."""
    kernel = call.attr("kernel")
    dilations = call.attr("dilations") if "dilations" in call.attrs else (1,) * len(kernel)
    window = _window_axes(builder, kernel)

    def value(*index: tir.Expr) -> te.Reduction:
        return reducer(read((*index[:2], *_met(index, window, call.attr("strides"), dilations))), window)

    return builder.reduction(call.shape, value, "acc")


def _max_pool(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x = operands[0]
    pads = call.attr("pads")
    if set(call.attr("dilations")) == {1} and _windows_meet_input(call, x):
        return pooled(builder, call, clamped_read(x, pads), te.max)
    lowest = -math.inf if x.dtype in tir.FLOATS else tir.INTEGER_RANGES[x.dtype][0]
    return pooled(builder, call, padded_read(x, pads, tir.Const(lowest, x.dtype)), te.max)


def _windows_meet_input(call: Call, x: View) -> bool:
    """Whether all undilated windows, so the first and the last of each axis, have an element that is not padding."""
    reach = [size - pad for size, pad in zip(call.attr("kernel") * 2, call.attr("pads"), strict=True)]
    return min(reach) > 0 and all(
        (call.shape[2 + axis] - 1) * stride - call.attr("pads")[axis] < x.shape[2 + axis]
        for axis, stride in enumerate(call.attr("strides"))
    )


def _average_pool(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x = operands[0]
    if x.dtype not in tir.FLOATS:
        raise NotLoweredError(f"{call.op} of {x.dtype}")
    kernel, strides, pads = call.attr("kernel"), call.attr("strides"), call.attr("pads")
    zero = tir.Const(0.0, x.dtype)
    total = pooled(builder, call, padded_read(x, pads, zero), te.sum)
    if not any(pads) or call.attr("count_include_pad"):
        return View(call.shape, x.dtype, lambda index: total[index] / float(math.prod(kernel)))
    if set(call.attr("dilations")) != {1}:
        ones = View(x.shape, x.dtype, lambda index: tir.Const(1.0, x.dtype))
        counted = pooled(builder, call, padded_read(ones, pads, zero), te.sum)
        return View(call.shape, x.dtype, lambda index: total[index] / counted[index])

    def present(place: tir.Expr, axis: int) -> tir.Expr:
        """How many places of the window along an axis are not padding."""
        start = place * strides[axis] - pads[axis]
        end = tir.minimum(start + kernel[axis], x.shape[2 + axis])
        count = end - tir.maximum(start, 0)
        return count if _windows_meet_input(call, x) else tir.maximum(count, 0)

    def read(index: Index) -> tir.Expr:
        first, *others = (present(place, axis) for axis, place in enumerate(index[2:]))
        count = functools.reduce(operator.mul, others, first)
        return total[index] / count.astype(x.dtype)

    return View(call.shape, x.dtype, read)


def _sum_pool(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x = operands[0]
    read = padded_read(x, call.attr("pads"), tir.Const(call.attr("pad_value"), "int8"))
    return pooled(builder, call, lambda index: read(index).astype("int32"), te.sum)


RULES: dict[str, Rule] = {
    "nn.conv2d": _convolution,
    "nn.conv3d": _convolution,
    "conv2d": _convolution,
    "nn.max_pool": _max_pool,
    "max_pool": _max_pool,
    "nn.average_pool": _average_pool,
    "sum_pool": _sum_pool,
}

register_rules(RULES)
