"""Fusion: every 8-bit value that has to exist in memory becomes one primitive function, which becomes one kernel.

A primitive function has at most one anchor (a convolution or a pooling) and elementwise operators behind it. 32-bit
values never leave a function: one that two functions need is computed by both, and is work of the first. An 8-bit value
joins its consumers' function when all of them are in it, so a residual addition runs in the epilogue of its
convolution, and so does ``x * clip(x + 3)``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ....graph import (
    Anchor,
    Attrs,
    Call,
    Constant,
    Expr,
    Function,
    Fusion,
    Module,
    Span,
    Var,
    call,
    calls,
    operator_of,
    topological_order,
)
from ....graph.visit import rewrite, with_children
from ....operators.numerics import INT9, MAX_LEFT_SHIFT
from ....passes.manager import Pass

MOST_OPERATORS = 128
"""Of a function that 8-bit values join. Tables as ramps have up to 128 each; the time that a schedule takes grows with
the square of the operators, 8 s for 160, and every operator is a level of its loop nest."""


def narrows(node: Expr) -> bool:
    """Whether an operator gives 8-bit values, or the same values as int32 where they stay inside of a function."""
    entry = operator_of(node)
    return entry is not None and "out" in entry.defaults


@dataclass(frozen=True)
class Fused:
    """One primitive function and why it ends where it ends."""

    name: str
    anchor: str
    operators: tuple[str, ...]
    nodes: tuple[str, ...]
    boundaries: tuple[str, ...]  # for each 8-bit operand that did not join: why

    def __str__(self) -> str:
        stops = "".join(f"\n    not joined: {reason}" for reason in self.boundaries)
        return f"{self.name}: {' + '.join(self.operators)}{stops}"


@dataclass
class _Group:
    """The calls that make one function: found from its result backwards."""

    root: Call
    members: set[int] = field(default_factory=set)
    anchors: int = 0
    tables: int = 0
    boundaries: list[str] = field(default_factory=list)


def fold_left_shift(node: Call) -> Expr | None:
    """multiply_immediate(requantise(x), 2**k)  ->  requantise(x) that shifts left by k"""
    match node:
        case Call(op="multiply_immediate", args=(Call(op="requantise", args=params) as inner,)):
            weight = node.attr("weight")
            shift = weight.bit_length() - 1
            if weight == 1 << max(shift, 0) and 0 < shift <= MAX_LEFT_SHIFT and inner.attr("left_shift") == 0:
                attrs = inner.attrs.replace(left_shift=shift, out="int32")
                return call("requantise", *params, span=inner.span.merged(node.span), **attrs)
    return None


def fold_subtraction(node: Call) -> Expr | None:
    """subtract_immediate(requantise(x), value)  ->  requantise(x) with another zero point, where nine bits hold that"""
    match node:
        case Call(op="subtract_immediate", args=(Call(op="requantise", args=params) as inner,)):
            moved = {name: inner.attr(name) - node.attr("value") for name in ("zero_point", "low", "high")}
            lowest, highest = INT9
            if inner.attr("left_shift") == 0 and all(lowest <= value <= highest for value in moved.values()):
                attrs = inner.attrs.replace(**moved, out="int32")
                return call("requantise", *params, span=inner.span.merged(node.span), **attrs)
    return None


def fuse_with_report(module: Module) -> tuple[Module, tuple[Fused, ...]]:
    """The fused module, and what was fused and what was not."""
    return _Fuser(module).run()


def _is_product(anchor: Call) -> bool:
    """Whether an anchor is of the array: of a pixel that is repeated its products are few, while the windows of a mean
    hold about what all tiles do that repeat it."""
    entry = operator_of(anchor)
    return entry is not None and entry.anchor in (Anchor.CONVOLUTION, Anchor.PRODUCT)


def _kind(node: Expr) -> Fusion | None:
    entry = operator_of(node)
    return entry.fusion if entry is not None else None


class _Fuser:
    def __init__(self, module: Module) -> None:
        self.module = module
        body = module.main.body
        # By identity: of equal nodes each uses what it reads.
        self.uses = Counter(id(child) for node in topological_order(body) for child in node.children)
        self.uses[id(body)] += 1
        self.names: dict[str, int] = {}
        self.anchored: set[Expr] = set()
        self.report: list[Fused] = []

    def run(self) -> tuple[Module, tuple[Fused, ...]]:
        body = self.module.main.body
        order = topological_order(body)
        groups: dict[int, _Group] = {}
        inlined: set[int] = set()
        # consumers first, so that a value knows whether it was taken in before it starts a function of its own
        for node in reversed(order):
            if isinstance(node, Call) and _kind(node) in (Fusion.ANCHOR, Fusion.ELEMENTWISE):
                if node.dtype != "int8" or id(node) in inlined:
                    continue
                groups[id(node)] = group = self._group(node)
                inlined |= group.members - {id(node)}
        replaced: dict[int, Expr] = {}
        for node in order:
            if id(node) in groups:
                replaced[id(node)] = self._function_call(groups[id(node)], replaced)
            elif all(id(child) in replaced for child in node.children):
                replaced[id(node)] = with_children(node, tuple(replaced[id(child)] for child in node.children))
        return self.module.with_main(replaced[id(body)]), tuple(self.report)

    def _group(self, root: Call) -> _Group:
        """Everything that the function with result ``root`` computes."""
        group = _Group(root)
        self._take(root, group)
        waiting: list[Call] = [root]
        narrow: dict[int, tuple[Call, list[Call]]] = {}  # 8-bit operands, each with what uses it
        while waiting:
            node = waiting.pop()
            for arg in node.args:
                if not isinstance(arg, Call) or isinstance(arg.op, Function) or id(arg) in group.members:
                    continue
                if arg.dtype == "int32":
                    self._take(arg, group)
                    waiting.append(arg)
                else:
                    narrow.setdefault(id(arg), (arg, []))[1].append(node)
            if not waiting:  # 32-bit operands come first: they have no choice and may bring the anchor
                reasons = {key: self._why_not(*each, group) for key, each in narrow.items()}
                joins = next((key for key, reason in reasons.items() if not reason), None)
                if joins is None:
                    group.boundaries += reasons.values()
                    break
                value, _ = narrow.pop(joins)
                self._take(value, group)
                waiting.append(value)
        return group

    def _take(self, node: Call, group: _Group) -> None:
        group.members.add(id(node))
        group.anchors += _kind(node) is Fusion.ANCHOR
        group.tables += node.op == "look_up"

    def _why_not(self, value: Call, consumers: Sequence[Call], group: _Group) -> str:
        """Why the 8-bit ``value`` cannot join the function that its ``consumers`` are in; empty when it can."""
        what = f"{value.op} of {value.span}"
        for consumer in consumers:
            if _kind(consumer) is Fusion.ANCHOR:
                return f"{what}: it is the input of {consumer.op}, which reads it from memory"
            if consumer.op == "multiply_accumulate":
                return f"{what}: it is the added operand, which is read from memory"
            if value.shape != consumer.shape:
                return f"{what}: {consumer.op} repeats it, so it is read from memory"
        if not narrows(value):
            return f"{what}: only what narrows joins its consumer"
        if self.uses[id(value)] != len(consumers):
            return f"{what}: {self.uses[id(value)]} consumers, {self.uses[id(value)] - len(consumers)} of them outside"
        inside: dict[int, Call] = {}
        waiting = [value]
        while waiting:
            node = waiting.pop()
            inside[id(node)] = node
            waiting += [
                arg for arg in node.args if isinstance(arg, Call) and arg.dtype == "int32" and id(arg) not in inside
            ]
        anchors = [node for node in inside.values() if _kind(node) is Fusion.ANCHOR]
        if value.shape != group.root.shape:
            much = [anchor.op for anchor in anchors if not _is_product(anchor)]
            if len(consumers) > 1:  # many operators, such as the ramps of a gate
                much = [f"{len(consumers)} consumers"]
            if much:
                return f"{what}: with its {much[0]} it would be computed for every tile that repeats it"
        if group.anchors + len(anchors) > 1:
            return f"{what}: the function has an anchor already"
        if group.tables + sum(node.op == "look_up" for node in inside.values()) > 1:
            return f"{what}: the function has a table already"
        if len(group.members) + len(inside) > MOST_OPERATORS:
            return f"{what}: together they have more than {MOST_OPERATORS} operators"
        return ""

    def _function_call(self, group: _Group, replaced: dict[int, Expr]) -> Call:
        params: dict[tuple[Expr, bool], Var] = {}
        outer: list[Expr] = []
        inner: dict[int, Expr] = {}
        members: list[Call] = []
        for node in _members_in_order(group):
            args: list[Expr] = []
            for place, arg in enumerate(node.args):
                # the core reads a product's other operand as matrices: what is read as pixels, too, is passed twice
                read = (arg, node.op == "product" and place == 1)
                if id(arg) in group.members:
                    args.append(inner[id(arg)])
                elif isinstance(arg, Constant):
                    args.append(arg)
                else:
                    if read not in params:
                        params[read] = Var(f"x{len(params)}", arg.tensor_type)
                        outer.append(replaced[id(arg)])
                    args.append(params[read])
            attrs = node.attrs
            if node is not group.root and narrows(node) and node.dtype == "int8":
                attrs = attrs.replace(out="int32")  # inside a function the value stays in the accumulator memory
            inner[id(node)] = call(node.op, *args, span=node.span, **attrs)
            members.append(node)
        body = rewrite(rewrite(inner[id(group.root)], fold_left_shift), fold_subtraction)
        span = _span(body, group.root)
        anchor = next((str(node.op) for node in members if _kind(node) is Fusion.ANCHOR), "elementwise")
        attrs = Attrs({"name": self._name(span, anchor), "primitive": True, "anchor": anchor})
        anchors = {node for node in members if _kind(node) is Fusion.ANCHOR}
        if anchors and anchors <= self.anchored:  # computed again, as what needs it is: useful is the first time
            attrs = attrs.replace(macs=0)
        self.anchored |= anchors
        function = Function(tuple(params.values()), body, attrs)
        operators = tuple(str(node.op) for node in calls(body))
        self.report.append(Fused(function.name, anchor, operators, span.nodes, tuple(group.boundaries)))
        return call(function, *outer, span=span)

    def _name(self, span: Span, anchor: str) -> str:
        base = span.node or anchor
        count = self.names[base] = self.names.get(base, -1) + 1
        return base if count == 0 else f"{base}.{count}"


def _members_in_order(group: _Group) -> list[Call]:
    """Producers first. The graph around a group is not walked: it may have any number of others."""
    order: dict[int, Call] = {}
    waiting: list[tuple[Call, bool]] = [(group.root, False)]
    while waiting:
        node, has_operands = waiting.pop()
        if has_operands:
            order.setdefault(id(node), node)
        elif id(node) not in order:
            waiting.append((node, True))
            waiting += [
                (arg, False) for arg in reversed(node.args) if isinstance(arg, Call) and id(arg) in group.members
            ]
    return list(order.values())


def _span(body: Expr, root: Call) -> Span:
    """The user's nodes of a function, its anchor's first; the tensor of its result."""
    inner = calls(body)
    first = next((node for node in inner if _kind(node) is Fusion.ANCHOR), inner[0])
    merged = first.span.merged(*(node.span for node in inner))
    return Span(merged.nodes, root.span.tensor)


def _run(module: Module) -> Module:
    return fuse_with_report(module)[0]


fuse = Pass("fuse", _run, needs=("legalise",), stage="fused", about=__doc__ or "")
