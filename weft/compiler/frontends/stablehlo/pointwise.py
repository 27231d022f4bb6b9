"""Elementwise operations."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ...graph import Expr
from ...graph.dtypes import FLOATS, INTEGERS, UNSIGNED, numpy_dtype
from ..functions import expm1, log1p
from .site import RULES, Rule, Site, rule, splat, thin


def spread(site: Site, *operands: Expr) -> list[Expr]:
    """Operands as thin as broadcasting allows: together they have the result's shape still."""
    found = list(operands)
    for place, value in enumerate(operands):
        rest = [each.shape for index, each in enumerate(found) if index != place]
        thinner = thin(value)
        try:
            whole = np.broadcast_shapes(thinner.shape, *rest)
        except ValueError:
            continue
        if whole == site.shape:
            found[place] = thinner
    return found


def _function(compute: Callable[[Site, Expr], Expr]) -> Rule:
    return lambda site: site.in_float32(site.x, lambda wide: compute(site, wide))


_FUNCTIONS = {
    "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh", "atan": "atan", "atanh": "atanh",
    "cosh": "cosh", "cosine": "cos", "erf": "erf", "exponential": "exp", "log": "log", "logistic": "sigmoid",
    "sine": "sin", "sinh": "sinh", "sqrt": "sqrt", "tan": "tan", "tanh": "tanh",
}  # fmt: skip
for _name, _op in _FUNCTIONS.items():
    RULES[_name] = _function(lambda site, x, op=_op: site(op, x))  # type: ignore[misc]
RULES["exponential_minus_one"] = _function(expm1)
RULES["log_plus_one"] = _function(log1p)
RULES["rsqrt"] = _function(lambda site, x: site("divide", site.like(1, x), site("sqrt", x)))
RULES["erfc"] = _function(lambda site, x: site("subtract", site.like(1, x), site("erf", x)))
RULES["cbrt"] = _function(
    lambda site, x: site("multiply", site("sign", x), site("power", site("abs", x), site.like(1 / 3, x)))
)

RULES["ceil"] = lambda site: site("ceil", site.x)
RULES["floor"] = lambda site: site("floor", site.x)
RULES["round_nearest_even"] = lambda site: site("round", site.x)
RULES["square"] = lambda site: site("multiply", site.x, site.x)
RULES["sign"] = lambda site: site("sign", site.x)
RULES["abs"] = lambda site: site.x if site.x.dtype in UNSIGNED else site("abs", site.x)
RULES["is_inf"] = lambda site: site("is_infinite", site.x)
RULES["optimization_barrier"] = lambda site: site.operands


@rule("round_nearest_afz")
def _round_away(site: Site) -> Expr:
    """Halves away from zero; what is whole already stays, since adding a half to it would round."""
    x, magnitude = site.x, site("abs", site.x)
    below = site("floor", magnitude)
    up = site("less_equal", site.like(0.5, x), site("subtract", magnitude, below))
    return site("multiply", site("sign", x), site.where(up, site("add", below, 1), below))


@rule("negate")
def _negate(site: Site) -> Expr:
    x = site.x
    return site("subtract", site.like(0, x), x) if x.dtype in UNSIGNED else site("negative", x)


@rule("is_finite")
def _is_finite(site: Site) -> Expr:
    return site("not", site("or", site("is_nan", site.x), site("is_infinite", site.x)))


@rule("reduce_precision")
def _reduce_precision(site: Site) -> Expr:
    bits = (site.attrs["exponent_bits"], site.attrs["mantissa_bits"])
    to = {(5, 10): "float16", (8, 7): "bfloat16", (8, 23): "float32", (11, 52): "float64"}.get(bits)
    if to is None:
        raise site.error(f"no type has {bits[0]} bits of exponent and {bits[1]} of mantissa")
    return site.cast(site.cast(site.x, to), site.dtype)


# Two operands


def _arithmetic(op: str) -> Rule:
    return lambda site: site(op, *spread(site, *site.operands))


for _name, _op in (("subtract", "subtract"), ("minimum", "minimum")):
    RULES[_name] = _arithmetic(_op)


@rule("add", "multiply")
def _sum_or_product(site: Site) -> Expr:
    """Of truth values, what either or both say."""
    operands = spread(site, *site.operands)
    if site.dtype == "bool":
        return site("or" if site.op == "add" else "and", *operands)
    return site(site.op, *operands)


@rule("maximum")
def _maximum(site: Site) -> Expr:
    """With zero it is the rectifier, which targets know."""
    for value, other in (site.operands, site.operands[::-1]):
        if site.dtype in FLOATS and splat(other) == 0 and value.shape == site.shape:
            return site.call("nn.clip", value, low=0.0)
    return site("maximum", *spread(site, *site.operands))


@rule("divide")
def _divide(site: Site) -> Expr:
    return site("divide", *spread(site, *site.operands))


@rule("remainder")
def _remainder(site: Site) -> Expr:
    return site.call("nn.modulo", *spread(site, *site.operands), truncated=True)


@rule("power")
def _power(site: Site) -> Expr:
    exponent = splat(site.operands[1])
    if exponent == 2:
        return site("multiply", site.x, site.x)
    return site("power", *spread(site, *site.operands))


@rule("atan2")
def _atan2(site: Site) -> Expr:
    """By the quotient of the smaller and the larger magnitude; the octant follows from signs and which is larger."""
    y, x = spread(site, *site.operands)
    ay, ax = site("abs", y), site("abs", x)
    low, high = site("minimum", ay, ax), site("maximum", ay, ax)
    safe = site.where(site("equal", high, 0), 1.0, high)
    angle = site("atan", site("divide", low, safe))
    angle = site.where(site("less", ax, ay), site("subtract", site.like(math.pi / 2, angle), angle), angle)
    angle = site.where(_negative(site, x), site("subtract", site.like(math.pi, angle), angle), angle)
    return site.where(_negative(site, y), site("negative", angle), angle)


def _negative(site: Site, x: Expr) -> Expr:
    """Whether the sign is set, of -0.0 as well: 1 / x tells."""
    return site("less", site.where(site("equal", x, 0), site("divide", site.like(1, x), x), x), 0)


for _name in ("and", "or", "xor"):
    RULES[_name] = lambda site, op=_name: site(  # type: ignore[misc]
        op if site.dtype == "bool" else f"bitwise_{op}", *spread(site, *site.operands)
    )
RULES["not"] = lambda site: site("not" if site.dtype == "bool" else "bitwise_not", site.x)


@rule("shift_left", "shift_right_logical", "shift_right_arithmetic")
def _shift(site: Site) -> Expr:
    """Bits that are shifted out are lost: by the type's width or more, all of them."""
    x, by = site.operands
    unsigned = numpy_dtype(site.dtype).kind == "u"
    bits = 8 * numpy_dtype(site.dtype).itemsize
    kind = f"uint{bits}"
    if site.op == "shift_right_arithmetic":
        if unsigned:
            x = site.call("nn.bitcast", x, to=f"int{bits}")
        quotient = _arithmetic_shift(site, x, by, bits)
        return site.call("nn.bitcast", quotient, to=site.dtype) if unsigned else quotient
    wide, count = ((each if unsigned else site.call("nn.bitcast", each, to=kind)) for each in (x, by))
    op = "shift_left" if site.op == "shift_left" else "shift_right"
    inside = site("less", count, bits)
    moved = site.where(inside, site(op, wide, site("minimum", count, bits - 1)), site.like(0, wide))
    return moved if unsigned else site.call("nn.bitcast", moved, to=site.dtype)


def _arithmetic_shift(site: Site, x: Expr, by: Expr, bits: int) -> Expr:
    """Of negative numbers the complement is shifted, so that ones come in: ~(~x >> by)."""
    kind = f"uint{bits}"
    count = site("minimum", site.call("nn.bitcast", by, to=kind) if by.dtype != kind else by, bits - 1)
    below = site("less", x, 0)
    plain = site.where(below, site("bitwise_not", x), x)
    moved = site.call("nn.bitcast", site("shift_right", site.call("nn.bitcast", plain, to=kind), count), to=x.dtype)
    return site.where(below, site("bitwise_not", moved), moved)


@rule("compare")
def _compare(site: Site) -> Expr:
    """NE of NaN is true, whatever else it is compared with is false."""
    x, y = spread(site, *site.operands)
    match site.attrs["comparison_direction"]:
        case "EQ":
            return site("equal", x, y)
        case "NE":
            return site("not", site("equal", x, y))
        case "LT":
            return site("less", x, y)
        case "LE":
            return site("less_equal", x, y)
        case "GT":
            return site("less", y, x)
        case "GE":
            return site("less_equal", y, x)
        case other:
            raise site.error(f"{other!r} is no comparison")


@rule("select")
def _select(site: Site) -> Expr:
    condition, x, y = spread(site, *site.operands)
    return site.where(condition, x, y)


@rule("clamp")
def _clamp(site: Site) -> Expr:
    low, x, high = site.operands
    bounds = splat(low), splat(high)
    if site.dtype in FLOATS and None not in bounds:
        return site.call("nn.clip", x, low=float(bounds[0]), high=float(bounds[1]))
    low, high = (site.expand(each, x.shape) if not each.shape else each for each in (low, high))
    return site("minimum", site("maximum", x, low), high)


@rule("convert")
def _convert(site: Site) -> Expr:
    """To truth values: whether it is not zero. Between integers bits are kept, as many as fit."""
    x, to = site.x, site.dtype
    if to == "bool" and x.dtype != "bool":
        return site("not", site("equal", x, 0))
    if x.dtype in INTEGERS and to in INTEGERS:
        return site.call("nn.cast", x, to=to, saturate=False) if x.dtype != to else x
    return site.cast(x, to)


@rule("bitcast_convert")
def _bitcast(site: Site) -> Expr:
    if numpy_dtype(site.x.dtype).itemsize != numpy_dtype(site.dtype).itemsize:
        raise site.error(f"bits of {site.x.dtype} as {site.dtype} would change the shape")
    return site.x if site.x.dtype == site.dtype else site.call("nn.bitcast", site.x, to=site.dtype)
