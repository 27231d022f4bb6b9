"""Constant folding, common subexpressions, and what nobody uses."""

from __future__ import annotations

from ..graph import Attrs, Call, Constant, Expr, Function, Module, TensorType, Tuple, TupleGet, call
from ..graph.dtypes import numpy_dtype
from ..graph.registry import apply, operator
from ..graph.visit import Mutator, rewrite, topological_order
from .manager import graph_pass

LARGEST_FOLDED = 1 << 30
"""Bytes: a constant that would be larger is computed when the model runs."""


def fold_call(node: Call) -> Expr | None:
    """An operator on constants  ->  its result (but a dequantise keeps its integers)"""
    if isinstance(node.op, Function) or not node.args or not operator(node.op).folds:
        return None
    values = [arg.value for arg in node.args if isinstance(arg, Constant)]
    if len(values) != len(node.args):
        return None
    kind = node.type
    if not isinstance(kind, TensorType) or kind.size * numpy_dtype(kind.dtype).itemsize > LARGEST_FOLDED:
        return None
    names = [arg.name for arg in node.args if isinstance(arg, Constant) and arg.name]
    return Constant(apply(node, values), names[0] if names else "", node.span)


@graph_pass("fold-constants")
def fold_constants(module: Module) -> Module:
    """Evaluate what depends on constants only."""
    return module.with_main(rewrite(module.main.body, fold_call))


@graph_pass("cse")
def cse(module: Module) -> Module:
    """One node for all equal ones, so that each is computed once."""
    representatives: dict[Expr, Expr] = {}

    class Unify(Mutator):
        def _rewrite(self, node: Expr) -> Expr:
            return representatives.setdefault(node, node)

    return module.with_main(Unify().run(module.main.body))


@graph_pass("dce")
def dce(module: Module) -> Module:
    """Drop fields of tuples that nobody takes, and parameters and results of functions that nobody uses.

    Calls that nobody uses need no pass: what the body does not reach is not in the graph.
    """

    class Prune(Mutator):
        def _rewrite(self, node: Expr) -> Expr:
            match node:
                case TupleGet(value=Tuple() as operand):
                    return operand.fields[node.index]
                case Call(op=Function() as function):
                    return _without_unused_params(node, function)
            return node

    return module.with_main(Prune().run(module.main.body))


def _without_unused_params(node: Call, function: Function) -> Call:
    used = set(topological_order(function.body))
    kept = [i for i, param in enumerate(function.params) if param in used]
    if len(kept) == len(function.params):
        return node
    params = tuple(function.params[i] for i in kept)
    smaller = Function(params, function.body, Attrs(function.attrs), function.span)
    return call(smaller, *(node.args[i] for i in kept), span=node.span, **node.attrs)
