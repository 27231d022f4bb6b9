"""Batch normalisation and softmax: operators that passes and kernels want to see whole."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..graph.dtypes import FLOATS
from ..graph.ir import Array, Attrs, TensorType
from ..graph.registry import NOT_LOWERED, Fusion, register
from .elementwise import NO_GRADIENT_YET, rounded_once
from .integer import integer, require, require_dtype


def _batch_norm_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, *params = operands
    require_dtype(x, "the input", *FLOATS)
    require(x.rank >= 2, f"the input must have a channel axis, but is {x}")
    wanted = TensorType((x.shape[1],), x.dtype)
    for param in params:
        require(param == wanted, f"parameters must be {wanted}, one a channel, not {param}")
    return x


def _batch_norm(x: Array, gamma: Array, beta: Array, mean: Array, variance: Array, epsilon: float) -> Array:
    def channel(values: Array) -> Array:
        return values.astype(np.float64).reshape((1, -1) + (1,) * (x.ndim - 2))

    factor = channel(gamma) / np.sqrt(channel(variance) + epsilon)
    return ((x.astype(np.float64) - channel(mean)) * factor + channel(beta)).astype(x.dtype)


def _softmax_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x = operands[0]
    require_dtype(x, "the input", *FLOATS)
    integer(attrs, "axis", 0, max(x.rank - 1, 0))
    return x


def _softmax(x: Array, axis: int) -> Array:
    if not x.ndim or not x.size:
        return np.ones_like(x)
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True), x.dtype)


register(
    "nn.batch_norm", "x gamma beta mean variance", types=_batch_norm_type, numpy=_batch_norm, epsilon=1e-5,
    gradient=NO_GRADIENT_YET, lower=NOT_LOWERED, fusion=Fusion.ELEMENTWISE,
    doc="(x - mean) / sqrt(variance + epsilon) * gamma + beta, per channel.",
)
register(
    "nn.softmax", "x", types=_softmax_type, numpy=rounded_once(_softmax), axis=1, gradient=NO_GRADIENT_YET,
    lower=NOT_LOWERED, fusion=Fusion.REDUCTION, doc="exp(x) / sum(exp(x)) along axis.",
)
