"""Multiply-accumulates of a model as it was read. Whatever the passes make of it, this is the useful work.

A product with a zero that a rewrite put in is none. Nor is a sum that is computed a second time, or a mean that became
a product.
"""

from __future__ import annotations

import math
from collections import defaultdict

from ..graph import Anchor, Call, Expr, Module, calls, operator_of
from ..graph.dtypes import is_float
from ..graph.scan import SCAN, body_of
from .plain_windows import undilated


def products_of_nodes(module: Module) -> dict[str, int] | None:
    """By the user's node, the multiply-accumulates of a module at stage "source". What is constant counts nothing. None
    where a node with products has no name, so that they cannot be told apart."""
    counts: defaultdict[str, int] = defaultdict(int)
    for node, runs in _each(module.main.body, 1):
        counts[node.span.node] += runs * _products(node)
    return None if counts.get("") else {name: count for name, count in counts.items() if count}


def _each(body: Expr, runs: int) -> list[tuple[Call, int]]:
    """All calls that depend on an input, and how often they run; those of loops, too."""
    found: list[tuple[Call, int]] = []
    for node in calls(body):
        if node.op == SCAN:
            found += _each(body_of(node).body, runs * node.attr("steps"))
        elif not node.static:
            found.append((node, runs))
    return found


def _products(node: Call) -> int:
    entry = operator_of(node)
    if entry is None:
        return 0
    windows = entry.anchor is Anchor.CONVOLUTION and is_float(node.dtype)
    spread = undilated(node.args[0]) if windows else None
    if spread is None:
        return entry.macs(node)
    data, factors, before = spread
    met = math.prod(
        _met(node, axis, data.shape[2 + axis], factor, start)
        for axis, (factor, start) in enumerate(zip(factors, before, strict=True))
    )
    return node.shape[0] * node.shape[1] * node.args[1].shape[1] * met


def _met(node: Call, axis: int, size: int, factor: int, before: int) -> int:
    """How often a window along an axis meets one of ``size`` elements, which stand ``factor`` apart behind ``before``
    others; padding is none."""
    pad = node.attr("pads")[axis] + before
    stride, dilation = node.attr("strides")[axis], node.attr("dilations")[axis]
    places = (
        place * stride + tap * dilation - pad
        for place in range(node.shape[2 + axis]) for tap in range(node.args[1].shape[2 + axis])
    )  # fmt: skip
    return sum(place % factor == 0 and 0 <= place // factor < size for place in places)
