"""Functions of mathematics that the graph has no operator for. They are computed in float64, so that what their forms
lose is below the digits of float32.

The asymptotic series are those of the NIST Digital Library of Mathematical Functions, of the sections named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ...graph import Constant, Expr
from ...graph.dtypes import UNSIGNED, numpy_dtype
from ..onnx.loop import looped
from .site import RULES, Rule, Site, rule

SHIFTS = 10
"""By how much an argument is raised before an asymptotic series takes it."""

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
"""B2, B4, ..., B16."""

BESSEL_SERIES, BESSEL_ASYMPTOTIC, BESSEL_BOUND = 50, 20, 20.0
"""Terms of the power series up to the bound, and of the asymptotic one beyond it: either error is below 1e-13."""

_NEWTON_STEPS = 3


def _in_float64(compute: Callable[[Site, Expr], Expr]) -> Rule:
    def convert(site: Site, x: Expr) -> Expr:
        return site.cast(compute(site, site.cast(x, "float64")), site.dtype)

    return convert


def _polynomial(site: Site, x: Expr, coefficients: Sequence[float]) -> Expr:
    """With the constant first."""
    total: Expr = site.like(coefficients[-1], x)
    for each in reversed(coefficients[:-1]):
        total = site("add", site("multiply", total, x), each)
    return total


def _inverse_square(site: Site, x: Expr) -> Expr:
    inverse = site("divide", site.like(1, x), x)
    return site("multiply", inverse, inverse)


def _raised(site: Site, x: Expr, each: Callable[[Expr], Expr], joined: str) -> Expr:
    """``each`` of x, x + 1, ..., joined."""
    total = each(x)
    for number in range(1, SHIFTS):
        total = site(joined, total, each(site("add", x, number)))
    return total


def _whole(site: Site, x: Expr) -> Expr:
    return site("equal", x, site("floor", x))


def _mirrored(site: Site, x: Expr) -> tuple[Expr, Expr, Expr]:
    """Whether x is below a half, x or 1 - x, which is not, and pi times the distance of x to a whole number."""
    low = site("less", x, 0.5)
    near = site("multiply", site("subtract", x, site("round", x)), math.pi)
    return low, site.where(low, site("subtract", site.like(1, x), x), x), near


def lgamma(site: Site, x: Expr) -> Expr:
    """The logarithm of the size of the gamma function (5.11.1), by reflection below a half (5.5.3)."""
    low, y, near = _mirrored(site, x)
    z = site("add", y, SHIFTS)
    series = [b / ((2 * k) * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1)]
    rest = site("divide", _polynomial(site, _inverse_square(site, z), series), z)
    main = site("subtract", site("multiply", site("subtract", z, 0.5), site("log", z)), z)
    product = _raised(site, site("minimum", y, 1e20), lambda each: each, "multiply")  # of large ones it is infinite
    above = site("subtract", site("add", site("add", main, 0.5 * math.log(2 * math.pi)), rest), site("log", product))
    far = site("subtract", site("multiply", site("subtract", y, 0.5), site("log", y)), y)
    above = site.where(site("less", y, 1e20), above, far)
    sine = site("abs", site("sin", near))
    below = site("subtract", site("log", site("divide", site.like(math.pi, x), sine)), above)
    return site.where(site("is_infinite", x), math.inf, site.where(low, below, above))


def digamma(site: Site, x: Expr) -> Expr:
    """The derivative of `lgamma` (5.11.2), by reflection below a half (5.5.4)."""
    low, y, near = _mirrored(site, x)
    z = site("add", y, SHIFTS)
    series = [0.0, *(-b / (2 * k) for k, b in enumerate(_BERNOULLI, 1))]
    main = site("subtract", site("log", z), site("divide", site.like(0.5, z), z))
    main = site("add", main, _polynomial(site, _inverse_square(site, z), series))
    above = site("subtract", main, _raised(site, y, lambda each: site("divide", site.like(1, y), each), "add"))
    below = site("subtract", above, site("divide", site.like(math.pi, x), site("tan", near)))
    pole = site.where(site("equal", x, 0), site("divide", site.like(-1, x), x), math.nan)  # no number at -1, -2, ...
    return site.where(site("and", low, _whole(site, x)), pole, site.where(low, below, above))


def trigamma(site: Site, x: Expr) -> Expr:
    """The derivative of `digamma` (5.15.8), by reflection below a half (5.15.6)."""
    low, y, near = _mirrored(site, x)
    z = site("add", y, SHIFTS)
    square = _inverse_square(site, z)
    main = site("divide", site.like(1, z), z)
    main = site("add", main, site("multiply", square, 0.5))
    main = site("add", main, site("divide", _polynomial(site, square, [0.0, *_BERNOULLI]), z))
    above = site("add", main, _raised(site, y, lambda each: _inverse_square(site, each), "add"))
    sine = site("sin", near)
    turned = site("divide", site.like(math.pi**2, x), site("multiply", sine, sine))
    return site.where(low, site("subtract", turned, above), above)


RULES["aten.lgamma.default"] = _in_float64(lgamma)
RULES["aten.digamma.default"] = _in_float64(digamma)


def polygamma(order: int) -> Callable[[Site, Expr], Expr]:
    """The derivative of `digamma` of an order above 1: a sum of powers (25.11.1) whose rest is that of 25.11.28, by
    reflection below a half (5.15.6), which has the derivatives of a cotangent."""
    power, sign = order + 1, 1 if order % 2 else -1
    rest = [b * math.prod(range(power, power + 2 * k - 1)) / math.factorial(2 * k)
            for k, b in enumerate(_BERNOULLI, 1)]  # fmt: skip
    turned = np.polynomial.Polynomial([0.0, 1.0])  # in the cotangent, over pi to the power
    for _ in range(order):
        turned = np.polynomial.Polynomial([-1.0, 0.0, -1.0]) * turned.deriv()

    def compute(site: Site, x: Expr) -> Expr:
        low, y, near = _mirrored(site, x)
        z = site("add", y, SHIFTS)
        inverse = site("divide", site.like(1, z), z)
        main = site("add", _polynomial(site, _inverse_square(site, z), [1 / order, *rest]),
                    site("multiply", inverse, 0.5))  # fmt: skip
        main = site("multiply", main, site("power", inverse, order))
        powers = _raised(site, y, lambda each: site("power", site("divide", site.like(1, y), each), power), "add")
        above = site("multiply", site("add", main, powers), float(sign * math.factorial(order)))
        cotangent = site("divide", site("cos", near), site("sin", near))
        mirror = site("multiply", _polynomial(site, cotangent, turned.coef.tolist()), -(math.pi**power))
        below = site("add", mirror, site("multiply", above, float(-sign)))
        pole = site.like(sign * math.inf, x)
        return site.where(site("and", low, _whole(site, x)), pole, site.where(low, below, above))

    return compute


MOST_DERIVATIVES = 20
"""Of `polygamma`: the terms above give its first seven digits up to here."""


@rule("polygamma.default")
def _polygamma(site: Site, n: int, x: Expr) -> Expr:
    if n > MOST_DERIVATIVES:
        raise site.error(f"the derivative of order {n} is not supported", hint=f"0 to {MOST_DERIVATIVES} are")
    return _in_float64((digamma, trigamma)[n] if n < 2 else polygamma(n))(site, x)  # type: ignore[return-value]


def _erfinv(site: Site, x: Expr) -> Expr:
    """Newton's steps from an approximation of Winitzki's, of the size; beyond 1 it is no number."""
    size = site("abs", x)
    inside = site("minimum", size, 1 - 2.0**-53)
    rest = site("log", site("multiply", site("subtract", site.like(1, x), inside), site("add", inside, 1)))
    half = site("add", site("multiply", rest, 0.5), 2 / (math.pi * 0.147))
    root = site("sqrt", site("subtract", site("multiply", half, half), site("divide", rest, 0.147)))
    y = site("sqrt", site("subtract", root, half))
    for _ in range(_NEWTON_STEPS):
        error = site("subtract", site("erf", y), inside)
        slope = site("multiply", site("exp", site("negative", site("multiply", y, y))), 2 / math.sqrt(math.pi))
        y = site("subtract", y, site("divide", error, slope))
    found = site.where(site("less", size, 1), y, site.where(site("equal", size, 1), math.inf, site.like(math.nan, x)))
    return site("multiply", found, site("sign", x))


RULES["aten.erfinv.default"] = _in_float64(_erfinv)


def _bessel(order: int, scaled: bool) -> Callable[[Site, Expr], Expr]:
    """The modified one of order 0 or 1 (10.25.2, 10.40.1); ``scaled``: times exp(-|x|)."""
    series = [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(BESSEL_SERIES)]
    far = [1.0]
    for k in range(1, BESSEL_ASYMPTOTIC):
        far.append(-far[-1] * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k))

    def compute(site: Site, x: Expr) -> Expr:
        size = site("abs", x)
        near = site("minimum", size, BESSEL_BOUND)
        half = site("multiply", near, 0.5)
        low = _polynomial(site, site("multiply", half, half), series)
        low = site("multiply", low, half) if order else low
        large = site("maximum", size, BESSEL_BOUND)
        high = _polynomial(site, site("divide", site.like(1, x), large), far)
        high = site("divide", high, site("sqrt", site("multiply", large, 2 * math.pi)))
        if scaled:
            low = site("multiply", low, site("exp", site("negative", near)))
        else:  # in two factors, since the exponential alone is infinite earlier
            growth = site("exp", site("multiply", large, 0.5))
            high = site("multiply", site("multiply", high, growth), growth)
        found = site.where(site("less", size, BESSEL_BOUND), low, high)
        if not scaled:  # without the product of 0 and infinity
            found = site.where(site("is_infinite", x), math.inf, found)
        found = site.where(site("is_nan", x), x, found)
        return site("multiply", found, site("sign", x)) if order else found

    return compute


for _name, _order, _scaled in (("i0", 0, False), ("special_i0e", 0, True), ("special_i1", 1, False),
                               ("special_i1e", 1, True)):  # fmt: skip
    RULES[f"aten.{_name}.default"] = _in_float64(_bessel(_order, _scaled))


@rule("frexp.Tensor")
def _frexp(site: Site, x: Expr) -> tuple[Expr, Expr]:
    """x = mantissa * 2**exponent, with a mantissa from a half up to 1. A logarithm gives the exponent, which may be a
    step off; it is made good by the mantissa. Two factors, since one alone may be infinite."""
    wide = site.cast(x, "float64")
    odd = site("or", site("equal", wide, 0), site("or", site("is_infinite", wide), site("is_nan", wide)))
    plain = site.where(odd, 1.0, wide)
    exponent = site("add", site("floor", site("multiply", site("log", site("abs", plain)), 1 / math.log(2))), 1)
    half = site("floor", site("multiply", exponent, 0.5))
    mantissa = plain
    for part in (half, site("subtract", exponent, half)):
        mantissa = site("multiply", mantissa, _power_of_two(site, site("negative", part)))
    size = site("abs", mantissa)
    step = site("subtract", site.cast(site("less_equal", site.like(1, size), size), "float64"),
                site.cast(site("less", size, 0.5), "float64"))  # fmt: skip
    mantissa = site("multiply", mantissa, _power_of_two(site, site("negative", step)))
    kept = site.where(odd, x, site.cast(mantissa, x.dtype))
    return kept, site.cast(site.where(odd, 0.0, site("add", exponent, step)), "int32")


def _power_of_two(site: Site, exponent: Expr) -> Expr:
    """Looked up, so that it is exact: of whole numbers from -1,100 to 1,100."""
    powers = Constant(np.ldexp(1.0, np.clip(np.arange(-1100, 1101), -1074, 1023)))
    return site.call("gather", powers, site("add", site.cast(exponent, "int64"), 1100), axis=0)


# Whole numbers


@rule("gcd.default")
def _gcd(site: Site, a: Expr, b: Expr) -> Expr:
    return _common_divisor(site, *_operands(site, a, b, site.dtype))


def _operands(site: Site, a: Expr, b: Expr, dtype: str) -> list[Expr]:
    return [site.expand(site.cast(each, dtype), site.shape) for each in site.promoted(a, b)]


def _common_divisor(site: Site, y: Expr, x: Expr) -> Expr:
    """Euclid's steps, as many as the largest numbers of the type need; the least number, which has no opposite, goes
    through them as it is."""
    x, y = (each if each.dtype in UNSIGNED else site("abs", each) for each in (x, y))
    count = math.ceil(np.iinfo(numpy_dtype(x.dtype)).bits / math.log2((1 + math.sqrt(5)) / 2))

    def step(states: Sequence[Expr], _: Sequence[Expr]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        large, small = states
        done = site("equal", small, 0)
        rest = site.call("nn.modulo", large, site.where(done, 1, small), truncated=True)
        return (site.where(done, large, small), site.where(done, 0, rest)), ()

    counted = Constant(np.zeros((count, 1), np.int32))
    return looped(site.node, step, (x, y), (counted,), (False,))[0][0]


@rule("lcm.default")
def _lcm(site: Site, a: Expr, b: Expr) -> Expr:
    """Of small numbers by products in int32."""
    x, y = _operands(site, a, b, "int32" if site.dtype in ("int8", "int16") else site.dtype)
    divisor = _common_divisor(site, x, y)
    nothing = site("equal", divisor, 0)
    whole = site("multiply", site("divide", x, site.where(nothing, 1, divisor)), y)
    return site.cast(whole if whole.dtype in UNSIGNED else site("abs", whole), site.dtype)
