"""RNN, GRU and LSTM: the products with the inputs of all steps at once, and a loop of what is left.

Two directions that compute the same with other weights are one loop of matrices with a leading axis of two: so each
operator of a step is one kernel, not two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...graph import Constant, Expr
from .activation import Formula, elu, hard_sigmoid, leaky_relu, softplus
from .index import reversed_steps
from .loop import looped
from .node import CONVERTERS, Converted, Converter, Node
from .quantised import dynamically, product_of_integers, raw

Step = Callable[["_Cell", Expr, tuple[Expr, ...]], tuple[Expr, ...]]
"""From a step's input times the weights of all gates (N, gates * hidden), and the states, to the next states."""


@dataclass(frozen=True)
class _Cell:
    """One direction of a recurrent node, or both, which everything then has a leading axis for: the weights of all
    gates, one below the other, and the functions."""

    node: Node
    weights: Expr  # (gates * hidden, inputs)
    recurrence: Expr  # (gates * hidden, hidden)
    bias: Expr | None  # (2 * gates * hidden,): of the weights, then of the recurrence
    peephole: Expr | None  # (3 * hidden,)
    hidden: int
    functions: tuple[_Activation, ...]
    bytes_of: Callable[[Expr, int, int, int], Expr] | None = None
    """Where weights are bytes, rows of an operand times those of gates: of the operand, which of the two weights is
    meant (0 or 1), the first gate, how many."""

    def call(self, op: str, *args: Expr) -> Expr:
        return self.node.call(f"nn.{op}", *args)

    def limited(self, x: Expr) -> Expr:
        """The operand of an activation, within ``clip``."""
        if "clip" not in self.node.attrs:
            return x
        limit = self.node.number("clip", 0.0)
        return self.node.call("nn.clip", x, low=-limit, high=limit)

    def activate(self, number: int, x: Expr) -> Expr:
        return self.functions[number].of(self.node, self.limited(x))

    def row(self, vector: Expr, first: int, count: int = 1) -> Expr:
        """Numbers of some gates, as they broadcast to rows (N, count * hidden)."""
        cut = self.node.slice(vector, len(vector.shape) - 1, first * self.hidden, count * self.hidden)
        return cut if len(cut.shape) == 1 else self.node.reshape(cut, (cut.shape[0], 1, cut.shape[1]))

    @property
    def gates(self) -> int:
        return self.weights.shape[-2] // self.hidden

    @property
    def is_pair(self) -> bool:
        """Whether there is a leading axis for both."""
        return len(self.weights.shape) > 2

    def fresh(self, x: Expr) -> Expr:
        """The inputs of all steps (T, N, inputs) times the weights of all gates, with their bias, as states lie."""
        rows, columns = self.node.reshape(x, (x.shape[0] * x.shape[1], x.shape[2])), self.gates * self.hidden
        if self.is_pair:
            rows = self.call("dense", rows, self.node.reshape(self.weights, (2 * columns, x.shape[2])))
        else:
            rows = self._product(rows, 0, 0, self.gates)
        if self.bias is not None:
            bias = self.row(self.bias, 0, self.gates)
            rows = self.call("add", rows, self.node.reshape(bias, (math.prod(bias.shape),)))
        if not self.is_pair:
            return self.node.reshape(rows, (*x.shape[:2], columns))
        return self.node.transpose(self.node.reshape(rows, (*x.shape[:2], 2, columns)), (0, 2, 1, 3))

    def taken(self, fresh: Sequence[Expr]) -> Expr:
        """An element of what `fresh` gives, of which each direction has another one."""
        if not self.is_pair:
            return fresh[0]
        forward = Constant(np.array([True, False]).reshape(2, 1, 1))
        return self.node.call("nn.where", forward, *fresh)  # part of what reads it, where joined halves are a copy

    def recurrent(self, h: Expr, first: int, count: int) -> Expr:
        """A state times the recurrence weights of some gates, with their bias."""
        result = self._product(h, 1, first, count)
        return result if self.bias is None else self.call("add", result, self.row(self.bias, self.gates + first, count))

    def _product(self, x: Expr, which: int, first: int, count: int) -> Expr:
        if self.bytes_of is not None:
            return self.bytes_of(x, which, first, count)
        matrix = (self.weights, self.recurrence)[which]
        matrix = self.node.slice(matrix, len(matrix.shape) - 2, first * self.hidden, count * self.hidden)
        if not self.is_pair:
            return self.call("dense", x, matrix)
        return self.call("matmul", x, self.node.transpose(matrix, (0, 2, 1)))

    def part(self, x: Expr, gate: int) -> Expr:
        """The columns of one gate."""
        return self.node.slice(x, len(x.shape) - 1, gate * self.hidden, self.hidden)


def _vanilla(cell: _Cell, fresh: Expr, state: tuple[Expr, ...]) -> tuple[Expr, ...]:
    (h,) = state
    return (cell.activate(0, cell.call("add", fresh, cell.recurrent(h, 0, 1))),)


def _gru(cell: _Cell, fresh: Expr, state: tuple[Expr, ...]) -> tuple[Expr, ...]:
    (h,) = state
    before = bool(cell.node.integer("linear_before_reset", 0))
    old = cell.recurrent(h, 0, 3 if before else 2)
    update, reset = (cell.activate(0, cell.call("add", cell.part(fresh, i), cell.part(old, i))) for i in range(2))
    if before:
        last = cell.call("multiply", reset, cell.part(old, 2))
    else:
        last = cell.recurrent(cell.call("multiply", reset, h), 2, 1)
    candidate = cell.activate(1, cell.call("add", cell.part(fresh, 2), last))
    kept = cell.call("multiply", update, h)
    rest = cell.call("subtract", cell.node.like(1, h), update)
    return (cell.call("add", cell.call("multiply", rest, candidate), kept),)


def _lstm(cell: _Cell, fresh: Expr, state: tuple[Expr, ...]) -> tuple[Expr, ...]:
    h, c = state
    total = cell.call("add", fresh, cell.recurrent(h, 0, 4))

    def gate(i: int) -> Expr:
        return cell.part(total, i)

    def peep(total: Expr, i: int, memory: Expr) -> Expr:
        if cell.peephole is None:
            return total
        return cell.call("add", total, cell.call("multiply", cell.row(cell.peephole, i), memory))

    enter = cell.activate(0, peep(gate(0), 0, c))
    if cell.node.integer("input_forget", 0):
        forget = cell.call("subtract", cell.node.like(1, enter), enter)
    else:
        forget = cell.activate(0, peep(gate(2), 2, c))
    memory = cell.call("add", cell.call("multiply", forget, c), cell.call("multiply", enter, cell.activate(1, gate(3))))
    leave = cell.activate(0, peep(gate(1), 1, memory))
    return cell.call("multiply", leave, cell.functions[2].of(cell.node, memory)), memory


NEEDED = math.nan
"""For a number that has no default."""

NUMBERS = {
    "affine": (NEEDED, NEEDED), "elu": (1.0,), "hardsigmoid": (0.2, 0.5), "leakyrelu": (0.01,),
    "scaledtanh": (NEEDED, NEEDED), "thresholdedrelu": (1.0,),
}  # fmt: skip
"""By activation function, alpha and beta where it takes them, if they are not given."""

FUNCTIONS: dict[str, Callable[..., Expr]] = {
    "affine": lambda f, x, alpha, beta: f("add", f("multiply", x, alpha), beta),
    "elu": elu,
    "hardsigmoid": hard_sigmoid,
    "leakyrelu": leaky_relu,
    "relu": lambda f, x: f.node.call("nn.clip", x, low=0.0),
    "scaledtanh": lambda f, x, alpha, beta: f("multiply", f("tanh", f("multiply", x, beta)), alpha),
    "sigmoid": lambda f, x: f("sigmoid", x),
    "softplus": softplus,
    "softsign": lambda f, x: f("divide", x, f("add", f("abs", x), 1)),
    "tanh": lambda f, x: f("tanh", x),
    "thresholdedrelu": lambda f, x, alpha: f.where(f("less", x, alpha), 0, x),
}
"""Activation functions of recurrent operators, by their names in small letters."""


@dataclass(frozen=True)
class _Activation:
    """One of `FUNCTIONS`, with its numbers."""

    name: str
    numbers: tuple[float, ...]

    def of(self, node: Node, x: Expr) -> Expr:
        return FUNCTIONS[self.name](Formula(node, x), x, *self.numbers)


def _activations(node: Node, direction: int, count: int, default: tuple[str, ...]) -> tuple[_Activation, ...]:
    """Those of a direction. Numbers are taken by the functions of all directions in their order."""
    names = [name.decode() for name in node.attrs.get("activations", [])] or list(default) * 2
    left = [list(node.attrs.get(f"activation_{which}", [])) for which in ("alpha", "beta")]
    functions = [_activation(node, name, left) for name in names]
    return tuple(functions[direction * count : (direction + 1) * count])


def _activation(node: Node, name: str, left: list[list[float]]) -> _Activation:
    """A function by its name; it takes its alpha and beta from what is left of those that are given."""
    known = name.lower()
    if known not in FUNCTIONS:
        raise node.error(f"the activation {name!r} is not supported", hint=f"supported: {', '.join(FUNCTIONS)}")
    defaults = zip(("alpha", "beta"), left, NUMBERS.get(known, ()), strict=False)
    numbers = [(which, given.pop(0) if given else usual) for which, given, usual in defaults]
    for which, number in numbers:
        if math.isnan(number):
            raise node.error(f"the activation {name!r} has no {which}", hint=f"give it in activation_{which}")
    return _Activation(known, tuple(number for _, number in numbers))


def _recurrent(step: Step, states: int, default: tuple[str, ...]) -> Converter:
    """A converter: outputs are all hidden states (T, directions, N, H), then the last state(s) (directions, N, H)."""

    def convert(node: Node) -> Converted:
        x = node.input(0)
        batch_first = bool(node.integer("layout", 0))
        if batch_first:
            x = node.transpose(x, (1, 0, 2))
        hidden = node.integer("hidden_size", node.input(2).shape[1 if node.op.endswith(DYNAMIC) else -1])
        starts = [_initial(node, 5 + i, x.shape[1], hidden, batch_first) for i in range(states)]
        together = x.shape[1] <= MOST_ROWS and _are_alike(node, default)
        run = _together if together else _apart
        y, ends = run(node, step, default, x, hidden, starts)
        if batch_first:
            y, ends = node.transpose(y, (2, 0, 1, 3)), [node.transpose(end, (1, 0, 2)) for end in ends]
        return (y, *ends)

    return convert


MOST_ROWS = 4
"""Of a batch whose directions are one loop. What the inputs give is moved to where the states lie, which takes longer
than one kernel less in each step if there is much of it: 15 % with 16 rows."""

LARGEST_PAIR = 1 << 19
"""Recurrence weights of both directions that are one loop. Each step reads all of them: two loops keep only half in a
cache at a time, which is faster by a third with four times as many."""


def _are_alike(node: Node, default: tuple[str, ...]) -> bool:
    """Whether there are two directions that differ in nothing but weights. Operands that are quantised in each run have
    a range of their own."""
    if node.string("direction", "forward") != "bidirectional" or node.op.endswith(DYNAMIC):
        return False
    weights = node.optional(2)
    if weights is None or weights.tensor_type.size > LARGEST_PAIR:
        return False
    first, second = (_activations(node, number, len(default), default) for number in range(2))
    return first == second


def _apart(
    node: Node, step: Step, default: tuple[str, ...], x: Expr, hidden: int, starts: Sequence[Expr]
) -> tuple[Expr, list[Expr]]:
    """A loop for each direction; all hidden states, and the last states."""
    direction = node.string("direction", "forward")
    lengths = node.optional(4)
    all_states: list[Expr] = []
    last: list[tuple[Expr, ...]] = []
    for number in range(2 if direction == "bidirectional" else 1):
        cell = _cell(node, number, hidden, default)
        initial = tuple(node.reshape(node.slice(start, 0, number, 1), start.shape[1:]) for start in starts)
        backwards = direction == "reverse" or number == 1
        if backwards and lengths is not None:
            whole, final = _run(cell, step, [cell.fresh(reversed_steps(node, x, lengths, 0, 1))], initial)
            whole = reversed_steps(node, whole, lengths, 0, 1)
        else:
            whole, final = _run(cell, step, [cell.fresh(x)], initial, (backwards,))
        all_states.append(whole)
        last.append(final)
    return _stack(node, all_states, 1), [_stack(node, [values[i] for values in last], 0) for i in range(len(starts))]


def _together(
    node: Node, step: Step, default: tuple[str, ...], x: Expr, hidden: int, starts: Sequence[Expr]
) -> tuple[Expr, list[Expr]]:
    """One loop for both directions; all hidden states, and the last states."""
    cell, lengths = _cell(node, None, hidden, default), node.optional(4)
    fresh = cell.fresh(x)
    if lengths is None:
        whole, last = _run(cell, step, [fresh, fresh], tuple(starts), (False, True))
    else:
        whole, last = _run(cell, step, [fresh, reversed_steps(node, fresh, lengths, 0, 2)], tuple(starts))
    return _back_turned(node, whole), list(last)


def _back_turned(node: Node, x: Expr) -> Expr:
    """(T, 2, N, ...) with the steps of the second direction in reverse order."""
    lengths = node.optional(4)
    if lengths is not None:
        forward, back = (node.slice(x, 1, number, 1) for number in range(2))
        return node.call("concat", forward, reversed_steps(node, back, lengths, 0, 2), axis=1)
    steps = x.shape[0]
    rows = np.stack([2 * np.arange(steps), 2 * np.arange(steps)[::-1] + 1], axis=1).ravel()
    moved = node.call("gather", node.reshape(x, (2 * steps, *x.shape[2:])), Constant(rows), axis=0)
    return node.reshape(moved, x.shape)


def _cell(node: Node, number: int | None, hidden: int, default: tuple[str, ...]) -> _Cell:
    """Of a direction; of both for None."""

    def of_direction(index: int) -> Expr | None:
        value = node.optional(index)
        if value is None or number is None:
            return value
        return node.reshape(node.slice(value, 0, number, 1), value.shape[1:])

    weights, recurrence = of_direction(1), of_direction(2)
    if weights is None or recurrence is None:
        raise node.error("needs weights and recurrence weights")
    functions = _activations(node, number or 0, len(default), default)
    bytes_of = None
    if node.op.endswith(DYNAMIC):  # columns are gates there
        weights, recurrence = (node.call("transpose", each, perm=(1, 0)) for each in (weights, recurrence))
        quantisers = [(of_direction(8 + 2 * which), of_direction(9 + 2 * which)) for which in range(2)]
        bytes_of = _products_of_bytes(node, (weights, recurrence), quantisers, hidden)
    return _Cell(node, weights, recurrence, of_direction(3), of_direction(7), hidden, functions, bytes_of)


def _products_of_bytes(
    node: Node, weights: tuple[Expr, Expr], quantisers: list[tuple[Expr | None, Expr | None]], hidden: int
) -> Callable[[Expr, int, int, int], Expr]:
    """Products of rows, quantised over their own range, with weights of bytes (gates * hidden, ...)."""

    def product(x: Expr, which: int, first: int, count: int) -> Expr:
        scale, zeros = quantisers[which]
        if scale is None:
            raise node.error("needs the scales of its weights")
        rows = slice(first * hidden, (first + count) * hidden)

        def of_gates(values: Expr) -> Expr:
            return values if math.prod(values.shape) == 1 else node.slice(values, 0, rows.start, rows.stop - rows.start)

        q, own, zero = dynamically(node, x)
        a = raw(node, q, zero, 1)
        b = raw(node, of_gates(weights[which]), None if zeros is None else of_gates(zeros), 0)
        total = product_of_integers(node, a, b, x.shape[1], (1,), lambda x, w: node.call("nn.dense", x, w))
        factor = node.call("nn.multiply", own, node.reshape(of_gates(scale), (math.prod(of_gates(scale).shape),)))
        return node.call("nn.multiply", node.cast(total, "float32"), factor)

    return product


def _initial(node: Node, index: int, batch: int, hidden: int, batch_first: bool) -> Expr:
    """A state before the first step, (directions, N, H)."""
    value = node.optional(index)
    if value is None:
        count = 2 if node.string("direction", "forward") == "bidirectional" else 1
        return node.like(np.zeros((count, batch, hidden)), node.input(0))
    return node.transpose(value, (1, 0, 2)) if batch_first else value


def _run(
    cell: _Cell, step: Step, fresh: Sequence[Expr], initial: tuple[Expr, ...], backwards: tuple[bool, ...] = (False,)
) -> tuple[Expr, tuple[Expr, ...]]:
    """The hidden state after each step (0 behind the end of a sequence), and the last states. ``fresh``: what
    `_Cell.fresh` gives, for each direction. ``backwards``: whether it is read from the last step to the first; of one
    direction the result, too."""
    node, lengths = cell.node, cell.node.optional(4)
    sequences = list(fresh)
    if lengths is not None:
        steps = node.like(np.arange(fresh[0].shape[0]).reshape(-1, 1, 1), lengths)
        sequences.append(node.call("nn.less", steps, node.reshape(lengths, (1, lengths.shape[0], 1))))

    def body(state: tuple[Expr, ...], taken: tuple[Expr, ...]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        new = step(cell, cell.taken(taken[: len(fresh)]), state)
        if lengths is None:
            return new, new[:1]
        live = taken[-1]
        kept = tuple(node.call("nn.where", live, n, o) for n, o in zip(new, state, strict=True))
        return kept, (node.call("nn.where", live, new[0], node.like(0, new[0])),)

    flags = backwards * (len(sequences) // len(backwards))
    last, (whole,) = looped(node, body, initial, sequences, (*flags, len(fresh) == 1 and backwards[0]))
    return whole, last


def _stack(node: Node, values: list[Expr], axis: int) -> Expr:
    lifted = [node.reshape(v, (*v.shape[:axis], 1, *v.shape[axis:])) for v in values]
    return lifted[0] if len(lifted) == 1 else node.call("concat", *lifted, axis=axis)


DYNAMIC = "DynamicQuantizeLSTM"
"""Weights of bytes, whose other operands are quantised in each run: onnxruntime's own, as its tools write it."""

CONVERTERS["RNN"] = _recurrent(_vanilla, 1, ("Tanh",))
CONVERTERS["GRU"] = _recurrent(_gru, 1, ("Sigmoid", "Tanh"))
CONVERTERS["LSTM"] = _recurrent(_lstm, 2, ("Sigmoid", "Tanh", "Tanh"))
CONVERTERS[DYNAMIC] = _recurrent(_lstm, 2, ("Sigmoid", "Tanh", "Tanh"))
