"""Loops in the graph: a body that is run once for each of a known number of steps, as one call (`operators.scan`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .ir import UNKNOWN, Attrs, Call, Constant, Expr, Function, Span, Tuple, TupleGet, Var, topological_order
from .registry import call
from .visit import Mutator, calls, substitute

SCAN = "scan"
MOST_STEPS = 1 << 20
JOINED_AT_ONCE = 32


def scan(
    body: Function, states: Sequence[Expr], sequences: Sequence[Expr], invariants: Sequence[Expr] = (), *,
    steps: int, backwards: Sequence[bool] | None = None, span: Span = UNKNOWN,
) -> tuple[Expr, ...]:  # fmt: skip
    """The last states and the stacked results of ``steps`` runs of ``body``.

    ``body``: from the states, one element of each sequence and the invariants to the next states, which have the types
    of the states, and further results. ``sequences``: (steps, ...) each. A further result of shape (...) becomes
    (steps, ...). ``backwards``: for each sequence, then for each further result, whether step 0 is at its end.
    """
    node = _scan(body, states, sequences, invariants, steps, backwards, span)
    return tuple(TupleGet(node, number, span) for number in range(len(body.results)))


def _scan(
    body: Function, states: Sequence[Expr], sequences: Sequence[Expr], invariants: Sequence[Expr], steps: int,
    backwards: Sequence[bool] | None, span: Span,
) -> Call:  # fmt: skip
    """The call. The name of the body stands for its content, so that a text has one body of a name."""
    results = body.results
    named = Function(body.params, Tuple(tuple(results)), Attrs({"name": "step"}), body.span)
    named = Function(named.params, named.body, Attrs({"name": f"step_{named.digest.hex()[:12]}"}), body.span)
    back = tuple(backwards or (False,) * (len(sequences) + len(results) - len(states)))
    return call(SCAN, *states, *sequences, *invariants, span=span, body=named, states=len(states),
                sequences=len(sequences), steps=steps, backwards=back)  # fmt: skip


def closed(params: Sequence[Var], results: Sequence[Expr]) -> tuple[Function, tuple[Expr, ...]]:
    """A body for `scan` of values that were built on variables, and its invariants: what it needs that depends on none
    of the variables, but for constants."""
    inside: set[int] = set()
    outer: dict[Expr, None] = {}
    order = topological_order(Tuple(tuple(results)))
    for node in order:
        if node in params or any(id(child) in inside for child in node.children):
            inside.add(id(node))
    for node in order:
        if id(node) in inside:
            outer.update(dict.fromkeys(child for child in node.children if id(child) not in inside))
    outer.update(dict.fromkeys(result for result in results if id(result) not in inside))
    fixed = tuple(value for value in outer if not isinstance(value, Constant))
    own = [Var(f"x{number}", value.tensor_type) for number, value in enumerate((*params, *fixed))]
    body = substitute(Tuple(tuple(results)), dict(zip((*params, *fixed), own, strict=True)))
    return Function(tuple(own), body, Attrs({"name": "step"})), fixed


def body_of(node: Call) -> Function:
    """What a call of `SCAN` runs."""
    body = node.attr("body")
    assert isinstance(body, Function)  # the type rule has seen to it
    return body


def rebuilt(node: Call, body: Function, args: Sequence[Expr] | None = None) -> Call:
    """A call of `SCAN` with another body of equal results, and with other operands."""
    states, sequences = node.attr("states"), node.attr("sequences")
    args = node.args if args is None else args
    return _scan(body, args[:states], args[states : states + sequences], args[states + sequences :],
                 node.attr("steps"), node.attr("backwards"), node.span)  # fmt: skip


def place_of(step: int, steps: int, backwards: bool) -> int:
    """Where the element of a step stands in a sequence."""
    return steps - 1 - step if backwards else step


def unrolled(node: Call) -> Tuple:
    """The results of a call of `SCAN` by a copy of its body for each step."""
    body, steps = body_of(node), int(node.attr("steps"))
    states, sequences = int(node.attr("states")), int(node.attr("sequences"))
    state: tuple[Expr, ...] = node.args[:states]
    listed, fixed = node.args[states : states + sequences], node.args[states + sequences :]
    backwards = node.attr("backwards")
    stacked: list[list[Expr]] = [[] for _ in body.results[states:]]
    for step in range(steps):
        taken = [_element(x, place_of(step, steps, back)) for x, back in zip(listed, backwards, strict=False)]
        given: dict[Expr, Expr] = dict(zip(body.params, (*state, *taken, *fixed), strict=True))
        results = _fields(substitute(body.body, given))
        state = results[:states]
        for values, value in zip(stacked, results[states:], strict=True):
            values.append(call("reshape", value, shape=(1, *value.shape), span=node.span))
    whole = [
        _joined(values[::-1] if back else values, node.span)
        for values, back in zip(stacked, backwards[sequences:], strict=True)
    ]
    return Tuple((*state, *whole), node.span)


def scans_of(root: Expr) -> list[Call]:
    """All calls of `SCAN` in a graph, without those in their bodies."""
    return [node for node in calls(root) if node.op == SCAN]


def without_scans(root: Expr, wanted: Callable[[Call], bool] = lambda node: True) -> Expr:
    """``root`` with the calls of `SCAN` unrolled that are ``wanted``, and all inside of their bodies."""
    if not scans_of(root):
        return root

    class Unroll(Mutator):
        def _rewrite(self, node: Expr) -> Expr:
            if isinstance(node, Call) and node.op == SCAN and wanted(node):
                body = body_of(node)
                flat = Function(body.params, without_scans(body.body), body.attrs, body.span)
                return unrolled(rebuilt(node, flat))
            if isinstance(node, TupleGet) and isinstance(node.value, Tuple):
                return node.value.fields[node.index]
            return node

    return Unroll().run(root)


def _joined(values: Sequence[Expr], span: Span) -> Expr:
    """One behind the other; a few at a time, since a kernel that reads hundreds of tensors is slow to compile."""
    while len(values) > 1:
        groups = [values[start : start + JOINED_AT_ONCE] for start in range(0, len(values), JOINED_AT_ONCE)]
        values = [call("concat", *each, axis=0, span=span) if len(each) > 1 else each[0] for each in groups]
    return values[0]


def _element(x: Expr, place: int) -> Expr:
    """The element of a sequence at a place."""
    rest = x.shape[1:]
    if x.shape[0] > 1:
        starts, sizes = (place, *(0,) * len(rest)), (1, *rest)
        x = call("slice", x, starts=starts, sizes=sizes, steps=(1,) * len(x.shape), span=x.span)
    return call("reshape", x, shape=rest, span=x.span)


def _fields(body: Expr) -> tuple[Expr, ...]:
    assert isinstance(body, Tuple)  # `scan` makes no other
    return body.fields
