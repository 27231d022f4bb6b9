"""Elementwise functions between a sum of the core and the quantise behind them (leaky and parametric ReLU, SiLU, GELU).

Two straight lines that meet at 0 are two requantises of the same sum, of which one is 0: exact. Any other function is a
table of the sum in 8 bits, of a scale that is derived from the function and its quantise: so fine that no result is off
by more than one step. Where 8 bits are too few, there is none, and the host gets the sum itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ..graph import Array, Call, Constant, Expr, Family, Fusion, Role, Span, call, operator_of
from ..graph.evaluate import static_value
from ..integers.form import (
    Affine,
    Concatenated,
    IntegerForm,
    Integers,
    Mapped,
    Real,
    Refusal,
    Sum,
    clipped,
    per_channel,
    scaled,
)
from ..operators.numerics import quantise_multiplier
from .emit_integers import quantised, requantised_within
from .hand_over import bounds_of
from .tabulate import broadcast_of_constants, results_of, table_of

_SAMPLES = 4096
_ZOOMS = 4
"""So often the range in which a function changes is looked for, each time among `_SAMPLES` numbers."""

_BEYOND = 1 / 64

_BETWEEN = 16
"""Numbers between two steps of a derived scale at which its error is looked at."""

_STRAIGHT = 1e-5
"""Relative: what a straight line may be off, as float32 computes it."""


def quantised_function(
    node: Call, described: Mapping[int, IntegerForm], order: Mapping[int, int], *, core_tables: bool
) -> Expr | None:
    """The int8 value of a quantise, of one scale that is known, whose operand is an elementwise function of one sum.
    None where it is not. ``order``: the place of each value of the graph; ``core_tables``: whether the core has
    tables."""
    found = _island(node.args[0], described, order)
    if found is None:
        return None
    island, root, x = found
    if root.shape != node.shape or isinstance(x, Integers):
        return None
    span = Span(node.span.merged(node.args[0].span).nodes, node.span.tensor)
    lines = _two_lines(island, root, x)
    if lines is not None and isinstance(x, Affine):
        bent = _bent(x, lines, node, span)
        if bent is not None:
            return bent
    return _through_a_table(node, island, root, x, span, core_tables=core_tables)


def range_of_function(
    node: Expr, described: Mapping[int, IntegerForm], order: Mapping[int, int]
) -> tuple[float, float] | None:
    """Between which numbers a value is that is known in integers, or an elementwise function of one that is; None for
    others. A function is looked at in `_SAMPLES` places, and given a part of its range more."""
    form = described.get(id(node))
    if form is not None and not isinstance(form, Refusal):
        return _range_of(form)
    found = _island(node, described, order)
    if found is None:
        return None
    island, root, x = found
    with np.errstate(all="ignore"):
        values = results_of(island, root, np.linspace(*_range_of(x), _SAMPLES).astype(np.float32))
    if not np.isfinite(values).all():
        return None
    low, high = float(values.min()), float(values.max())
    return low - (high - low) * _BEYOND, high + (high - low) * _BEYOND


def _island(
    source: Expr, described: Mapping[int, IntegerForm], order: Mapping[int, int]
) -> tuple[list[Call], Expr, Real] | None:
    """The elementwise nodes above the one value that is known in integers, producers first, that value and its form."""
    nodes: dict[int, Call] = {}
    roots: dict[int, Expr] = {}
    waiting = [source]
    while waiting or len(roots) > 1:
        if not waiting:  # of several values that are known, the last may be a function of the others
            waiting.append(roots.pop(max(roots, key=lambda key: order[key])))
            forced = True
        else:
            forced = False
        node = waiting.pop()
        if node.static or id(node) in nodes:
            continue
        form = described.get(id(node))
        if not forced and form is not None and not isinstance(form, Refusal):
            roots[id(node)] = node
            continue
        entry = operator_of(node)
        if not isinstance(node, Call) or entry is None or entry.fusion is not Fusion.ELEMENTWISE:
            return None
        if entry.family is Family.QUANTISE or entry.role is Role.NORMALISATION:
            return None
        nodes[id(node)] = node
        waiting += node.args
    if not roots or not nodes:
        return None
    (root,) = roots.values()
    form = described[id(root)]
    if isinstance(form, Refusal):
        return None
    return sorted(nodes.values(), key=lambda each: order[id(each)]), root, form


def _two_lines(island: list[Call], root: Expr, x: Real) -> tuple[Array, Array] | None:
    """The slopes, one a channel, of a function that is a line below 0 and a line above it; None for any other."""
    low, high = _range_of(x)
    reach = max(abs(low), abs(high))
    if not 0 < reach < math.inf:
        return None
    numbers = np.concatenate([[0.0], reach * np.geomspace(2.0**-30, 1, 64)]).astype(np.float32)
    slopes = []
    for side in (numbers, -numbers):
        with np.errstate(all="ignore"):
            values = results_of(island, root, side).astype(np.float64)
        slope = values[..., -1:] / float(side[-1])
        near = np.abs(values - slope * side) <= _STRAIGHT * np.abs(slope * side)
        channel = per_channel(x, slope[..., 0]) if near.all() else None
        if channel is None or not np.isfinite(channel).all():
            return None
        slopes.append(channel)
    return slopes[0], slopes[1]


def _bent(x: Affine, slopes: tuple[Array, Array], node: Call, span: Span) -> Expr | None:
    scale, zero = float(static_value(node.args[1])), _zero_of(node)
    total: Expr | None = None
    for slope, (low, high) in zip(slopes, ((0.0, math.inf), (-math.inf, 0.0)), strict=True):
        if not slope.any():
            continue
        line = scaled(clipped(x, low, high), slope, "a line")
        if not isinstance(line, Affine):
            return None
        part = requantised_within(line, scale, (-128 - zero, 127 - zero), Span(span.nodes))
        if isinstance(part, Refusal):
            return None
        total = part if total is None else call("add", total, part, span=Span(span.nodes))
    if total is None:
        return None
    channels = total.shape[1]
    multiplier, shift = quantise_multiplier(np.ones(channels))
    parameters = (Constant(np.zeros(channels, np.int32)), Constant(multiplier), Constant(shift))
    result = call("requantise", total, *parameters, zero_point=zero, span=span)
    return result if result.shape == node.shape else call("reshape", result, shape=node.shape, span=span)


def _zero_of(node: Call) -> int:
    """The zero point of a quantise, of the int8 value that stands for its result."""
    return int(static_value(node.args[2])) - (128 if node.dtype == "uint8" else 0)


def _through_a_table(
    node: Call, island: list[Call], root: Expr, x: Real, span: Span, *, core_tables: bool
) -> Expr | None:
    steps = [*island, node]
    found = _derived_scale(steps, root, x)
    if found is None:
        return None
    scale, zero = found
    constants = broadcast_of_constants(island, len(root.shape))
    numbers = ((np.arange(-128, 128) - zero) * scale).astype(np.float32)
    with np.errstate(all="ignore"):
        results = results_of(steps, root, numbers).astype(np.int16) - (128 if node.dtype == "uint8" else 0)
    narrow = quantised(x, scale, zero, Span(root.span.nodes))
    if isinstance(narrow, Refusal):
        return None
    names = dict.fromkeys(str(each.op) for each in island)
    reason = f"{', '.join(names)} of a sum in 8 bits, as a table"
    return table_of(narrow, results.astype(np.int8), constants, span, reason, on_core=core_tables)


def _derived_scale(steps: list[Call], root: Expr, x: Real) -> tuple[float, int] | None:
    """A scale and a zero point for the argument of a function that is quantised, with which no result differs by more
    than a step from that of the argument itself; None where 8 bits are too few."""

    def results(numbers: Array) -> Array:
        with np.errstate(all="ignore"):
            return results_of(steps, root, numbers.astype(np.float32)).reshape(-1, len(numbers)).astype(np.int32)

    low, high = _range_of(x)
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    for _ in range(_ZOOMS):
        numbers = np.linspace(low, high, _SAMPLES)
        values = results(numbers)
        from_low = np.flatnonzero((values != values[:, :1]).any(0))
        from_high = np.flatnonzero((values != values[:, -1:]).any(0))
        if not len(from_low) or not len(from_high):
            break
        low, high = numbers[from_low[0] - 1], numbers[from_high[-1] + 1]
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / 255
    if scale <= 0:
        return None
    zero = round(-128 - low / scale)
    numbers = np.linspace(low - scale, high + scale, 257 * _BETWEEN)
    codes = np.clip(np.floor(numbers / scale + 0.5) + zero, -128, 127)
    off = np.abs(results(numbers) - results((codes - zero) * scale))
    return (scale, zero) if off.max(initial=0) <= 1 else None


def _range_of(x: Real) -> tuple[float, float]:
    """Between which numbers a value is."""
    match x:
        case Integers():
            low, high = sorted(((-128 - x.zero_point) * x.scale, (127 - x.zero_point) * x.scale))
            return low, high
        case Affine():
            ends = [x.offset + bound * x.scale for bound in bounds_of(x)]
            low, high = float(np.min(np.minimum(*ends))), float(np.max(np.maximum(*ends)))
            return min(max(low, x.low), x.high), min(max(high, x.low), x.high)
        case Sum():
            ranges = [_range_of(term) for term in x.terms]
            low = sum(each for each, _ in ranges) + float(np.min(x.offset))
            high = sum(each for _, each in ranges) + float(np.max(x.offset))
            return min(max(low, x.low), x.high), min(max(high, x.low), x.high)
        case Mapped():
            return _range_of(x.inner)
        case Concatenated():
            parts = [_range_of(part) for part in x.parts]
            return min(low for low, _ in parts), max(high for _, high in parts)
