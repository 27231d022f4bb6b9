"""Rewrite rules that are a pattern and what takes its place.

    shift = op("nn.multiply", any_value("x"), constant("two"), commutative=True)
    double = pattern_pass("double", [PatternRule(shift, lambda m: call("nn.add", m["x"], m["x"]))])

A rule sees how often each value is used, so ``used_once()`` in a pattern keeps a value with a second consumer from
being computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..graph import Attrs, Call, Expr, Function, Module, Var, call, calls, use_counts
from ..graph.pattern import Match, Pattern
from ..graph.visit import substitute, topological_order, with_children
from .manager import Counted, Pass, PassError

MAX_ROUNDS = 100
"""Rounds over a module after which rules that still find something are taken to undo each other."""


@dataclass(frozen=True)
class PatternRule:
    """``build`` gets what the names of ``pattern`` met and answers with the new value, or None for "leave it".

    The new value must have the type of the old one; what it uses of the old graph must be bound to a name.
    """

    pattern: Pattern
    build: Callable[[Match], Expr | None]


def pattern_pass(
    name: str, rules: Sequence[PatternRule], *, needs: tuple[str, ...] = (), tolerance: float = 0.0
) -> Pass:
    """A pass that applies the first rule that fits at each value of ``main`` until none fits any more.

    Functions that ``main`` calls are kernels or host functions already and stay as they are.
    Raises `PassError` when a rule changes the type of a value, or when rules do not come to an end.
    """

    def run(module: Module) -> Counted:
        current, matches = module, 0
        for _ in range(MAX_ROUNDS):
            body, count = _rewrite(name, current.main.body, rules)
            rewritten = current.with_main(body)
            if rewritten == current:
                return Counted(current, matches)
            current, matches = rewritten, matches + count
        raise PassError(f"pass {name!r} still finds something after {MAX_ROUNDS} rounds: do its rules undo each other?")

    return Pass(name, run, needs, "", tolerance)


def _rewrite(name: str, root: Expr, rules: Sequence[PatternRule]) -> tuple[Expr, int]:
    """One round, and how many values of its result it put in the place of others. Patterns look at the graph as it was,
    and so see how often its values were used."""
    uses = use_counts(root)
    done: dict[Expr, Expr] = {}
    replaced: list[Expr] = []
    for node in topological_order(root):
        new = next(_applications(node, rules, uses), None)
        if new is not None:
            if new.type != node.type:
                raise PassError(f"pass {name!r} puts {new.type} in the place of {node.type}", at=node.span)
            replaced.append(node)
            done[node] = substitute(new, {old: value for old, value in done.items() if old != value})
            continue
        done[node] = with_children(node, tuple(done[child] for child in node.children))
    values = set(topological_order(done[root]))
    return done[root], sum(done[node] in values for node in replaced)


def _applications(node: Expr, rules: Sequence[PatternRule], uses: dict[Expr, int]) -> Iterator[Expr]:
    for rule in rules:
        match = rule.pattern.match(node, uses)
        new = rule.build(match) if match is not None else None
        if new is not None and new != node:
            yield new


def outline(root: Call, inputs: Sequence[Expr], name: str, **attrs: str | bool) -> Call:
    """A call of a new primitive function that computes ``root`` from ``inputs``; constants stay inside.

    root
        The last value of what the function shall compute.
    inputs
        Values at which the function begins; they become its parameters.
    name
        Unique in the module; the span's node is a good choice.

    Raises `PassError` when ``root`` also depends on a parameter of the enclosing function that is not among the inputs.
    """
    params = {value: Var(f"x{index}", value.tensor_type) for index, value in enumerate(dict.fromkeys(inputs))}
    body = substitute(root, dict(params))
    for node in topological_order(body):
        if isinstance(node, Var) and node not in params.values():
            raise PassError(f"function {name!r} uses %{node.name}, which is not among its inputs", at=root.span)
    span = root.span.merged(*(node.span for node in calls(body)))
    function = Function(tuple(params.values()), body, Attrs({"name": name, "primitive": True, **attrs}))
    return call(function, *params.keys(), span=span)
