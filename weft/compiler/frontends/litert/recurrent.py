"""Recurrent layers over a sequence. They begin with zeros in every run: nothing is kept from the run before."""

from __future__ import annotations

import numpy as np

from ...graph import Expr
from ...graph.dtypes import FLOATS
from ..onnx.loop import looped
from .recurrent_bytes import lstm_of_bytes
from .site import Result, Site, rule

STARTS_AT_ZERO = ("UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN",
                  "BIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_RNN")  # fmt: skip
"""Operators with states among their operands, which LiteRT keeps as variables."""


def _sequence(site: Site, bytes_too: bool = False) -> tuple[Expr, bool]:
    """The input (T, N, features), and whether the file has it so."""
    x = site.raw(0)
    if x.dtype not in FLOATS and not (bytes_too and x.dtype == "int8"):
        raise site.error(f"it is read in floats alone, not in {x.dtype}",
                         hint="convert the model with floats for its activations")  # fmt: skip
    if len(x.shape) != 3:
        raise site.error(f"its input must have three axes, not {list(x.shape)}")
    time_major = bool(site.option("time_major"))
    return (x if time_major else site.call("transpose", x, perm=(1, 0, 2))), time_major


def _laid_out(site: Site, whole: Expr, time_major: bool) -> Expr:
    return whole if time_major else site.call("transpose", whole, perm=(1, 0, 2))


def _product(site: Site, x: Expr, index: int) -> Expr:
    """``x`` (..., K) times the weights of operand ``index`` (M, K)."""
    weights = site.cast(site.real(index).expr, x.dtype)
    if len(weights.shape) != 2 or weights.shape[1] != x.shape[-1]:
        raise site.error(f"operand {index} is {weights.type}, which does not fit {x.type}")
    return site.call("nn.matmul", x, site.call("transpose", weights, perm=(1, 0)))


def _plus(site: Site, x: Expr, index: int) -> Expr:
    return site("add", x, site.cast(site.real(index).expr, x.dtype)) if site.has(index) else x


def _of_both(site: Site, ahead: Expr, back: Expr, time_major: bool) -> tuple[Expr, ...]:
    """The results of a layer that runs in both directions; one result, if the file merges them."""
    both = (site.concat([ahead, back], 2),) if site.option("merge_outputs") else (ahead, back)
    return tuple(_laid_out(site, each, time_major) for each in both)


@rule("UNIDIRECTIONAL_SEQUENCE_RNN")
def _rnn(site: Site) -> Result:
    x, time_major = _sequence(site)
    return _laid_out(site, _plain_layer(site, x, 1), time_major)


@rule("BIDIRECTIONAL_SEQUENCE_RNN")
def _rnn_of_both(site: Site) -> tuple[Result, ...]:
    _refuse_second_input(site, range(9, 12))
    x, time_major = _sequence(site)
    return _of_both(site, _plain_layer(site, x, 1), _plain_layer(site, x, 5, backwards=True), time_major)


def _refuse_second_input(site: Site, operands: range) -> None:
    if any(site.has(index) for index in operands):
        raise site.error(f"a second input (operands {operands[0]} to {operands[-1]}) is not read")


def _plain_layer(site: Site, x: Expr, first: int, backwards: bool = False) -> Expr:
    """Of operands ``first`` and on: weights, recurrent weights, bias."""
    given = _plus(site, _product(site, x, first), first + 2)
    start = site.like(np.zeros((x.shape[1], site.held(first).shape[0])), x)

    def step(states: tuple[Expr, ...], taken: tuple[Expr, ...]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        (state,), (now,) = states, taken
        new = site.activated(site("add", now, _product(site, state, first + 1)))
        return (new,), (new,)

    _, (whole,) = looped(site.node, step, [start], [given], (backwards, backwards))
    return whole


INPUT, FORGET, CELL, OUTPUT = range(4)
"""The gates, in the order of their operands."""
_WEIGHTS, _RECURRENCE, _PEEPHOLE, _BIAS, _NORM = 1, 5, 9, 12, 20
"""The first operand of each kind. There is no peephole of the cell."""
_PROJECTION, _PROJECTION_BIAS = 16, 17


@rule("UNIDIRECTIONAL_SEQUENCE_LSTM")
def _lstm(site: Site) -> Result:
    """With peepholes, coupled input and forget gates, a projection and clipping where the file has them."""
    if any(site.has(_NORM + gate) for gate in range(4)):
        raise site.error("normalised gates (operands 20 to 23) are not read")
    x, time_major = _sequence(site, bytes_too=True)
    if x.dtype == "int8":
        return _laid_out(site, lstm_of_bytes(site, x), time_major)
    return _laid_out(site, _gated_layer(site, x), time_major)


_BACK = 17
"""How much further the operands of the layer that runs backwards are."""


@rule("BIDIRECTIONAL_SEQUENCE_LSTM")
def _lstm_of_both(site: Site) -> tuple[Result, ...]:
    _refuse_second_input(site, range(39, 48))
    x, time_major = _sequence(site)
    return _of_both(site, _gated_layer(site, x), _gated_layer(site, x, _BACK, backwards=True), time_major)


def _gated_layer(site: Site, x: Expr, further: int = 0, backwards: bool = False) -> Expr:
    """``further``: where the operands of this layer are, from those of a layer in one direction."""
    entering, recurrent, bias = (first + further for first in (_WEIGHTS, _RECURRENCE, _BIAS))
    projection, projection_bias = _PROJECTION + further, _PROJECTION_BIAS + further
    coupled = not site.has(entering + INPUT)
    gates = [gate for gate in range(4) if not (coupled and gate == INPUT)]
    cells, outputs = site.held(entering + FORGET).shape[0], site.held(recurrent + FORGET).shape[1]
    given = [_plus(site, _product(site, x, entering + gate), bias + gate) for gate in gates]
    start = [site.like(np.zeros((x.shape[1], size)), x) for size in (outputs, cells)]

    def step(states: tuple[Expr, ...], taken: tuple[Expr, ...]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        hidden, cell = states
        sums = {gate: site("add", now, _product(site, hidden, recurrent + gate))
                for gate, now in zip(gates, taken, strict=True)}  # fmt: skip

        def opened(gate: int, seen: Expr) -> Expr:
            return site("sigmoid", _peep(site, sums[gate], seen, gate, further))

        forget = opened(FORGET, cell)
        enter = site("subtract", 1, forget) if coupled else opened(INPUT, cell)
        new = site("add", site("multiply", forget, cell), site("multiply", enter, site.activated(sums[CELL])))
        new = _clipped(site, new, "cell_clip")
        result = site("multiply", opened(OUTPUT, new), site.activated(new))
        if site.has(projection):
            projected = _plus(site, _product(site, result, projection), projection_bias)
            result = _clipped(site, projected, "projection_clip")
        return (result, new), (result,)

    _, (whole,) = looped(site.node, step, start, given, (backwards,) * (len(given) + 1))
    return whole


def _peep(site: Site, x: Expr, cell: Expr, gate: int, further: int) -> Expr:
    """Plus the cell's own share in a gate."""
    index = _PEEPHOLE + further + {INPUT: 0, FORGET: 1, OUTPUT: 2}[gate]
    if not site.has(index):
        return x
    return site("add", x, site("multiply", cell, site.cast(site.real(index).expr, x.dtype)))


def _clipped(site: Site, x: Expr, option: str) -> Expr:
    limit = site.option(option)
    return site.call("nn.clip", x, low=-limit, high=limit) if limit > 0 else x
