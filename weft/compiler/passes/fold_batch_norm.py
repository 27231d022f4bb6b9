"""Batch normalisation is a factor and an offset per channel: constants in inference, which weights next to it can hold,
and computed ones in training."""

from __future__ import annotations

import numpy as np

from ..graph import (
    Anchor,
    Call,
    Constant,
    Expr,
    Module,
    Role,
    call,
    operator_of,
    rewrite,
    role_of,
    topological_order,
    use_counts,
    with_children,
)
from ..graph.evaluate import static_value
from ..operators import nn
from ..operators.derivatives import like, reshaped
from .manager import Counted, graph_pass, rule_pass

FLOATS = ("float32", "float64")
"""Of smaller floats a factor would be rounded, and the result twice."""


def split_batch_norm(node: Call) -> Expr | None:
    """nn.batch_norm(x, constants)  ->  x * factor + offset"""
    if (
        role_of(node) is not Role.NORMALISATION
        or not all(arg.static for arg in node.args[1:])
        or node.dtype not in FLOATS
    ):
        return None
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
    if role_of(node) is not Role.NORMALISATION or node.dtype not in FLOATS:
        return None
    x, gamma, beta, mean, variance = node.args
    # Written as the gradient writes it, so that both share the factor.
    inverse = nn.divide(like(x, 1), nn.sqrt(nn.add(variance, like(x, node.attr("epsilon")))))
    factor = nn.multiply(gamma, inverse)
    offset = nn.subtract(beta, nn.multiply(mean, factor))
    shape = [x.shape[1] if axis == 1 else 1 for axis in range(len(x.shape))]
    scaled = call("nn.multiply", x, reshaped(factor, shape), span=node.span)
    return call("nn.add", scaled, reshaped(offset, shape), span=node.span)


def scale_weights_before(node: Call) -> Expr | None:
    """convolution(x, w) * factor per channel  ->  convolution(x, w * factor), for floating-point weights

    Quantised weights stay as they are: legalise moves the factor into the multiplier of the requantise.
    """
    match node:
        case Call(args=(Call(args=(x, Constant() as w)) as conv, Constant() as factor)) if (
            role_of(node) is Role.MULTIPLY
            and _is_convolution(conv)
            and node.dtype in FLOATS
            and factor.value.shape == (1, conv.shape[1], 1, 1)
        ):
            weights = w.value * factor.value.reshape(-1, 1, 1, 1)
            span = conv.span.merged(node.span)
            return call(conv.op, x, Constant(weights, w.name, w.span), span=span, **conv.attrs)
    return None


def scale_weights_behind(node: Call) -> Expr | None:
    """convolution(x * factor + offset per channel, w)  ->  convolution(x, w * factor) + sums of w * offset

    Only without padding, whose zeros the offset does not reach.
    """
    match node:
        case Call(
            args=(
                Call(args=(Call(args=(x, Constant() as factor)) as scaled, Constant() as offset)) as shifted,
                Constant() as w,
            )
        ) if (
            _is_convolution(node)
            and (role_of(shifted), role_of(scaled)) == (Role.ADD, Role.MULTIPLY)
            and not any(node.attr("pads"))
            and node.dtype in FLOATS
            and factor.value.shape == offset.value.shape == (1, x.shape[1], 1, 1)
        ):
            groups, (outputs, inputs) = node.attr("groups"), w.value.shape[:2]
            # Each group's weights beside the channels that they read.
            grouped = w.value.reshape(groups, outputs // groups, *w.value.shape[1:]).astype(np.float64)
            factors, offsets = (each.value.reshape(groups, 1, inputs, 1, 1) for each in (factor, offset))
            weights = (grouped * factors).reshape(w.value.shape).astype(w.value.dtype)
            sums = (grouped * offsets).sum(axis=(2, 3, 4)).reshape(1, -1, 1, 1).astype(w.value.dtype)
            conv = call(node.op, x, Constant(weights, w.name, w.span), span=node.span, **node.attrs)
            return call("nn.add", conv, Constant(sums), span=node.span)
    return None


def _is_convolution(node: Call) -> bool:
    """Whether it is one over images."""
    entry = operator_of(node)
    return entry is not None and entry.anchor is Anchor.CONVOLUTION and len(node.shape) == 4


@graph_pass("fold-batch-norm", tolerance=1e-4)
def fold_batch_norm(module: Module) -> Counted:
    """A normalisation's factor and offset, held by the weights before it or else behind it where nothing else reads
    what lies between: otherwise the convolution would be computed twice."""
    matches = 0

    def split(node: Call) -> Expr | None:
        nonlocal matches
        found = split_batch_norm(node)
        matches += found is not None
        return found

    body = rewrite(module.main.body, split)
    for scale in (scale_weights_before, scale_weights_behind):
        uses = use_counts(body)
        memo: dict[int, Expr] = {}
        for node in topological_order(body):
            rebuilt = with_children(node, tuple(memo[id(child)] for child in node.children))
            if isinstance(node, Call) and isinstance(rebuilt, Call) and node.args and uses[node.args[0]] == 1:
                found = scale(rebuilt)
                matches += found is not None
                rebuilt = found or rebuilt
            memo[id(node)] = rebuilt
        body = memo[id(body)]
    return Counted(module.with_main(body), matches)


split_computed_norms = rule_pass("split-computed-norms", (split_computed_batch_norm,), tolerance=1e-4)
