"""Elementwise operators before a reshape, not behind it, where the kernel that makes the reshaped value takes them in.

A dense layer of tokens is a product of all rows of a batch, reshaped. What is elementwise behind that reshape (a bias,
an activation, the sum of a residual branch) has another shape than the product, and fusion joins only equal shapes.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ...graph.ir import Call, Constant, Expr, GraphError, Module, Span, Var
from ...graph.registry import Anchor, Family, Fusion, Role, call, operator_of
from ...graph.visit import rewrite
from ...passes.manager import rule_pass
from ...passes.simplify import MOVES

DEEPEST = 32
"""Elementwise operators between a reshape and what starts its kernel, at most."""

_together = rule_pass("reshapes-that-meet", MOVES)


def with_reshapes_last(module: Module) -> Module:
    """Elementwise operators and reductions of reshaped results of products and the like as reshapes of such operators;
    reshapes that these put behind each other become one."""
    body = rewrite(module.main.body, reshape_last)
    return module if body is module.main.body else _together(module.with_main(body))


def reshape_last(node: Call) -> Expr | None:
    """f(reshape(x), y)  ->  reshape(f(x, reshape(y))), for f that is elementwise or reduces, and x of a kernel that
    may take f in"""
    if _reduces(node):
        return _reduced_before(node)
    if node.op == "requantise":
        return _requantised_before(node)
    if not _is_elementwise(node):
        return None
    for arg in node.args:
        if isinstance(arg, Call) and arg.op == "reshape" and arg.shape == node.shape and _starts_kernel(arg.args[0]):
            return _before(node, arg)
    return None


def _before(node: Call, move: Call) -> Expr | None:
    value = _before_reshape(node, move.args[0].shape, Span(node.span.nodes))
    return None if value is None else call("reshape", value, shape=node.shape, span=node.span)


def _reduced_before(node: Call) -> Expr | None:
    """The reduction of what is reshaped; None where it takes a part of an axis."""
    match node.args:
        case (Call(op="reshape", args=(x,)) as move,) if _starts_kernel(x):
            axes: list[int] = []
            for after, before in _groups(move.shape, x.shape):
                reduced = [axis in node.attr("axes") for axis in range(after.start, after.stop) if move.shape[axis] > 1]
                if any(reduced) and not all(reduced):
                    return None
                if any(reduced):
                    axes += range(before.start, before.stop)
            if not axes:
                return None
            attrs = node.attrs.replace(axes=tuple(axes), keepdims=True)
            value = call(str(node.op), x, span=Span(node.span.nodes), **attrs)
            return call("reshape", value, shape=node.shape, span=node.span)
    return None


def _requantised_before(node: Call) -> Expr | None:
    """A requantise before a reshape, which makes other channels only where the same is done to all."""
    match node.args:
        case (Call(op="reshape", args=(x,)), *parameters) if len(x.shape) > 1 and _starts_kernel(x):
            if x.shape[:2] == node.shape[:2]:
                value = call("requantise", x, *parameters, span=Span(node.span.nodes), **node.attrs)
                return call("reshape", value, shape=node.shape, span=node.span)
            values = [each.value for each in parameters if isinstance(each, Constant)]
            if len(values) < len(parameters) or any(np.any(value != value[:1]) for value in values):
                return None
            same = [Constant(np.repeat(value[:1], x.shape[1])) for value in values]
            value = call("requantise", x, *same, span=Span(node.span.nodes), **node.attrs)
            return call("reshape", value, shape=node.shape, span=node.span)
    return None


def _reduces(node: Call) -> bool:
    entry = operator_of(node)
    return entry is not None and entry.anchor is Anchor.REDUCTION


def _is_elementwise(node: Call) -> bool:
    """Whether elements of the result depend on those of the operands at the same place, under NumPy's broadcasting."""
    entry = operator_of(node)
    if (
        entry is None or entry.fusion is not Fusion.ELEMENTWISE or entry.role is Role.NORMALISATION
    ):  # one value a channel
        return False
    if entry.family is Family.QUANTISE:
        return all(arg.shape == () for arg in node.args[1:])
    return entry.family in (Family.SOURCE, Family.INTEGER)


def _starts_kernel(value: Expr) -> bool:
    """Whether elementwise operators alone are between a value and one that starts a kernel, from which no value of
    another shape comes in between."""
    waiting, seen = [value], {value}
    while waiting and len(seen) <= DEEPEST:
        node = waiting.pop()
        entry = operator_of(node)
        if entry is None or not isinstance(node, Call):
            continue
        if entry.fusion in (Fusion.ANCHOR, Fusion.REDUCTION):
            return True
        if entry.fusion is Fusion.ELEMENTWISE:
            behind = [arg for arg in node.args if arg.shape == node.shape and arg not in seen]
            seen.update(behind)
            waiting += behind
    return False


def _operand(value: Expr, shape: tuple[int, ...], source: tuple[int, ...]) -> Expr | None:
    """What is ``value``, broadcast to ``shape``, once that is reshaped to ``source``; None where it is no reshape."""
    match value:
        case Call(op="reshape", args=(x,)) if value.shape == shape and x.shape == source:
            return x
        case Call() if value.shape == shape and _is_elementwise(value) and _of_what_is_there(value):
            return _before_reshape(value, source, value.span)
    if prod(value.shape) == 1:
        wanted: tuple[int, ...] = ()
    else:
        found = _regrouped(value.shape, shape, source)
        if found is None:
            return None
        wanted = found
    if value.shape == wanted:
        return value
    if isinstance(value, Constant):
        return Constant(np.ascontiguousarray(value.value.reshape(wanted)), value.name, value.span)
    return call("reshape", value, shape=wanted, span=Span(value.span.nodes))


def _of_what_is_there(value: Call) -> bool:
    """Whether an elementwise operator is made of what is in memory already: inputs, and kept values behind barriers.
    A kernel of its own for any other, as for a velocity times the momentum, would hold a tensor of its size from then
    on until the other operand is made."""
    waiting, seen = [value], {value}
    while waiting and len(seen) <= DEEPEST:
        for arg in waiting.pop().args:
            if isinstance(arg, Call) and _is_elementwise(arg) and arg.shape == value.shape:
                waiting += [] if arg in seen else [arg]
                seen.add(arg)
            elif not _is_kept(arg):
                return False
    return not waiting


def _is_kept(value: Expr) -> bool:
    while isinstance(value, Call) and value.op == "reshape":
        value = value.args[0]
    return isinstance(value, Var | Constant) or (isinstance(value, Call) and value.op == "barrier")


def _before_reshape(value: Call, source: tuple[int, ...], span: Span) -> Expr | None:
    """An elementwise operator on reshaped operands; None where one of them repeats along a part of an axis."""
    operands = [_operand(arg, value.shape, source) for arg in value.args]
    known = [operand for operand in operands if operand is not None]
    if len(known) < len(operands):
        return None
    try:
        moved = call(str(value.op), *known, span=span, **value.attrs)
    except GraphError:  # its attributes mean axes that are not there
        return None
    return moved if moved.shape == source else None


def _regrouped(own: tuple[int, ...], shape: tuple[int, ...], source: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape that broadcasts to ``source`` as ``own`` does to ``shape``; None if only a part of an axis repeats."""
    padded = (1,) * (len(shape) - len(own)) + own
    result: list[int] = []
    for after, before in _groups(shape, source):
        sizes = padded[after]
        if sizes == shape[after]:
            result += source[before]
        elif set(sizes) <= {1}:
            result += (1,) * len(source[before])
        else:
            return None
    return tuple(result)


def _groups(first: tuple[int, ...], second: tuple[int, ...]) -> list[tuple[slice, slice]]:
    """Axes of two shapes of as many elements, in the smallest stretches that have as many elements in both."""
    found: list[tuple[slice, slice]] = []
    i = j = 0
    while i < len(first) and j < len(second):
        a, b, start_i, start_j = first[i], second[j], i, j
        i, j = i + 1, j + 1
        while a != b:
            if a < b:
                a, i = a * first[i], i + 1
            else:
                b, j = b * second[j], j + 1
        found.append((slice(start_i, i), slice(start_j, j)))
    if found and (i < len(first) or j < len(second)):  # axes of one element are left
        found[-1] = slice(found[-1][0].start, len(first)), slice(found[-1][1].start, len(second))
    return found
