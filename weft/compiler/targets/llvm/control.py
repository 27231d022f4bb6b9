"""Loops and conditions as LLVM IR."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import llvmlite.ir as ll

from ...tensor.ir import Var
from .expressions import Expressions
from .llvm_types import I64, Int, Value, i64


def emit_loop(expressions: Expressions, var: Var, begin: Int, end: Int, body: Callable[[], None]) -> None:
    """``body`` for every value of ``var`` from ``begin`` to before ``end``."""
    if isinstance(begin, int) and isinstance(end, int) and end - begin == 1:
        expressions.env[var] = begin
        body()
        return
    builder = expressions.builder
    before = builder.block
    head, inside, after = (builder.append_basic_block(f"{var.name}.{name}") for name in ("head", "body", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    count = builder.phi(I64, name=var.name)
    count.add_incoming(i64(begin), before)
    builder.cbranch(builder.icmp_signed("<", count, i64(end)), inside, after)
    builder.position_at_end(inside)
    expressions.env[var] = count
    body()
    count.add_incoming(builder.add(count, ll.Constant(I64, 1), flags=["nsw"]), builder.block)
    builder.branch(head)
    builder.position_at_end(after)


def emit_first(expressions: Expressions, variables: Sequence[Var], body: Callable[[], None]) -> None:
    """``body`` in the iteration in which all variables are 0."""
    unknown: list[Value] = []
    builder = expressions.builder
    for var in variables:
        value = expressions.env[var]
        if isinstance(value, int):
            if value:
                return
        else:
            unknown.append(builder.icmp_signed("==", value, ll.Constant(I64, 0)))
    if not unknown:
        body()
        return
    condition = unknown[0]
    for other in unknown[1:]:
        condition = builder.and_(condition, other)
    with builder.if_then(condition):
        body()
