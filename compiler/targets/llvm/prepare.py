"""Passes that make a graph ready for a CPU, after those that all targets share."""

from __future__ import annotations

from ...graph.ir import Call, Constant, Expr, Function, Module
from ...graph.registry import call
from ...graph.visit import Mutator, rewrite, substitute


def prepare(module: Module) -> Module:
    """No functions, and products with constant weights as convolutions of one pixel."""
    return module.with_main(rewrite(inline_functions(module.main.body), dense_as_convolution))


def inline_functions(body: Expr) -> Expr:
    """Every call of a function replaced by the function's body."""

    class Inline(Mutator):
        def rewrite_call(self, node: Call) -> Expr:
            if not isinstance(node.op, Function):
                return node
            inner = inline_functions(node.op.body)
            return substitute(inner, dict(zip(node.op.params, node.args, strict=True)))

    return Inline().run(body)


def dense_as_convolution(node: Call) -> Expr | None:
    """nn.dense(x, constant)  ->  a convolution of 1 x 1 on an image of one pixel"""
    match node:
        case Call(op="nn.dense", args=(x, Constant() as w)) if node.dtype == "float32" and 0 not in node.shape:
            image = call("reshape", x, shape=(*x.shape, 1, 1), span=node.span)
            weights = Constant(w.value.reshape(*w.shape, 1, 1), w.name, w.span)
            product = call("nn.conv2d", image, weights, span=node.span)
            return call("reshape", product, shape=node.shape, span=node.span)
    return None
