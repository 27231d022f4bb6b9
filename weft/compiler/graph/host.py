"""Functions that run on the host: one operator each, with the reason for its place."""

from __future__ import annotations

from collections.abc import Mapping

from .ir import Attrs, Call, Expr, Function, Span, TupleGet, Var
from .registry import call
from .visit import Mutator

HOST_STEP = 8192
"""Cycles for which the core stops when the host has work between two programs: the interrupt, some 80 microseconds at
100 MHz."""


def host_call(
    op: str, args: tuple[Expr, ...], attrs: Mapping[str, object], reason: str, span: Span, result: int | None = None
) -> Call:
    """A call of a host function of one operator; operands that are constant stay inside it. ``result``: which one it
    is, of an operator with several.

    Every such function is named ``host_<operator>_?``; `renumber` gives the final names.
    """
    params: list[Var] = []
    outer: list[Expr] = []
    inner: list[Expr] = []
    for arg in args:
        if arg.static:
            inner.append(arg)
        else:
            params.append(Var(f"x{len(params)}", arg.tensor_type))
            outer.append(arg)
            inner.append(params[-1])
    name = f"host_{op.removeprefix('nn.')}_?"
    body: Expr = call(op, *inner, span=span, **attrs)
    body = body if result is None else TupleGet(body, result, span)
    function = Function(tuple(params), body, Attrs({"name": name, "host": reason}))
    return call(function, *outer, span=span)


def host_function(function: Function, reason: str) -> Function:
    """A primitive function that the host is to run instead, named as `renumber` takes it."""
    attrs = Attrs({"name": f"{function.name}_?", "host": reason})
    return Function(function.params, function.body, attrs, function.span)


def renumber(body: Expr) -> Expr:
    """Host functions numbered in the order in which they run."""
    counts: dict[str, int] = {}
    renamed: dict[Function, Function] = {}

    class Renumber(Mutator):
        def rewrite_call(self, node: Call) -> Expr:
            op = node.op
            if not isinstance(op, Function) or not op.host_reason:
                return node
            if op not in renamed:
                base = op.name.rsplit("_", 1)[0]
                number = counts[base] = counts.get(base, -1) + 1
                attrs = op.attrs.replace(name=f"{base}_{number}")
                renamed[op] = Function(op.params, op.body, attrs, op.span)
            return call(renamed[op], *node.args, span=node.span, **node.attrs)

    return Renumber().run(body)
