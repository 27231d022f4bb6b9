"""From real numbers to small integers (or small floats) and back, after ONNX QuantizeLinear and DequantizeLinear.

One scale for all of a tensor, one for each index of an axis, or one for each block of an axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...roundings import HALF_UP
from .. import tensor as te
from ..graph.dtypes import INTEGERS, SMALL_FLOATS, SMALL_INTEGERS, STORAGE, is_float, numpy_dtype
from ..graph.dtypes import limits as limits_of
from ..graph.ir import Array, Attrs, Call, Constant, Expr, TensorType
from ..graph.registry import (
    Accuracy,
    Family,
    Fusion,
    Lowering,
    Operator,
    Role,
    TypeRule,
    call,
    register,
    unsupported,
)
from ..integers.moves import dequantised
from ..tensor import ir as tir
from ..tensor.view import Builder, Index, NotLoweredError, Read, View, along, element_type
from .build import nn
from .cast import cast
from .derivatives import expanded, padded, part, reshaped
from .reasons import INTEGER_HAS_NO_GRADIENT
from .samples import sample_of, variable
from .small_types import code_of, number_of
from .type_rules import integer, require, require_dtype, require_rounding

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


ROUNDS = unsupported("rounding to integers has a derivative of 0, which trains nothing")
EXACT = ("int8", "uint8", "int16", "uint16", "int32", "uint32", *SMALL_INTEGERS)
"""Integers that double precision computes with exactly."""


def numbers_of(view: View, dtype: str) -> View:
    """What the bytes of a small type mean."""
    if dtype not in STORAGE:
        return view
    return View(view.shape, "int32" if dtype in SMALL_INTEGERS else "float32",
                lambda index: number_of(view[index], dtype))  # fmt: skip


def _parameter(view: View, rank: int, axis: int, block: int) -> Read:
    """Reads a scale or a zero point at an index of the tensor that it belongs to."""
    if not block or not view.shape:
        return along(view, rank, axis)
    return lambda index: view[(*index[:axis], index[axis] // block, *index[axis + 1 :])]


def _precision(scale: str) -> str:
    """The type in which x is divided by a scale: the scale's, as ONNX has it."""
    return scale if scale in ("float16", "bfloat16") else "float32"


def _quantise_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, scale, zero_point = operands
    require_dtype(x, "the input", "float32", "float16", "bfloat16", "int32")
    require_dtype(zero_point, "the zero point", *QUANTISED)
    require_rounding(attrs)
    _scale_shape(x, scale, zero_point, attrs)
    return TensorType(x.shape, zero_point.dtype)


def _quantise(x: Array, scale: Array, zero_point: Array, axis: int, block: int, saturate: bool, rounding: str) -> Array:
    target = zero_point.dtype.name
    precision = numpy_dtype(_precision(scale.dtype.name))
    step = _along(scale, x.shape, axis, block).astype(precision)
    zero = _along(zero_point, x.shape, axis, block)
    ratio = np.asarray(x.astype(precision) / step).astype(np.float32)
    if is_float(target):
        return cast(ratio + zero.astype(np.float32), target, saturate)
    low, high = limits_of(target)
    wide = np.clip(np.rint(ratio).astype(np.float64) + zero.astype(np.float64), low, high)
    wide = np.where(np.isnan(wide), low, wide)
    return np.asarray(wide.astype(np.int64).astype(zero_point.dtype))


def _lower_quantise(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, target, to = operands[0], element_type(call.dtype), call.dtype
    if not is_float(to) and to not in EXACT:
        raise NotLoweredError(f"quantise to {to}")
    low, high = limits_of(to)
    step, zero = (
        _parameter(numbers_of(view, arg.dtype), len(x.shape), call.attr("axis"), call.attr("block"))
        for view, arg in zip(operands[1:], call.args[1:], strict=True)
    )  # fmt: skip
    wide: tir.DType = "float64" if target in ("int32", "uint32") else "float32"
    precision = element_type(_precision(call.args[1].dtype))

    def read(index: Index) -> tir.Expr:
        dividend, divisor = (number.astype(precision).astype("float32") for number in (x[index], step(index)))
        ratio = (dividend / divisor).astype(precision).astype("float32")
        if is_float(to):
            return code_of(ratio + zero(index).astype("float32"), to, call.attr("saturate"))
        # Within the clamp its precision is exact; nan, which is above nothing, becomes the lowest.
        moved = te.round(ratio).astype(wide) + zero(index).astype(wide)
        least = tir.Const(float(low), wide)
        number = tir.minimum(tir.select(moved > least, moved, least), float(high))
        return code_of(number, to) if to in SMALL_INTEGERS else number.astype(target)

    return View(call.shape, target, read)


def _sample_quantise(dtype: str) -> Call:
    scale = Constant(np.array([0.5, 0.02], np.float32))
    return call("quantise", variable("float32", 1, 2, 3), scale, variable(dtype, 2, name="zero_point"))


register(Operator(
    "quantise", "x scale zero_point", family=Family.QUANTISE, role=Role.QUANTISE, types=_quantise_type, numpy=_quantise,
    lower=_lower_quantise, defaults={"axis": 1, "block": 0, "saturate": True, "rounding": HALF_UP},
    fusion=Fusion.ELEMENTWISE, gradient=ROUNDS, accuracy=Accuracy.JUMPS, passive=True,
    sample=_sample_quantise,
    doc="ONNX QuantizeLinear: saturate(round_half_even(x / scale) + zero_point), in the zero point's type; "
    "x is divided in the scale's type; NaN gives the lowest integer. rounding: of whole-number sums, where x is a "
    "product in integers: half up; 'float32' as `requantise_float32` has it; 'two_roundings' as "
    "`requantise` has it; 'half_away' from 0; or 'half_even'.",
))  # fmt: skip


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


def _lower_dequantise(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, target = numbers_of(operands[0], call.args[0].dtype), element_type(call.dtype)
    step, zero = (
        _parameter(numbers_of(view, arg.dtype), len(x.shape), call.attr("axis"), call.attr("block"))
        for view, arg in zip(operands[1:], call.args[1:], strict=True)
    )  # fmt: skip
    wide: tir.DType = "float32" if x.dtype in tir.FLOATS else "int32"
    if x.dtype in ("int32", "uint32", "int64", "uint64"):
        wide = "int64"

    def read(index: Index) -> tir.Expr:
        centred = x[index].astype(wide) - zero(index).astype(wide)
        return (centred.astype("float32") * step(index).astype("float32")).astype(target)

    return View(call.shape, target, read)


def _sample_dequantise(dtype: str) -> Call:
    scale = Constant(np.array(0.25, np.float32))
    return call("dequantise", variable(dtype, 2, 3), scale, variable(dtype, name="zero_point"))


def _block_gradient(upstream: Expr, node: Call) -> Expr:
    """For scales of which each serves a block of an axis; the last block may be cut off."""
    x, scale, zero_point = node.args
    axis, block = int(node.attr("axis")), int(node.attr("block"))
    before, count, behind = scale.shape[:axis], scale.shape[axis], scale.shape[axis + 1 :]
    zero = reshaped(nn.cast(zero_point, to=scale.dtype), (*before, count, 1, *behind))
    zero = reshaped(expanded(zero, (*before, count, block, *behind)), (*before, count * block, *behind))
    centred = nn.subtract(nn.cast(x, to=scale.dtype), part(zero, [0] * len(x.shape), x.shape))
    missing = [count * block - x.shape[axis] if each == axis else 0 for each in range(len(x.shape))]
    products = padded(nn.multiply(upstream, centred), [0] * len(missing), missing)
    return nn.reduce_sum(reshaped(products, (*before, count, block, *behind)), axes=(axis + 1,))


def _dequantise_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    """For the scale; the quantised values are no floats, and no operator that makes them has a gradient."""
    x, scale, zero_point = node.args
    if node.attr("block") and scale.shape:
        return None, _block_gradient(upstream, node), None
    axes = tuple(axis for axis in range(len(x.shape)) if not scale.shape or axis != node.attr("axis"))
    shape = [1 if axis in axes else size for axis, size in enumerate(x.shape)] if scale.shape else []
    zero = reshaped(nn.cast(zero_point, to=scale.dtype), shape)
    products = nn.multiply(upstream, nn.subtract(nn.cast(x, to=scale.dtype), zero))
    return None, nn.reduce_sum(products, axes=axes), None


register(Operator(
    "dequantise", "x scale zero_point", family=Family.QUANTISE, role=Role.DEQUANTISE, types=_dequantise_type,
    numpy=_dequantise, lower=_lower_dequantise, defaults={"axis": 1, "block": 0}, fusion=Fusion.ELEMENTWISE,
    gradient=_dequantise_gradient, integer=dequantised,
    folds=False,  # folding it would lose the integers of the weights
    passive=True, sample=_sample_dequantise, doc="ONNX DequantizeLinear: (x - zero_point) * scale.",
))  # fmt: skip


def _signed_type(source: str, target: str) -> TypeRule:
    def rule(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
        require_dtype(operands[0], "the input", source)
        return TensorType(operands[0].shape, target)

    return rule


def _shifted(source: tir.DType, target: tir.DType) -> Lowering:
    """128 less or more, which in eight bits is the same."""

    def rule(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
        x = operands[0]
        return View(call.shape, target, lambda index: x[index].astype("int8").astype("int8") + tir.Const(-128, "int8")
                    if target == "int8" else (x[index] + tir.Const(-128, "int8")).astype("uint8"))  # fmt: skip

    return rule


_EDGE: dict[str, Any] = {"family": Family.HOST, "fusion": Fusion.ELEMENTWISE, "gradient": INTEGER_HAS_NO_GRADIENT}
register(Operator(
    "to_signed", "x", types=_signed_type("uint8", "int8"), numpy=lambda x: (x.astype(np.int16) - 128).astype(np.int8),
    lower=_shifted("uint8", "int8"), sample=sample_of("to_signed", (2, 3)), **_EDGE, doc="x - 128, as int8.",
))  # fmt: skip
register(Operator(
    "to_unsigned", "x", types=_signed_type("int8", "uint8"),
    numpy=lambda x: (x.astype(np.int16) + 128).astype(np.uint8), lower=_shifted("int8", "uint8"),
    sample=sample_of("to_unsigned", (2, 3)), **_EDGE, doc="x + 128, as uint8.",
))  # fmt: skip
