"""Bilinear interpolation of quantised images by whole factors as depthwise convolutions, one a phase of the result.

Element ``factor * m + phase`` along an axis is a sum of two neighbours of element ``m``, whose weights are whole parts
of one: quarters for a factor of 2, thirds for 3, eighths for 4. So the weights of an image are whole numbers of 8 bits
times one number, up to a factor of 7, and nothing but the result is rounded. Beyond the edges stands what is at them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..graph import Array, Call, Constant, Expr, Role, Span, call, operator_of, role_of
from ..graph.evaluate import static_value
from ..graph.registry import Family
from .manager import rule_pass

_NEAR = 1e-6
"""How far a weight may be from the fraction that it stands for: it was computed in float32."""

_LARGEST = 127


@dataclass(frozen=True)
class _Phase:
    """``weights[i]``, in parts of one ``1 / unit``, of the element ``first + i`` places behind the one that a phase
    begins with."""

    first: int
    weights: tuple[int, ...]
    unit: int


def resized_by_phases(node: Call) -> Expr | None:
    """matmul(transpose(matmul(transpose(x), rows)), columns), which interpolates both axes of quantised images  ->  the
    phases of the result, each a depthwise convolution of x, moved beside each other"""
    below = _turned(node.args[0]) if role_of(node) is Role.MATRIX_PRODUCT else None
    if not isinstance(below, Call) or role_of(below) is not Role.MATRIX_PRODUCT:
        return None
    x = _turned(below.args[0])
    if x is None or len(x.shape) != 4 or 0 in node.shape or not _is_quantised(x):
        return None
    rows, columns = (_phases(each.args[1]) for each in (below, node))
    if rows is None or columns is None or max(map(_largest, itertools.product(rows, columns))) > _LARGEST:
        return None
    span = Span(node.span.merged(below.span).nodes)
    batch, channels, height, width = x.shape
    parts = [_convolved(x, phases, span) for phases in itertools.product(rows, columns)]
    joined = call("concat", *parts, axis=1, span=span)
    split = call("reshape", joined, shape=(batch, len(rows), len(columns), channels, height, width), span=span)
    turned = call("transpose", split, perm=(0, 3, 4, 1, 5, 2), span=span)
    return call("reshape", turned, shape=node.shape, span=Span(span.nodes, node.span.tensor))


def _turned(x: Expr) -> Expr | None:
    """The operand of a transpose of the last two axes."""
    match x:
        case Call(args=(inner,)) if "perm" in x.attrs and x.attr("perm") == (0, 1, 3, 2):
            return inner
    return None


def _is_quantised(x: Expr) -> bool:
    """Whether a value is that of small integers, moved at most."""
    while isinstance(x, Call) and role_of(x) is not Role.DEQUANTISE:
        entry = operator_of(x)
        if entry is None or entry.family not in (Family.MOVE, Family.INDEX) or not x.args:
            return False
        x = x.args[0]
    return isinstance(x, Call)


def _phases(matrix: Expr) -> tuple[_Phase, ...] | None:
    """What a matrix (size, result) does to an axis, if it interpolates between neighbours by a whole factor."""
    if not matrix.static or len(matrix.shape) != 2:
        return None
    size, result = matrix.shape
    factor = result // max(size, 1)
    if factor < 2 or result % size:
        return None
    found = static_value(matrix)
    for start in (Fraction(0), Fraction(1, 2)):  # the place of a pixel: its corner, or its middle
        phases = tuple(_phase((phase + start) / factor - start) for phase in range(factor))
        if np.allclose(found, _matrix(phases, size), rtol=0, atol=_NEAR):
            return phases
    return None


def _phase(place: Fraction) -> _Phase:
    first = math.floor(place)
    behind, unit = place - first, (place - first).denominator
    weights = (unit - behind.numerator, behind.numerator)
    return _Phase(first, weights if behind else weights[:1], unit)


def _matrix(phases: Sequence[_Phase], size: int) -> Array:
    """(size, result) of an axis with these phases; what lies outside is what is at the edge."""
    matrix = np.zeros((size, size, len(phases)))
    for number, phase in enumerate(phases):
        for tap, weight in enumerate(phase.weights):
            places = np.clip(np.arange(size) + phase.first + tap, 0, size - 1)
            matrix[places, np.arange(size), number] += weight / phase.unit  # one element in each column
    return matrix.reshape(size, -1)


def _largest(phases: tuple[_Phase, _Phase]) -> int:
    return math.prod(max(phase.weights) for phase in phases)


def _convolved(x: Expr, phases: tuple[_Phase, _Phase], span: Span) -> Expr:
    """One phase of the result, as large as ``x``."""
    channels = x.shape[1]
    windows, inner = x, Span(span.nodes)
    for axis, phase in enumerate(phases, 2):
        size = x.shape[axis]
        places = np.clip(np.arange(size + len(phase.weights) - 1) + phase.first, 0, size - 1)
        if not np.array_equal(places, np.arange(size)):
            windows = call("gather", windows, Constant(places.astype(np.int64)), axis=axis, span=inner)
    rows, columns = phases
    weights = np.outer(rows.weights, columns.weights)
    spread = Constant(np.ascontiguousarray(np.broadcast_to(weights, (channels, 1, *weights.shape))).astype(np.int8))
    part = Constant(np.array(1 / (rows.unit * columns.unit), np.float32))
    values = call("dequantise", spread, part, Constant(np.zeros((), np.int8)), span=inner)
    return call("nn.conv2d", windows, values, groups=channels, span=span)


resized = rule_pass("resized", (resized_by_phases,), tolerance=1e-4, about=__doc__ or "")
