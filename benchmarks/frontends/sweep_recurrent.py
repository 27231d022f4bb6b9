"""More cases of `operator_sweep`: RNN, GRU and LSTM, by the formulas of the standard.

Numbers are halves and quarters, the formulas are computed in float64. Functions are the usual ones, or each of those
that the standard knows besides, with numbers of their own in each direction.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.frontends.sweep_cases import Array, Case, case

STEPS, BATCH, INPUTS, HIDDEN = 4, 3, 2, 3
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
RESULTS = {"RNN": 2, "GRU": 2, "LSTM": 3}
Function = Callable[[Array], Array]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


@dataclass(frozen=True)
class Layer:
    """One direction of a recurrent layer: ``w`` (gates, inputs), ``r`` (gates, hidden), both biases, functions."""

    op: str
    w: Array
    r: Array
    bias: Array
    peepholes: Array
    functions: tuple[Function, ...]
    clip: float | None = None
    linear_before_reset: bool = False
    input_forget: bool = False

    def step(self, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        """What a step makes of a hidden and a cell state, with rows of the batch."""
        gates = GATES[self.op]
        wb, rb = np.split(self.bias, 2)
        w, r = self.w.reshape(gates, HIDDEN, -1), self.r.reshape(gates, HIDDEN, -1)
        wb, rb = wb.reshape(gates, HIDDEN), rb.reshape(gates, HIDDEN)

        def sums(gate: int, state: Array = h) -> Array:
            return x @ w[gate].T + state @ r[gate].T + wb[gate] + rb[gate]

        if self.op == "RNN":
            (f,) = self.functions
            return f(self.clipped(sums(0))), c
        if self.op == "GRU":
            f, g = self.functions
            z, reset = f(self.clipped(sums(0))), f(self.clipped(sums(1)))
            if self.linear_before_reset:
                new = x @ w[2].T + reset * (h @ r[2].T + rb[2]) + wb[2]
            else:
                new = sums(2, reset * h)
            return (1 - z) * g(self.clipped(new)) + z * h, c
        f, g, last = self.functions
        p = self.peepholes.reshape(3, HIDDEN)
        i = f(self.clipped(sums(0) + p[0] * c))
        forget = 1 - i if self.input_forget else f(self.clipped(sums(2) + p[2] * c))
        cell = forget * c + i * g(self.clipped(sums(3)))
        out = f(self.clipped(sums(1) + p[1] * cell))
        return out * last(cell), cell

    def clipped(self, x: Array) -> Array:
        return x if self.clip is None else np.clip(x, -self.clip, self.clip)


def run(layer: Layer, x: Array, h: Array, c: Array, lengths: Array, *, backwards: bool) -> tuple[Array, Array, Array]:
    """All outputs (steps, batch, hidden) and the last states; behind the end of a sequence outputs are 0."""
    found = np.zeros((x.shape[0], BATCH, HIDDEN))
    h, c = h.copy(), c.copy()
    for row in range(BATCH):
        order = range(lengths[row])
        for t in reversed(order) if backwards else order:
            one = slice(row, row + 1)
            h[one], c[one] = layer.step(x[t, one], h[one], c[one])
            found[t, row] = h[row]
    return found, h, c


FORMS: list[tuple[str, dict[str, Any]]] = [
    ("", {}), ("reverse", {"direction": "reverse"}), ("bidirectional", {"direction": "bidirectional"}),
    ("lengths", {"lengths": [4, 1, 3]}),
    ("lengths, bidirectional", {"lengths": [2, 4, 3], "direction": "bidirectional"}),
    ("states", {"states": True}), ("clip", {"clip": 1.5}), ("states, reverse, lengths",
     {"states": True, "direction": "reverse", "lengths": [3, 2, 4]}),
]  # fmt: skip
OWN_FORMS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "RNN": [],
    "GRU": [("linear_before_reset", {"linear_before_reset": 1}),
            ("linear_before_reset, bidirectional", {"linear_before_reset": 1, "direction": "bidirectional"})],
    "LSTM": [("peepholes", {"peepholes": True, "states": True}), ("input_forget", {"input_forget": 1}),
             ("peepholes, bidirectional", {"peepholes": True, "direction": "bidirectional", "states": True})],
}  # fmt: skip
FUNCTIONS: dict[str, Callable[..., Array]] = {
    "Sigmoid": sigmoid, "Tanh": np.tanh, "Relu": lambda x: np.maximum(x, 0),
    "Affine": lambda x, alpha, beta: alpha * x + beta,
    "LeakyRelu": lambda x, alpha: np.where(x >= 0, x, alpha * x),
    "ThresholdedRelu": lambda x, alpha: np.where(x >= alpha, x, 0),
    "ScaledTanh": lambda x, alpha, beta: alpha * np.tanh(beta * x),
    "HardSigmoid": lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
    "Elu": lambda x, alpha: np.where(x >= 0, x, alpha * (np.exp(x) - 1)),
    "Softsign": lambda x: x / (1 + abs(x)), "Softplus": lambda x: np.log(1 + np.exp(x)),
}  # fmt: skip
USUAL = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
OTHERS = {
    "RNN": [("Relu",), ("Affine",), ("LeakyRelu",), ("ThresholdedRelu",), ("ScaledTanh",), ("HardSigmoid",), ("Elu",),
            ("Softsign",), ("Softplus",)],
    "GRU": [("HardSigmoid", "Relu"), ("Affine", "ScaledTanh"), ("Softsign", "LeakyRelu")],
    "LSTM": [("HardSigmoid", "Tanh", "Relu"), ("Sigmoid", "Elu", "ScaledTanh"), ("HardSigmoid", "Softsign", "Affine")],
}  # fmt: skip
ALPHA, BETA = (0.25, 0.75), (0.5, -0.125)
"""Of each direction, for functions that take them."""
WITH_ALPHA = ("Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu")
WITH_BETA = ("Affine", "ScaledTanh", "HardSigmoid")


def recurrent() -> Iterator[Case]:
    for op in GATES:
        for name, form in FORMS + OWN_FORMS[op]:
            yield from _cases(op, name, form, USUAL[op])
        for names, (name, form) in itertools.product(OTHERS[op], (FORMS[0], FORMS[2])):
            yield from _cases(op, ", ".join((f"of {'-'.join(names)}", name)).removesuffix(", "), form, names)


def _cases(op: str, name: str, form: dict[str, Any], names: tuple[str, ...]) -> Iterator[Case]:
    random = np.random.default_rng(len(name))
    direction = form.get("direction", "forward")
    count, gates = 1 + (direction == "bidirectional"), GATES[op] * HIDDEN

    def drawn(*shape: int) -> Array:
        return random.integers(-2, 3, shape) / 4

    x, w, r = drawn(STEPS, BATCH, INPUTS), drawn(count, gates, INPUTS), drawn(count, gates, HIDDEN)
    bias, p = drawn(count, 2 * gates), drawn(count, 3 * HIDDEN)
    h, c = drawn(count, BATCH, HIDDEN), drawn(count, BATCH, HIDDEN)
    h, c = (h, c) if form.get("states") else (h * 0, c * 0)
    p = p if form.get("peepholes") else p * 0
    lengths = np.array(form.get("lengths", [STEPS] * BATCH), np.int32)
    results = []
    for place in range(count):
        functions = tuple(with_numbers(each, place) for each in names)
        ways = (bool(form.get(way)) for way in ("linear_before_reset", "input_forget"))
        layer = Layer(op, w[place], r[place], bias[place], p[place], functions, form.get("clip"), *ways)
        backwards = direction == "reverse" or place == 1
        results.append(run(layer, x, h[place], c[place], lengths, backwards=backwards))
    outputs, last, cells = (np.stack(each) for each in zip(*results, strict=True))
    inputs: list[Array | None] = [each.astype(np.float32) for each in (x, w, r, bias)]
    inputs.append(lengths if "lengths" in form else None)
    if form.get("states"):
        inputs += [each.astype(np.float32) for each in ((h, c) if op == "LSTM" else (h,))]
    if form.get("peepholes"):
        inputs.append(p.astype(np.float32))
    while inputs[-1] is None:
        inputs.pop()
    attributes = {key: form[key] for key in ("clip", "linear_before_reset", "input_forget", "direction") if key in form}
    if names != USUAL[op]:
        attributes["activations"] = list(names) * count
        for which, numbers, takers in (("alpha", ALPHA, WITH_ALPHA), ("beta", BETA, WITH_BETA)):
            given = [numbers[place] for place in range(count) for each in names if each in takers]
            if given:
                attributes[f"activation_{which}"] = given
    for output, wanted in enumerate((outputs.transpose(1, 0, 2, 3), last, cells)[: RESULTS[op]]):
        yield case(f"{op} {name}".strip() + f", result {output}", op, inputs, wanted.astype(np.float32),
                   constants=(1, 2, 3), ulps=32, near=1e-6, opset=22, output=output, outputs=RESULTS[op],
                   hidden_size=HIDDEN, **attributes)  # fmt: skip


def with_numbers(name: str, place: int) -> Function:
    """A function with its numbers in one direction."""
    numbers = [values[place] for values, names in ((ALPHA, WITH_ALPHA), (BETA, WITH_BETA)) if name in names]
    return lambda x: FUNCTIONS[name](x, *numbers)
