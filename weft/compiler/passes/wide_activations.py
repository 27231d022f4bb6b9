"""Products of activations of 16 bits as two of 8, for a core that multiplies bytes.

An activation ``scale * (q - zero)`` of 16 bits is the sum of two of 8 bits: its high byte, in steps of 256 times the
scale, and its low byte. A convolution is linear, so that of the activation is the sum of theirs, and what is beyond the
edges is 0 in both. The host takes the bytes apart, and adds the two sums, which the core hands over exactly.
"""

from __future__ import annotations

import math

import numpy as np

from ..graph import Array, Call, Constant, Expr, Family, Role, Span, call, operator_of, role_of
from ..graph.evaluate import static_value
from ..graph.host import HOST_STEP
from ..graph.visit import with_children
from ..integers.form import Refusal
from ..integers.products import weighted
from ..integers.static_weights import static_weights
from .manager import rule_pass

SUM_BYTES = 3
"""Of a sum that the core hands over, mostly: a depth of 500 and weights that are as large as can be. Each byte takes
the product once more (`hand_over`)."""

MULTIPLIERS = 128
"""From so many on the core is faster with twice as many products as a sum has bytes than the host with one of floats:
half of ``HOST_PRODUCT`` is saved."""

HOST_PRODUCT, HOST_BYTE = 0.1, 0.3
"""Cycles of the core in which the host multiplies floats once, and puts a byte in or out of a sum: assumed, of a
Cortex-A9, which takes 1 and 3 nanoseconds, beside a core of 100 MHz."""

TURNS = 2 * HOST_STEP
"""Cycles for which the core stands still while the host takes bytes apart, and puts sums together."""


def product_of_bytes(node: Call) -> Expr | None:
    """product(x, weights), x of 16 bits  ->  product(high bytes of x, weights) + product(low bytes of x, weights)"""
    entry = operator_of(node)
    if entry is None or entry.integer is not weighted or node.static or not node.args[1].static:
        return None
    x, moves = below_moves(node.args[0])
    if x is None or not _of_16_bits(x) or not _pays(node, entry.macs(node)):
        return None
    weights = static_weights(node.args[1], str(node.op))
    if isinstance(weights, Refusal) or not _in_a_byte(weights.centred):
        return None
    inner = Span(node.span.nodes)
    parts = []
    for part in _bytes_of(x):
        for move in reversed(moves):
            part = with_children(move, (part,))
        parts.append(call(str(node.op), part, node.args[1], span=inner, **node.attrs))
    return call("nn.add", *parts, span=node.span)


def below_moves(x: Expr) -> tuple[Call | None, list[Call]]:
    """The dequantise that a value is below moves of its elements, and these moves, the last one first; None for what is
    no such value. What a move adds is 0."""
    moves: list[Call] = []
    while isinstance(x, Call) and role_of(x) is not Role.DEQUANTISE:
        entry = operator_of(x)
        if entry is None or entry.family is not Family.MOVE or len(x.args) > 1 or x.attrs.get("value", 0) != 0:
            return None, []  # other elements are no multiples of the scale
        moves.append(x)
        x = x.args[0]
    return (x, moves) if isinstance(x, Call) else (None, [])


def _of_16_bits(x: Call) -> bool:
    q, scale, zero = x.args
    known = scale.static and zero.static and not scale.shape
    return known and q.dtype in ("int16", "uint16") and x.dtype == "float32"


def _in_a_byte(values: Array) -> bool:
    return bool(values.min(initial=0) >= -128 and values.max(initial=0) <= 127)


def _pays(node: Call, products: int) -> bool:
    crossing = 2 * math.prod(node.args[0].shape) + 2 * SUM_BYTES * math.prod(node.shape)
    return products * HOST_PRODUCT / 2 > HOST_BYTE * crossing + TURNS


def _bytes_of(x: Call) -> tuple[Expr, Expr]:
    """The high and the low bytes of a dequantise of 16 bits, each a dequantise of its own. Both are int8: bytes without
    sign less 128."""
    q, scale, zero = x.args
    inner = Span(x.span.nodes)
    step, middle = float(static_value(scale)), int(static_value(zero))

    def of(value: Expr, step: float, zero: int, span: Span) -> Expr:
        scale, place = Constant(np.array(step, np.float32)), Constant(np.array(zero, np.int8))
        return call("dequantise", value, scale, place, span=span)

    wide = call("nn.cast", q, to="int32", span=inner)
    # Casts of integers wrap.
    low = call("nn.cast", _plus(wide, 128, inner), to="int8", span=inner)
    shifted = call("nn.shift_right", wide, Constant(np.array(8, np.int32)), span=inner)
    less = 128 if q.dtype == "uint16" else 0
    high = call("nn.cast", _plus(shifted, -less, inner) if less else shifted, to="int8", span=inner)
    return of(high, 256 * step, (middle >> 8) - less, x.span), of(low, step, (middle & 255) - 128, inner)


def _plus(value: Expr, number: int, span: Span) -> Expr:
    return call("nn.add", value, Constant(np.array(number, np.int32)), span=span)


wide_activations = rule_pass("wide-activations", (product_of_bytes,), tolerance=1e-4, about=__doc__ or "")
