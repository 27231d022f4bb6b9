"""An LSTM over a sequence in integers: operands of 8 bits, gates and cells of 16."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from ...graph import Array, Constant, Expr
from ..onnx.loop import looped
from .fixed import scaled_twice
from .gates import logistic_table, tangent_table
from .site import Site

INPUT, FORGET, CELL, OUTPUT = range(4)
_WEIGHTS, _RECURRENCE, _PEEPHOLE, _BIAS = 1, 5, 9, 12
_PROJECTION, _PROJECTION_BIAS, _HIDDEN_STATE, _CELL_STATE = 16, 17, 18, 19
_F = np.float32
_GATE = _F(2.0**-12)
"""The scale of the gates' sums."""
_SHORT, _BYTE = (-(1 << 15), (1 << 15) - 1), (-128, 127)


def _cut(site: Site, x: Expr, ends: tuple[int, int]) -> Expr:
    return site("minimum", site("maximum", x, ends[0]), ends[1])


def _product(site: Site, steps: Expr, weights: int, bias: int, factor: np.float32) -> Expr:
    """``steps``, int32 less their zero point, times weights (M, K), scaled: int32."""
    matrix = site.raw(weights)
    if matrix.dtype != "int8" or len(matrix.shape) != 2 or matrix.shape[1] != steps.shape[-1]:
        raise site.error(f"operand {weights} is {matrix.type}, which does not fit {steps.type}")
    total: Expr = site.call("nn.matmul", steps, site.transpose(site.cast(matrix, "int32"), (1, 0)))
    if site.has(bias):
        total = site("add", total, site.cast(site.raw(bias), "int32"))
    return scaled_twice(site, total, float(factor))


def _looked_up(site: Site, table: Array, x: Expr) -> Expr:
    place = site("subtract", x, _SHORT[0])
    return site.cast(site.call("gather", Constant(table), place, axis=0), "int32")


def _multiplied(site: Site, a: Expr, b: Expr, bits: int) -> Expr:
    """A product of 16-bit numbers, int32, divided by a power of two, halves away from 0."""
    product = site("multiply", a, b)
    negative = site.cast(site("less", product, 0), "int32")
    return site("shift_right", site("subtract", site("add", product, 1 << (bits - 1)), negative), bits)


def lstm_of_bytes(site: Site, x: Expr) -> Expr:
    """``x`` (T, N, features) of int8; the results (T, N, outputs), int8."""
    coupled = not site.has(_WEIGHTS + INPUT)
    gates = [gate for gate in range(4) if not (coupled and gate == INPUT)]
    cells, outputs = site.held(_WEIGHTS + FORGET).shape[0], site.held(_RECURRENCE + FORGET).shape[1]
    hidden_scale, hidden_zero = _F(site.scale(_HIDDEN_STATE)), site.zero(_HIDDEN_STATE)
    fine = math.log2(site.scale(_CELL_STATE))
    if fine != int(fine) or not -15 <= fine <= -9:
        raise site.error(f"the scale of its cells is 2**{fine:g}, but must be a power of 2 from 2**-15 to 2**-9")
    point, inner = int(fine), site.intermediate(4)
    if inner.scales.size != 1:
        raise site.error("the product of its output gate and its cells must have one scale")
    inner_scale, inner_zero = _F(inner.scales[0]), int(inner.zeros[0])
    steps = site("subtract", site.cast(x, "int32"), site.zero(0))
    given = []
    for gate in gates:
        factor = _F(site.scale(_WEIGHTS + gate)) * _F(site.scale(0)) / _GATE
        given.append(_cut(site, _product(site, steps, _WEIGHTS + gate, _BIAS + gate, factor), _SHORT))
    start = [site.like(np.full((x.shape[1], outputs), hidden_zero), "int32"),
             site.like(np.zeros((x.shape[1], cells)), "int32")]  # fmt: skip
    sigmoid = partial(_looked_up, site, logistic_table())
    limits = [_limit(site, "cell_clip", _F(site.scale(_CELL_STATE)), _SHORT),
              _limit(site, "projection_clip", hidden_scale, _BYTE)]  # fmt: skip

    def peeped(total: Expr, cell: Expr, gate: int) -> Expr:
        index = _PEEPHOLE + {INPUT: 0, FORGET: 1, OUTPUT: 2}[gate]
        if not site.has(index):
            return total
        product = site("multiply", cell, site.cast(site.raw(index), "int32"))
        factor = _F(2.0**point) * _F(site.scale(index)) / _GATE
        return _cut(site, site("add", total, scaled_twice(site, product, float(factor))), _SHORT)

    def step(states: tuple[Expr, ...], taken: tuple[Expr, ...]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        hidden, cell = states
        centred = site("subtract", hidden, hidden_zero)
        sums = {}
        for gate, now in zip(gates, taken, strict=True):
            factor = _F(site.scale(_RECURRENCE + gate)) * hidden_scale / _GATE
            product = _product(site, centred, _RECURRENCE + gate, len(site.values), factor)
            sums[gate] = _cut(site, site("add", now, product), _SHORT)
        forget = sigmoid(peeped(sums[FORGET], cell, FORGET))
        fresh = _looked_up(site, tangent_table(3), sums[CELL])
        enter = site("subtract", _SHORT[1], forget) if coupled else sigmoid(peeped(sums[INPUT], cell, INPUT))
        kept, added = _multiplied(site, forget, cell, 15), _multiplied(site, enter, fresh, 30 + point)
        new = _cut(site, site("add", kept, added), limits[0])
        opened = sigmoid(peeped(sums[OUTPUT], new, OUTPUT))
        product = site("multiply", opened, _looked_up(site, tangent_table(15 + point), new))
        factor = _F(2.0**-15) / inner_scale * _F(2.0**-15)
        result = _cut(site, site("add", scaled_twice(site, product, float(factor)), inner_zero), _BYTE)
        if site.has(_PROJECTION):
            centred = site("subtract", result, inner_zero)
            factor = _F(site.scale(_PROJECTION)) * inner_scale / hidden_scale
            projected = _product(site, centred, _PROJECTION, _PROJECTION_BIAS, factor)
            result = _cut(site, _cut(site, site("add", projected, hidden_zero), _BYTE), limits[1])
        return (result, new), (result,)

    _, (whole,) = looped(site.node, step, start, given, (False,) * (len(given) + 1))
    return site.cast(whole, "int8")


def _limit(site: Site, option: str, scale: np.float32, ends: tuple[int, int]) -> tuple[int, int]:
    limit = int(np.clip(_F(site.option(option)) / scale, *ends))
    return (-limit, limit) if limit > 0 else ends
