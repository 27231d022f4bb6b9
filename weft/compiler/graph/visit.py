"""Walking and rewriting graphs: every node once, without recursion (networks are deeper than Python's stack)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .ir import Call, Constant, Expr, Function, Module, Span, Tuple, TupleGet, Var, topological_order
from .registry import call

__all__ = [
    "Mutator", "Visitor", "calls", "rewrite", "substitute", "tensor_ends", "topological_order", "uniquely_named",
    "use_counts", "with_children",
]  # fmt: skip


def calls(root: Expr) -> list[Call]:
    """Every call reachable from ``root``, producers first."""
    return [node for node in topological_order(root) if isinstance(node, Call)]


def tensor_ends(nodes: Iterable[Expr]) -> dict[str, Expr]:
    """The value of each of the source's tensors: of several ``nodes``, in order, that bear its name, the last one."""
    return {node.span.tensor: node for node in nodes if node.span.tensor}


def use_counts(root: Expr) -> dict[Expr, int]:
    """How many times each value is used below ``root``; ``root`` itself (and each result of a tuple) counts once more.

    Equal nodes count together.
    """
    counts: dict[Expr, int] = {root: 1}
    visited: set[Expr] = set()
    for node in topological_order(root):
        if node in visited:
            continue
        visited.add(node)
        for child in node.children:
            counts[child] = counts.get(child, 0) + 1
    return counts


def with_children(node: Expr, children: tuple[Expr, ...]) -> Expr:
    """``node`` with other operands and its type worked out again; the same object when nothing changed."""
    if len(children) == len(node.children) and all(
        new is old for new, old in zip(children, node.children, strict=True)
    ):
        return node
    match node:
        case Call():
            return call(node.op, *children, span=node.span, **node.attrs)
        case Tuple():
            return Tuple(children, node.span)
        case TupleGet():
            return TupleGet(children[0], node.index, node.span)
    return node


class Visitor:
    """Base class: `run` calls one ``visit_*`` method for every node, producers first."""

    def run(self, root: Expr) -> None:
        for node in topological_order(root):
            match node:
                case Call():
                    self.visit_call(node)
                case Constant():
                    self.visit_constant(node)
                case Var():
                    self.visit_var(node)
                case Tuple():
                    self.visit_tuple(node)
                case TupleGet():
                    self.visit_tuple_get(node)

    def visit_call(self, node: Call) -> None: ...

    def visit_constant(self, node: Constant) -> None: ...

    def visit_var(self, node: Var) -> None: ...

    def visit_tuple(self, node: Tuple) -> None: ...

    def visit_tuple_get(self, node: TupleGet) -> None: ...


class Mutator:
    """Base class: `run` rebuilds a graph, producers first. Each ``rewrite_*`` method gets the node with its operands
    already rewritten and returns what takes its place. Sharing is kept; an unchanged graph comes back as it is."""

    def __init__(self) -> None:
        self.memo: dict[int, Expr] = {}

    def run(self, root: Expr) -> Expr:
        for node in topological_order(root):
            if id(node) in self.memo:
                continue
            rebuilt = with_children(node, tuple(self.memo[id(child)] for child in node.children))
            self.memo[id(node)] = self._rewrite(rebuilt)
        return self.memo[id(root)]

    def run_function(self, function: Function) -> Function:
        body = self.run(function.body)
        if body is function.body:
            return function
        return Function(function.params, body, function.attrs, function.span)

    def _rewrite(self, node: Expr) -> Expr:
        match node:
            case Call():
                return self.rewrite_call(node)
            case Constant():
                return self.rewrite_constant(node)
            case Var():
                return self.rewrite_var(node)
        return node

    def rewrite_call(self, node: Call) -> Expr:
        return node

    def rewrite_constant(self, node: Constant) -> Expr:
        return node

    def rewrite_var(self, node: Var) -> Expr:
        return node


def rewrite(root: Expr, rule: Callable[[Call], Expr | None]) -> Expr:
    """Apply ``rule`` to every call, producers first, until it has nothing more to say about the node it made.

    ``rule`` answers with the new node, or with ``None`` for "does not apply".
    """

    class Rewriter(Mutator):
        def rewrite_call(self, node: Call) -> Expr:
            current: Expr = node
            while isinstance(current, Call):
                new = rule(current)
                if new is None or new == current:
                    return current
                current = new
            return current

    return Rewriter().run(root)


def substitute(root: Expr, values: dict[Expr, Expr]) -> Expr:
    """``root`` with every node equal to a key of ``values`` replaced."""
    memo: dict[int, Expr] = {}
    for node in topological_order(root):
        if node in values:
            memo[id(node)] = values[node]
        else:
            memo[id(node)] = with_children(node, tuple(memo[id(child)] for child in node.children))
    return memo[id(root)]


def uniquely_named(module: Module) -> Module:
    """The module in which no two functions have one name, as its text needs it: the later ones get a number."""
    made: dict[Function, Function] = {}
    used: set[str] = {module.main.name}

    def renamed(function: Function) -> Function:
        if function not in made:
            body, name, number = rebuilt(function.body), function.name, 0
            while name in used:
                number += 1
                name = f"{function.name}.{number}"
            used.add(name)
            made[function] = Function(function.params, body, function.attrs.replace(name=name), function.span)
        return made[function]

    def rebuilt(body: Expr) -> Expr:
        values: dict[int, Expr] = {}
        for node in topological_order(body):
            new = with_children(node, tuple(values[id(child)] for child in node.children))
            if isinstance(new, Call) and isinstance(new.op, Function):
                new = Call(renamed(new.op), new.args, new.attrs, new.type, new.span)
            values[id(node)] = new
        return values[id(body)]

    return module.with_main(rebuilt(module.main.body))


def respan(node: Expr, span: Span) -> Expr:
    """``node`` as if it came from ``span``."""
    match node:
        case Call():
            return Call(node.op, node.args, node.attrs, node.type, span)
        case Constant():
            return Constant(node.value, node.name, span)
    return node
