"""Fusion for a CPU: which operators of a graph become one kernel.

A kernel has at most one operator that reads elements more than once (a convolution, a pooling, a product, a reduction),
which stands first, and elementwise operators behind it. A value joins the kernel of its consumer when that is its only
consumer and of the same shape; all other values are written to memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from ... import tensor as te
from ...graph.ir import Call, Constant, Expr, Function, Span
from ...graph.registry import Fusion, operator
from ...graph.visit import topological_order, use_counts
from ...tensor import ir as tir
from ..lowerings import Builder, NotLoweredError, View, lower_call
from ..lowerings.view import element_type


@dataclass(frozen=True, eq=False)
class Group:
    """One kernel: ``members`` in order of execution, the last of which makes the result.

    ``inputs``: values from outside that are not constant. ``anchor``: the member that is not elementwise, if any.
    ``reason``: why NumPy has to run it; empty where it is compiled. ``boundaries``: operands that did not join, and
    why.
    """

    members: tuple[Call, ...]
    inputs: tuple[Expr, ...]
    anchor: Call | None
    reason: str = ""
    boundaries: tuple[str, ...] = ()

    @property
    def root(self) -> Call:
        return self.members[-1]

    @property
    def name(self) -> str:
        return self.span.node or str((self.anchor or self.root).op)

    @property
    def span(self) -> Span:
        """The user's nodes, the anchor's first; the tensor of the result."""
        first = (self.anchor or self.members[0]).span
        return Span(first.merged(*(node.span for node in self.members)).nodes, self.root.span.tensor)

    def __str__(self) -> str:
        stops = "".join(f"\n    not joined: {reason}" for reason in self.boundaries)
        return f"{self.name}: {' + '.join(str(node.op) for node in self.members)}{stops}"


def group_calls(body: Expr) -> list[Group]:
    """The kernels of a graph of operators (no functions), producers first."""
    uses = use_counts(body)
    taken: dict[int, str] = {}
    order = [node for node in topological_order(body) if isinstance(node, Call)]
    groups: list[Group] = []
    for node in reversed(order):  # consumers first: a value knows whether it was taken before it starts a kernel
        if id(node) in taken:
            continue
        group = _group(node, uses, set(taken))
        for member in group.members:
            taken[id(member)] = ""
        groups.append(group)
    groups.reverse()
    return _in_order(groups)


def _in_order(groups: list[Group]) -> list[Group]:
    """Producers before consumers: kernels sorted by their dependence on each other."""
    producer = {id(group.root): group for group in groups}
    done: set[int] = set()
    result: list[Group] = []
    for first in groups:
        stack = [(first, False)]
        while stack:
            group, ready = stack.pop()
            if id(group) in done:
                continue
            if ready:
                done.add(id(group))
                result.append(group)
                continue
            stack.append((group, True))
            for value in group.inputs:
                for node in _roots(value):
                    if id(node) in producer:
                        stack.append((producer[id(node)], False))
    return result


def _roots(value: Expr) -> list[Expr]:
    """The calls behind a value that may be the field of a tuple."""
    while not isinstance(value, Call) and value.children:
        value = value.children[0]
    return [value]


def _kind(node: Call) -> Fusion:
    return Fusion.HOST if isinstance(node.op, Function) else operator(node.op).fusion


def _group(root: Call, uses: dict[Expr, int], taken: set[int]) -> Group:
    reason = why_not_compiled(root)
    if reason:
        return Group((root,), _outside((root,)), None, reason)
    members = [root]
    anchor = None if _kind(root) is Fusion.ELEMENTWISE else root
    boundaries: list[str] = []
    waiting = [root] if anchor is None else []
    while waiting:
        node = waiting.pop()
        for arg in sorted({id(a): a for a in node.args}.values(), key=lambda a: isinstance(a, Call) and _starts(a),
                          reverse=True):  # fmt: skip
            if not isinstance(arg, Call) or any(arg is member for member in members):
                continue
            refusal = _why_not(arg, root, uses, anchor, taken)
            if refusal:
                boundaries.append(f"{arg.op} of {arg.span}: {refusal}")
                continue
            members.append(arg)
            if _kind(arg) is Fusion.ELEMENTWISE:
                waiting.append(arg)
            else:
                anchor = arg
    inside = {id(member) for member in members}
    ordered = tuple(node for node in topological_order(root) if id(node) in inside and isinstance(node, Call))
    return Group(ordered, _outside(ordered), anchor, "", tuple(boundaries))


def _starts(node: Call) -> bool:
    """Whether a kernel can start with this operator."""
    return _kind(node) in (Fusion.ANCHOR, Fusion.REDUCTION)


def _why_not(arg: Call, root: Call, uses: dict[Expr, int], anchor: Call | None, taken: set[int]) -> str:
    """Why ``arg`` cannot join the kernel of ``root``; empty when it can."""
    if id(arg) in taken:
        return "it is part of another kernel"
    if uses[arg] != 1:
        return f"{uses[arg]} consumers"
    kind = _kind(arg)
    if kind is not Fusion.ELEMENTWISE and not _starts(arg):
        return "it is computed on its own"
    if kind is not Fusion.ELEMENTWISE and anchor is not None:
        return f"the kernel has {anchor.op} already"
    if arg.shape != root.shape:
        return f"its shape {arg.shape} is not {root.shape}"
    return why_not_compiled(arg)


def why_not_compiled(node: Call) -> str:
    """Why an operator has no machine code; empty when it has."""
    if isinstance(node.op, Function):
        return "it is a function"
    try:
        views = [_stand_in(arg, number) for number, arg in enumerate(node.args)]
        view = lower_call(Builder(), node, views)
        index = tuple(tir.Var(f"i{axis}") for axis in range(len(node.shape)))
        view[index]
    except NotLoweredError as error:
        return error.message
    except te.IRError as error:
        return f"{node.op}: {error.message}"
    return ""


def _stand_in(arg: Expr, number: int) -> View:
    dtype = element_type(arg.dtype)
    if 0 in arg.shape:
        raise NotLoweredError("a tensor without elements")
    tensor = te.placeholder(arg.shape, dtype, f"operand{number}")
    return View(arg.shape, dtype, lambda index: tensor[index])


def _outside(members: tuple[Call, ...]) -> tuple[Expr, ...]:
    inside = {id(member) for member in members}
    found: dict[int, Expr] = {}
    for member in members:
        for arg in member.args:
            if id(arg) not in inside and not isinstance(arg, Constant):
                found.setdefault(id(arg), arg)
    return tuple(found.values())
