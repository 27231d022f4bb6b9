"""Operators of the integer contract (docs/integers.md). Activations are int8, accumulators int32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...roundings import FLOAT32, HALF_UP, nudged
from .. import tensor as te
from ..graph.ir import Array, Attrs, Call, Constant, TensorType
from ..graph.registry import (
    REQUIRED,
    Accuracy,
    Anchor,
    Family,
    Fusion,
    Lowering,
    Operator,
    Sample,
    TypeRule,
    call,
    register,
)
from ..tensor import ir as tir
from ..tensor.view import Builder, Index, View
from . import numerics
from .convolution import convolution, convolution_macs
from .pooling import max_pool
from .reasons import INTEGER_HAS_NO_GRADIENT
from .samples import IMAGE, WEIGHTS, WINDOW, sample_of, variable
from .type_rules import conv_type, integer, ints, pool_type, require, require_dtype, require_rounding
from .windows import padded_read, pooled

_COMMON: dict[str, Any] = {
    "family": Family.INTEGER, "gradient": INTEGER_HAS_NO_GRADIENT, "accuracy": Accuracy.EXACT,
}  # fmt: skip


def _convolution_type(spatial: int) -> TypeRule:
    def rule(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
        x, w = operands
        require_dtype(x, "the input", "int8")
        require_dtype(w, "the weights", "int8")
        integer(attrs, "pad_value", -128, 127)
        return conv_type(x, w, attrs, "int32", spatial)

    return rule


def _register_convolution(spatial: int, sample: Sample) -> None:
    once, none = (1,) * spatial, (0,) * (2 * spatial)
    register(Operator(
        f"conv{spatial}d", "x w", types=_convolution_type(spatial), numpy=numerics.convolve_integers, lower=convolution,
        fusion=Fusion.ANCHOR, anchor=Anchor.CONVOLUTION, macs=convolution_macs, sample=sample, **_COMMON,
        defaults={"strides": once, "pads": none, "dilations": once, "groups": 1, "pad_value": 0},
        doc=f"Sum of products of int8 input and weights over {spatial} axes, int32, without bias. Padding holds "
        "pad_value (the zero point).",
    ))  # fmt: skip


_register_convolution(2, sample_of("conv2d", IMAGE, WEIGHTS, groups=2, pads=(1, 0, 1, 1), pad_value=3))
_register_convolution(3, sample_of("conv3d", (1, 4, 3, 4, 5), (6, 2, 2, 3, 2), groups=2, pads=(1, 0, 1, 0, 1, 1),
                                   pad_value=3))  # fmt: skip


def _unfold_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x = operands[0]
    require_dtype(x, "the input", "int8")
    integer(attrs, "pad_value", -128, 127)
    batch, channels, out_h, out_w = pool_type(x, attrs, "int8").shape
    kernel_h, kernel_w = ints(attrs, "kernel", 2)
    return TensorType((batch, kernel_h * kernel_w * channels, out_h, out_w), "int8")


def _unfold(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    """Surrounded once, then read as often as windows meet: so no read has to ask where it is."""
    x, pads = operands[0], call.attr("pads")
    (_, kernel_w), (stride_h, stride_w) = call.attr("kernel"), call.attr("strides")
    (dilation_h, dilation_w), channels = call.attr("dilations"), x.shape[1]
    if any(pads):
        read = padded_read(x, pads, tir.Const(call.attr("pad_value"), "int8"))
        top, left, bottom, right = pads
        height, width = x.shape[2] + top + bottom, x.shape[3] + left + right
        x = builder.stored(View((*x.shape[:2], height, width), "int8", read), "padded")

    def met(index: Index) -> tir.Expr:
        n, channel, row, column = index
        tap = channel // channels
        place = row * stride_h + tap // kernel_w * dilation_h, column * stride_w + tap % kernel_w * dilation_w
        return x[(n, channel % channels, *place)]

    return View(call.shape, "int8", met)


register(Operator(
    "unfold", "x", **(_COMMON | {"family": Family.HOST}), types=_unfold_type, numpy=numerics.unfold, lower=_unfold,
    fusion=Fusion.LAYOUT, passive=True, sample=sample_of("unfold", (1, 3, 5, 6), **WINDOW, pad_value=1),
    defaults={"kernel": REQUIRED, "strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "pad_value": 0},
    doc="All that a window meets becomes channels (N, KH*KW*C, OH, OW), in this order. Padding holds pad_value.",
))  # fmt: skip


def _max_pool_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x = operands[0]
    require_dtype(x, "the input", "int8")
    return pool_type(x, attrs, "int8", 3 if x.rank == 5 else 2)


register(Operator(
    "max_pool", "x", types=_max_pool_type, numpy=lambda x, **attrs: numerics.max_pool(x, pad_value=-128, **attrs),
    lower=max_pool, fusion=Fusion.ANCHOR, anchor=Anchor.POOL, **_COMMON, sample=sample_of("max_pool", IMAGE, **WINDOW),
    defaults={"kernel": REQUIRED, "strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)},
    doc="Maximum over windows of int8, of 2 axes or 3; padding never wins (it holds -128).",
))  # fmt: skip


def _sum_pool_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    require_dtype(operands[0], "the input", "int8")
    integer(attrs, "pad_value", -128, 127)
    return pool_type(operands[0], attrs, "int32")


def _sum_pool(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x = operands[0]
    read = padded_read(x, call.attr("pads"), tir.Const(call.attr("pad_value"), "int8"))
    return pooled(builder, call, lambda index: read(index).astype("int32"), te.sum)


register(Operator(
    "sum_pool", "x", types=_sum_pool_type, numpy=numerics.sum_pool, lower=_sum_pool, fusion=Fusion.ANCHOR,
    anchor=Anchor.POOL, **_COMMON, sample=sample_of("sum_pool", IMAGE, **WINDOW, pad_value=-2),
    defaults={"kernel": REQUIRED, "strides": (1, 1), "pads": (0, 0, 0, 0), "pad_value": 0},
    doc="Sum over windows of int8, int32. Padding holds pad_value (the zero point).",
))  # fmt: skip


def _product_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, w = operands
    require_dtype(x, "the input", "int8")
    require_dtype(w, "the other operand", "int8")
    require(x.rank == 4 and (w.rank, w.shape[0], w.shape[1], w.shape[3:]) == (4, *x.shape[:2], (1,)),
            f"{w} is not (N, C, outputs, 1) beside {x}")  # fmt: skip
    outputs = integer(attrs, "outputs", 1, w.shape[2])
    integer(attrs, "depth", 1, x.shape[1])
    for zero in ints(attrs, "zero_points", 2):
        require(-128 <= zero <= 127, f"a zero point is {zero}, but must be -128..127")
    return TensorType((x.shape[0], outputs, *x.shape[2:]), "int32")


def product_of_images(x: Array, w: Array, outputs: int, zero_points: Sequence[int] = (0, 0)) -> Array:
    """The meaning of ``product``, in float64, which holds its sums."""
    first, second = x.astype(np.float64) - zero_points[0], w[:, :, :outputs, 0].astype(np.float64) - zero_points[1]
    return numerics.wrap_int32(np.einsum("nchw,nco->nohw", first, second, optimize=True).astype(np.int64))


def _product(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, w = operands
    channel = builder.axis(x.shape[1], "c")
    first, second = call.attr("zero_points")

    def value(*index: tir.Expr) -> te.Reduction:
        image, output, row, column = index
        factor = w[(image, channel, output, tir.Const(0))].astype("int32") - second
        return te.sum((x[(image, channel, row, column)].astype("int32") - first) * factor, channel)

    return builder.reduction(call.shape, value, "product")


register(Operator(
    "product", "x w", types=_product_type, lower=_product, fusion=Fusion.ANCHOR, anchor=Anchor.PRODUCT,
    numpy=lambda x, w, depth, outputs, zero_points: product_of_images(x, w, outputs, zero_points),
    macs=lambda node: node.tensor_type.size * int(str(node.attr("depth"))),
    **_COMMON, defaults={"depth": REQUIRED, "outputs": REQUIRED, "zero_points": (0, 0)},
    sample=sample_of("product", (2, 5, 3, 2), (2, 5, 4, 1), depth=4, outputs=3, zero_points=(3, -7)),
    doc="Of two computed tensors, for each image: sum over c of (x[n, c, h, w] - zx) * (w[n, c, o, 0] - zw), int32 "
        "(N, outputs, H, W); zero_points: zx, zw. depth: channels that count as work, the others are padding or zero "
        "points.",
))  # fmt: skip


REQUANTISE: dict[str, Any] = {"zero_point": 0, "low": -128, "high": 127, "left_shift": 0, "out": "int8",
                               "rounding": HALF_UP}  # fmt: skip
"""The attributes of a requantise, with their defaults."""


def check_requantise_attrs(attrs: Attrs) -> str:
    """Check the scalars of a requantise; returns the element type of its result."""
    integer(attrs, "zero_point", *numerics.INT9)
    low, high = integer(attrs, "low", *numerics.INT9), integer(attrs, "high", *numerics.INT9)
    require(low <= high, f"low {low} is above high {high}")
    left_shift = integer(attrs, "left_shift", 0, numerics.MAX_LEFT_SHIFT)
    out = result_dtype(attrs)
    require_rounding(attrs)
    narrow = left_shift == 0 and low >= -128 and high <= 127
    require(out == "int32" or narrow, f"low {low}, high {high}, left_shift {left_shift} do not fit an int8 result")
    return out


def result_dtype(attrs: Attrs) -> str:
    """``out``, the element type of a result: int8, or int32 for the next operator on the core."""
    out = attrs["out"]
    require(out in ("int8", "int32"), f"out must be 'int8' or 'int32', not {out!r}")
    return str(out)


def _requantise_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, *params = operands
    require_dtype(x, "the input", "int8", "int32")
    require(x.rank >= 2, f"the input must have a channel axis, but is {x}")
    for name, param in zip(("bias", "multiplier", "shift"), params, strict=True):
        wanted = TensorType((x.shape[1],), "int32")
        require(param == wanted, f"{name} must be {wanted}, one a channel, not {param}")
    return TensorType(x.shape, check_requantise_attrs(attrs))


def _requantise(x: Array, *params: Array, **attrs: Any) -> Array:
    per_channel = [param.reshape((1, -1) + (1,) * (x.ndim - 2)) for param in params]
    return numerics.requantise(x, *per_channel, **attrs)


def requantised(
    x: tir.Expr, bias: tir.Expr, multiplier: tir.Expr, shift: tir.Expr, zero_point: tir.Expr | int,
    low: tir.Expr | int, high: tir.Expr | int, left_shift: tir.Expr | int = 0, *, rounding: str = HALF_UP,
) -> tir.Expr:  # fmt: skip
    """One element of a requantise as an expression, of int64. A zero point or a left shift that is the number 0 is not
    written down.

    ``x``, ``bias``, ``multiplier``, ``shift``: int32. A product has at most 62 bits: no sum behind it wraps.
    """
    amount = shift.astype("int64")
    if rounding == FLOAT32:
        real = (x + bias).astype("float32") * multiplier.astype("float32")
        value = te.round(real / (tir.Const(1) << amount).astype("float32")).astype("int64")
    else:
        product = nudged(rounding, (x + bias).astype("int64") * multiplier.astype("int64"), amount)
        value = (product + (tir.Const(1) << (amount - 1))) >> amount
    if not (isinstance(zero_point, int) and zero_point == 0):
        value = value + zero_point
    value = tir.clamp(value, low, high)
    return value if isinstance(left_shift, int) and left_shift == 0 else value << left_shift


def requantise_scalars(node: Call) -> tuple[int, int, int, int]:
    """Zero point, low, high and left shift of a requantise, as `requantised` takes them."""
    return node.attr("zero_point"), node.attr("low"), node.attr("high"), node.attr("left_shift")


def _lower_requantise(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, *parameters = operands
    target: tir.DType = "int32" if call.attr("out") == "int32" else "int8"
    scalars, rounding = requantise_scalars(call), str(call.attr("rounding"))

    def read(index: Index) -> tir.Expr:
        channel = (index[1],)
        bias, multiplier, shift = (each[channel] for each in parameters)
        value = requantised(x[index].astype("int32"), bias, multiplier, shift, *scalars, rounding=rounding)
        return value.astype(target)

    return View(call.shape, target, read)


def _sample_requantise(dtype: str) -> Call:
    params = [Constant(np.array(values, np.int32)) for values in ([5, -3], [1 << 23, 12_345_678], [24, 30])]
    return call("requantise", variable(dtype, 1, 2, 3, 3), *params)


register(Operator(
    "requantise", "x bias multiplier shift", types=_requantise_type, numpy=_requantise, lower=_lower_requantise,
    fusion=Fusion.ELEMENTWISE, **_COMMON, defaults=REQUANTISE, sample=_sample_requantise,
    doc="clamp(((x + bias) * multiplier + half >> shift) + zero_point, low, high) << left_shift, one rounding; "
        "or, where rounding is 'float32', as `requantise_float32` with the scale multiplier / 2**shift. Where it is "
        "'two_roundings', the multiplier has 31 bits, and a product with a shift above 31 is rounded to a multiple of "
        "2**31 first, halves up, then the rest of the way, halves away from 0. 'half_away' and 'half_even' round the "
        "exact product once, as 'half_up' does, but for halves.",
))  # fmt: skip


ROUNDING_SUMMAND = 1.5 * 2**23
"""Beside it float32 has no bits behind the point: a sum with a small number is rounded to a whole one."""

ROUNDING_SUMMAND_BITS = 0x4B400000


def _requantise_float32_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, bias, scale = operands
    require_dtype(x, "the input", "int8", "int32")
    require(x.rank >= 2, f"the input must have a channel axis, but is {x}")
    for name, param, dtype in (("bias", bias, "int32"), ("scale", scale, "float32")):
        wanted = TensorType((x.shape[1],), dtype)
        require(param == wanted, f"{name} must be {wanted}, one a channel, not {param}")
    low, high = (integer(attrs, name, -128, 127) for name in ("low", "high"))
    require(low <= high, f"low {low} is above high {high}")
    integer(attrs, "zero_point", -128, 127)
    return TensorType(x.shape, "int8")


def _requantise_float32(x: Array, *params: Array, **attrs: Any) -> Array:
    per_channel = [param.reshape((1, -1) + (1,) * (x.ndim - 2)) for param in params]
    return numerics.requantise_float32(x, *per_channel, **attrs)


def _lower_requantise_float32(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, bias, scale = operands
    zero_point, low, high = (int(str(call.attr(name))) for name in ("zero_point", "low", "high"))

    def read(index: Index) -> tir.Expr:
        channel = (index[1],)
        real = (x[index].astype("int32") + bias[channel]).astype("float32") * scale[channel]
        limited = tir.clamp(real, float(low - zero_point), float(high - zero_point))
        whole = (limited + ROUNDING_SUMMAND).bits("int32") + (zero_point - ROUNDING_SUMMAND_BITS)
        return tir.clamp(whole, -128, 127).astype("int8")  # as saturating instructions have it

    return View(call.shape, "int8", read)


def _sample_requantise_float32(dtype: str) -> Call:
    bias, scale = np.array([5, -3], np.int32), np.array([0.5, 0.0173], np.float32)
    return call("requantise_float32", variable(dtype, 1, 2, 3, 3), Constant(bias), Constant(scale), zero_point=3)


register(Operator(
    "requantise_float32", "x bias scale", types=_requantise_float32_type, numpy=_requantise_float32,
    lower=_lower_requantise_float32, fusion=Fusion.ELEMENTWISE, **_COMMON,
    defaults={"zero_point": 0, "low": -128, "high": 127}, sample=_sample_requantise_float32,
    doc="clamp(round(float32(x + bias) * scale) + zero_point, low, high), int8; the sum and its product with the scale "
        "are rounded to float32, the product to a whole number, halves to even. XNNPACK's requantisation.",
))  # fmt: skip


LOOK_UP_ENTRIES = 256
"""Of a table: one for each value of an int8."""


def _look_up_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, table = operands
    require_dtype(x, "the input", "int8", "int32")
    require(table == TensorType((LOOK_UP_ENTRIES,), "int8"), f"the table must be int8[{LOOK_UP_ENTRIES}], not {table}")
    return TensorType(x.shape, result_dtype(attrs))


def _look_up(x: Array, table: Array, out: str) -> Array:
    return np.asarray(table[x.astype(np.int8).astype(np.int64) + LOOK_UP_ENTRIES // 2]).astype(out)


def _lower_look_up(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, table = operands
    target: tir.DType = "int32" if call.attr("out") == "int32" else "int8"

    def read(index: Index) -> tir.Expr:
        entry = x[index].astype("int8").astype("int64") + LOOK_UP_ENTRIES // 2
        return table[(entry,)].astype(target)

    return View(call.shape, target, read)


def _sample_look_up(dtype: str) -> Call:
    values = np.random.default_rng(0).integers(-128, 127, LOOK_UP_ENTRIES, np.int8, endpoint=True)
    return call("look_up", variable(dtype, 2, 3, 4), Constant(values))


register(Operator(
    "look_up", "x table", **_COMMON, types=_look_up_type, lower=_lower_look_up, numpy=_look_up,
    fusion=Fusion.ELEMENTWISE, defaults={"out": "int8"}, sample=_sample_look_up, cost=4,
    doc="The entry of the table for each int8 (of an int32, its low 8 bits), of which the least has the first.",
))  # fmt: skip


WEIGHT_RANGE = (-(1 << 24), (1 << 24) - 1)
"""Of the numbers that arithmetic on accumulators takes as attributes."""


def _accumulator_type(name: str) -> TypeRule:
    def rule(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
        for operand in operands:
            require_dtype(operand, "an operand", "int8", "int32")
            require(operand.shape == operands[0].shape, f"operands differ in shape: {operands[0]} and {operand}")
        if name:
            integer(attrs, name, *WEIGHT_RANGE)
        return TensorType(operands[0].shape, "int32")

    return rule


def _multiply_accumulate_type(operands: Sequence[TensorType], attrs: Attrs) -> Any:
    require_dtype(operands[0], "the accumulator", "int32")
    return _accumulator_type("weight")(operands, attrs)


def repeats(x: TensorType, into: TensorType) -> bool:
    """Whether ``x``, (N, c, ...), may stand beside ``into``, (N, C, ...): the same shape, or c channels that repeat, or
    one number for all behind the channels."""
    if x.shape == into.shape or x.rank != into.rank or x.rank < 2:
        return x.shape == into.shape  # also without any channel
    rest = tuple(1 for _ in into.shape[2:])
    return x.shape[0] == into.shape[0] and 0 < x.shape[1] <= into.shape[1] and x.shape[2:] in (into.shape[2:], rest)


def repeated(x: Array, shape: Sequence[int]) -> Array:
    """``x`` as often as `repeats` says."""
    if x.shape == tuple(shape):
        return x
    return np.broadcast_to(x[:, np.arange(shape[1]) % x.shape[1]], tuple(shape))


def _repeated_view(x: View, shape: Sequence[int]) -> View:
    if x.shape == tuple(shape):
        return x

    def read(index: Index) -> tir.Expr:
        image, channel, *rest = index
        place = [tir.Const(0) if size == 1 else each for each, size in zip(rest, x.shape[2:], strict=True)]
        return x[(image, channel % x.shape[1] if x.shape[1] < shape[1] else channel, *place)]

    return View(tuple(shape), x.dtype, read)


def _repeating_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    a, b = operands
    for operand in operands:
        require_dtype(operand, "an operand", "int8", "int32")
    require(repeats(b, a), f"{b} does not repeat into {a}")
    return TensorType(a.shape, "int32")


def _repeating(formula: Callable[..., tir.Expr]) -> Lowering:
    """Arithmetic in int32, which wraps, of an operand and one that repeats; they may be int8."""

    def rule(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
        a, b = operands[0], _repeated_view(operands[1], call.shape)
        return View(call.shape, "int32", lambda i: formula(call, a[i].astype("int32"), b[i].astype("int32")))

    return rule


def _wide(x: Array) -> Array:
    return x.astype(np.int64)


def _wrapping(formula: Callable[..., tir.Expr]) -> Lowering:
    """Arithmetic in int32, which wraps; operands may be int8."""

    def rule(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
        return View(call.shape, "int32", lambda index: formula(call, *(x[index].astype("int32") for x in operands)))

    return rule


_PLANES = (1, 2, 3)
_ARITHMETIC: dict[str, Any] = {**_COMMON, "fusion": Fusion.ELEMENTWISE}
register(Operator(
    "multiply", "a b", types=_repeating_type,
    numpy=lambda a, b: numerics.wrap_int32(_wide(a) * _wide(repeated(b, a.shape))),
    lower=_repeating(lambda call, a, b: a * b), sample=sample_of("multiply", _PLANES, (1, 2, 1)), **_ARITHMETIC,
    doc="a * b, int32. b may be one number a channel, (N, C, 1, 1), or have fewer channels, which repeat.",
))  # fmt: skip
register(Operator(
    "add", "a b", types=_repeating_type,
    numpy=lambda a, b: numerics.wrap_int32(_wide(a) + _wide(repeated(b, a.shape))),
    lower=_repeating(lambda call, a, b: a + b), sample=sample_of("add", (1, 4, 3), (1, 2, 3)), **_ARITHMETIC,
    doc="a + b, int32. b may repeat as in multiply.",
))  # fmt: skip
register(Operator(
    "multiply_immediate", "x", types=_accumulator_type("weight"), defaults={"weight": REQUIRED},
    numpy=lambda x, weight: numerics.wrap_int32(_wide(x) * weight),
    lower=_wrapping(lambda call, x: x * call.attr("weight")),
    sample=sample_of("multiply_immediate", _PLANES, weight=100), **_ARITHMETIC, doc="x * weight, int32.",
))  # fmt: skip
register(Operator(
    "subtract_immediate", "x", types=_accumulator_type("value"), defaults={"value": REQUIRED},
    numpy=lambda x, value: numerics.wrap_int32(_wide(x) - value),
    lower=_wrapping(lambda call, x: x - call.attr("value")),
    sample=sample_of("subtract_immediate", _PLANES, value=5), **_ARITHMETIC, doc="x - value, int32.",
))  # fmt: skip
register(Operator(
    "maximum_immediate", "x", types=_accumulator_type("value"), defaults={"value": REQUIRED},
    numpy=lambda x, value: np.maximum(x, value).astype(np.int32),
    lower=_wrapping(lambda call, x: te.maximum(x, call.attr("value"))),
    sample=sample_of("maximum_immediate", _PLANES, value=3), **_ARITHMETIC, doc="max(x, value), int32.",
))  # fmt: skip
register(Operator(
    "multiply_accumulate", "accumulator x", types=_multiply_accumulate_type, defaults={"weight": REQUIRED},
    numpy=lambda accumulator, x, weight: numerics.wrap_int32(_wide(accumulator) + _wide(x) * weight),
    lower=_wrapping(lambda call, accumulator, x: accumulator + x * call.attr("weight")),
    sample=sample_of("multiply_accumulate", _PLANES, _PLANES, weight=-7), **_ARITHMETIC,
    doc="accumulator + x * weight, int32: the residual addition.",
))  # fmt: skip
