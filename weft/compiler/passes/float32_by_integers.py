"""``requantise_float32`` as a ``requantise`` that rounds in float32: a core has the scale as multiplier and shift."""

from __future__ import annotations

import numpy as np

from ...roundings import FLOAT32
from ..graph import Call, Constant, Expr, call
from ..operators.numerics import quantise_multiplier
from .manager import rule_pass

LARGEST_SCALE = np.float32(2**22)
"""All that is not 0 is beyond the limits of 8 bits with it already, as it is with a larger one."""


def by_integers(node: Call) -> Expr | None:
    """requantise_float32(x, bias, scale)  ->  requantise(x, bias, multiplier, shift), rounded in float32

    24 bits of multiplier are those of the scale. Where the largest shift leaves fewer, all results are 0.
    """
    match node:
        case Call(op="requantise_float32", args=(x, Constant() as bias, Constant(value=scale))):
            limited = np.clip(scale, -LARGEST_SCALE, LARGEST_SCALE).astype(np.float64)
            parameters = map(Constant, quantise_multiplier(limited))
            return call("requantise", x, bias, *parameters, span=node.span, rounding=FLOAT32, **node.attrs)
    return None


float32_by_integers = rule_pass("float32-by-integers", (by_integers,), needs=("legalise",), about=__doc__ or "")
"""For a core that rounds in float32."""
