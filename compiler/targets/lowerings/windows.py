"""Convolutions and poolings over rows and columns, in whatever layout the operand's view has."""

from __future__ import annotations

import math
from collections.abc import Callable

from ... import tensor as te
from ...graph.ir import Call
from ...tensor import ir as tir
from .view import Builder, Index, NotLoweredError, Rule, View, register_rules


def padded_read(x: View, pads: tuple[int, ...], fill: tir.Const) -> Callable[[Index], tir.Expr]:
    """Reads (n, c, y, x) at rows and columns that count from the padding's first; outside it is ``fill``."""
    top, left, bottom, right = pads
    height, width = x.shape[2:]
    if x.fill == fill.value and all(have >= wanted for have, wanted in zip(x.halo, pads, strict=True)):
        return lambda index: x[index[0], index[1], index[2] - top, index[3] - left]

    def read(index: Index) -> tir.Expr:
        n, c, y, column = index
        y, column = y - top, column - left
        tests = [
            (top, tir.Const(0) <= y), (bottom, y < height), (left, tir.Const(0) <= column), (right, column < width),
        ]  # fmt: skip
        inside: tir.Expr | None = None
        for wanted, condition in tests:
            if wanted:
                inside = condition if inside is None else inside & condition
        value = x[n, c, y, column]
        return value if inside is None else tir.select(inside, value, fill)

    return read


def clamped_read(x: View, pads: tuple[int, ...]) -> Callable[[Index], tir.Expr]:
    """As `padded_read`, but outside it gives the nearest element: right for a maximum over an undilated window."""
    top, left, bottom, right = pads
    height, width = x.shape[2:]

    def clamp(place: tir.Expr, before: int, after: int, size: int) -> tir.Expr:
        place = place - before
        place = tir.maximum(place, 0) if before else place
        return tir.minimum(place, size - 1) if after else place

    return lambda index: x[index[0], index[1], clamp(index[2], top, bottom, height),
                           clamp(index[3], left, right, width)]  # fmt: skip


def _require_images(call: Call, x: View) -> None:
    if len(x.shape) != 4:
        raise NotLoweredError(f"{call.op} over {len(x.shape) - 2} axes")


def _convolution(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, w = operands
    _require_images(call, x)
    if x.dtype not in (*tir.FLOATS, "int8"):
        raise NotLoweredError(f"{call.op} of {x.dtype}")
    out_channels, group_in, kernel_h, kernel_w = w.shape
    group_out = out_channels // call.attr("groups")
    strides, dilations = call.attr("strides"), call.attr("dilations")
    fill = tir.Const(call.attrs.get("pad_value", 0), x.dtype)  # type: ignore[arg-type]
    read = padded_read(x, call.attr("pads"), fill)
    kc, kh, kw = builder.axis(group_in, "kc"), builder.axis(kernel_h, "kh"), builder.axis(kernel_w, "kw")
    wide: tir.DType = x.dtype if x.dtype in tir.FLOATS else "int32"

    def value(n: tir.Expr, o: tir.Expr, y: tir.Expr, column: tir.Expr) -> te.Reduction:
        channel = kc if group_out == out_channels else o // group_out * group_in + kc
        place = (n, channel, y * strides[0] + kh * dilations[0], column * strides[1] + kw * dilations[1])
        return te.sum(read(place).astype(wide) * w[o, kc, kh, kw].astype(wide), [kc, kh, kw])

    return builder.reduction(call.shape, value, "acc")


def pooled(
    builder: Builder, call: Call, read: Callable[[Index], tir.Expr], reducer: Callable[..., te.Reduction]
) -> View:
    """Windows of ``read`` combined."""
    kernel, strides = call.attr("kernel"), call.attr("strides")
    step_h, step_w = call.attr("dilations") if "dilations" in call.attrs else (1, 1)
    kh, kw = builder.axis(kernel[0], "kh"), builder.axis(kernel[1], "kw")

    def value(n: tir.Expr, c: tir.Expr, y: tir.Expr, column: tir.Expr) -> te.Reduction:
        place = (n, c, y * strides[0] + kh * step_h, column * strides[1] + kw * step_w)
        return reducer(read(place), [kh, kw])

    return builder.reduction(call.shape, value, "acc")


def _max_pool(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x = operands[0]
    _require_images(call, x)
    pads = call.attr("pads")
    reach = [size - pad for size, pad in zip(call.attr("kernel") * 2, pads, strict=True)]
    if call.attr("dilations") == (1, 1) and min(reach) > 0 and _windows_meet_input(call, x):
        return pooled(builder, call, clamped_read(x, pads), te.max)
    lowest = -math.inf if x.dtype in tir.FLOATS else tir.INTEGER_RANGES[x.dtype][0]
    return pooled(builder, call, padded_read(x, pads, tir.Const(lowest, x.dtype)), te.max)


def _windows_meet_input(call: Call, x: View) -> bool:
    """Whether the last window of each axis has an element that is not padding, as the first has."""
    return all(
        (call.shape[2 + axis] - 1) * call.attr("strides")[axis] - call.attr("pads")[axis] < x.shape[2 + axis]
        for axis in (0, 1)
    )


def _average_pool(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x = operands[0]
    _require_images(call, x)
    if x.dtype not in tir.FLOATS:
        raise NotLoweredError(f"{call.op} of {x.dtype}")
    kernel, strides, pads = call.attr("kernel"), call.attr("strides"), call.attr("pads")
    if any(pads) and not call.attr("count_include_pad") and call.attr("dilations") != (1, 1):
        raise NotLoweredError("a dilated mean that leaves the padding out")
    total = pooled(builder, call, padded_read(x, pads, tir.Const(0.0, x.dtype)), te.sum)

    def present(place: tir.Expr, axis: int) -> tir.Expr:
        """How many rows (columns) of the window are not padding."""
        start = place * strides[axis] - pads[axis]
        end = tir.minimum(start + kernel[axis], x.shape[2 + axis])
        return end - tir.maximum(start, 0)

    def read(index: Index) -> tir.Expr:
        if not any(pads) or call.attr("count_include_pad"):
            return total[index] / float(kernel[0] * kernel[1])
        count = present(index[2], 0) * present(index[3], 1)
        return total[index] / count.astype(x.dtype)

    return View(call.shape, x.dtype, read)


def _sum_pool(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x = operands[0]
    read = padded_read(x, call.attr("pads"), tir.Const(call.attr("pad_value"), "int8"))
    return pooled(builder, call, lambda index: read(index).astype("int32"), te.sum)


RULES: dict[str, Rule] = {
    "nn.conv2d": _convolution,
    "conv2d": _convolution,
    "nn.max_pool": _max_pool,
    "max_pool": _max_pool,
    "nn.average_pool": _average_pool,
    "sum_pool": _sum_pool,
}

register_rules(RULES)
