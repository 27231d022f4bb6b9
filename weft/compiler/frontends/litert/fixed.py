"""The interpreter's arithmetic on 8-bit values, where it is not the real numbers' rounded: as real numbers that give
the same integers.

A quantise rounds what it is given, so all that a rule has to do is to give it numbers that lie where the
interpreter's integers are. Functions of one value are compared for all 256 of them, and corrected where they differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...graph import Array, Constant, Expr
from .file import Quantisation
from .site import Held, Site

UPWARD = 2.0**-10
"""Added to multiples of 2**-8, so that halves are rounded up."""

MOST_CORRECTIONS = 64

_SUM_BITS = (13, 30)
"""Between these the interpreter's parts of a step lie: with scales further apart it takes other kernels."""

_HALF_OF_A_SUM = 15

_BYTES = ("int8", "uint8")
_F = np.float32

Table = Callable[..., Array]
"""The results of all 8-bit values less their zero point, of both scales and the result's zero point, as int8."""


def bytes_of(site: Site) -> tuple[Held, Quantisation, Quantisation, str] | None:
    """Operand 0 and its quantisation, that of the result, and their type, where both are of one 8-bit type with one
    scale; None for others."""
    held, source, target = site.held(0), site.quantisation(0), site.results[0].quantisation
    kind = site.results[0].element
    if source is None or target is None or max(source.scales.size, target.scales.size) > 1:
        return None
    site.parameters(target, kind)
    return (held, source, target, kind) if kind in _BYTES and held.expr.dtype == kind else None


def steps_of(site: Site, held: Held, source: Quantisation) -> Expr:
    """The stored integers less their zero point, as real numbers."""
    return site.real_of(held, replace(source, scales=np.ones(1, np.float32))).expr


def as_steps(site: Site, steps: Expr, target: Quantisation, kind: str, held: Held) -> Held:
    """Real numbers that count steps of the result's scale, as its integers."""
    unit = replace(target, scales=np.ones(1, np.float32))
    return Held(site.quantised(steps, unit, kind, held.order), held.order)


def scaled_by_bytes(site: Site, below: float | None = None) -> Held | None:
    """The operand in the result's scale, by a factor with 8 bits behind the point, halves rounded up. ``below``: times
    this where the operand is negative. None where the interpreter computes in another way."""
    found = bytes_of(site)
    if found is None:
        return None
    held, source, target, kind = found
    ratio = _F(source.scales[0]) / _F(target.scales[0])
    factors = [ratio] if below is None else [ratio, ratio * _F(below)]
    if not 2.0**-8 <= ratio <= 2.0**7 or any(abs(factor) > 2.0**7 for factor in factors):
        return None
    weights = [float(np.rint(_F(256) * factor)) / 256 for factor in factors]
    steps = steps_of(site, held, source)
    scaled = site("multiply", steps, weights[0])
    if below is not None:
        scaled = site.where(site("less", steps, 0), site("multiply", steps, weights[1]), scaled)
    return as_steps(site, site("add", scaled, UPWARD), target, kind, held)


def corrected(site: Site, formula: Callable[[Expr], Expr], table: Table) -> Held | None:
    """A function of one 8-bit value: the formula, and other numbers where ``table``, of all values less their zero
    point, of scales and zero points as for int8, says so."""
    found = bytes_of(site)
    if found is None:
        return None
    held, source, target, kind = found
    wanted = values_of(table, source, target, kind)
    stored = np.arange(256) + int(np.iinfo(kind).min)
    every = Held.plain(Constant(stored.astype(kind)))
    numbers = site.real_of(every, source).expr
    given = site.known(site.quantised(formula(numbers), target, kind), "the function").astype(np.int64)
    wrong = np.nonzero(given != wanted)[0]
    if len(wrong) > MOST_CORRECTIONS:
        return None
    x = site.real_of(held, source).expr
    result = formula(x)
    known = site.known(numbers, "the function")
    for place in wrong:
        value = float(_F(target.scales[0]) * _F(int(wanted[place]) - int(target.zeros[0])))
        result = site.where(site("equal", x, float(known[place])), value, result)
    return Held(site.quantised(result, target, kind, held.order), held.order)


def values_of(table: Table, source: Quantisation, target: Quantisation, kind: str) -> Array:
    """A table's results of all values of a type, the lowest first."""
    least = int(np.iinfo(kind).min)
    steps, above = np.arange(least, least + 256) - int(source.zeros[0]), least + 128
    found = table(steps, _F(source.scales[0]), _F(target.scales[0]), int(target.zeros[0]) - above)
    return np.asarray(found + above)


def rounded_down(site: Site, formula: Callable[[Expr], Expr]) -> Held | None:
    """A function of one 8-bit value, in whole steps of the result's scale."""
    found = bytes_of(site)
    if found is None:
        return None
    held, source, target, kind = found
    value = formula(site.real_of(held, source).expr)
    return as_steps(site, site("floor", site("divide", value, float(target.scales[0]))), target, kind, held)


@dataclass(frozen=True)
class BytesSum:
    """A sum or difference of two 8-bit values, and the quantisations of these and of the result, one scale each."""

    op: str
    operands: tuple[Expr, Expr]
    order: tuple[int, ...]
    sources: tuple[Quantisation, Quantisation]
    target: Quantisation
    kind: str

    @property
    def ratios(self) -> tuple[float, float]:
        """Steps of the result that one of each operand is."""
        first, second = (float(_F(each.scales[0]) / _F(self.target.scales[0])) for each in self.sources)
        return first, second

    @property
    def bits(self) -> int | None:
        """A step of the result has ``2**bits`` parts, of which the larger weight is a number of 21 bits; None where the
        interpreter would compute in another way."""
        bits = 20 - int(np.floor(np.log2(max(self.ratios))))
        return bits if _SUM_BITS[0] <= bits <= _SUM_BITS[1] else None


@dataclass(frozen=True)
class Weights:
    """Of the operands of a sum, and what is added to it, in ``2**-bits`` of a step of the result."""

    bits: int
    weights: tuple[int, int]
    added: int = 0


def sum_of_bytes(site: Site, op: str) -> BytesSum | None:
    """What an operator adds up; None for other types, for scales by channel, and for sums that are constant."""
    (a, b), order = site.together(0, 1, real=False)
    target, kind = site.results[0].quantisation, site.results[0].element
    sources = [each for each in (site.quantisation(0), site.quantisation(1), target) if each is not None]
    one_scale = len(sources) == 3 and all(each.scales.size == 1 for each in sources)
    if target is None or kind not in _BYTES or {a.dtype, b.dtype} != {kind} or not one_scale or (a.static and b.static):
        return None
    for each in sources:
        site.parameters(each, kind)
    return BytesSum(op, (a, b), order, (sources[0], sources[1]), target, kind)


def weighted_sum(site: Site, op: str) -> Held | None:
    """A sum or difference of two 8-bit values, in parts of the result's steps in which both have whole weights of 21
    bits; it is rounded once, halves up. None where the interpreter computes in another way."""
    found = sum_of_bytes(site, op)
    bits = None if found is None else found.bits
    if found is None or bits is None:
        return None
    first, second = (int(np.rint(ratio * 2.0**bits)) for ratio in found.ratios)
    return weighed(site, found, Weights(bits, (first, second))) if min(first, second) >= 1 else None


def weighed(site: Site, found: BytesSum, weights: Weights) -> Held:
    """A sum with whole weights, rounded once, halves up."""
    terms = [_weighted(site, *each) for each in zip(found.operands, found.sources, weights.weights, strict=True)]
    total = _added(site, found.op, *terms)
    if weights.added:
        total = site("add", total, weights.added)
    total = site.activated(total, unit=float(found.target.scales[0]) / 2.0**weights.bits)
    unit = replace(found.target, scales=np.full(1, 2.0**weights.bits, np.float32))
    return Held(site.quantised(total, unit, found.kind, found.order), found.order)


def _weighted(site: Site, x: Expr, source: Quantisation, weight: int) -> Expr | Array:
    """The steps of ``x`` times a weight: whole numbers of int64 where they are known."""
    if x.static:
        return (site.known(x, "an operand").astype(np.int64) - int(source.zeros[0])) * weight
    return site.real_of(Held.plain(x), replace(source, scales=np.full(1, weight, np.float32))).expr


def _added(site: Site, op: str, a: Expr | Array, b: Expr | Array) -> Expr:
    """A sum or difference. What is known comes in two parts, each of which float32 holds."""
    if isinstance(a, Expr) and isinstance(b, Expr):
        return site(op, a, b)
    known = np.asarray(b if isinstance(a, Expr) else a)
    high = known >> _HALF_OF_A_SUM << _HALF_OF_A_SUM
    first, last = (site.like(each, "float32") for each in (high, known - high))
    if isinstance(a, Expr):
        return site(op, site(op, a, first), last)
    assert isinstance(b, Expr)
    return site("add", site(op, first, b), last)


def in_256ths(site: Site, index: int) -> Held | None:
    """Operand ``index``, of 8 bits, as the interpreter compares it: its real numbers in whole 256ths, int32. None for
    other types, and for scales of 1 and more, of which the interpreter's comparisons are wrong."""
    held, source = site.held(index), site.quantisation(index)
    if source is None or held.expr.dtype not in _BYTES or source.scales.size > 1 or source.scales[0] >= 1:
        return None
    least = int(np.iinfo(held.expr.dtype).min)
    steps = np.arange(least, least + 256) - int(source.zeros[0])
    table = site.like(_in_256ths(steps, float(source.scales[0])), "int32")
    place = site("subtract", site.cast(held.expr, "int32"), least)
    return Held(site.call("gather", table, place, axis=0), held.order)


def _in_256ths(steps: Array, scale: float) -> Array:
    """Rounded twice: the product with 31 bits of the scale, then what is left of its exponent, halves away from 0."""
    fraction, exponent = np.frexp(scale)
    wide = np.floor(fraction * 2.0**31 + 0.5).astype(np.int64)
    product = steps.astype(np.int64) * 256 * wide
    high = _towards_zero(product + np.where(product >= 0, 1 << 30, 1 - (1 << 30)), 31)
    return _half_away(high, -int(exponent))


def scaled_twice(site: Site, x: Expr, real: float) -> Expr:
    """``x`` of int32 times a real number, as the interpreter has it: rounded to 31 bits of the factor, then by what is
    left of its exponent, halves away from 0; int32."""
    fraction, exponent = np.frexp(real)
    wide, exponent = int(np.floor(fraction * 2.0**31 + 0.5)), int(exponent)
    if wide == 1 << 31:
        wide, exponent = wide // 2, exponent + 1
    if exponent > 30:
        raise site.error(f"its scales make a factor of {real:g}", hint="is the file damaged?")
    if exponent < -31:
        wide, exponent = 0, 0
    long = site.cast(x, "int64")
    if exponent > 0:
        long = site("multiply", long, 1 << exponent)
    high = site("shift_right", site("add", site("multiply", long, wide), 1 << 30), 31)
    if exponent < 0:
        negative = site.cast(site("less", high, 0), "int64")
        high = site("shift_right", site("subtract", site("add", high, 1 << (-exponent - 1)), negative), -exponent)
    return site.cast(high, "int32")


def _multiplier(real: float) -> tuple[int, int]:
    """``m * 2**(e - 15)`` near a real number, m of 16 bits rounded from 32."""
    fraction, exponent = np.frexp(real)
    wide = int(np.floor(fraction * 2.0**31 + 0.5))
    if wide == 1 << 31:
        wide, exponent = wide // 2, exponent + 1
    return min((wide + (1 << 15)) >> 16, (1 << 15) - 1), int(exponent)


def _towards_zero(x: Array, bits: int) -> Array:
    return np.where(x >= 0, x >> bits, -((-x) >> bits))


def _half_away(x: Array, bits: int) -> Array:
    mask = (1 << bits) - 1
    return (x >> bits) + ((x & mask) > (mask >> 1) + (x < 0))


def _high_product(x: Array, factor: int) -> Array:
    product = x * factor
    return _towards_zero(product + np.where(product >= 0, 1 << 14, 1 - (1 << 14)), 15)


def _saturated(x: Array) -> Array:
    return np.clip(x, -(1 << 15), (1 << 15) - 1)


def hard_swish(steps: Array, scale: Any, result_scale: Any, zero: int) -> Array:
    """In 16 bits of fixed point."""
    fine = _F(1 / 128) * scale
    gate, gate_exponent = _multiplier(float(fine / _F(3 / 32768)))
    factor, exponent = _multiplier(float(fine / result_scale))
    x = steps.astype(np.int64) << 7
    value, gated = _high_product(x, factor), x
    if gate_exponent > 0:
        gated = _saturated(gated << (gate_exponent - 1))
    gated = _high_product(gated, gate)
    if gate_exponent > 0:
        gated = _saturated(gated << 1)
    elif gate_exponent < 0:
        gated = _half_away(gated, -gate_exponent)
    gated = (gated + (1 << 15)) >> 1
    result = _towards_zero(gated * value, 15)
    result = _half_away(result, -exponent) if exponent < 0 else result << exponent
    return np.asarray(np.clip(result + zero, -128, 127))


def _round_away(x: Array) -> Array:
    wide = x.astype(np.float64)
    return np.where(wide >= 0, np.floor(wide + 0.5), np.ceil(wide - 0.5)).astype(np.int64)


def logistic(steps: Array, scale: Any, result_scale: Any, zero: int) -> Array:
    """float32's function, halves away from zero."""
    with np.errstate(over="ignore"):
        value = _F(1) / (_F(1) + np.exp(-(scale * steps.astype(_F)), dtype=_F))
    return np.asarray(np.clip(_round_away(value * (_F(1) / result_scale)) + zero, -128, 127))


def tangent(steps: Array, scale: Any, result_scale: Any, zero: int) -> Array:
    """float32's hyperbolic tangent, halves away from zero."""
    value = np.tanh(scale * steps.astype(_F), dtype=_F)
    return np.asarray(np.clip(_round_away(value * (_F(1) / result_scale)) + zero, -128, 127))


TABLES: dict[str, Callable[..., Array]] = {"HARD_SWISH": hard_swish, "LOGISTIC": logistic, "TANH": tangent}
"""The interpreter's functions of one 8-bit value, where they are known to differ from the real numbers' rounded."""


def between_pixels(size: int, target: int, align: bool, half: bool) -> Array:
    """The weights (target, size) of a row of pixels in those of a resized one: 11 bits, from float32."""
    low, part = places_between(size, target, align, half)
    return weights_between(size, low, np.minimum(low + 1, size - 1), np.rint(part * _F(2048)) / 2048)


def places_between(size: int, target: int, align: bool, half: bool) -> tuple[Array, Array]:
    """The pixel before each of a resized row, and how far it lies behind it, in float32."""
    scale = _F(size - 1) / _F(target - 1) if align and target > 1 else _F(size) / _F(target)
    at = np.arange(target).astype(_F)
    at = (at + _F(0.5)) * scale - _F(0.5) if half else at * scale
    at = np.clip(at, _F(0), _F(size - 1)).astype(_F)
    low = at.astype(np.int64)
    return low, at - low.astype(_F)


def weights_between(size: int, low: Array, high: Array, part: Array) -> Array:
    """A matrix of what two pixels have in each of a resized row."""
    matrix, rows = np.zeros((len(low), size)), np.arange(len(low))
    np.add.at(matrix, (rows, low), 1 - part.astype(np.float64))
    np.add.at(matrix, (rows, high), part.astype(np.float64))
    return matrix


def resized(site: Site, x: Expr, rows: Array, columns: Array) -> Expr:
    """An image of stored integers (N, C, H, W) by weights of both axes, in float64, which holds sums of 30 bits."""
    wide = site.transpose(site.cast(x, "float64"), (0, 1, 3, 2))
    tall: Expr = site.call("nn.matmul", wide, site.like(rows.T, "float64"))
    result: Expr = site.call("nn.matmul", site.transpose(tall, (0, 1, 3, 2)), site.like(columns.T, "float64"))
    return result
