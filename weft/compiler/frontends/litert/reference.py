"""The arithmetic of LiteRT's reference kernels on 8-bit values, where a quantise's rounding is not all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from ....roundings import TWO_ROUNDINGS
from ...graph import Array, Expr
from ...graph.rounding import rounded_shift, wide_multiplier
from . import fixed
from .site import Held, Site

_F = np.float32
_LEFT_SHIFT = 20
"""Both operands of a sum are this much larger before they are scaled."""

_CLOSE = 2.0**-12
"""Of a digit: nearer to a half than this, other weights may round a sum otherwise."""

_SATURATED = 512
"""Results beyond this are at the ends of 8 bits, whatever their zero point."""

_LARGEST_WEIGHT = 1 << 21
_NUDGES = (0, 1, -1, 2, -2)


def scaled(x: Array, real: float) -> Array:
    """Whole numbers of up to 32 bits times a real number, as `TWO_ROUNDINGS` has it; int64."""
    multiplier, shift = wide_multiplier(np.array([real]))
    return rounded_shift(np.asarray(x), multiplier, shift, TWO_ROUNDINGS)


def rescaled(steps: Array, scale: float, result_scale: float, zero: int) -> Array:
    """QUANTIZE between two scales: a table of `fixed.corrected`."""
    return np.asarray(np.clip(scaled(steps, float(scale) / float(result_scale)) + zero, -128, 127))


def leaky(alpha: float) -> fixed.Table:
    """LEAKY_RELU: a table of `fixed.corrected`."""

    def table(steps: Array, scale: float, result_scale: float, zero: int) -> Array:
        above, below = _F(scale) / _F(result_scale), _F(scale) * _F(alpha) / _F(result_scale)
        values = np.where(steps >= 0, scaled(steps, float(above)), scaled(steps, float(below)))
        return np.asarray(np.clip(values + zero, -128, 127))

    return table


def between_pixels(kind: str) -> Callable[[int, int, bool, bool], Array]:
    """`fixed.between_pixels` for a type: int8 has weights of 10 bits, uint8 computes in float32."""
    return _between_in_10_bits if kind == "int8" else _between_in_floats


def _between_in_floats(size: int, target: int, align: bool, half: bool) -> Array:
    low, part = fixed.places_between(size, target, align, half)
    return fixed.weights_between(size, low, np.minimum(low + 1, size - 1), part)


def _between_in_10_bits(size: int, target: int, align: bool, half: bool) -> Array:
    one = 1 << 10
    over, under = (size - 1, target - 1) if align and target > 1 else (size, target)
    scale = (one * over + under // 2) // under
    at = np.arange(target) * scale + (scale // 2 - one // 2 if half else 0)
    low = np.maximum(np.sign(at) * (np.abs(at) // one), 0)
    high = np.minimum(np.sign(at + one - 1) * (np.abs(at + one - 1) // one), size - 1)
    return fixed.weights_between(size, low, high, (at - one * low) / one)


def function(site: Site, formula: Callable[[Expr], Expr], table: fixed.Table) -> Held | None:
    """A function of one 8-bit value: by a formula, where that is nearly it, else looked up."""
    found = fixed.corrected(site, formula, table)
    types = fixed.bytes_of(site)
    if found is not None or types is None:
        return found
    held, source, target, kind = types
    results = fixed.values_of(table, source, target, kind)
    return Held(_looked_up(site, held.expr, results, kind, kind), held.order)


def summed(site: Site, op: str) -> Held | None:
    """A sum or difference of two 8-bit values; None for others.

    Each operand becomes a number of 28 bits, which rounds it twice, and so is their sum. Where whole weights give the
    same for each of the 65536 pairs of values, they are taken, which a core can do. Else the numbers are looked up.
    """
    found = fixed.sum_of_bytes(site, op)
    if found is None:
        return None
    scales, step = [float(each.scales[0]) for each in found.sources], float(found.target.scales[0])
    steps = [_every(found.kind) - int(each.zeros[0]) for each in found.sources]
    largest = 2 * max(scales)
    parts = [scaled(each << _LEFT_SHIFT, scale / largest) for each, scale in zip(steps, scales, strict=True)]
    sign, real = (1 if op == "add" else -1), largest / ((1 << _LEFT_SHIFT) * step)
    weights = _weights_of(found, (steps[0], sign * steps[1]), scaled(parts[0][:, None] + sign * parts[1], real))
    if weights is not None:
        return fixed.weighed(site, found, weights)
    a, b = (_looked_up(site, x, part, found.kind) for x, part in zip(found.operands, parts, strict=True))
    total = site.activated(site.cast(fixed.scaled_twice(site, site(op, a, b), real), "float32"), unit=step)
    unit = replace(found.target, scales=np.ones(1, np.float32))
    return Held(site.quantised(total, unit, found.kind, found.order), found.order)


def _every(kind: str) -> Array:
    """All values of an 8-bit type."""
    return np.arange(256) + int(np.iinfo(kind).min)


def _looked_up(site: Site, x: Expr, table: Array, kind: str, to: str = "int32") -> Expr:
    place = site("subtract", site.cast(x, "int32"), int(np.iinfo(kind).min))
    result: Expr = site.call("gather", site.like(table, to), place, axis=0)
    return result


def _weights_of(found: fixed.BytesSum, steps: tuple[Array, Array], wanted: Array) -> fixed.Weights | None:
    """Weights with which the sum of every pair, rounded once, is the wanted one."""
    if found.bits is None:
        return None
    exact = steps[0][:, None] * found.ratios[0] + steps[1] * found.ratios[1]
    seen = np.abs(exact) < _SATURATED
    near = seen & (np.abs(exact - np.floor(exact) - 0.5) < _CLOSE)
    if np.any(np.rint(exact[seen & ~near]) != wanted[seen & ~near]):
        return None
    first, second = np.nonzero(near)
    for tried in _candidates(found.ratios, found.bits):
        total = steps[0][first] * tried.weights[0] + steps[1][second] * tried.weights[1] + tried.added
        if np.array_equal((total + (1 << found.bits - 1)) >> found.bits, wanted[near]):
            return tried
    return None


def _candidates(ratios: tuple[float, float], bits: int) -> Iterator[fixed.Weights]:
    plain = [int(np.rint(ratio * 2.0**bits)) for ratio in ratios]
    for added, first, second in product((0, 1, -1, 2, -2, 4, -4), _NUDGES, _NUDGES):
        weights = (plain[0] + first, plain[1] + second)
        if min(weights) >= 1 and max(weights) < _LARGEST_WEIGHT:
            yield fixed.Weights(bits, weights, added)
