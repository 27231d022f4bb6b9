"""Control flow whose course is known while the model is read, and sequences and optionals, which exist only then."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx

from ...graph import Constant, Expr, GraphError
from ..errors import ModelError, NeedsValueError
from .loop import LEAST_STEPS, looped
from .move import parts
from .node import Converted, Node, Nothing, SequenceValue, Value, converter

MOST_ITERATIONS = 100_000


def _graph(node: Node, name: str) -> onnx.GraphProto:
    graph = node.attrs.get(name)
    if not isinstance(graph, onnx.GraphProto):
        raise node.error(f"attribute {name!r} must be a graph")
    return graph


@converter("If")
def _if(node: Node) -> Converted:
    """The branch that is known to be taken; else both, and of each result the one that counts."""
    condition = node.input(0)
    branches = [_graph(node, name) for name in ("then_branch", "else_branch")]
    known = node.scope.static_value(condition)
    if known is not None:
        return tuple(node.scope.subgraph(branches[0 if known.reshape(-1)[0] else 1], {}, node.name))
    chosen = _of_both(node, condition, branches)
    if chosen is None:
        raise NeedsValueError(node.op, "the condition", at=node.span, value=condition)
    return chosen


def _of_both(node: Node, condition: Expr, branches: Sequence[onnx.GraphProto]) -> tuple[Expr, ...] | None:
    """The results of the branch that is taken while the model runs; None where branches do not give tensors of the same
    types, or one of them can be read only where it is known to be taken."""
    try:
        yes, no = (
            [_tensor(node, value) for value in node.scope.subgraph(branch, {}, f"{node.name}/{name}")]
            for branch, name in zip(branches, ("then", "else"), strict=True)
        )
    except (ModelError, GraphError):
        return None
    if [value.type for value in yes] != [value.type for value in no] or math.prod(condition.shape) != 1:
        return None
    test = node.reshape(condition, ())
    return tuple(a if a is b else node.call("nn.where", test, a, b) for a, b in zip(yes, no, strict=True))


@converter("Loop")
def _loop(node: Node) -> Converted:
    """The body once for each iteration; their number must be known, step by step."""
    body = _graph(node, "body")
    limit = int(node.constant(0, "the number of iterations").reshape(())) if node.has(0) else MOST_ITERATIONS
    goes_on = bool(node.constant(1, "the condition").reshape(())) if node.has(1) else True
    carried: list[Value] = [node.value(i) for i in range(2, len(node.inputs))]
    if goes_on and node.has(0) and LEAST_STEPS <= limit <= MOST_ITERATIONS:
        try:
            return _one_body(node, body, carried, limit)
        except (ModelError, GraphError):  # of a value that only its own step knows: each step has a copy of the body
            pass
    scanned: list[list[Expr]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    step = 0
    while step < limit and goes_on:
        if step == MOST_ITERATIONS:
            raise node.error(f"goes on after {MOST_ITERATIONS} iterations")
        names = [value.name for value in body.input]
        given: list[Value] = [Constant(np.array(step, np.int64)), Constant(np.array(goes_on)), *carried]
        results = node.scope.subgraph(body, dict(zip(names, given, strict=True)), f"{node.name}/{step}")
        condition, carried, rest = results[0], results[1 : 1 + len(carried)], results[1 + len(carried) :]
        if not isinstance(condition, Expr):
            raise node.error("the condition of the body must be a tensor")
        goes_on = bool(node.known(condition, "whether it goes on").reshape(()))
        for values, value in zip(scanned, rest, strict=True):
            values.append(_tensor(node, value))
        step += 1
    return (*carried, *(_stacked(node, values, 0) for values in scanned))


def _one_body(node: Node, body: onnx.GraphProto, carried: list[Value], count: int) -> tuple[Expr, ...]:
    """A loop that goes on to its limit, and whose steps differ in numbers alone. Raises `ModelError` or `GraphError`
    for any other."""
    states = tuple(_tensor(node, value) for value in carried)
    turns = Constant(np.arange(count, dtype=np.int64))

    def step(state: tuple[Expr, ...], taken: tuple[Expr, ...]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        names = [value.name for value in body.input]
        given: list[Value] = [taken[0], Constant(np.array(True)), *state]
        values = node.scope.subgraph(body, dict(zip(names, given, strict=True)), node.name)
        condition, *results = (_tensor(node, value) for value in values)
        if not node.known(condition, "whether it goes on").reshape(()):
            raise node.error("it may end before its limit")
        return tuple(results[: len(state)]), tuple(results[len(state) :])

    after, stacked = looped(node, step, states, [turns], (False,) * (len(body.output) - len(states)))
    return (*after, *stacked)


def _tensor(node: Node, value: Value) -> Expr:
    if not isinstance(value, Expr):
        raise node.error("a result of the body that is put together must be a tensor")
    return value


def _stacked(node: Node, values: list[Expr], axis: int) -> Expr:
    """Tensors of one shape along a new axis."""
    if not values:
        raise node.error("does not run once, so the shape of its result is not known")
    return _joined(node, values, axis, new_axis=True)


def _joined(node: Node, values: list[Expr], axis: int, new_axis: bool) -> Expr:
    rank = len(values[0].shape) + new_axis
    place = node.checked_axis(axis, rank)
    if new_axis:
        values = [node.reshape(v, (*v.shape[:place], 1, *v.shape[place:])) for v in values]
    return values[0] if len(values) == 1 else node.call("concat", *values, axis=place)


@converter("Scan")
def _scan(node: Node) -> Converted:
    if node.opset < 9:
        return _scan_of_batches(node)
    return tuple(_scan_steps(node, list(node.tensors)))


def _scan_steps(node: Node, operands: list[Expr]) -> list[Expr]:
    body, count = _graph(node, "body"), node.integer("num_scan_inputs", 0)
    states, inputs = operands[: len(operands) - count], operands[len(operands) - count :]
    outputs = len(body.output) - len(states)

    def listed(name: str, size: int) -> tuple[int, ...]:
        return node.integers(name) or (0,) * size

    axes = [node.checked_axis(axis, len(x.shape))
            for axis, x in zip(listed("scan_input_axes", count), inputs, strict=True)]  # fmt: skip
    backwards = listed("scan_input_directions" if node.opset >= 9 else "directions", count)
    steps = inputs[0].shape[axes[0]]
    out_axes, out_back = listed("scan_output_axes", outputs), listed("scan_output_directions", outputs)
    if steps >= LEAST_STEPS:
        try:
            return _one_scan(node, body, states, inputs, axes, out_axes, (*backwards, *out_back))
        except (ModelError, GraphError):  # of a value that only its own step knows: each step has a copy of the body
            pass
    scanned: list[list[Expr]] = [[] for _ in range(outputs)]
    for step in range(steps):
        names = [value.name for value in body.input]
        given: dict[str, Value] = dict(zip(names, states, strict=False))
        for name, x, axis, back in zip(names[len(states) :], inputs, axes, backwards, strict=True):
            taken = node.slice(x, axis, steps - 1 - step if back else step, 1)
            given[name] = node.reshape(taken, (*x.shape[:axis], *x.shape[axis + 1 :]))
        results = [_tensor(node, value) for value in node.scope.subgraph(body, given, f"{node.name}/{step}")]
        states = results[: len(states)]
        for values, value in zip(scanned, results[len(states) :], strict=True):
            values.append(value)
    return [
        *states,
        *(_stacked(node, values[::-1] if back else values, axis)
          for values, axis, back in zip(scanned, out_axes, out_back, strict=True)),
    ]  # fmt: skip


def _one_scan(
    node: Node, body: onnx.GraphProto, states: Sequence[Expr], inputs: Sequence[Expr], axes: Sequence[int],
    out_axes: Sequence[int], backwards: Sequence[int],
) -> list[Expr]:  # fmt: skip
    """A scan whose steps differ in numbers alone. Raises `ModelError` or `GraphError` for any other."""
    names = [value.name for value in body.input]
    first = [node.transpose(x, (axis, *(i for i in range(len(x.shape)) if i != axis)))
             for x, axis in zip(inputs, axes, strict=True)]  # fmt: skip

    def step(state: tuple[Expr, ...], taken: tuple[Expr, ...]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        given: dict[str, Value] = dict(zip(names, (*state, *taken), strict=True))
        results = [_tensor(node, value) for value in node.scope.subgraph(body, given, node.name)]
        return tuple(results[: len(state)]), tuple(results[len(state) :])

    after, stacked = looped(node, step, states, first, [bool(each) for each in backwards])
    placed = []
    for x, axis in zip(stacked, out_axes, strict=True):
        place = node.checked_axis(axis, len(x.shape))
        rest = iter(range(1, len(x.shape)))
        placed.append(node.transpose(x, [0 if i == place else next(rest) for i in range(len(x.shape))]))
    return [*after, *placed]


def _scan_of_batches(node: Node) -> Converted:
    """Opset 8: the first axis of everything is the batch."""
    if node.has(0):
        raise node.error("lengths of sequences are not supported", hint="convert the model to opset 9 or later")
    operands = [node.input(i) for i in range(1, len(node.inputs))]
    batches = []
    for b in range(operands[0].shape[0]):
        own = [node.reshape(node.slice(x, 0, b, 1), x.shape[1:]) for x in operands]
        batches.append(_scan_steps(node, own))
    return tuple(_stacked(node, list(values), 0) for values in zip(*batches, strict=True))


# Sequences


@converter("SequenceConstruct")
def _sequence_construct(node: Node) -> Converted:
    return SequenceValue(node.tensors)


@converter("SequenceEmpty")
def _sequence_empty(node: Node) -> Converted:
    return SequenceValue(())


@converter("SequenceLength")
def _sequence_length(node: Node) -> Converted:
    return Constant(np.array(len(node.sequence(0).items), np.int64))


def _position(node: Node, index: int, count: int) -> int:
    place = int(node.constant(index, "the position").reshape(()))
    if not -count <= place <= count:
        raise node.error(f"there is no position {place} in a sequence of {count}")
    return place + count if place < 0 else place


@converter("SequenceAt")
def _sequence_at(node: Node) -> Converted:
    items = node.sequence(0).items
    return items[_position(node, 1, len(items))]


@converter("SequenceInsert")
def _sequence_insert(node: Node) -> Converted:
    items = node.sequence(0).items
    place = _position(node, 2, len(items)) if node.has(2) else len(items)
    return SequenceValue((*items[:place], node.input(1), *items[place:]))


@converter("SequenceErase")
def _sequence_erase(node: Node) -> Converted:
    items = node.sequence(0).items
    place = _position(node, 1, len(items)) if node.has(1) else len(items) - 1
    return SequenceValue((*items[:place], *items[place + 1 :]))


@converter("ConcatFromSequence")
def _concat_from_sequence(node: Node) -> Converted:
    items = list(node.sequence(0).items)
    if not items:
        raise node.error("the sequence is empty")
    return _joined(node, items, node.integer("axis", 0), bool(node.integer("new_axis", 0)))


@converter("SplitToSequence")
def _split_to_sequence(node: Node) -> Converted:
    x = node.input(0)
    axis = node.axis(len(x.shape), 0)
    size = x.shape[axis]
    if node.has(1) and node.input(1).shape:
        return SequenceValue(parts(node, x, axis, node.known_integers(1, "the sizes")))
    each = int(node.constant(1, "the size").reshape(())) if node.has(1) else 1
    sizes = tuple(min(each, size - start) for start in range(0, size, each))
    cut = parts(node, x, axis, sizes)
    if node.has(1) or node.integer("keepdims", 1):
        return SequenceValue(cut)
    return SequenceValue(tuple(node.reshape(part, (*x.shape[:axis], *x.shape[axis + 1 :])) for part in cut))


@converter("SequenceMap")
def _sequence_map(node: Node) -> Converted:
    """The body for each element of the first sequence, and of the others of the same length."""
    body, first = _graph(node, "body"), node.sequence(0).items
    results: list[list[Value]] = [[] for _ in body.output]
    for i in range(len(first)):
        given: dict[str, Value] = {}
        for number, value in enumerate(body.input):
            operand = node.value(number)
            given[value.name] = operand.items[i] if isinstance(operand, SequenceValue) else operand
        for values, value in zip(results, node.scope.subgraph(body, given, f"{node.name}/{i}"), strict=True):
            values.append(value)
    return tuple(SequenceValue(tuple(_tensor(node, value) for value in values)) for values in results)


# Optionals


@converter("Optional")
def _optional(node: Node) -> Converted:
    return node.value(0) if node.has(0) else Nothing()


@converter("OptionalHasElement")
def _optional_has_element(node: Node) -> Converted:
    there = node.has(0) and not isinstance(node.inputs[0], Nothing)
    return Constant(np.array(there))


@converter("OptionalGetElement")
def _optional_get_element(node: Node) -> Converted:
    value = node.value(0)
    if isinstance(value, Nothing):
        raise node.error("the optional value is not there")
    return value
