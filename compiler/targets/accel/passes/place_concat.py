"""A concatenation of channels that are not aligned to the array's blocks, as kernels that move channels.

A 1 x 1 convolution with ones at the right places copies an operand's channels to where they belong and leaves zeros
elsewhere; each further operand is added to that. Every step is exact.
"""

from __future__ import annotations

import numpy as np

from ....graph import Attrs, Call, Constant, Expr, Function, Var, call
from ....operators import numerics


def place_concat(node: Call) -> Call:
    """The last of a chain of calls of primitive functions, one an operand of ``node`` (channels, rank 4, int8)."""
    channels = node.shape[1]
    result: Call | None = None
    start = 0
    for number, part in enumerate(node.args):
        placement = np.zeros((channels, part.shape[1], 1, 1), np.int8)
        placement[np.arange(start, start + part.shape[1]), np.arange(part.shape[1])] = 1
        start += part.shape[1]
        x = Var("x0", part.tensor_type)
        moved = call("conv2d", x, Constant(placement, f"{node.span.node}.placement"), span=node.span)
        if result is None:
            params: tuple[Var, ...] = (x,)
            args: tuple[Expr, ...] = (part,)
            body = exact(moved, 1.0)
        else:
            before = Var("x1", result.tensor_type)
            doubled = exact(moved, 1.0, left_shift=1, out="int32")
            total = call("multiply_accumulate", doubled, before, weight=2, span=node.span)
            params, args, body = (x, before), (part, result), exact(total, 0.5)
        # moving channels is no work of the model, whatever products it takes
        attrs = {"name": f"{node.span.node or 'concat'}.part{number}", "primitive": True, "anchor": "conv2d", "macs": 0}
        result = call(Function(params, body, Attrs(attrs)), *args, span=node.span)
    if result is None:
        raise ValueError("a concat without operands")
    return result


def exact(x: Expr, factor: float, **attrs: object) -> Call:
    """A requantise of an accumulator by ``factor`` alone, which rounds nothing."""
    channels = x.shape[1]
    multiplier, shift = numerics.quantise_multiplier(np.full(channels, factor))
    params = (np.zeros(channels, np.int32), multiplier, shift)
    return call("requantise", x, *map(Constant, params), span=x.span, **attrs)
