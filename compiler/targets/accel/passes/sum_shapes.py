"""Sums take the shape of the product that they add to.

In transformers a residual sum stands behind a dense layer and a reshape: rows of tokens are images of the layer, but
channels of the sum. So they would be packed in two ways, with a move on the host between, for which the core stops.
Elementwise integers may be computed under any shape of the same elements: under the layer's the sum joins its kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ....graph import Anchor, Call, Constant, Expr, Fusion, Module, Span, call, operator_of
from ....graph.visit import topological_order, use_counts, with_children
from ....passes.manager import Pass


def _run(module: Module) -> Module:
    body = module.main.body
    uses = use_counts(body)
    memo: dict[Expr, Expr] = {}
    for node in topological_order(body):
        steps = _elementwise(node) if isinstance(node, Call) else []
        shape = _shape_of_product(steps, uses)
        if isinstance(node, Call) and shape is not None and shape != node.shape:
            total = _under(node, shape, frozenset(steps), memo)
            memo[node] = call("reshape", total, shape=node.shape, span=Span(node.span.nodes, node.span.tensor))
        else:
            memo[node] = with_children(node, tuple(memo[child] for child in node.children))
    return module.with_main(memo[body])


sums_in_shape_of_products = Pass("sum-shapes", _run, needs=("legalise",))
"""Elementwise functions of 8-bit values that reshapes part from a product are computed under the product's shape."""


def _elementwise(node: Call) -> Sequence[Call]:
    """The requantise ``node`` and what it narrows, down to 8-bit values; empty where something else than elements of
    equal places and numbers that are the same for all of them make it."""
    if node.op != "requantise" or node.dtype != "int8":
        return []
    found: dict[Call, None] = {}
    waiting = [node]
    while waiting:
        step = waiting.pop()
        entry = operator_of(step)
        if entry is None or entry.fusion is not Fusion.ELEMENTWISE or (step is not node and step.op == "requantise"):
            return []
        numbers = [arg for arg in step.args if _is_number(step, arg)]
        computed = [arg for arg in step.args if arg not in numbers]
        if any(arg.shape != node.shape or not isinstance(arg, Call | Constant) for arg in computed):
            return []
        if any(not isinstance(arg, Constant) or len(np.unique(arg.value)) != 1 for arg in numbers):
            return []
        found[step] = None
        waiting += [arg for arg in computed if isinstance(arg, Call) and arg.dtype == "int32"]
    return list(found)


def _is_number(step: Call, arg: Expr) -> bool:
    """Whether an operand is one number a channel."""
    return step.op == "requantise" and arg is not step.args[0]


def _shape_of_product(steps: Sequence[Call], uses: Mapping[Expr, int]) -> tuple[int, ...] | None:
    """The shape of a product that only these steps read, through reshapes; None where there is none."""
    for step in steps:
        for arg in step.args:
            source, moved = arg, False
            while isinstance(source, Call) and source.op == "reshape" and uses[source] == 1:
                source, moved = source.args[0], True
            if moved and uses[source] == 1 and _is_made_by_product(source) and len(source.shape) == 4:
                return source.shape
    return None


def _is_made_by_product(value: Expr) -> bool:
    while isinstance(value, Call) and value.dtype in ("int8", "int32"):
        entry = operator_of(value)
        if entry is not None and entry.fusion is Fusion.ANCHOR:
            return entry.anchor is not Anchor.POOL
        if entry is None or entry.fusion is not Fusion.ELEMENTWISE:
            return False
        value = value.args[0]
    return False


def _under(node: Expr, shape: tuple[int, ...], steps: frozenset[Call], memo: Mapping[Expr, Expr]) -> Expr:
    """``node`` with all of its elements under another shape."""
    if isinstance(node, Call) and node in steps:
        args = [
            Constant(np.full(shape[1], arg.value.flat[0], arg.value.dtype))
            if isinstance(arg, Constant) and _is_number(node, arg) else _under(arg, shape, steps, memo)
            for arg in node.args
        ]  # fmt: skip
        return call(node.op, *args, span=node.span, **node.attrs)
    value = memo[node]
    if isinstance(value, Constant):
        return Constant(value.value.reshape(shape), value.name, value.span)
    while isinstance(value, Call) and value.op == "reshape":
        value = value.args[0]
    return value if value.shape == shape else call("reshape", value, shape=shape, span=Span(value.span.nodes))
