"""Interpolation of quantised images by whole factors as depthwise convolutions, one a phase of the result.

Element ``factor * m + phase`` along an axis is a sum of two neighbours of element ``m``, whose weights are whole parts
of one: quarters for a factor of 2, thirds for 3, eighths for 4. So the weights of an image are whole numbers of 8 bits
times one number, up to a factor of 7, and nothing but the result is rounded. Beyond the edges stands what is at them.
An axis that becomes smaller by a whole factor has one phase, whose window goes on by as much: half of an image is the
mean of two by two.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..graph import Array, Call, Constant, Expr, Module, Role, Span, call, operator_of, role_of, topological_order
from ..graph.evaluate import static_value
from ..graph.registry import Family
from ..graph.visit import with_children
from .manager import Counted, Pass, rule_pass

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


@dataclass(frozen=True)
class _Axis:
    """The phases of an axis of the result; the window of each goes on by ``step``."""

    phases: tuple[_Phase, ...]
    step: int = 1


_KEPT = _Axis((_Phase(0, (1,), 1),))


def resized_by_phases(node: Call) -> Expr | None:
    """matmul(transpose(matmul(transpose(x), rows)), columns), which interpolates both axes of quantised images  ->  the
    phases of the result, each a depthwise convolution of x, moved beside each other"""
    below = _turned(node.args[0]) if role_of(node) is Role.MATRIX_PRODUCT else None
    if not isinstance(below, Call) or role_of(below) is not Role.MATRIX_PRODUCT:
        return None
    x = _turned(below.args[0])
    if x is None:
        return None
    return _resized(x, _axis(below.args[1]), _axis(node.args[1]), node, node.span.merged(below.span))


def resized_along_an_axis(node: Call) -> Expr | None:
    """matmul(x, columns), or one of rows between two transposes, which interpolates one axis  ->  as above"""
    if role_of(node) is Role.MATRIX_PRODUCT and _turned(node.args[0]) is None:
        return _resized(node.args[0], _KEPT, _axis(node.args[1]), node, node.span)
    inner = _turned(node)
    if not isinstance(inner, Call) or role_of(inner) is not Role.MATRIX_PRODUCT:
        return None
    x = _turned(inner.args[0])
    return None if x is None else _resized(x, _axis(inner.args[1]), _KEPT, node, inner.span)


def _resized(x: Expr, rows: _Axis | None, columns: _Axis | None, node: Call, span: Span) -> Expr | None:
    """What has the shape and the name of ``node``; None where the core could not do it exactly."""
    if rows is None or columns is None or len(x.shape) not in (3, 4) or 0 in node.shape or not _is_quantised(x):
        return None
    pairs = list(itertools.product(rows.phases, columns.phases))
    if max(map(_largest, pairs)) > _LARGEST:
        return None
    inner, end = Span(span.nodes), Span(span.nodes, node.span.tensor)
    if len(x.shape) == 3:
        x = call("reshape", x, shape=(*x.shape[:2], 1, x.shape[2]), span=inner)
    batch, channels = x.shape[:2]
    parts = [_convolved(x, pair, (rows.step, columns.step), inner if len(pairs) > 1 else end) for pair in pairs]
    if len(parts) == 1:
        return parts[0] if parts[0].shape == node.shape else call("reshape", parts[0], shape=node.shape, span=end)
    height, width = parts[0].shape[2:]
    joined = call("concat", *parts, axis=1, span=inner)
    shape = (batch, len(rows.phases), len(columns.phases), channels, height, width)
    split = call("reshape", joined, shape=shape, span=inner)
    turned = call("transpose", split, perm=(0, 3, 4, 1, 5, 2), span=inner)
    return call("reshape", turned, shape=node.shape, span=end)


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


def _axis(matrix: Expr) -> _Axis | None:
    """What a matrix (size, result) does to an axis, if it interpolates between neighbours by a whole factor."""
    if not matrix.static or len(matrix.shape) != 2 or 0 in matrix.shape:
        return None
    size, result = matrix.shape
    if size == result or (result % size and size % result):
        return None
    factor, step = max(1, result // size), max(1, size // result)
    found = static_value(matrix)
    for start in (Fraction(0), Fraction(1, 2)):  # the place of a pixel: its corner, or its middle
        phases = tuple(_phase((phase + start) * step / factor - start) for phase in range(factor))
        if np.allclose(found, _matrix(phases, size, step), rtol=0, atol=_NEAR):
            return _Axis(phases, step)
    return None


def _phase(place: Fraction) -> _Phase:
    first = math.floor(place)
    behind, unit = place - first, (place - first).denominator
    weights = (unit - behind.numerator, behind.numerator)
    return _Phase(first, weights if behind else weights[:1], unit)


def _matrix(phases: Sequence[_Phase], size: int, step: int) -> Array:
    """(size, result) of an axis with these phases; what lies outside is what is at the edge."""
    made = np.arange(size // step)
    matrix = np.zeros((size, len(made), len(phases)))
    for number, phase in enumerate(phases):
        for tap, weight in enumerate(phase.weights):
            places = np.clip(step * made + phase.first + tap, 0, size - 1)
            matrix[places, made, number] += weight / phase.unit  # one element in each column
    return matrix.reshape(size, -1)


def _largest(phases: tuple[_Phase, _Phase]) -> int:
    return math.prod(max(phase.weights) for phase in phases)


def _convolved(x: Expr, phases: tuple[_Phase, _Phase], steps: tuple[int, int], span: Span) -> Expr:
    """One phase of the result: of ``x`` every ``steps``-th window."""
    channels = x.shape[1]
    windows, inner = x, Span(span.nodes)
    for axis, (phase, step) in enumerate(zip(phases, steps, strict=True), 2):
        size = x.shape[axis]
        places = np.clip(np.arange(size - step + len(phase.weights)) + phase.first, 0, size - 1)
        if not np.array_equal(places, np.arange(len(places))):
            windows = call("gather", windows, Constant(places.astype(np.int64)), axis=axis, span=inner)
    rows, columns = phases
    weights = np.outer(rows.weights, columns.weights)
    spread = Constant(np.ascontiguousarray(np.broadcast_to(weights, (channels, 1, *weights.shape))).astype(np.int8))
    part = Constant(np.array(1 / (rows.unit * columns.unit), np.float32))
    values = call("dequantise", spread, part, Constant(np.zeros((), np.int8)), span=inner)
    return call("nn.conv2d", windows, values, groups=channels, strides=steps, span=span)


def _run(module: Module) -> Counted:
    """Both axes at once where both are resized: in turn, the second would read what is not of 8 bits."""
    module, matches = rule_pass("resized", (resized_by_phases,)).counted(module)
    order = topological_order(module.main.body)
    first_of_two = {id(node.children[0]) for node in order if role_of(node) is Role.MATRIX_PRODUCT}
    found, memo = matches or 0, dict[int, Expr]()
    for node in order:
        made = with_children(node, tuple(memo[id(child)] for child in node.children))
        alone = id(node) not in first_of_two
        new = resized_along_an_axis(made) if alone and isinstance(made, Call) else None
        memo[id(node)] = made if new is None else new
        found += new is not None
    body = memo[id(module.main.body)]
    return Counted(module if body is module.main.body else module.with_main(body), found)


resized = Pass("resized", _run, tolerance=1e-4, about=__doc__ or "")
