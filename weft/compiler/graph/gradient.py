"""Reverse-mode differentiation of a graph, by the rules in the operators' entries.

A *cotangent* of a value is the gradient of one number with respect to it. The sweep goes from results to what they are
computed from; each rule turns the cotangent of a call into those of its operands. What comes out is ordinary graph IR
on the same forward values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from .dtypes import FLOATS, is_float, numpy_dtype
from .ir import Call, Constant, Expr, Function, GraphError, Span, TensorType, Tuple, Var
from .pattern import Match, Pattern
from .registry import NoGradientError, Unsupported, call, operator
from .visit import substitute, topological_order


@dataclass(frozen=True)
class CustomGradient:
    """A gradient for a subgraph instead of its operators' own.

    ``pattern``: the subgraph, with names for the values that it reads. ``rule``: from the cotangent of its result and
    the match to the cotangent of each named value that has one. A named value inside of the subgraph is possible, too.
    """

    pattern: Pattern
    rule: Callable[[Expr, Match], Mapping[str, Expr]]


@dataclass(frozen=True)
class Blocked:
    """A call that stands between a result and what it is to be differentiated by, and has no rule."""

    node: Call
    reason: str

    def __str__(self) -> str:
        return f"{self.node.op} ({self.node.span}): {self.reason}"


@dataclass(frozen=True)
class Swept:
    """What a sweep found: a cotangent for each value asked for, None where nothing leads there, and what is missing."""

    cotangents: tuple[Expr | None, ...]
    blocked: tuple[Blocked, ...]


def zeros(kind: TensorType) -> Expr:
    """A tensor of zeros that takes no memory before it is needed."""
    zero = Constant(np.zeros((), numpy_dtype(kind.dtype)))
    return zero if not kind.shape else call("expand", zero, shape=kind.shape)


def summed_to(x: Expr, shape: tuple[int, ...]) -> Expr:
    """``x`` summed along the axes along which a tensor of ``shape`` was broadcast to it."""
    if x.shape == shape:
        return x
    front = len(x.shape) - len(shape)
    spread = (axis for axis, size in enumerate(shape, front) if size == 1 and x.shape[axis] != 1)
    axes = (*range(front), *spread)
    total = call("nn.reduce_sum", x, axes=axes) if axes else x
    return total if total.shape == shape else call("reshape", total, shape=shape)


def sweep(seeds: Sequence[tuple[Expr, Expr]], wrt: Sequence[Expr], custom: Sequence[CustomGradient] = ()) -> Swept:
    """The cotangents of ``wrt``, for results with the cotangents that ``seeds`` pairs them with.

    What stands behind a value of ``wrt`` is not looked at through it. A custom gradient goes before the entries' rules,
    the first that matches before the others.
    """
    order = list(dict.fromkeys(topological_order(Tuple(tuple(value for value, _ in seeds)))))
    return _Sweep(order, tuple(wrt), tuple(custom)).run(seeds)


def through(decompose: Callable[..., Expr]) -> Callable[[Expr, Call], tuple[Expr | None, ...]]:
    """The rule of an operator that equals a graph of others: ``decompose(*operands, **attributes)`` makes it."""

    def rule(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
        stands_for: dict[Expr, Expr] = {}
        operands = [arg if isinstance(arg, Constant) else Var(f"operand{i}", arg.tensor_type)
                    for i, arg in enumerate(node.args)]  # fmt: skip
        stands_for.update(zip(operands, node.args, strict=True))
        given = Var("upstream", upstream.tensor_type)
        stands_for[given] = upstream
        swept = sweep([(decompose(*operands, **node.attrs), given)], operands)
        if swept.blocked:
            raise NoGradientError(f"a part of it has none: {swept.blocked[0]}")
        return tuple(None if each is None else substitute(each, stands_for) for each in swept.cotangents)

    return rule


@dataclass
class _Sweep:
    """``given``: cotangents that have come so far; ``integers``: values that are no floats and lead to a result.
    ``known``: values that have their place in the user's model already."""

    order: list[Expr]
    wrt: tuple[Expr, ...]
    custom: tuple[CustomGradient, ...]
    given: dict[Expr, list[Expr]] = field(default_factory=dict)
    integers: set[Expr] = field(default_factory=set)
    known: set[Expr] = field(default_factory=set)
    blocked: list[Blocked] = field(default_factory=list)

    def run(self, seeds: Sequence[tuple[Expr, Expr]]) -> Swept:
        self.known.update(self.order)
        depends: set[Expr] = set(self.wrt)
        for node in self.order:
            if any(child in depends for child in node.children):
                depends.add(node)
        for value, seed in seeds:
            self.known.add(seed)
            self.given.setdefault(value, []).append(seed)
        found: dict[Expr, Expr] = {}
        for node in reversed(self.order):
            if node not in depends:
                continue
            parts = self.given.pop(node, [])
            if node in self.wrt:
                if parts:
                    found[node] = self._total(parts, node.span)
            elif isinstance(node, Call) and (parts or node in self.integers):
                self._pass_on(node, self._total(parts, node.span) if parts else None, depends)
        return Swept(tuple(found.get(value) for value in self.wrt), tuple(self.blocked[::-1]))

    def _total(self, parts: list[Expr], span: Span) -> Expr:
        total = parts[0]
        for part in parts[1:]:
            total = self._placed(call("nn.add", total, part), span)
        return total

    def _pass_on(self, node: Call, upstream: Expr | None, depends: set[Expr]) -> None:
        """Give the operands of a call their cotangents; ``upstream`` is None where only integers lead to a result."""
        if isinstance(node.op, Function):
            raise GraphError(f"function {node.op.name!r} has no gradient", at=node.span,
                             hint="differentiate the module as it was read, before passes make functions")  # fmt: skip
        if upstream is not None and self._by_custom(node, upstream):
            return
        reaches = [(place, arg) for place, arg in enumerate(node.args) if arg in depends]
        floats = [(place, arg) for place, arg in reaches if arg.dtype in FLOATS]
        rule = operator(node.op, node.span).gradient
        if isinstance(rule, Unsupported):
            if rule.is_zero:
                return
            if floats:
                self._block(node, rule.reason, floats)
        elif upstream is not None and floats:
            try:
                parts = rule(upstream, node)
            except NoGradientError as error:
                self._block(node, error.message, floats)
                parts = (None,) * len(node.args)
            if len(parts) != len(node.args):
                raise GraphError(f"the gradient rule of {node.op} gives {len(parts)} gradients for {len(node.args)} "
                                 "operands", at=node.span)  # fmt: skip
            for place, arg in floats:
                if (part := parts[place]) is not None:
                    self._give(node, arg, part)
        elif upstream is None and floats and is_float(node.dtype):
            self._block(node, f"{node.dtype} is for storage and has no arithmetic", floats)
        self.integers.update(arg for _, arg in reaches if arg.dtype not in FLOATS)

    def _block(self, node: Call, reason: str, floats: Sequence[tuple[int, Expr]]) -> None:
        """Note a missing rule, and go on behind it: all that is missing is reported at once."""
        self.blocked.append(Blocked(node, reason))
        for _, arg in floats:
            self.given.setdefault(arg, []).append(zeros(arg.tensor_type))

    def _by_custom(self, node: Call, upstream: Expr) -> bool:
        for each in self.custom:
            match = each.pattern.match(node)
            if match is None:
                continue
            for name, part in each.rule(upstream, match).items():
                if name not in match or match[name] == node:
                    named = ", ".join(each for each in match if match[each] != node) or "none"
                    raise GraphError(f"a custom gradient is for {name!r}, which is no value that its pattern names "
                                     "behind its result", at=node.span, hint=f"its names are: {named}")  # fmt: skip
                self._give(node, match[name], part)
            return True
        return False

    def _give(self, node: Call, arg: Expr, part: Expr) -> None:
        try:
            fits = part.dtype == arg.dtype and np.broadcast_shapes(part.shape, arg.shape) == part.shape
        except ValueError:
            fits = False
        if not fits:
            raise GraphError(f"the gradient rule of {node.op} gives {part.type} for an operand {arg.type}",
                             at=node.span, hint="a gradient has its operand's element type and its shape, or that to "
                             "which it was broadcast")  # fmt: skip
        self.given.setdefault(arg, []).append(self._placed(summed_to(part, arg.shape), node.span))

    def _placed(self, root: Expr, span: Span) -> Expr:
        """``root`` with all its new calls at the user's nodes of the call that they belong to, but at none of the
        tensors of the model."""
        memo: dict[Expr, Expr] = {}
        stack = [root]
        place = Span(span.nodes)
        while stack:
            node = stack[-1]
            if node in memo:
                stack.pop()
            elif node in self.known or not isinstance(node, Call):
                memo[node] = node
            elif waiting := [arg for arg in node.args if arg not in memo]:
                stack += waiting
            else:
                memo[node] = Call(node.op, tuple(memo[arg] for arg in node.args), node.attrs, node.type, place)
        self.known.update(memo.values())
        return memo[root]
