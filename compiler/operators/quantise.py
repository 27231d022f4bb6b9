"""From real numbers to small integers (or small floats) and back, after ONNX QuantizeLinear and DequantizeLinear.

One scale for all of a tensor, one for each index of an axis, or one for each block of an axis.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..graph.dtypes import INTEGERS, SMALL_FLOATS, SMALL_INTEGERS, is_float
from ..graph.dtypes import limits as limits_of
from ..graph.ir import Array, Attrs, TensorType
from ..graph.registry import NOT_LOWERED, Fusion, TypeRule, register, unsupported
from .elementwise import NO_GRADIENT_YET, cast
from .integer import integer, require, require_dtype

QUANTISED = INTEGERS + SMALL_INTEGERS + SMALL_FLOATS
_REAL = ("float32", "float16", "bfloat16", "float8_e8m0fnu")


def _scale_shape(x: TensorType, scale: TensorType, zero_point: TensorType, attrs: Attrs) -> None:
    require_dtype(scale, "the scale", *_REAL)
    require(scale.shape == zero_point.shape, f"scale {scale} and zero point {zero_point} differ in shape")
    if scale.rank == 0:
        return
    axis = integer(attrs, "axis", 0, max(x.rank - 1, 0))
    block = integer(attrs, "block", 0, 1 << 30)
    if not block:
        require(scale.rank <= 1, f"the scale must be a scalar or one a channel, not {scale}")
        require(scale.shape[0] == x.shape[axis], f"the scale has {scale.shape[0]} values for axis {axis} of {x}")
        return
    wanted = tuple(-(-size // block) if i == axis else size for i, size in enumerate(x.shape))
    require(scale.shape == wanted, f"the scale of {x} in blocks of {block} along axis {axis} must be {wanted}")


def _along(values: Array, shape: Sequence[int], axis: int, block: int) -> Array:
    """Scales or zero points as they broadcast with a tensor of ``shape``."""
    if values.ndim == 0:
        return values
    if block:
        return np.repeat(values, block, axis)[tuple(slice(size) for size in shape)]
    return values.reshape([-1 if i == axis else 1 for i in range(len(shape))])


def _quantise_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, scale, zero_point = operands
    require_dtype(x, "the input", "float32", "float16", "bfloat16", "int32")
    require_dtype(zero_point, "the zero point", *QUANTISED)
    _scale_shape(x, scale, zero_point, attrs)
    return TensorType(x.shape, zero_point.dtype)


def _quantise(x: Array, scale: Array, zero_point: Array, axis: int, block: int, saturate: bool) -> Array:
    target = zero_point.dtype.name
    step = _along(scale, x.shape, axis, block).astype(np.float32)
    zero = _along(zero_point, x.shape, axis, block).astype(np.float32)
    ratio = x.astype(np.float32) / step
    if is_float(target):
        return cast(ratio + zero, target, saturate)
    low, high = limits_of(target)
    wide = np.clip(np.rint(ratio).astype(np.float64) + zero, low, high)
    return np.asarray(wide.astype(np.int64).astype(zero_point.dtype))


def _dequantise_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, scale, zero_point = operands
    require_dtype(x, "the input", *QUANTISED)
    require_dtype(zero_point, "the zero point", x.dtype)
    _scale_shape(x, scale, zero_point, attrs)
    return TensorType(x.shape, "float32" if scale.dtype == "float8_e8m0fnu" else scale.dtype)


def _dequantise(x: Array, scale: Array, zero_point: Array, axis: int, block: int) -> Array:
    step, zero = _along(scale, x.shape, axis, block), _along(zero_point, x.shape, axis, block)
    out = np.dtype(np.float32) if scale.dtype.name == "float8_e8m0fnu" else scale.dtype
    if is_float(x.dtype.name):
        centred = x.astype(np.float32) - zero.astype(np.float32)
    else:
        centred = (x.astype(np.int64) - zero.astype(np.int64)).astype(np.float32)
    return np.asarray(centred * step.astype(np.float32)).astype(out)


def _signed_type(source: str, target: str) -> TypeRule:
    def rule(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
        require_dtype(operands[0], "the input", source)
        return TensorType(operands[0].shape, target)

    return rule


register(
    "quantise", "x scale zero_point", types=_quantise_type, numpy=_quantise, axis=1, block=0, saturate=True,
    fusion=Fusion.ELEMENTWISE, gradient=unsupported("rounding has no useful derivative"), lower=NOT_LOWERED,
    doc="ONNX QuantizeLinear: saturate(round_half_even(x / scale) + zero_point), in the zero point's type.",
)
register(
    "dequantise", "x scale zero_point", types=_dequantise_type, numpy=_dequantise, axis=1, block=0,
    fusion=Fusion.ELEMENTWISE, gradient=NO_GRADIENT_YET, lower=NOT_LOWERED,
    folds=False,  # folding it would lose the integers of the weights
    doc="ONNX DequantizeLinear: (x - zero_point) * scale.",
)
register(
    "to_signed", "x", types=_signed_type("uint8", "int8"), fusion=Fusion.ELEMENTWISE, gradient=NO_GRADIENT_YET,
    numpy=lambda x: (x.astype(np.int16) - 128).astype(np.int8), lower=NOT_LOWERED, doc="x - 128, as int8.",
)
register(
    "to_unsigned", "x", types=_signed_type("int8", "uint8"), fusion=Fusion.ELEMENTWISE, gradient=NO_GRADIENT_YET,
    numpy=lambda x: (x.astype(np.int16) + 128).astype(np.uint8), lower=NOT_LOWERED, doc="x + 128, as uint8.",
)
