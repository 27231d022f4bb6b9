"""Operators of the source model: float32 arithmetic (names start with ``nn.``), quantise and dequantise, and moves.

Their meanings follow ONNX. On the accelerator none of them remains: legalise turns them into the integer contract, or
leaves them to the host.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import numerics
from .ir import Array, Attrs, TensorType
from .ops_integer import conv_type, integer, ints, pool_type, require, require_dtype
from .registry import NOT_LOWERED, REQUIRED, Fusion, NumpyRule, TypeRule, register, unsupported

NO_GRADIENT_YET = unsupported("training is not part of the stack yet")
_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32")


def _float(operand: TensorType, what: str) -> None:
    require_dtype(operand, what, "float32")


def _scale_shape(x: TensorType, scale: TensorType, zero_point: TensorType, attrs: Attrs) -> None:
    _float(scale, "the scale")
    require(scale.shape == zero_point.shape, f"scale {scale} and zero point {zero_point} differ in shape")
    require(scale.rank <= 1, f"the scale must be a scalar or one a channel, not {scale}")
    if scale.rank == 1:
        axis = integer(attrs, "axis", 0, max(x.rank - 1, 0))
        require(scale.shape[0] == x.shape[axis], f"the scale has {scale.shape[0]} values for axis {axis} of {x}")


def _along(values: Array, rank: int, axis: int) -> Array:
    """A scalar, or one value a channel shaped to broadcast along ``axis``."""
    return values if values.ndim == 0 else values.reshape([-1 if i == axis else 1 for i in range(rank)])


def _quantise_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, scale, zero_point = operands
    _float(x, "the input")
    require_dtype(zero_point, "the zero point", "int8", "uint8")
    _scale_shape(x, scale, zero_point, attrs)
    return TensorType(x.shape, zero_point.dtype)


def _quantise(x: Array, scale: Array, zero_point: Array, axis: int) -> Array:
    limits = np.iinfo(zero_point.dtype)
    scaled = np.rint(x / _along(scale, x.ndim, axis)) + _along(zero_point, x.ndim, axis).astype(np.float32)
    return np.asarray(np.clip(scaled, limits.min, limits.max), zero_point.dtype)


def _dequantise_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, scale, zero_point = operands
    require_dtype(x, "the input", *_INTEGERS)
    require_dtype(zero_point, "the zero point", x.dtype)
    _scale_shape(x, scale, zero_point, attrs)
    return TensorType(x.shape, "float32")


def _dequantise(x: Array, scale: Array, zero_point: Array, axis: int) -> Array:
    centred = x.astype(np.int64) - _along(zero_point, x.ndim, axis)
    return np.asarray(centred.astype(np.float32) * _along(scale, x.ndim, axis))


def _signed_type(source: str, target: str) -> TypeRule:
    def rule(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
        require_dtype(operands[0], "the input", source)
        return TensorType(operands[0].shape, target)

    return rule


def _broadcast_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    for operand in operands:
        _float(operand, "an operand")
    try:
        shape = np.broadcast_shapes(*(operand.shape for operand in operands))
    except ValueError:
        require(False, f"{operands[0]} and {operands[1]} do not broadcast")
    return TensorType(shape, "float32")


def _same_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    _float(operands[0], "the input")
    if "axis" in attrs:
        integer(attrs, "axis", 0, max(operands[0].rank - 1, 0))
    return operands[0]


def _float_conv_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    for operand in operands:
        _float(operand, "an operand")
    return conv_type(operands[0], operands[1], attrs, "float32")


def _float_conv(x: Array, w: Array, **attrs: Any) -> Array:
    return numerics.convolve(x, w, pad_value=0.0, dtype=np.float64, **attrs).astype(np.float32)


def _dense_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, w = operands
    _float(x, "the input")
    _float(w, "the weights")
    require(x.rank == 2 and w.rank == 2 and x.shape[1] == w.shape[1], f"{x} and weights {w} (O, C) do not fit")
    return TensorType((x.shape[0], w.shape[0]), "float32")


def _dense(x: Array, w: Array) -> Array:
    return (x.astype(np.float64) @ w.T.astype(np.float64)).astype(np.float32)


def _matmul_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    a, b = operands
    _float(a, "an operand")
    _float(b, "an operand")
    require(min(a.rank, b.rank) >= 2 and a.shape[-1] == b.shape[-2], f"{a} and {b} do not multiply")
    return TensorType((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), "float32")


def _batch_norm_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, *params = operands
    _float(x, "the input")
    for param in params:
        require(param == TensorType((x.shape[1],), "float32"), f"parameters must be float32[C], not {param}")
    return x


def _batch_norm(x: Array, gamma: Array, beta: Array, mean: Array, variance: Array, epsilon: float) -> Array:
    def channel(values: Array) -> Array:
        return values.astype(np.float64).reshape((1, -1) + (1,) * (x.ndim - 2))

    factor = channel(gamma) / np.sqrt(channel(variance) + epsilon)
    return ((x - channel(mean)) * factor + channel(beta)).astype(np.float32)


def _float_pool_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    _float(operands[0], "the input")
    return pool_type(operands[0], attrs, "float32")


def _float_max_pool(x: Array, **attrs: Any) -> Array:
    return numerics.max_pool(x, pad_value=-math.inf, **attrs)


def _average_pool(
    x: Array, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int], count_include_pad: bool
) -> Array:
    def total(values: Array) -> Array:
        padded = numerics.pad_spatial(values.astype(np.float64), pads, 0.0)
        return np.asarray(sum(window for _, _, window in numerics.windows(padded, kernel, strides, (1, 1))))

    count = float(kernel[0] * kernel[1]) if count_include_pad else total(np.ones((1, 1, *x.shape[2:])))
    return np.asarray(total(x) / count, np.float32)


def _softmax(x: Array, axis: int) -> Array:
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True), np.float32)


def _reshape_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, shape = operands[0], attrs["shape"]
    require(isinstance(shape, tuple), f"shape must be integers, not {shape!r}")
    result = TensorType(ints(attrs, "shape", len(shape) if isinstance(shape, tuple) else 0), x.dtype)
    require(result.size == x.size, f"{x} has {x.size} elements, but the new shape {result.shape} has {result.size}")
    return result


def _transpose_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x = operands[0]
    perm = ints(attrs, "perm", x.rank)
    require(sorted(perm) == list(range(x.rank)), f"perm {perm} is not a permutation of the axes of {x}")
    return TensorType(tuple(x.shape[axis] for axis in perm), x.dtype)


def _concat_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    first = operands[0]
    axis = integer(attrs, "axis", 0, max(first.rank - 1, 0))

    def others(operand: TensorType) -> tuple[object, ...]:
        return (operand.dtype, *operand.shape[:axis], *operand.shape[axis + 1 :])

    for operand in operands:
        require(
            operand.rank == first.rank and others(operand) == others(first),
            f"{first} and {operand} do not fit together along axis {axis}",
        )
    total = sum(operand.shape[axis] for operand in operands)
    return TensorType((*first.shape[:axis], total, *first.shape[axis + 1 :]), first.dtype)


def _pad_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x = operands[0]
    require(x.rank == 4, f"the input must be (N, C, H, W), not {x}")
    top, left, bottom, right = ints(attrs, "pads", 4)
    require(min(top, left, bottom, right) >= 0, "pads must not be negative")
    return TensorType((*x.shape[:2], x.shape[2] + top + bottom, x.shape[3] + left + right), x.dtype)


def _elementwise(name: str, arguments: str, types: TypeRule, numpy: NumpyRule, doc: str, **defaults: Any) -> None:
    register(
        name, arguments, types=types, numpy=numpy, gradient=NO_GRADIENT_YET, lower=NOT_LOWERED, fusion=Fusion.HOST,
        doc=doc, **defaults,
    )


register(
    "quantise", "x scale zero_point", types=_quantise_type, numpy=_quantise, axis=1, fusion=Fusion.HOST,
    gradient=unsupported("rounding has no useful derivative"), lower=NOT_LOWERED,
    doc="ONNX QuantizeLinear: saturate(round_half_even(x / scale) + zero_point), in the zero point's type.",
)
register(
    "dequantise", "x scale zero_point", types=_dequantise_type, numpy=_dequantise, axis=1, fusion=Fusion.HOST,
    gradient=NO_GRADIENT_YET, lower=NOT_LOWERED, folds=False,  # folding it would lose the integers of the weights
    doc="ONNX DequantizeLinear: (x - zero_point) * scale.",
)
register(
    "to_signed", "x", types=_signed_type("uint8", "int8"), fusion=Fusion.HOST, gradient=NO_GRADIENT_YET,
    numpy=lambda x: (x.astype(np.int16) - 128).astype(np.int8), lower=NOT_LOWERED, doc="x - 128, as int8.",
)
register(
    "to_unsigned", "x", types=_signed_type("int8", "uint8"), fusion=Fusion.HOST, gradient=NO_GRADIENT_YET,
    numpy=lambda x: (x.astype(np.int16) + 128).astype(np.uint8), lower=NOT_LOWERED, doc="x + 128, as uint8.",
)
_elementwise("nn.conv2d", "x w", _float_conv_type, _float_conv, "Convolution without bias.",
             strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), groups=1)  # fmt: skip
_elementwise("nn.dense", "x w", _dense_type, _dense, "x (N, C) times weights (O, C), transposed.")
_elementwise("nn.matmul", "a b", _matmul_type, lambda a, b: np.matmul(a, b), "Product of two computed matrices.")
_elementwise("nn.add", "a b", _broadcast_type, lambda a, b: a + b, "Sum, with broadcasting.")
_elementwise("nn.subtract", "a b", _broadcast_type, lambda a, b: a - b, "Difference, with broadcasting.")
_elementwise("nn.multiply", "a b", _broadcast_type, lambda a, b: a * b, "Product, with broadcasting.")
_elementwise("nn.divide", "a b", _broadcast_type, lambda a, b: a / b, "Quotient, with broadcasting.")
_elementwise("nn.clip", "x", _same_type, lambda x, low, high: np.clip(x, np.float32(low), np.float32(high)),
             "Limit to low..high; Relu is low = 0, high = inf.", low=-math.inf, high=math.inf)  # fmt: skip
_elementwise("nn.sigmoid", "x", _same_type, lambda x: (1 / (1 + np.exp(-x))).astype(np.float32), "1 / (1 + exp(-x)).")
_elementwise("nn.batch_norm", "x gamma beta mean variance", _batch_norm_type, _batch_norm,
             "(x - mean) / sqrt(variance + epsilon) * gamma + beta, per channel.", epsilon=1e-5)  # fmt: skip
_elementwise("nn.max_pool", "x", _float_pool_type, _float_max_pool, "Maximum over windows; padding never wins.",
             kernel=REQUIRED, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1))  # fmt: skip
_elementwise("nn.average_pool", "x", _float_pool_type, _average_pool,
             "Mean over windows; count_include_pad tells whether padding counts.",
             kernel=REQUIRED, strides=(1, 1), pads=(0, 0, 0, 0), count_include_pad=False)  # fmt: skip
_elementwise("nn.softmax", "x", _same_type, _softmax, "exp(x) / sum(exp(x)) along axis.", axis=1)

_MOVE: dict[str, Any] = {"gradient": NO_GRADIENT_YET, "lower": NOT_LOWERED, "fusion": Fusion.LAYOUT}
register("reshape", "x", types=_reshape_type, numpy=lambda x, shape: x.reshape(shape), shape=REQUIRED, **_MOVE,
         doc="The same elements in row-major order under another shape.")  # fmt: skip
register("transpose", "x", types=_transpose_type, numpy=lambda x, perm: np.ascontiguousarray(x.transpose(perm)),
         perm=REQUIRED, **_MOVE, doc="Axes in another order: axis i of the result is axis perm[i] of x.")  # fmt: skip
register("concat", "x*", types=_concat_type, numpy=lambda *xs, axis: np.concatenate(xs, axis), axis=1, **_MOVE,
         doc="Tensors one after another along axis.")  # fmt: skip
register("pad", "x", types=_pad_type, numpy=lambda x, pads, value: numerics.pad_spatial(x, pads, value),
         pads=REQUIRED, value=0.0, **_MOVE, doc="Surround rows and columns by value; pads (t, l, b, r).")  # fmt: skip
