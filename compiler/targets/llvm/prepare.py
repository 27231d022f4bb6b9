"""Passes that make a graph ready for a CPU, after those that all targets share."""

from __future__ import annotations

import numpy as np

from ...graph.dtypes import numpy_dtype
from ...graph.ir import Array, Call, Constant, Expr, Function, Module, TensorType
from ...graph.registry import apply, call, operator
from ...graph.visit import Mutator, rewrite, substitute
from .einsums import as_matrix_product
from .images import as_plain_images


def prepare(module: Module) -> Module:
    """The module without functions: all their operators stand in ``main``; without work on empty tensors; with sums of
    products as those of matrices; and with convolutions over images without gaps."""
    body = without_empty_tensors(inline_functions(module.main.body))
    return module.with_main(rewrite(rewrite(body, as_matrix_product), as_plain_images))


def inline_functions(body: Expr) -> Expr:
    """Every call of a function replaced by the function's body."""

    class Inline(Mutator):
        def rewrite_call(self, node: Call) -> Expr:
            if not isinstance(node.op, Function):
                return node
            inner = inline_functions(node.op.body)
            return substitute(inner, dict(zip(node.op.params, node.args, strict=True)))

    return Inline().run(body)


def without_empty_tensors(body: Expr) -> Expr:
    """Tensors without elements have one value only, which is known: they become constants, what depends on such alone
    is computed, and a concat leaves them out. So no kernel has loops without iterations."""

    class Known(Mutator):
        def __init__(self) -> None:
            super().__init__()
            self.made: set[Expr] = set()

        def _rewrite(self, node: Expr) -> Expr:
            if _is_empty(node):
                return self.constant(np.zeros(node.shape, numpy_dtype(node.dtype)), node)
            if not isinstance(node, Call) or not isinstance(node.op, str) or self.made.isdisjoint(node.args):
                return node
            if node.op == "concat":
                kept = [arg for arg in node.args if not _is_empty(arg)]
                return kept[0] if len(kept) == 1 else call("concat", *kept, span=node.span, **node.attrs)
            values = [arg.value for arg in node.args if isinstance(arg, Constant)]
            if len(values) == len(node.args) and operator(node.op).folds and isinstance(node.type, TensorType):
                return self.constant(apply(node, values), node)
            return node

        def constant(self, value: Array, node: Expr) -> Constant:
            made = Constant(value, span=node.span)
            self.made.add(made)
            return made

    return Known().run(body)


def _is_empty(node: Expr) -> bool:
    return isinstance(node.type, TensorType) and node.type.size == 0
