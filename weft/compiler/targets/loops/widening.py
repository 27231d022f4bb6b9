"""Values of 16 bits that kernels compute with in 32: each kernel widens what it reads, and 16 bits are in memory."""

from __future__ import annotations

import numpy as np

from ...graph.dtypes import HALVES
from ...graph.ir import Call, Constant, Expr, Module
from ...graph.registry import Role, call, role_of
from ...graph.visit import topological_order, with_children


def widened_where_used(module: Module) -> Module:
    """A cast from 16 to 32 bits that several calls read  ->  one for each of them, behind a barrier that sets it apart.

    Else the kernel that makes the value would store it in 32 bits, for all of them.
    """
    order = topological_order(module.main.body)
    users: dict[Expr, int] = {}
    for node in order:
        for value in dict.fromkeys(node.children):
            users[value] = users.get(value, 0) + 1
    memo: dict[Expr, Expr] = {}

    def operand(value: Expr, user: int) -> Expr:
        if not isinstance(value, Call) or not _widens(value) or users[value] == 1:
            return memo[value]
        narrow = memo[value.args[0]]
        apart = call("barrier", narrow, Constant(np.array(user, np.int32)), span=narrow.span)
        return with_children(value, (apart,))

    for number, node in enumerate(order):
        children = tuple(operand(value, number) if isinstance(node, Call) else memo[value] for value in node.children)
        memo[node] = with_children(node, children)
    body = memo[module.main.body]
    return module if body is module.main.body else module.with_main(body)


def _widens(node: Call) -> bool:
    return role_of(node) is Role.CAST and node.dtype == "float32" and node.args[0].dtype in HALVES
