"""Sums of products of two tensors as products of matrices, which run in register tiles."""

from __future__ import annotations

from math import prod

from ...graph.ir import Call, Expr, Span
from ...graph.registry import call


def as_matrix_product(node: Call) -> Expr | None:
    """nn.einsum of two operands  ->  nn.matmul of (batch..., rows, summed) and (batch..., summed, columns)

    It applies where an axis is summed, no operand names one twice, and each that stands in one operand alone stands in
    the result.
    """
    if node.op != "nn.einsum" or len(node.args) != 2:
        return None
    inputs, result = str(node.attr("equation")).split("->")
    left, right = inputs.split(",")
    batch = [letter for letter in left if letter in right and letter in result]
    summed = [letter for letter in left if letter in right and letter not in result]
    rows = [letter for letter in left if letter not in right]
    columns = [letter for letter in right if letter not in left]
    repeats = len(set(left)) < len(left) or len(set(right)) < len(right)
    if repeats or not summed or not set(rows + columns) <= set(result):
        return None
    sizes = dict(zip(left + right, node.args[0].shape + node.args[1].shape, strict=True))
    outer = tuple(sizes[letter] for letter in batch)
    span = Span(node.span.nodes)  # what is inside does not make the user's tensor

    def matrices(x: Expr, term: str, first: list[str], second: list[str]) -> Expr:
        sides = (prod(sizes[letter] for letter in side) for side in (first, second))
        moved = _transposed(x, [term.index(letter) for letter in batch + first + second], span)
        return _reshaped(moved, (*outer, *sides), span)

    factors = matrices(node.args[0], left, rows, summed), matrices(node.args[1], right, summed, columns)
    order = batch + rows + columns
    product = _reshaped(call("nn.matmul", *factors, span=node.span), tuple(sizes[each] for each in order), node.span)
    return _transposed(product, [order.index(letter) for letter in result], node.span)


def _transposed(x: Expr, perm: list[int], span: Span) -> Expr:
    return x if perm == sorted(perm) else call("transpose", x, perm=tuple(perm), span=span)


def _reshaped(x: Expr, shape: tuple[int, ...], span: Span) -> Expr:
    return x if x.shape == shape else call("reshape", x, shape=shape, span=span)
