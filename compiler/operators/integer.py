"""Operators of the integer contract (docs/integers.md). Activations are int8, accumulators int32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph.ir import Array, Attrs, GraphError, TensorType
from ..graph.registry import INTEGER_HAS_NO_GRADIENT, NOT_LOWERED, REQUIRED, Fusion, register, unsupported
from . import numerics

PACKED_ONLY = unsupported("only its packed form becomes a kernel")


def require(condition: bool, message: str, hint: str = "") -> None:
    """Raise `GraphError` unless ``condition``; the caller adds the operator's name and the place."""
    if not condition:
        raise GraphError(message, hint=hint)


def require_dtype(operand: TensorType, what: str, *dtypes: str) -> None:
    require(operand.dtype in dtypes, f"{what} must be {' or '.join(dtypes)}, not {operand.dtype}")


def ints(attrs: Attrs, name: str, count: int) -> tuple[int, ...]:
    """Attribute ``name`` as ``count`` integers."""
    value = attrs[name]
    if not isinstance(value, tuple) or len(value) != count or not all(isinstance(item, int) for item in value):
        raise GraphError(f"{name} must be {count} integers, not {value!r}")
    return tuple(int(str(item)) for item in value)


def integer(attrs: Attrs, name: str, low: int, high: int) -> int:
    """Attribute ``name`` as an integer of low..high."""
    value = attrs[name]
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise GraphError(f"{name} must be an integer of {low}..{high}, not {value!r}")
    return value


def window_type(
    size: Sequence[int], kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int]
) -> tuple[int, ...]:
    """Number of positions of a window along each axis of ``size``, checked; ``pads``: before each axis, then after."""
    require(all(k >= 1 for k in kernel), f"every size of the kernel {tuple(kernel)} must be at least 1")
    require(all(s >= 1 for s in strides), f"strides must be at least 1, not {tuple(strides)}")
    require(all(d >= 1 for d in dilations), f"dilations must be at least 1, not {tuple(dilations)}")
    require(all(p >= 0 for p in pads), f"pads must not be negative, but are {tuple(pads)}")
    result = [
        numerics.output_size(size[i], kernel[i], strides[i], pads[i], pads[i + len(size)], dilations[i])
        for i in range(len(size))
    ]
    require(
        min(result) >= 1,
        f"a kernel of {tuple(kernel)} with dilation {tuple(dilations)} does not fit into "
        f"{tuple(size)} padded by {tuple(pads)}",
    )
    return tuple(result)


_LAYOUTS = {1: "(N, C, W)", 2: "(N, C, H, W)", 3: "(N, C, D, H, W)"}


def conv_type(x: TensorType, w: TensorType, attrs: Attrs, dtype: str, spatial: int = 2) -> TensorType:
    """Type of a convolution over ``spatial`` axes, floating or integer."""
    layout = _LAYOUTS[spatial]
    require(x.rank == spatial + 2, f"the input must be {layout}, not {x}")
    kernel = ", ".join(f"K{axis}" for axis in layout[7:-1].split(", "))
    require(w.rank == spatial + 2, f"the weights must be (O, C/groups, {kernel}), not {w}")
    groups = integer(attrs, "groups", 1, 1 << 30)
    require(
        x.shape[1] == w.shape[1] * groups and w.shape[0] % groups == 0,
        f"{x.shape[1]} input channels and weights {w.shape} do not fit {groups} groups",
    )
    strides, dilations = ints(attrs, "strides", spatial), ints(attrs, "dilations", spatial)
    out = window_type(x.shape[2:], w.shape[2:], strides, ints(attrs, "pads", 2 * spatial), dilations)
    return TensorType((x.shape[0], w.shape[0], *out), dtype)


def pool_type(x: TensorType, attrs: Attrs, dtype: str, spatial: int = 2) -> TensorType:
    """Type of a pooling over ``spatial`` axes, floating or integer."""
    require(x.rank == spatial + 2, f"the input must be {_LAYOUTS[spatial]}, not {x}")
    dilations = ints(attrs, "dilations", spatial) if "dilations" in attrs else (1,) * spatial
    kernel, strides = ints(attrs, "kernel", spatial), ints(attrs, "strides", spatial)
    out = window_type(x.shape[2:], kernel, strides, ints(attrs, "pads", 2 * spatial), dilations)
    return TensorType((*x.shape[:2], *out), dtype)


def check_requantise_attrs(attrs: Attrs) -> str:
    """Check the scalars of a requantise; returns the element type of its result."""
    integer(attrs, "zero_point", *numerics.INT9)
    low, high = integer(attrs, "low", *numerics.INT9), integer(attrs, "high", *numerics.INT9)
    require(low <= high, f"low {low} is above high {high}")
    left_shift = integer(attrs, "left_shift", 0, numerics.MAX_LEFT_SHIFT)
    out = attrs["out"]
    require(out in ("int8", "int32"), f"out must be 'int8' or 'int32', not {out!r}")
    narrow = left_shift == 0 and low >= -128 and high <= 127
    require(out == "int32" or narrow, f"low {low}, high {high}, left_shift {left_shift} do not fit an int8 result")
    return str(out)


def _conv2d_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, w = operands
    require_dtype(x, "the input", "int8")
    require_dtype(w, "the weights", "int8")
    integer(attrs, "pad_value", -128, 127)
    return conv_type(x, w, attrs, "int32")


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


def _accumulator_type(name: str) -> Any:
    def rule(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
        for operand in operands:
            require_dtype(operand, "an operand", "int8", "int32")
            require(operand.shape == operands[0].shape, f"operands differ in shape: {operands[0]} and {operand}")
        if name:
            integer(attrs, name, -(1 << 24), (1 << 24) - 1)
        return TensorType(operands[0].shape, "int32")

    return rule


def _multiply_accumulate_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    require_dtype(operands[0], "the accumulator", "int32")
    return _accumulator_type("weight")(operands, attrs)  # type: ignore[no-any-return]


def _unfold_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x = operands[0]
    require_dtype(x, "the input", "int8")
    integer(attrs, "pad_value", -128, 127)
    batch, channels, out_h, out_w = pool_type(x, attrs, "int8").shape
    kernel_h, kernel_w = ints(attrs, "kernel", 2)
    return TensorType((batch, kernel_h * kernel_w * channels, out_h, out_w), "int8")


def _max_pool_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    require_dtype(operands[0], "the input", "int8")
    return pool_type(operands[0], attrs, "int8")


def _sum_pool_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    require_dtype(operands[0], "the input", "int8")
    integer(attrs, "pad_value", -128, 127)
    return pool_type(operands[0], attrs, "int32")


def _wide(x: Array) -> Array:
    return x.astype(np.int64)


_REQUANTISE: dict[str, Any] = {"zero_point": 0, "low": -128, "high": 127, "left_shift": 0, "out": "int8"}
_COMMON: dict[str, Any] = {"gradient": INTEGER_HAS_NO_GRADIENT, "lower": PACKED_ONLY}

register(
    "conv2d", "x w", types=_conv2d_type, numpy=numerics.conv2d, fusion=Fusion.ANCHOR, **_COMMON,
    doc="Sum of products of int8 input and weights, int32, without bias. Padding holds pad_value (the zero point).",
    strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), groups=1, pad_value=0,
)
register(
    "unfold", "x", types=_unfold_type, numpy=numerics.unfold, fusion=Fusion.HOST,
    gradient=INTEGER_HAS_NO_GRADIENT, lower=NOT_LOWERED,
    doc="All that a window meets becomes channels (N, KH*KW*C, OH, OW), in this order. Padding holds pad_value.",
    kernel=REQUIRED, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), pad_value=0,
)
register(
    "max_pool", "x", types=_max_pool_type,
    numpy=lambda x, **attrs: numerics.max_pool(x, pad_value=-128, **attrs), fusion=Fusion.ANCHOR, **_COMMON,
    doc="Maximum over windows of int8; padding never wins (it holds -128).",
    kernel=REQUIRED, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1),
)
register(
    "sum_pool", "x", types=_sum_pool_type, numpy=numerics.sum_pool, fusion=Fusion.ANCHOR, **_COMMON,
    doc="Sum over windows of int8, int32. Padding holds pad_value (the zero point).",
    kernel=REQUIRED, strides=(1, 1), pads=(0, 0, 0, 0), pad_value=0,
)
register(
    "requantise", "x bias multiplier shift", types=_requantise_type, numpy=_requantise, fusion=Fusion.ELEMENTWISE,
    **_COMMON, **_REQUANTISE,
    doc="clamp(((x + bias) * multiplier + half >> shift) + zero_point, low, high) << left_shift, one rounding.",
)
register(
    "multiply", "a b", types=_accumulator_type(""), fusion=Fusion.ELEMENTWISE, **_COMMON,
    numpy=lambda a, b: numerics.wrap_int32(_wide(a) * _wide(b)), doc="a * b, int32.",
)
register(
    "multiply_immediate", "x", types=_accumulator_type("weight"), fusion=Fusion.ELEMENTWISE, **_COMMON,
    numpy=lambda x, weight: numerics.wrap_int32(_wide(x) * weight), weight=REQUIRED, doc="x * weight, int32.",
)
register(
    "subtract_immediate", "x", types=_accumulator_type("value"), fusion=Fusion.ELEMENTWISE, **_COMMON,
    numpy=lambda x, value: numerics.wrap_int32(_wide(x) - value), value=REQUIRED, doc="x - value, int32.",
)
register(
    "multiply_accumulate", "accumulator x", types=_multiply_accumulate_type, fusion=Fusion.ELEMENTWISE, **_COMMON,
    numpy=lambda accumulator, x, weight: numerics.wrap_int32(_wide(accumulator) + _wide(x) * weight),
    weight=REQUIRED, doc="accumulator + x * weight, int32: the residual addition.",
)
