"""Matrix products in the plain layout."""

from __future__ import annotations

from ... import tensor as te
from ...graph.ir import Call
from ...tensor import ir as tir
from .view import Builder, Index, NotLoweredError, Rule, View, broadcast, register_rules


def _dense(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, w = operands
    k = builder.axis(x.shape[1], "k")
    return builder.reduction(call.shape, lambda n, o: te.sum(x[n, k] * w[o, k], k), "product")


def _matmul(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    a, b = operands
    if min(len(a.shape), len(b.shape)) < 2:
        raise NotLoweredError("a product of vectors")
    outer = call.shape[:-2]
    left = broadcast(a, (*outer, *a.shape[-2:]))
    right = broadcast(b, (*outer, *b.shape[-2:]))
    k = builder.axis(a.shape[-1], "k")

    def value(*index: tir.Expr) -> te.Reduction:
        first: Index = (*index[:-1], k)
        second: Index = (*index[:-2], k, index[-1])
        return te.sum(left[first] * right[second], k)

    return builder.reduction(call.shape, value, "product")


RULES: dict[str, Rule] = {"nn.dense": _dense, "nn.matmul": _matmul}

register_rules(RULES)
