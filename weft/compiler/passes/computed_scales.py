"""Products of activations whose range is found while the model runs, as products of integers.

The scale and the zero point of such an activation are values of the model. A convolution is linear, so it is that of
the integers, less what the zero point adds to each sum, times the scale: the core multiplies the integers, and the host
does the rest. Readers of ONNX write ``MatMulInteger`` and ``ConvInteger`` so; here the activation is dequantised.
"""

from __future__ import annotations

import numpy as np

from ..graph import Call, Constant, Expr, Span, call, operator_of
from ..graph.evaluate import static_value
from ..graph.visit import with_children
from ..integers.form import Refusal
from ..integers.products import weighted
from ..integers.static_weights import static_weights
from .manager import rule_pass
from .wide_activations import below_moves

_CENTRES = {"int8": 0, "uint8": 128}
"""The zero point for which 8-bit values are smallest."""


def product_of_computed_scale(node: Call) -> Expr | None:
    """product(x, weights), x dequantised by values  ->  scale * (product(integers of x, weights) - what zero adds)"""
    entry = operator_of(node)
    if entry is None or entry.integer is not weighted or node.static or not node.args[1].static:
        return None
    x, moves = below_moves(node.args[0])
    if x is None or x.args[0].dtype not in _CENTRES or {x.dtype, x.args[1].dtype, node.dtype} != {"float32"}:
        return None
    q, scale, zero = x.args
    if (scale.static and zero.static) or scale.shape or zero.shape:
        return None
    if isinstance(static_weights(node.args[1], str(node.op)), Refusal):
        return None
    inner = Span(node.span.nodes)

    def product(value: Expr) -> Call:
        for move in reversed(moves):
            value = with_children(move, (value,))
        return call(str(node.op), value, node.args[1], span=inner, **node.attrs)

    if zero.static:
        place = Constant(static_value(zero))
        integers: Expr = product(call("dequantise", q, _float(1), place, span=x.span))
    else:
        centre = _CENTRES[q.dtype]
        place = Constant(np.array(centre, q.dtype))
        sums = static_value(product(Constant(np.ones(x.shape, np.float32))))
        moved = call("nn.subtract", call("nn.cast", zero, to="float32", span=inner), _float(centre), span=inner)
        added = call("nn.multiply", moved, Constant(sums), span=inner)
        integers = product(call("dequantise", q, _float(1), place, span=x.span))
        integers = call("nn.subtract", integers, added, span=inner)
    return call("nn.multiply", integers, scale, span=node.span)


def _float(number: int) -> Constant:
    return Constant(np.array(number, np.float32))


computed_scales = rule_pass("computed-scales", (product_of_computed_scale,), tolerance=1e-4, about=__doc__ or "")
