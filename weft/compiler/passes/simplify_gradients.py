"""Algebra for graphs of gradients, whose rules write down more than each use of them needs. Every bit is kept."""

from __future__ import annotations

from ..graph import Call, Expr, Fusion, GraphError, call, operator_of
from .manager import rule_pass


def drop_expand(node: Call) -> Expr | None:
    """An elementwise operator on an expanded value, which it would broadcast itself  ->  the same on the value"""
    entry = operator_of(node)
    if entry is None or entry.fusion is not Fusion.ELEMENTWISE:
        return None
    for place, arg in enumerate(node.args):
        if isinstance(arg, Call) and arg.op == "expand":
            try:
                new = call(
                    node.op, *node.args[:place], arg.args[0], *node.args[place + 1 :], span=node.span, **node.attrs
                )
            except GraphError:  # it takes operands of one shape
                continue
            if new.type == node.type:
                return new
    return None


def drop_negatives(node: Call) -> Expr | None:
    """-(-x)  ->  x;  x + -y  ->  x - y;  x - -y  ->  x + y"""
    match node:
        case Call(op="nn.negative", args=(Call(op="nn.negative", args=(x,)),)):
            return x
        case Call(op="nn.add", args=(x, Call(op="nn.negative", args=(y,)))):
            return call("nn.subtract", x, y, span=node.span)
        case Call(op="nn.add", args=(Call(op="nn.negative", args=(y,)), x)):
            return call("nn.subtract", x, y, span=node.span)
        case Call(op="nn.subtract", args=(x, Call(op="nn.negative", args=(y,)))):
            return call("nn.add", x, y, span=node.span)
    return None


def drop_whole(node: Call) -> Expr | None:
    """A slice of all elements in their order, or an expand to the same shape  ->  the operand"""
    match node:
        case Call(op="slice" | "expand", args=(x,)) if x.shape == node.shape:
            steps = node.attr("steps") if node.op == "slice" else ()
            turned = any(step < 0 and size > 1 for step, size in zip(steps, x.shape, strict=False))
            return None if turned else x
    return None


def compose_expands(node: Call) -> Expr | None:
    """expand(expand(x))  ->  expand(x), and of a reshape that only adds axes of 1 in front  ->  expand(x)"""
    match node:
        case Call(op="expand", args=(Call(op="expand", args=(x,)),)):
            return call("expand", x, span=node.span, **node.attrs)
        case Call(op="expand", args=(Call(op="reshape", args=(x,)) as inner,)):
            if inner.shape == (1,) * (len(inner.shape) - len(x.shape)) + x.shape:
                return call("expand", x, span=node.span, **node.attrs)
    return None


RULES = (drop_expand, drop_negatives, drop_whole, compose_expands)

simplify_gradients = rule_pass("simplify-gradients", RULES, about=__doc__ or "")
