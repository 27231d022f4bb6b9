"""The operators of a kernel: their order, and what they read from elsewhere."""

from __future__ import annotations

from collections.abc import Container

from ...graph.ir import Call, Constant, Expr


def ordered_members(root: Call, members: Container[Expr]) -> tuple[Call, ...]:
    """The members that ``root`` needs through members, producers before consumers. Others are not entered, however
    large the graph behind them is: whatever uses a member of a kernel is one, too."""
    order: dict[Call, None] = {}
    seen: set[Expr] = set()
    stack: list[tuple[Expr, bool]] = [(root, False)]
    while stack:
        node, is_done = stack.pop()
        if not isinstance(node, Call):
            continue
        if is_done:
            order[node] = None
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(node.children) if child in members)
    return tuple(order)


def outside(members: tuple[Call, ...]) -> tuple[Expr, ...]:
    """What the members of a kernel read that no member makes, but constants."""
    operands = dict.fromkeys(arg for member in members for arg in member.args)
    return tuple(arg for arg in operands if arg not in members and not isinstance(arg, Constant))
