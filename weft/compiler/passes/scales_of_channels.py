"""Products of activations with a scale for each channel: the weights that read a channel take its scale.

So the activation has one scale, 1, and the core multiplies its integers. Weights of several scales in an output channel
are two numbers of 8 bits (`integers/static_weights.py`); of a depthwise convolution there is only one.
"""

from __future__ import annotations

import numpy as np

from ..graph import Call, Constant, Expr, Role, call, operator_of, role_of
from ..integers.products import weighted
from ..integers.static_weights import two_digits
from .manager import rule_pass


def product_of_channels(node: Call) -> Expr | None:
    """product(x, weights), x dequantised with a scale a channel  ->  product(integers of x, weights * scales)"""
    entry = operator_of(node)
    if entry is None or entry.integer is not weighted or node.static or {arg.dtype for arg in node.args} != {"float32"}:
        return None
    x, weights = node.args
    match x:
        case Call(args=(q, Constant() as scale, Constant() as zero)) if role_of(x) is Role.DEQUANTISE:
            if q.dtype not in ("int8", "uint8") or scale.value.shape != x.shape[1:2] or x.attr("axis") != 1:
                return None
        case _:
            return None
    if x.attr("block") or 0 in weights.shape or np.ptp(zero.value) != 0 or two_digits(weights) is None:
        return None
    outputs, inputs = weights.shape[:2]
    groups = x.shape[1] // inputs
    # Each group's channels, once for each of its outputs.
    factors = np.broadcast_to(scale.value.reshape(groups, 1, inputs), (groups, outputs // groups, inputs))
    factors = factors.reshape(outputs, inputs, *(1 for _ in weights.shape[2:]))
    one, place = Constant(np.array(1, np.float32)), Constant(zero.value.reshape(-1)[0])
    whole = call("dequantise", q, one, place, span=x.span)
    scaled = call("nn.multiply", weights, Constant(factors.astype(np.float32)), span=weights.span)
    return call(str(node.op), whole, scaled, span=node.span, **node.attrs)


scales_of_channels = rule_pass("scales-of-channels", (product_of_channels,), tolerance=1e-4, about=__doc__ or "")
