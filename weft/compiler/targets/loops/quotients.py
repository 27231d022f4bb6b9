"""Quotients of a constant as products with its reciprocal: dividing takes a processor ten times as long."""

from __future__ import annotations

import numpy as np

from ...graph.ir import Call, Constant, Expr
from ...graph.registry import Role, call, role_of


def as_product(node: Call) -> Expr | None:
    """x / c  ->  x * (1 / c), where c is a power of two, or the quotient goes to a smooth function alone

    Of a smooth function the result changes as little as its operand or less: one that was rounded twice is as good.
    Behind a floor, say, it would not be: 41 times the float nearest to 1/41 need not be 1.
    """
    match node:
        case Call(op="nn.erf" | "nn.tanh" | "nn.sigmoid" | "nn.softmax", args=(Call() as quotient,)):
            factor = _reciprocal(quotient)
            if factor is not None:
                product = call("nn.multiply", quotient.args[0], factor, span=quotient.span)
                return call(str(node.op), product, span=node.span, **node.attrs)
    factor = _reciprocal(node)
    if factor is None or not np.all(np.frexp(factor.value)[0] % 0.5 == 0):
        return None
    return call("nn.multiply", node.args[0], factor, span=node.span)


def _reciprocal(node: Call) -> Constant | None:
    """Of the divisor of a quotient in single precision, where it and its reciprocal are normal numbers."""
    match node:
        case Call(args=(_, Constant(value=divisor) as c)) if role_of(node) is Role.DIVIDE and node.dtype == "float32":
            with np.errstate(all="ignore"):
                factor = (1 / divisor).astype(np.float32)
            sizes = np.abs([factor, divisor])
            if factor.size and np.all(np.isfinite(factor)) and sizes.min() >= np.finfo(np.float32).tiny:
                return Constant(factor, c.name, c.span)
    return None
