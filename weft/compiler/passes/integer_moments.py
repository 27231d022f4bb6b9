"""Normalisations that a model quantises in parts: mean squares of rows, and values divided by what comes of them."""

from __future__ import annotations

import math

import numpy as np

from ..graph import Call, Constant, Expr, Role, Span, call, role_of
from ..graph.host import host_call
from ..integers.form import Float64, Integers
from ..operators.integer_moments import LARGEST_MOMENT_BITS
from ..operators.numerics import SHIFT_RANGE, quantise_multiplier
from ..operators.row_arithmetic import ENTRIES, LONGEST_ROW, MEAN_BITS
from .emit_integers import limits_of
from .rows import FormOf, Row, is_row_mean, number_of, row_below, squared
from .tabulate import broadcast_of_constants, island_of, results_of

_COARSE = 1 / 8  # of the result's last digit: what rounding a mean square may cost before it is quantised
_LARGEST_FACTOR = 2.0**22


def integer_moments(source: Expr, form: FormOf, scale: float, zero_point: int, span: Span) -> Expr | None:
    """The int8 result of quantising ``source``, if it is a part of a normalisation; else None."""
    low, high, inner = -math.inf, math.inf, source
    if isinstance(source, Call) and role_of(source) is Role.CLAMP:
        low, high, (inner,) = source.attr("low"), source.attr("high"), source.args
    ends = limits_of(low, high, scale, zero_point)
    limits = {"zero_point": zero_point, "low": ends[0], "high": ends[1]}
    return _mean_square(inner, form, scale, limits, span) or _scaled_rows(inner, form, scale, limits, span)


def _mean_square(node: Expr, form: FormOf, scale: float, limits: dict[str, int], span: Span) -> Expr | None:
    """``mean(x ** 2) + number``, of x or of x less its mean."""
    offset, mean = 0.0, node
    match node:
        case Call(args=(a, b)) if role_of(node) is Role.ADD and (a.static or b.static):
            number, mean = (number_of(a), b) if a.static else (number_of(b), a)
            if number is None or not math.isfinite(number):
                return None
            offset = number
    match mean:
        case Call(args=(squares,)) if is_row_mean(mean):
            axes, inside = tuple(mean.attr("axes")), squared(squares)
        case _:
            return None
    row = None if inside is None else row_below(inside, form)
    if row is None or row.axes not in ((), axes):
        return None
    x, centred = row.x, bool(row.axes)
    count = math.prod(x.shape[axis] for axis in axes)
    if not axes or 0 in x.shape or not 1 <= count <= LONGEST_ROW or x.scale <= 0:
        return None
    unit = count * count if centred else count
    fraction = math.floor(math.log2((1 << LARGEST_MOMENT_BITS) / (unit << (14 if centred else 16)))) - 1
    factor = x.scale**2 / (unit * 2.0**fraction * scale)
    bias = round(offset / scale / factor)
    if abs(bias) >= 1 << LARGEST_MOMENT_BITS or (fraction < 0 and factor > _COARSE):
        return None
    try:
        multiplier, shift = quantise_multiplier(np.array(factor))
    except ValueError:
        return None
    attrs = {
        "axes": axes, "centred": centred, "input_zero": 0 if centred else x.zero_point, "fraction": fraction,
        "bias": bias, "multiplier": int(multiplier[0]), "shift": int(shift[0]), **limits,
    }  # fmt: skip
    reason = f"mean square {mean.span.node!r} in integers, for which the core has no sums of squares"
    result = host_call("mean_square", (x.q,), attrs, reason, span)
    return result if result.shape == node.shape else call("reshape", result, shape=node.shape, span=span)


def _scaled_rows(node: Expr, form: FormOf, scale: float, limits: dict[str, int], span: Span) -> Expr | None:
    """A row times, or divided by, a function of another 8-bit value that broadcasts to it."""
    match node, role_of(node):
        case Call(args=(a, b)), Role.DIVIDE:
            return _by_table(row_below(a, form), b, form, scale, limits, span, divides=True)
        case Call(args=(a, b)), Role.MULTIPLY:
            for row, other in ((a, b), (b, a)):
                made = _by_table(row_below(row, form), other, form, scale, limits, span, divides=False)
                if made is not None:
                    return made
    return None


def _by_table(
    row: Row | None, other: Expr, form: FormOf, scale: float, limits: dict[str, int], span: Span, *, divides: bool
) -> Expr | None:
    if row is None or other.static or (not row.axes and not divides and isinstance(form(other), Integers)):
        return None
    found = _function_of_one(other, form)
    if found is None:
        return None
    index, values = found
    x, rank = row.x, len(row.x.shape)
    shape = (1,) * (rank - len(index.shape)) + index.shape
    fits = len(shape) == rank and all(mine in (1, size) for mine, size in zip(shape, x.shape, strict=True))
    count = math.prod(x.shape[axis] for axis in row.axes)
    if not fits or 0 in x.shape or not 1 <= count <= LONGEST_ROW or x.scale <= 0:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = (1 / values if divides else values) * (x.scale / (scale * 2.0**MEAN_BITS))
    factors = np.clip(np.nan_to_num(factors, nan=0.0), -_LARGEST_FACTOR, _LARGEST_FACTOR)
    multiplier, shift = quantise_multiplier(factors)
    q = index if index.shape == shape else call("reshape", index, shape=shape, span=Span(index.span.nodes))
    attrs = {"axes": row.axes, "input_zero": 0 if row.axes else x.zero_point, **limits}
    tables = (Constant(np.asarray(each, np.int32)) for each in (multiplier, np.maximum(shift, SHIFT_RANGE[0])))
    reason = "values times a function of another, in integers, for which the core has no tables"
    return host_call("scale_rows", (x.q, q, *tables), attrs, reason, span)


def _function_of_one(node: Expr, form: FormOf) -> tuple[Expr, Float64] | None:
    """The int8 value that ``node`` is an elementwise function of, and its results at the low 8 bits of that value."""
    island = island_of(node)
    if island is None or math.prod(broadcast_of_constants(island, len(node.shape))) != 1:
        return None
    leaf = next(each for each in island if role_of(each) is Role.DEQUANTISE)
    root = leaf.args[0]
    whole = form(leaf)
    if not isinstance(whole, Integers) or root.shape != node.shape:
        return None
    offset = 128 if root.dtype == "uint8" else 0
    inputs = (np.arange(-128, 128) + offset).astype(root.dtype)
    results = np.broadcast_to(results_of(island, root, inputs), (*(1 for _ in node.shape), ENTRIES))
    return whole.q, np.roll(results.reshape(-1).astype(np.float64), -128)
