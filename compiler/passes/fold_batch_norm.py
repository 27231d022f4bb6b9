"""Batch normalisation is a factor and an offset per channel: constants in inference, computed ones in training."""

from __future__ import annotations

import numpy as np

from ..graph import Call, Constant, Expr, call
from ..operators import nn
from ..operators.derivatives import like, reshaped
from .cleanup import is_static, static_value
from .manager import rule_pass


def split_batch_norm(node: Call) -> Expr | None:
    """nn.batch_norm(x, constants)  ->  x * factor + offset"""
    if node.op != "nn.batch_norm" or not all(map(is_static, node.args[1:])) or node.dtype not in ("float32", "float64"):
        return None  # of smaller floats a factor would be rounded, and the result twice
    gamma, beta, mean, variance = (static_value(arg).astype(np.float64) for arg in node.args[1:])
    factor = gamma / np.sqrt(variance + node.attr("epsilon"))
    offset = beta - mean * factor
    x = node.args[0]
    shape = (1, -1) + (1,) * (len(x.shape) - 2)
    scaled = call("nn.multiply", x, Constant(factor.astype(node.dtype).reshape(shape)), span=node.span)
    return call("nn.add", scaled, Constant(offset.astype(node.dtype).reshape(shape)), span=node.span)


def split_computed_batch_norm(node: Call) -> Expr | None:
    """nn.batch_norm(x, computed values)  ->  x * factor + offset, which are made once a channel

    As it stands, the operator takes a root and a quotient for each element, in double precision. What this rounds is no
    more than a rounding of ``x`` itself makes of the result. Floats of 16 bits stay: they would be rounded twice.
    """
    if node.op != "nn.batch_norm" or node.dtype not in ("float32", "float64"):
        return None
    x, gamma, beta, mean, variance = node.args
    # Written as the gradient writes it, so that both share the factor.
    inverse = nn.divide(like(x, 1), nn.sqrt(nn.add(variance, like(x, node.attr("epsilon")))))
    factor = nn.multiply(gamma, inverse)
    offset = nn.subtract(beta, nn.multiply(mean, factor))
    shape = [x.shape[1] if axis == 1 else 1 for axis in range(len(x.shape))]
    scaled = call("nn.multiply", x, reshaped(factor, shape), span=node.span)
    return call("nn.add", scaled, reshaped(offset, shape), span=node.span)


def scale_float_weights(node: Call) -> Expr | None:
    """nn.conv2d(x, w) * factor per channel  ->  nn.conv2d(x, w * factor), for floating-point weights

    Quantised weights stay as they are: legalise moves the factor into the multiplier of the requantise.
    """
    match node:
        case Call(
            op="nn.multiply",
            args=(Call(op="nn.conv2d", args=(x, Constant() as w)) as conv, Constant() as factor),
        ) if factor.value.shape == (1, conv.shape[1], 1, 1):
            weights = w.value * factor.value.reshape(-1, 1, 1, 1)
            span = conv.span.merged(node.span)
            return call("nn.conv2d", x, Constant(weights, w.name, w.span), span=span, **conv.attrs)
    return None


fold_batch_norm = rule_pass("fold-batch-norm", (split_batch_norm, scale_float_weights), tolerance=1e-4)

split_computed_norms = rule_pass("split-computed-norms", (split_computed_batch_norm,), tolerance=1e-4)
