"""Algebraic simplification: rules that always pay and keep every bit of every result."""

from __future__ import annotations

import numpy as np

from ..graph import LINEAR, Call, Constant, Expr, Role, Span, call, role_of
from .manager import rule_pass

COMMUTES = (Role.ADD, Role.MULTIPLY)


def compose_transposes(node: Call) -> Expr | None:
    """transpose(transpose(x, p), q)  ->  transpose(x, p then q)"""
    match node:
        case Call(op="transpose", args=(Call(op="transpose", args=(x,)) as inner,)):
            perm = tuple(inner.attr("perm")[axis] for axis in node.attr("perm"))
            return call("transpose", x, perm=perm, span=node.span.merged(inner.span))
    return None


def drop_identity_move(node: Call) -> Expr | None:
    """A transpose, reshape, pad or concat that moves nothing  ->  its operand"""
    match node:
        case Call(op="transpose", args=(x,)) if node.attr("perm") == tuple(range(len(x.shape))):
            return x
        case Call(op="reshape", args=(x,)) if node.attr("shape") == x.shape:
            return x
        case Call(op="pad", args=(x,)) if not any(node.attr("pads")):
            return x
        case Call(op="concat", args=(x,)):
            return x
    return None


def transpose_as_reshape(node: Call) -> Expr | None:
    """A transpose that only moves axes of size 1  ->  reshape"""
    match node:
        case Call(op="transpose", args=(x,)):
            moved = [axis for axis in node.attr("perm") if x.shape[axis] != 1]
            if moved == sorted(moved):
                return call("reshape", x, shape=node.shape, span=node.span)
    return None


def compose_reshapes(node: Call) -> Expr | None:
    """reshape(reshape(x))  ->  reshape(x)"""
    match node:
        case Call(op="reshape", args=(Call(op="reshape", args=(x,)) as inner,)):
            return call("reshape", x, shape=node.attr("shape"), span=node.span.merged(inner.span))
    return None


def merge_clips(node: Call) -> Expr | None:
    """nn.clip(nn.clip(x, a, b), c, d)  ->  nn.clip(x, both), when the ranges overlap"""
    if role_of(node) is not Role.CLAMP:
        return None
    match node:
        case Call(args=(Call(args=(x,)) as inner,)) if role_of(inner) is Role.CLAMP:
            low = max(node.attr("low"), inner.attr("low"))
            high = min(node.attr("high"), inner.attr("high"))
            if low <= high:
                return call(node.op, x, low=low, high=high, span=node.span.merged(inner.span))
        case Call(args=(x,)) if node.attr("low") == -np.inf and node.attr("high") == np.inf:
            return x
    return None


def drop_neutral_operand(node: Call) -> Expr | None:
    """x + 0, x - 0, x * 1, x / 1  ->  x"""
    role = role_of(node)
    if role not in LINEAR:
        return None
    neutral = 0 if role in (Role.ADD, Role.SUBTRACT) else 1
    match node.args:
        case x, Constant() as c if _is_all(c, neutral) and x.shape == node.shape:
            return x
        case Constant() as c, x if role in COMMUTES and _is_all(c, neutral) and x.shape == node.shape:
            return x
    return None


def drop_requantisation_to_the_same(node: Call) -> Expr | None:
    """quantise(dequantise(x, s, z), s, z)  ->  x"""
    match node:
        case Call(args=(Call(args=(x, scale, zero)) as inner, scale_2, zero_2)):
            if (role_of(node), role_of(inner)) != (Role.QUANTISE, Role.DEQUANTISE):
                return None
            if scale == scale_2 and zero == zero_2 and (scale.shape == () or node.attr("axis") == _axis(node.args[0])):
                return x
    return None


def fold_pad(node: Call) -> Expr | None:
    """A convolution or sum_pool of pad(x, value)  ->  the same with larger pads, when both pad with the same value"""
    match node:
        case Call(op="conv2d" | "conv3d" | "sum_pool", args=(Call(op="pad", args=(x,)) as pad, *rest)):
            if pad.attr("value") == node.attr("pad_value") and len(pad.attr("pads")) == len(node.attr("pads")):
                pads = tuple(a + b for a, b in zip(node.attr("pads"), pad.attr("pads"), strict=True))
                attrs = node.attrs.replace(pads=pads)
                return call(node.op, x, *rest, span=node.span.merged(pad.span), **attrs)
    return None


def flattened_into_kernel(node: Call) -> Expr | None:
    """conv2d(reshape(x: (N, C, H, W), (N, C*H*W, 1, 1)), 1 x 1 weights)  ->  conv2d(x, H x W weights)

    Also through a transpose of the axes behind N: the weights are transposed instead.
    """
    match node:
        case Call(op="conv2d", args=(Call(op="reshape", args=(x,)) as flat, Constant() as w)):
            if w.value.shape[2:] != (1, 1) or node.attr("groups") != 1 or len(x.shape) != 4 or any(node.attr("pads")):
                return None
            if flat.shape[0] != x.shape[0] or flat.shape[2:] != (1, 1) or x.shape[2:] == (1, 1):
                return None
            weights = w.value.reshape(w.value.shape[0], *x.shape[1:])
            span = node.span.merged(flat.span)
            match x:
                case Call(op="transpose", args=(inner,)) if x.attr("perm")[0] == 0:
                    back = np.argsort(np.array(x.attr("perm")))
                    weights, span, x = weights.transpose(back), span.merged(x.span), inner
            attrs = node.attrs.replace(strides=(1, 1), dilations=(1, 1))
            return call("conv2d", x, Constant(weights, w.name, w.span), span=span, **attrs)
    return None


def sink_move(node: Call) -> Expr | None:
    """A requantise of arithmetic on int8 values that were all moved alike, by a transpose or a reshape  ->  the move of
    the requantise, so that moves meet and cancel

    Only as a whole: an int32 value between a requantise and what it needs cannot be moved.
    """
    if node.op != "requantise" or node.dtype != "int8":
        return None
    x, *params = node.args
    values = [param.value for param in params if isinstance(param, Constant)]
    if len(values) != 3 or not all(value.size and np.all(value == value[0]) for value in values):
        return None
    leaves = _moved_leaves(x)
    if not leaves:
        return None
    first = leaves[0]
    if not all(leaf.op == first.op and leaf.attrs == first.attrs for leaf in leaves):
        return None
    source = first.args[0].shape
    if len(source) not in (2, 4) or any(leaf.args[0].shape != source for leaf in leaves):
        return None
    spread = [Constant(np.full(source[1], value[0], np.int32)) for value in values]
    inner = call("requantise", _without_moves(x, first), *spread, span=Span(node.span.nodes), **node.attrs)
    return call(str(first.op), inner, span=node.span.merged(*(leaf.span for leaf in leaves)), **first.attrs)


def _moved_leaves(x: Expr) -> list[Call] | None:
    """The moves that make the int8 operands of arithmetic; None where something else makes one."""
    match x:
        case Call(op="transpose" | "reshape") if x.dtype == "int8":
            return [x]
        case Call(op="multiply_immediate" | "subtract_immediate" | "multiply" | "multiply_accumulate"):
            parts = [_moved_leaves(arg) for arg in x.args if not isinstance(arg, Constant)]
            known = [part for part in parts if part is not None]
            return [leaf for part in known for leaf in part] if len(known) == len(parts) else None
    return None


def _without_moves(x: Expr, move: Call) -> Expr:
    """Arithmetic on what was moved, of which ``move`` is one."""
    source = move.args[0].shape
    match x:
        case Constant() if move.op == "transpose":
            back = np.argsort(np.array(move.attr("perm")))
            return Constant(np.ascontiguousarray(x.value.transpose(back)), x.name, x.span)
        case Constant():
            return Constant(x.value.reshape(source), x.name, x.span)
        case Call(op="transpose" | "reshape", args=(inner,)):
            return inner
        case Call():
            args = [_without_moves(arg, move) for arg in x.args]
            return call(x.op, *args, span=Span(x.span.nodes), **x.attrs)
    raise ValueError(f"{x} is no arithmetic on moved values")


def _is_all(constant: Constant, value: float) -> bool:
    return bool(np.all(constant.value == value))


def _axis(node: Expr) -> object:
    return node.attr("axis") if isinstance(node, Call) else None


MOVES = (compose_transposes, transpose_as_reshape, compose_reshapes, drop_identity_move)
"""Rules of moves alone."""

RULES = (
    *MOVES, merge_clips, drop_neutral_operand,
    drop_requantisation_to_the_same, fold_pad, sink_move,
)  # fmt: skip

simplify = rule_pass("simplify", RULES, about=__doc__ or "")

flatten_into_kernel = rule_pass("flatten-into-kernel", (flattened_into_kernel,))
"""For targets on which a convolution reads a picture as fast as a dense layer a row."""
