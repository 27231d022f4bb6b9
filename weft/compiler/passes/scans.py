"""Passes on the bodies of loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ..graph.ir import Call, Constant, Expr, Function, Module, TensorType, require_module, topological_order
from ..graph.scan import SCAN, body_of, rebuilt, without_scans
from ..graph.visit import rewrite, substitute
from .manager import Pass, graph_pass


def scan_bodies(name: str, passes: Sequence[Pass], tolerance: float = 0.0) -> Pass:
    """A pass that runs others on the body of every loop, with the constants that it is given inside of it."""

    def on_body(node: Call) -> Expr | None:
        if node.op != SCAN:
            return None
        node = with_constants(node)
        body = body_of(node)
        module = Module(Function(body.params, body.body, body.attrs, body.span))
        for item in passes:
            module = item(module)
        return node if module.main.body == body.body else rebuilt(node, replace_body(body, module.main.body))

    about = f"On the body of every loop: {', '.join(dict.fromkeys(item.name for item in passes))}."
    run = partial(_on_loops, on_body)
    return Pass(name, run, tolerance=tolerance, about=about)


def _on_loops(on_body: Callable[[Call], Expr | None], module: Module) -> Module:
    return module.with_main(rewrite(module.main.body, on_body))


def replace_body(function: Function, body: Expr) -> Function:
    return Function(function.params, body, function.attrs, function.span)


def with_constants(node: Call) -> Call:
    """scan(..., constant)  ->  scan(...), with the constant in the body. Only of what is the same in every step."""
    first = node.attr("states") + node.attr("sequences")
    body = body_of(node)
    known: dict[Expr, Expr] = {
        param: arg
        for param, arg in zip(body.params[first:], node.args[first:], strict=True)
        if isinstance(arg, Constant)
    }
    if not known:
        return node
    kept = [number for number, param in enumerate(body.params) if param not in known]
    inner = Function(tuple(body.params[number] for number in kept), substitute(body.body, known), body.attrs, body.span)
    return rebuilt(node, inner, [node.args[number] for number in kept])


@graph_pass("unroll-loops")
def unroll_loops(module: Module) -> Module:
    """A copy of the body for each step of every loop. Raises `GraphError` for what is no module."""
    require_module(module)
    return replace(module, main=replace_body(module.main, without_scans(module.main.body)))


@graph_pass("unroll-quantised-loops")
def unroll_quantised_loops(module: Module) -> Module:
    """A copy of the body for each step of the loops that have 8-bit values: their integers are for the whole graph."""

    def has_bytes(node: Call) -> bool:
        body = body_of(node)
        return any(
            isinstance(each.type, TensorType) and each.dtype in ("int8", "uint8")
            for each in topological_order(body.body)
        )

    return module.with_main(without_scans(module.main.body, has_bytes))
