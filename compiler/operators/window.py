"""Convolutions and poolings of floating-point (and, where it makes sense, integer) tensors.

Products are summed in float64 and rounded once. 1-D windows are 2-D ones with a height of 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph.dtypes import FLOATS, NUMBERS
from ..graph.ir import Array, Attrs, TensorType
from ..graph.registry import NOT_LOWERED, REQUIRED, Fusion, TypeRule, register
from . import numerics
from .elementwise import NO_GRADIENT_YET, NOT_DIFFERENTIABLE
from .integer import conv_type, pool_type, require, require_dtype


def _conv_type(spatial: int) -> TypeRule:
    def rule(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
        x, w = operands
        require_dtype(x, "the input", *FLOATS)
        require_dtype(w, "the weights", x.dtype)
        return conv_type(x, w, attrs, x.dtype, spatial)

    return rule


def _conv(x: Array, w: Array, **attrs: Any) -> Array:
    return numerics.convolve(x, w, pad_value=0.0, dtype=np.float64, **attrs).astype(x.dtype)


def _spatial(x: TensorType) -> int:
    require(x.rank in (4, 5), f"the input must be (N, C, H, W) or (N, C, D, H, W), not {x}")
    return x.rank - 2


def _max_pool_type(dtype: str = "") -> TypeRule:
    def rule(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
        x = operands[0]
        require_dtype(x, "the input", *NUMBERS)
        return pool_type(x, attrs, dtype or x.dtype, _spatial(x))

    return rule


def _least(x: Array) -> Any:
    return np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -math.inf


def _max_pool(x: Array, **attrs: Any) -> Array:
    return numerics.max_pool(x, pad_value=_least(x), **attrs)


def _max_pool_indices(
    x: Array, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int],
    column_major: bool,
) -> Array:
    order = "F" if column_major else "C"  # of the spatial axes; batch and channels stay in front
    spatial = x.shape[2:]
    own = np.arange(math.prod(spatial)).reshape(spatial, order=order)  # type: ignore[call-overload]
    planes = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *(1 for _ in spatial)) * own.size
    places = numerics.pad_spatial(own + planes, pads, -1)
    best: Array | None = None
    result = np.empty(0, np.int64)
    values = numerics.pad_spatial(x, pads, _least(x))
    pairs = zip(
        numerics.windows(values, kernel, strides, dilations), numerics.windows(places, kernel, strides, dilations),
        strict=True,
    )  # fmt: skip
    for (_, value), (_, place) in pairs:
        if best is None:
            best, result = value.copy(), place.copy()
            continue
        better = (value > best) | (result < 0)
        best, result = np.where(better, value, best), np.where(better, place, result)
    return result.astype(np.int64)


def _average_pool_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x = operands[0]
    require_dtype(x, "the input", *FLOATS)
    return pool_type(x, attrs, x.dtype, _spatial(x))


def _average_pool(
    x: Array, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int],
    count_include_pad: bool,
) -> Array:
    def total(values: Array) -> Array:
        padded = numerics.pad_spatial(values.astype(np.float64), pads, 0.0)
        return np.asarray(sum(window for _, window in numerics.windows(padded, kernel, strides, dilations)))

    count = float(math.prod(kernel)) if count_include_pad else total(np.ones((1, 1, *x.shape[2:])))
    return np.asarray(total(x) / count).astype(x.dtype)


for _rank in (2, 3):
    register(
        f"nn.conv{_rank}d", "x w", types=_conv_type(_rank), numpy=_conv, strides=(1,) * _rank, pads=(0, 0) * _rank,
        dilations=(1,) * _rank, groups=1, gradient=NO_GRADIENT_YET, lower=NOT_LOWERED, fusion=Fusion.ANCHOR,
        doc=f"Convolution without bias over {_rank} axes; pads: before each axis, then after.",
    )  # fmt: skip
_POOL: dict[str, Any] = {
    "kernel": REQUIRED, "strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "lower": NOT_LOWERED,
    "fusion": Fusion.ANCHOR,
}  # fmt: skip
register(
    "nn.max_pool", "x", types=_max_pool_type(), numpy=_max_pool, gradient=NO_GRADIENT_YET, **_POOL,
    doc="Maximum over windows of 2 or 3 axes; padding never wins.",
)
register(
    "nn.max_pool_indices", "x", types=_max_pool_type("int64"), numpy=_max_pool_indices, column_major=False,
    gradient=NOT_DIFFERENTIABLE, **_POOL,
    doc="Where in x, flattened, each window's first maximum stands.",
)
register(
    "nn.average_pool", "x", types=_average_pool_type, numpy=_average_pool, count_include_pad=False,
    gradient=NO_GRADIENT_YET, **_POOL,
    doc="Mean over windows of 2 or 3 axes; count_include_pad tells whether padding counts.",
)
