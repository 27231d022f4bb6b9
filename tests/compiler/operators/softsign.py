"""An operator from outside of weft: all that there is to it stands here."""

from __future__ import annotations

import numpy as np
from weft.compiler.graph import Array, Call, Constant, Expr, dtypes
from weft.compiler.operators import Accuracy, broadcasting, elementwise, formula, nn, register
from weft.compiler.tensor import maximum


def softsign(x: Array) -> Array:
    return np.asarray(x / (1 + np.abs(x)))


def gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    """The derivative is 1 / (1 + |x|)**2."""
    x = node.args[0]
    size = nn.add(nn.abs(x), Constant(np.ones((), dtypes.numpy_dtype(x.dtype))))
    return (nn.divide(upstream, nn.multiply(size, size)),)


register(elementwise(
    "my.softsign", "x", "x / (1 + |x|).",
    types=broadcasting(dtypes.FLOATS),  # operands of one of these types; the result has the same
    numpy=softsign,  # what it means, to the bit
    lower=formula(lambda x: x / (maximum(x, -x) + 1.0)),  # an element of the result, from one of each operand
    gradient=gradient,
    accuracy=Accuracy.ROUNDED,  # implementations may differ in the last digits
    cost=3,  # additions, roughly: a target weighs whether to compute it twice
))  # fmt: skip
