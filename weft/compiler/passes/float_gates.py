"""8-bit pictures times gates that the model does not quantise (squeeze and excite of quantisers that only round what
products read): the host hands over one number a channel as two digits of 8 bits, and the picture stays on the core.

A gate is ``(256 * high + low) * unit``, to half of the unit, a 65,000th of the largest number that it can be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ..graph import Call, Constant, Expr, Role, Span, call, role_of
from ..graph.host import host_call
from ..integers.form import Affine, IntegerForm, Integers, as_image, channels_in
from ..integers.static_weights import LARGEST_OF_TWO
from .function_of_product import range_of_function

_NEGLIGIBLE = 1 / 8
"""Of a step of the result: what rounding a gate may cost."""


def gated_in_digits(
    source: Expr, scale: float, described: Mapping[int, IntegerForm], order: Mapping[int, int],
    as_float: Callable[[Expr], Expr],
) -> Affine | None:  # fmt: skip
    """The product ``source``, of which steps of ``scale`` are wanted, in integers; None for anything else.
    ``as_float``: a value as the host has it."""
    if not isinstance(source, Call) or role_of(source) is not Role.MULTIPLY:
        return None
    for value, gate in (source.args, source.args[::-1]):
        x = described.get(id(value))
        numbers = (*value.shape[:2], *(1 for _ in value.shape[2:]))
        if not isinstance(x, Integers) or gate.static or gate.shape != numbers or gate.dtype != "float32":
            continue
        ends = range_of_function(gate, described, order) if value.shape == source.shape != numbers else None
        if ends is None or not 0 < (largest := max(map(abs, ends))) < np.inf:
            continue
        unit = largest / LARGEST_OF_TWO
        if unit / 2 * 255 * x.scale > scale * _NEGLIGIBLE:
            continue
        return _multiplied(x, as_float(gate), unit, source.span)
    return None


def _multiplied(x: Integers, gate: Expr, unit: float, span: Span) -> Affine:
    inner = Span(span.nodes)
    q = as_image(x.q)
    centred = q if x.zero_point == 0 else call("subtract_immediate", q, value=x.zero_point, span=inner)
    high, low = (call("multiply", centred, digit, span=inner) for digit in _digits(gate, unit, inner))
    total = call("add", call("multiply_immediate", high, weight=256, span=inner), low, span=span)
    channels = channels_in(x.shape)
    return Affine(
        total, np.zeros(channels, np.int64), np.full(channels, x.scale * unit), np.zeros(channels),
        np.full(channels, 255.0 * (LARGEST_OF_TWO + 1)), x.shape, span=span.merged(x.span),
    )  # fmt: skip


def _digits(gate: Expr, unit: float, span: Span) -> tuple[Expr, Expr]:
    """The higher and the lower one, int8 in the shape of a picture's channels."""

    def on_host(op: str, *args: Expr, **attrs: object) -> Expr:
        return host_call(op, args, attrs, "hands a gate over as digits of 8 bits", span)

    scaled = on_host("nn.multiply", gate, Constant(np.array(1 / unit, np.float32)))
    whole = on_host(
        "nn.cast", on_host("nn.round", on_host("nn.clip", scaled, low=-LARGEST_OF_TWO, high=LARGEST_OF_TWO)), to="int32"
    )
    low = on_host("nn.cast", whole, to="int8")  # integers wrap
    rest = on_host("nn.subtract", whole, on_host("nn.cast", low, to="int32"))
    high = on_host("nn.cast", on_host("nn.divide", rest, Constant(np.array(256, np.int32))), to="int8")
    return as_image(high), as_image(low)
