"""Batch normalisation and softmax: operators that passes and kernels want to see whole."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .. import tensor as te
from ..graph.chooser import Chooser
from ..graph.dtypes import FLOATS
from ..graph.ir import Array, Attrs, Call, Expr, TensorType
from ..graph.registry import Family, Fusion, Operator, Role, call, register
from ..tensor import ir as tir
from ..tensor.view import Builder, NotLoweredError, View
from .build import nn
from .derivatives import like, reshaped, times
from .meanings import rounded_once
from .reduce import index_1, reduced
from .samples import sample_of
from .type_rules import integer, require, require_dtype


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


def _lower_batch_norm(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    """In double precision, as the operator means it: with computed parameters it is rare."""
    x, *parameters = operands

    def read(index: tuple[tir.Expr, ...]) -> tir.Expr:
        gamma, beta, mean, variance = (each[(index[1],)].astype("float64") for each in parameters)
        factor = gamma / te.sqrt(variance + call.attr("epsilon"))
        return ((x[index].astype("float64") - mean) * factor + beta).astype(x.dtype)

    return View(call.shape, x.dtype, read)


def _batch_norm_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    """All operands are computed values: with the statistics of x itself, as in training, they get their part."""
    x, gamma, _, mean, variance = node.args
    axes = tuple(axis for axis in range(len(x.shape)) if axis != 1)
    inverse = nn.divide(like(x, 1), nn.sqrt(nn.add(variance, like(x, node.attr("epsilon")))))
    factor = nn.multiply(gamma, inverse)

    def channel(values: Expr) -> Expr:
        return reshaped(values, [x.shape[1] if axis == 1 else 1 for axis in range(len(x.shape))])

    total = nn.reduce_sum(upstream, axes=axes)
    centred = nn.subtract(x, channel(mean))
    of_gamma = nn.multiply(nn.reduce_sum(nn.multiply(upstream, centred), axes=axes), inverse)
    of_variance = times(nn.multiply(nn.multiply(of_gamma, factor), inverse), -0.5)
    return (
        nn.multiply(upstream, channel(factor)), of_gamma, total, nn.negative(nn.multiply(total, factor)), of_variance,
    )  # fmt: skip


register(Operator(
    "nn.batch_norm", "x gamma beta mean variance", family=Family.SOURCE, types=_batch_norm_type, numpy=_batch_norm,
    lower=_lower_batch_norm, defaults={"epsilon": 1e-5}, gradient=_batch_norm_gradient, fusion=Fusion.ELEMENTWISE,
    role=Role.NORMALISATION,
    sample=sample_of("nn.batch_norm", (1, 3, 2, 2), (3,), (3,), (3,), (3,)),
    doc="(x - mean) / sqrt(variance + epsilon) * gamma + beta, per channel.",
))  # fmt: skip


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


def _lower_softmax(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, axis = operands[0], call.attr("axis")
    if x.dtype not in tir.FLOATS or not x.shape:
        raise NotLoweredError(f"softmax of {x.dtype}{list(x.shape)}")
    largest = reduced(builder, x, (axis,), True, te.max)
    powers = builder.stored(View(x.shape, x.dtype, lambda index: te.exp(x[index] - largest[index_1(index, axis)])),
                            "powers")  # fmt: skip
    total = reduced(builder, powers, (axis,), True, te.sum)
    # Of a row, the division is done once.
    return View(x.shape, x.dtype, lambda index: powers[index] * (1.0 / total[index_1(index, axis)]))


def _softmax_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    if not node.shape:
        return (None,)  # it is 1
    weighted = nn.multiply(upstream, node)
    total = nn.reduce_sum(weighted, axes=(node.attr("axis"),), keepdims=True)
    return (nn.subtract(weighted, nn.multiply(node, total)),)


def _draw_softmax(choose: Chooser) -> Expr:
    x = choose.operand(lambda node: len(node.shape) > 0 and 0 not in node.shape, FLOATS)
    return call("nn.softmax", x, axis=choose.whole(0, len(x.shape) - 1))


register(Operator(
    "nn.softmax", "x", family=Family.SOURCE, types=_softmax_type, numpy=rounded_once(_softmax), lower=_lower_softmax,
    defaults={"axis": 1}, gradient=_softmax_gradient, fusion=Fusion.REDUCTION, role=Role.SOFTMAX, cost=16, passive=True,
    sample=sample_of("nn.softmax", (3, 4), axis=1), draw=_draw_softmax, doc="exp(x) / sum(exp(x)) along axis.",
))  # fmt: skip
