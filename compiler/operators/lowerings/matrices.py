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


def _einsum(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    inputs, result = call.attr("equation").split("->")
    terms = inputs.split(",")
    if len(terms) > 2:
        raise NotLoweredError(f"{call.op} of {len(terms)} operands, which NumPy multiplies in the best order")
    sizes = {letter: size for term, x in zip(terms, operands, strict=True)
             for letter, size in zip(term, x.shape, strict=True)}  # fmt: skip
    summed = {letter: builder.axis(size, f"r{letter}") for letter, size in sizes.items() if letter not in result}

    def product(*index: tir.Expr) -> tir.Expr:
        places: dict[str, tir.Expr] = {**dict(zip(result, index, strict=True)), **summed}
        first, *others = (x[tuple(places[letter] for letter in term)] for term, x in zip(terms, operands, strict=True))
        return first * others[0] if others else first

    if not summed:
        return View(call.shape, operands[0].dtype, lambda index: product(*index))
    return builder.reduction(call.shape, lambda *index: te.sum(product(*index), list(summed.values())), "product")


RULES: dict[str, Rule] = {"nn.dense": _dense, "nn.matmul": _matmul, "nn.einsum": _einsum}

register_rules(RULES)
