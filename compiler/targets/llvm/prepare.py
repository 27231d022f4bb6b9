"""Passes that make a graph ready for a CPU, after those that all targets share."""

from __future__ import annotations

from ...graph.ir import Call, Expr, Function, Module
from ...graph.visit import Mutator, substitute


def prepare(module: Module) -> Module:
    """The module without functions: all their operators stand in ``main``."""
    return module.with_main(inline_functions(module.main.body))


def inline_functions(body: Expr) -> Expr:
    """Every call of a function replaced by the function's body."""

    class Inline(Mutator):
        def rewrite_call(self, node: Call) -> Expr:
            if not isinstance(node.op, Function):
                return node
            inner = inline_functions(node.op.body)
            return substitute(inner, dict(zip(node.op.params, node.args, strict=True)))

    return Inline().run(body)
