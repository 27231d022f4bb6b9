"""Forms of a layer whose smallest tile takes less of the scratchpads, for cores with small ones or unlike blocks.

A tile holds the weights of all taps, and where a pixel takes several entries, all of these. So the host may put side by
side what a window meets, and the taps are channels, which are taken a few at a time. A depthwise layer keeps every
tap's pixels in the accumulator; with weights of zero for other channels it is one of the array. What stands behind a
layer in 8 bits, such as a sum, takes operands of its own there: it can be a layer of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ....graph import Anchor, Call, Constant, Expr, Function, Fusion, Span, Var, call, calls, operator_of
from ....graph.visit import substitute
from .fuse import narrows
from .unfold_input import Unfolding, unfolded

_MOST_WEIGHTS = 1 << 22
"""Of a layer whose groups become one."""

_INT8 = (-128, 127)

_UNFOLDINGS = [Unfolding(rows=rows, columns=columns) for rows, columns in ((True, False), (False, True), (True, True))]
"""The host's work, the least first."""

WhyNot = Callable[[Function], str]
"""Why a function does not fit a core's scratchpads; empty if it does."""


def smaller_form(node: Call, why_not: WhyNot) -> Expr | None:
    """The call of a function that does not fit, in another form that does; None where there is none."""
    function = node.op
    if not isinstance(function, Function):
        return None
    parts = _two_layers(function)
    if parts is not None and not any(map(why_not, parts)):
        return _call_of_second(node, parts[1], _call_of_first(node, parts[0]))
    made = _fitting(node, why_not)
    if made is None and parts is not None and not why_not(parts[1]):
        first = _fitting(_call_of_first(node, parts[0]), why_not)
        made = _call_of_second(node, parts[1], first) if first is not None else None
    return made


def _fitting(node: Call, why_not: WhyNot) -> Call | None:
    forms = _other_forms(node, node.op) if isinstance(node.op, Function) else ()
    return next((form for form in forms if isinstance(form.op, Function) and not why_not(form.op)), None)


def _other_forms(node: Call, function: Function) -> Iterator[Call]:
    """Those with one layer, in the order in which they are better."""
    anchor = next(filter(_is_convolution, calls(function.body)), None)
    if (
        anchor is None
        or len(anchor.shape) != 4
        or not isinstance(anchor.args[1], Constant)
        or not isinstance(anchor.args[0], Var)
    ):
        return
    if anchor.attr("groups") != 1:
        dense = _with_one_group(anchor, anchor.args[1])
        if dense is None:
            return
        function, anchor = _with_anchor(function, anchor, dense, function.params), dense
        node = call(function, *node.args, span=node.span)
        yield node
    rows, columns = anchor.args[1].shape[2:]
    for unfolding in _UNFOLDINGS:
        if (rows > 1 or not unfolding.rows) and (columns > 1 or not unfolding.columns):
            yield _with_window_unfolded(node, function, anchor, unfolding)


def _with_window_unfolded(node: Call, function: Function, anchor: Call, unfolding: Unfolding) -> Call:
    (rows, columns), _ = unfolding.split(*anchor.args[1].shape[2:])
    reason = f"puts side by side what a {rows} x {columns} window meets: the core's scratchpads do not take it at once"
    made = unfolded(anchor, unfolding, reason)
    x, values = anchor.args[0], _values(node)
    read = Var("unfolded", made.args[0].tensor_type)
    layer = call("conv2d", read, made.args[1], span=anchor.span, **made.attrs)
    still = {arg for each in calls(function.body) if each != anchor for arg in each.args}
    params = (read, *(param for param in function.params if param != x or param in still))
    inner = _with_anchor(function, anchor, layer, params)
    given = substitute(made.args[0], {x: values[x]})
    return call(inner, given, *(values[param] for param in params[1:]), span=node.span, **node.attrs)


def _with_anchor(function: Function, anchor: Call, other: Call, params: tuple[Var, ...]) -> Function:
    """A function with another layer in the place of its own; its useful work is that of the one before."""
    entry = operator_of(anchor)
    macs = function.attrs.get("macs", entry.macs(anchor) if entry is not None else 0)
    body = substitute(function.body, {anchor: other})
    return Function(params, body, function.attrs.replace(macs=macs), function.span)


def _with_one_group(anchor: Call, weights: Constant) -> Call | None:
    """A layer whose channels are in groups, with weights of zero for those of other groups."""
    channels, (outputs, each, *kernel) = anchor.args[0].shape[1], weights.shape
    if outputs * channels * int(np.prod(kernel)) > _MOST_WEIGHTS:
        return None
    whole = np.zeros((outputs, channels, *kernel), np.int8)
    for output in range(outputs):
        first = output // (outputs * each // channels) * each
        whole[output, first : first + each] = weights.value[output]
    filled = Constant(whole, weights.name, weights.span)
    return call("conv2d", anchor.args[0], filled, span=anchor.span, **anchor.attrs.replace(groups=1))


def _two_layers(function: Function) -> tuple[Function, Function] | None:
    """A function up to its last 8-bit value behind its layer, and what makes the result of that."""
    for cut in reversed(calls(function.body)):
        if not narrows(cut) or cut is function.body or cut.attrs.get("out") != "int32":
            continue
        low, high, shift = (int(str(cut.attrs.get(name, 0))) for name in ("low", "high", "left_shift"))
        if not _INT8[0] <= low <= high <= _INT8[1]:
            continue
        plain = {"out": "int8"} | ({"left_shift": 0} if shift else {})
        first = call(cut.op, *cut.args, span=cut.span, **{**cut.attrs, **plain})
        value = Var("narrow", first.tensor_type)
        wide = call("multiply_immediate", value, weight=1 << shift, span=Span(cut.span.nodes))
        rest = substitute(function.body, {cut: wide})
        if any(map(_is_anchor, calls(rest))):
            continue
        named = function.attrs.replace(name=f"{function.name}.behind", anchor="elementwise", macs=0)
        return (
            Function(_read(function, first), first, function.attrs, function.span),
            Function((value, *_read(function, rest)), rest, named, function.span),
        )
    return None


def _is_convolution(node: Call) -> bool:
    entry = operator_of(node)
    return entry is not None and entry.anchor is Anchor.CONVOLUTION


def _is_anchor(node: Call) -> bool:
    entry = operator_of(node)
    return entry is not None and entry.fusion is Fusion.ANCHOR


def _read(function: Function, body: Expr) -> tuple[Var, ...]:
    read = {arg for each in calls(body) for arg in each.args}
    return tuple(param for param in function.params if param in read)


def _call_of_first(node: Call, first: Function) -> Call:
    values = _values(node)
    return call(first, *(values[param] for param in first.params), span=first.body.span)


def _call_of_second(node: Call, second: Function, value: Expr) -> Call:
    values = _values(node)
    return call(second, value, *(values[param] for param in second.params[1:]), span=node.span)


def _values(node: Call) -> dict[Expr, Expr]:
    """What the parameters of a function that is called stand for."""
    return dict(zip(node.op.params, node.args, strict=True)) if isinstance(node.op, Function) else {}
