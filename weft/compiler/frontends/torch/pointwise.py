"""Elementwise operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...graph import Constant, Expr
from ...graph.dtypes import HALVES, UNSIGNED
from ..functions import expm1, log1p
from .site import RULES, Rule, Site, category, rule

Number = int | float

# Functions of one operand


def _function(compute: Callable[[Site, Expr], Expr]) -> Rule:
    """A function of floats: integers become the result's floats first."""

    def convert(site: Site, x: Expr) -> Expr:
        return site.cast(site.in_float32(site.cast(x, site.dtype), lambda wide: compute(site, wide)), site.dtype)

    return convert


for _name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "log", "sigmoid", "sin",
              "sinh", "sqrt", "tan", "tanh"):  # fmt: skip
    RULES[f"aten.{_name}.default"] = _function(lambda site, x, op=_name: site(op, x))  # type: ignore[misc]


RULES["aten.expm1.default"] = _function(expm1)
RULES["aten.log1p.default"] = _function(log1p)
RULES["aten.log2.default"] = _function(lambda site, x: site("multiply", site("log", x), 1 / math.log(2)))
RULES["aten.log10.default"] = _function(lambda site, x: site("multiply", site("log", x), 1 / math.log(10)))
RULES["aten.exp2.default"] = _function(lambda site, x: site("power", site.like(2, x), x))
RULES["aten.erfc.default"] = _function(lambda site, x: site("subtract", site.like(1, x), site("erf", x)))
RULES["aten.rsqrt.default"] = _function(lambda site, x: site("divide", site.like(1, x), site("sqrt", x)))
RULES["aten.reciprocal.default"] = _function(lambda site, x: site("divide", site.like(1, x), x))
RULES["aten.silu.default"] = _function(lambda site, x: site("multiply", x, site("sigmoid", x)))
RULES["aten.mish.default"] = _function(lambda site, x: site.onnx("Mish", x))
RULES["aten.hardsigmoid.default"] = _function(lambda site, x: site.onnx("HardSigmoid", x, alpha=1 / 6, beta=0.5))
RULES["aten.hardswish.default"] = _function(lambda site, x: site.onnx("HardSwish", x))
RULES["aten.log_sigmoid.default"] = _function(
    lambda site, x: site("negative", site.onnx("Softplus", site("negative", x)))
)


def _whole(op: str) -> Rule:
    """A function whose result is the operand itself for integers."""

    def convert(site: Site, x: Expr) -> Expr:
        return x if category(x.dtype) < 2 else site(op, x)

    return convert


for _name in ("ceil", "floor", "round"):
    RULES[f"aten.{_name}.default"] = _whole(_name)


@rule("round.decimals")
def _round_decimals(site: Site, x: Expr, decimals: int = 0) -> Expr:
    if category(x.dtype) < 2:
        return x
    scale = 10.0 ** abs(decimals)
    first, then = ("multiply", "divide") if decimals >= 0 else ("divide", "multiply")
    return site(then, site("round", site(first, x, scale)), scale)


@rule("trunc.default", "fix.default")
def truncated(site: Site, x: Expr) -> Expr:
    if category(x.dtype) < 2:
        return x
    return site.where(site("less", x, 0), site("ceil", x), site("floor", x))


RULES["aten.frac.default"] = lambda site, x: site("subtract", x, truncated(site, x))
RULES["aten.abs.default"] = lambda site, x: x if x.dtype in ("bool", *UNSIGNED) else site("abs", x)
RULES["aten.sign.default"] = lambda site, x: x if x.dtype == "bool" else site("sign", x)
RULES["aten.sgn.default"] = RULES["aten.sign.default"]
RULES["aten.relu.default"] = lambda site, x: (
    site.call("nn.clip", x, low=0.0) if category(x.dtype) == 2 else site("maximum", x, 0)
)
RULES["aten.isnan.default"] = lambda site, x: site("is_nan", _float(site, x))
RULES["aten.isinf.default"] = lambda site, x: site("is_infinite", _float(site, x))
RULES["aten.relu6.default"] = lambda site, x: clamp(site, x, 0, 6)
RULES["aten.square.default"] = lambda site, x: site("multiply", x, x)


@rule("neg.default")
def _neg(site: Site, x: Expr) -> Expr:
    return site("subtract", site.like(0, x), x) if x.dtype in UNSIGNED else site("negative", x)


def _float(site: Site, x: Expr) -> Expr:
    return x if category(x.dtype) == 2 else site.cast(x, "float32")


# Arithmetic


def _arithmetic(op: str) -> Rule:
    def convert(site: Site, a: Expr | Number, b: Expr | Number, alpha: Number = 1) -> Expr:
        x, y = (site.cast(each, site.dtype) for each in site.promoted(a, b))
        if site.dtype == "bool":  # sums and products of truth values
            return x if not alpha else site({"add": "or", "multiply": "and"}[op], x, y)
        if alpha != 1:
            y = site("multiply", y, alpha)
        return site(op, x, y)

    return convert


for _aten, _op in (("add", "add"), ("sub", "subtract"), ("mul", "multiply")):
    for _form in ("Tensor", "Scalar"):
        RULES[f"aten.{_aten}.{_form}"] = _arithmetic(_op)


@rule("rsub.Tensor", "rsub.Scalar")
def _rsub(site: Site, a: Expr, b: Expr | Number, alpha: Number = 1) -> Expr:
    x, y = (site.cast(each, site.dtype) for each in site.promoted(a, b))
    return site("subtract", y, site("multiply", x, alpha) if alpha != 1 else x)


@rule("div.Tensor", "div.Scalar", "true_divide.Tensor")
def _div(site: Site, a: Expr | Number, b: Expr | Number) -> Expr:
    x, y = (site.cast(each, site.dtype) for each in site.promoted(a, b))
    return site("divide", x, y)


@rule("div.Tensor_mode", "div.Scalar_mode")
def _div_mode(site: Site, a: Expr | Number, b: Expr | Number, rounding_mode: str | None = None) -> Expr:
    x, y = (site.cast(each, site.dtype) for each in site.promoted(a, b))
    if rounding_mode == "floor":
        return floor_divide(site, x, y)
    quotient = site("divide", x, y)  # of integers towards zero already
    return truncated(site, quotient) if rounding_mode == "trunc" else quotient


@rule("floor_divide.default", "floor_divide.Scalar")
def _floor_divide(site: Site, a: Expr | Number, b: Expr | Number) -> Expr:
    return floor_divide(site, *(site.cast(each, site.dtype) for each in site.promoted(a, b)))


def floor_divide(site: Site, x: Expr, y: Expr) -> Expr:
    """Through the remainder, so that a quotient that is whole when exact is not rounded past it."""
    whole = site("divide", site("subtract", x, site("modulo", x, y)), y)
    if category(x.dtype) < 2:
        return whole
    return site.where(site("equal", y, 0), site("divide", x, y), site("round", whole))


def _remainder(truncates: bool) -> Rule:
    def convert(site: Site, a: Expr | Number, b: Expr | Number) -> Expr:
        x, y = (site.cast(each, site.dtype) for each in site.promoted(a, b))
        return site.call("nn.modulo", x, y, truncated=truncates)

    return convert


for _form in ("Tensor", "Scalar", "Scalar_Tensor"):
    RULES[f"aten.fmod.{_form}"] = _remainder(True)
    RULES[f"aten.remainder.{_form}"] = _remainder(False)


@rule("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar")
def _pow(site: Site, a: Expr | Number, b: Expr | Number) -> Expr:
    if not isinstance(b, Expr) and isinstance(a, Expr) and b == 2:
        x = site.cast(a, site.dtype)
        return site("multiply", x, x)
    x, y = (site.cast(each, site.dtype) for each in site.promoted(a, b))
    return _whole_power(site, x, y) if category(site.dtype) == 1 else site("power", x, y)


def _whole_power(site: Site, x: Expr, y: Expr) -> Expr:
    """Of integers: with a negative exponent the quotient towards zero, which is 0 but for bases of 1 and -1."""
    if y.dtype in UNSIGNED or (isinstance(y, Constant) and (y.value >= 0).all()):
        return site("power", x, y)
    is_one = site("or", site("equal", x, 1), site("equal", x, -1))
    size = site.where(site("less", y, 0), site("negative", y), y)  # an odd exponent stays odd
    return site.where(site("and", site("less", y, 0), site("not", is_one)), 0, site("power", x, size))


@rule("atan2.default")
def _atan2(site: Site, y: Expr, x: Expr) -> Expr:
    y, x = (site.cast(each, site.dtype) for each in site.promoted(y, x))
    if x.dtype in HALVES:
        wide = _atan2_of(site, site.cast(y, "float32"), site.cast(x, "float32"))
        return site.cast(wide, site.dtype)
    return _atan2_of(site, y, x)


def _atan2_of(site: Site, y: Expr, x: Expr) -> Expr:
    """The angle of (x, y): of two infinities their signs count, of zeros the sign of 1 / zero."""
    both = site("and", site("is_infinite", y), site("is_infinite", x))
    up, right = (site.where(both, site("sign", each), each) for each in (y, x))
    angle = site("atan", site("divide", up, right))
    negative = _negative(site, up)
    half_turn = site.where(negative, site.like(-math.pi, x), math.pi)
    quarter = site.where(negative, site.like(-math.pi / 2, x), math.pi / 2)
    on_axis = site("equal", right, 0)
    left = site("less", right, 0)
    result = site.where(left, site("add", angle, half_turn), angle)
    result = site.where(on_axis, quarter, result)
    at_origin = site("and", on_axis, site("equal", up, 0))
    behind = _negative(site, right)
    signed_zero = site.where(negative, site.like(-0.0, x), 0.0)
    return site.where(at_origin, site.where(behind, half_turn, signed_zero), result)


def _negative(site: Site, x: Expr) -> Expr:
    """Whether the sign is negative, also of -0."""
    return site("or", site("less", x, 0), site("less", site("divide", site.like(1, x), x), 0))


@rule("signbit.default")
def _signbit(site: Site, x: Expr) -> Expr:
    if category(x.dtype) == 2:
        return _negative(site, x)
    return site("less", site.cast(x, "int32") if x.dtype == "bool" else x, 0)


@rule("copysign.Tensor", "copysign.Scalar")
def _copysign(site: Site, a: Expr, b: Expr | Number) -> Expr:
    x, y = (site.cast(each, site.dtype) for each in site.promoted(a, b))
    size = site("abs", x)
    return site.where(_negative(site, y), site("negative", size), size)


@rule("hypot.default")
def _hypot(site: Site, a: Expr, b: Expr) -> Expr:
    """By the larger one, whose square might be infinite."""
    x, y = (site("abs", site.cast(each, site.dtype)) for each in site.promoted(a, b))
    large, small = site("maximum", x, y), site("minimum", x, y)
    quotient = site("divide", small, large)
    length = site("multiply", large, site("sqrt", site("add", site("multiply", quotient, quotient), 1)))
    plain = site("or", site("equal", large, 0), site("is_infinite", large))
    return site.where(plain, large, length)


@rule("ldexp.Tensor")
def _ldexp(site: Site, a: Expr, b: Expr) -> Expr:
    x, y = (site.cast(each, site.dtype) for each in (a, b))
    return site("multiply", x, site("power", site.like(2, x), y))


def _extreme(op: str, logical: str) -> Rule:
    def convert(site: Site, a: Expr, b: Expr) -> Expr:
        x, y = site.promoted(a, b)
        return site(logical if x.dtype == "bool" else op, x, y)

    return convert


RULES["aten.maximum.default"] = _extreme("maximum", "or")
RULES["aten.minimum.default"] = _extreme("minimum", "and")


def _ignoring_nan(op: str, logical: str) -> Rule:
    """fmax and fmin: the other operand where one is not a number."""

    def convert(site: Site, a: Expr, b: Expr) -> Expr:
        x, y = site.promoted(a, b)
        if category(x.dtype) < 2:
            return site(logical if x.dtype == "bool" else op, x, y)
        return site.where(site("is_nan", x), y, site.where(site("is_nan", y), x, site(op, x, y)))

    return convert


RULES["aten.fmax.default"] = _ignoring_nan("maximum", "or")
RULES["aten.fmin.default"] = _ignoring_nan("minimum", "and")


@rule("lerp.Scalar", "lerp.Tensor")
def _lerp(site: Site, start: Expr, end: Expr, weight: Expr | Number) -> Expr:
    return site("add", start, site("multiply", site("subtract", end, start), weight))


@rule("addcmul.default")
def _addcmul(site: Site, x: Expr, a: Expr, b: Expr, value: Number = 1) -> Expr:
    x, a, b = (site.cast(each, site.dtype) for each in (x, a, b))
    product = site("multiply", a, b)
    return site("add", x, site("multiply", product, value) if value != 1 else product)


@rule("addcdiv.default")
def _addcdiv(site: Site, x: Expr, a: Expr, b: Expr, value: Number = 1) -> Expr:
    x, a, b = (site.cast(each, site.dtype) for each in (x, a, b))
    quotient = site("divide", a, b)
    return site("add", x, site("multiply", quotient, value) if value != 1 else quotient)


# Comparisons and logic


def _comparison(op: str, swapped: bool = False, negated: bool = False) -> Rule:
    def convert(site: Site, a: Expr | Number, b: Expr | Number) -> Expr:
        x, y = site.promoted(a, b)
        result = site(op, y, x) if swapped else site(op, x, y)
        return site("not", result) if negated else result

    return convert


for _form in ("Tensor", "Scalar"):
    RULES[f"aten.eq.{_form}"] = _comparison("equal")
    RULES[f"aten.ne.{_form}"] = _comparison("equal", negated=True)
    RULES[f"aten.lt.{_form}"] = _comparison("less")
    RULES[f"aten.le.{_form}"] = _comparison("less_equal")
    RULES[f"aten.gt.{_form}"] = _comparison("less", swapped=True)
    RULES[f"aten.ge.{_form}"] = _comparison("less_equal", swapped=True)


def _logical(op: str) -> Rule:
    def convert(site: Site, a: Expr, b: Expr) -> Expr:
        return site(op, site.cast(a, "bool"), site.cast(b, "bool"))

    return convert


for _op in ("and", "or", "xor"):
    RULES[f"aten.logical_{_op}.default"] = _logical(_op)
RULES["aten.logical_not.default"] = lambda site, x: site("not", site.cast(x, "bool"))


def _bitwise(op: str) -> Rule:
    def convert(site: Site, a: Expr | Number, b: Expr | Number) -> Expr:
        x, y = site.promoted(a, b)
        return site(op if x.dtype == "bool" else f"bitwise_{op}", x, y)

    return convert


for _op in ("and", "or", "xor"):
    for _form in ("Tensor", "Scalar", "Scalar_Tensor"):
        RULES[f"aten.bitwise_{_op}.{_form}"] = _bitwise(_op)
RULES["aten.bitwise_not.default"] = lambda site, x: site("not" if x.dtype == "bool" else "bitwise_not", x)


def _shift(op: str) -> Rule:
    def convert(site: Site, a: Expr | Number, b: Expr | Number) -> Expr:
        return site(op, *site.promoted(a, b))

    return convert


for _aten, _op in (("bitwise_left_shift", "shift_left"), ("bitwise_right_shift", "shift_right")):
    for _form in ("Tensor", "Tensor_Scalar", "Scalar_Tensor"):
        RULES[f"aten.{_aten}.{_form}"] = _shift(_op)
for _aten, _op in (("__lshift__", "shift_left"), ("__rshift__", "shift_right")):  # Python's own signs
    for _form in ("Tensor", "Scalar"):
        RULES[f"aten.{_aten}.{_form}"] = _shift(_op)


@rule("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def _where(site: Site, condition: Expr, a: Expr | Number, b: Expr | Number) -> Expr:
    x, y = (site.cast(each, site.dtype) for each in site.promoted(a, b))
    return site.call("nn.where", site.cast(condition, "bool"), x, y)


@rule("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(site: Site, x: Expr, mask: Expr, value: Expr | Number) -> Expr:
    filling = site.cast(value, site.dtype) if isinstance(value, Expr) else site.like(value, x)
    return site.call("nn.where", mask, filling, site.expand(x, site.shape))


# Activations


@rule("clamp.default", "hardtanh.default", "clamp.Tensor", "clamp_min.default", "clamp_max.default",
      "clip.default")  # fmt: skip
def _clamp(site: Site, x: Expr, min: Expr | Number | None = None, max: Expr | Number | None = None) -> Expr:
    if site.op.startswith("aten.hardtanh"):
        min, max = -1 if min is None else min, 1 if max is None else max
    elif site.op.startswith("aten.clamp_max"):
        min, max = None, min
    return clamp(site, x, min, max)


def clamp(site: Site, x: Expr, low: Expr | Number | None, high: Expr | Number | None) -> Expr:
    """Of crossed bounds the upper one holds. A value that is not a number stays."""
    if site.dtype == "bool":  # by PyTorch's order of truth values
        wide = replace(site, types=(replace(site.type, dtype="uint8"),))
        bounds = [site.cast(b, "uint8") if isinstance(b, Expr) else b for b in (low, high)]
        return site.cast(clamp(wide, x, *bounds), "bool")
    x = site.cast(x, site.dtype)
    if category(x.dtype) == 2 and not isinstance(low, Expr) and not isinstance(high, Expr):
        bottom, top = (-math.inf if low is None else float(low)), (math.inf if high is None else float(high))
        return site.call("nn.clip", x, low=min(bottom, top), high=top)
    for op, bound in (("maximum", low), ("minimum", high)):
        if bound is not None:
            x = site(op, x, site.cast(bound, x.dtype) if isinstance(bound, Expr) else bound)
    return x


@rule("gelu.default")
def _gelu(site: Site, x: Expr, approximate: str = "none") -> Expr:
    result: Expr = site.onnx("Gelu", x, approximate=approximate)
    return result


@rule("elu.default")
def _elu(site: Site, x: Expr, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Expr:
    def compute(wide: Expr) -> Expr:
        inner = site("multiply", wide, input_scale) if input_scale != 1 else wide
        below = site("multiply", expm1(site, site("minimum", inner, 0)), alpha * scale)
        above = site("multiply", wide, scale) if scale != 1 else wide
        return site.where(site("less", wide, 0), below, above)

    return site.in_float32(x, compute)


@rule("leaky_relu.default")
def _leaky_relu(site: Site, x: Expr, negative_slope: Number = 0.01) -> Expr:
    return site.where(site("less", x, 0), site("multiply", x, negative_slope), x)


@rule("rrelu_with_noise_functional.default", without=(1,))
def _random_relu(
    site: Site, x: Expr, noise: Expr, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False
) -> tuple[Expr, None]:
    if training:
        raise site.error("in training mode its slopes are random", hint="call eval() before exporting")
    return _leaky_relu(site, x, (lower + upper) / 2), None


@rule("prelu.default", "_prelu_kernel.default")
def _prelu(site: Site, x: Expr, slope: Expr) -> Expr:
    if site.op.startswith("aten.prelu") and len(x.shape) > 1:
        slope = site.reshape(slope, (1, -1, *(1 for _ in x.shape[2:])))
    return site.where(site("less", x, 0), site("multiply", x, slope), x)


@rule("softplus.default")
def _softplus(site: Site, x: Expr, beta: Number = 1, threshold: Number = 20) -> Expr:
    def compute(wide: Expr) -> Expr:
        scaled = site("multiply", wide, beta)
        soft = site("divide", site.onnx("Softplus", scaled), beta)
        return site.where(site("less", site.like(threshold, wide), scaled), wide, soft)

    return site.in_float32(x, compute)


@rule("threshold.default")
def _threshold(site: Site, x: Expr, threshold: Number, value: Number) -> Expr:
    return site.where(site("less_equal", x, threshold), value, x)


@rule("softshrink.default", "hardshrink.default")
def _shrink(site: Site, x: Expr, lambd: Number = 0.5) -> Expr:
    bias = lambd if site.op.startswith("aten.softshrink") else 0.0
    result: Expr = site.onnx("Shrink", x, lambd=float(lambd), bias=float(bias))
    return result


@rule("fill.Scalar", "fill.Tensor")
def _fill(site: Site, x: Expr, value: Expr | Number) -> Expr:
    filling = site.cast(value, site.dtype) if isinstance(value, Expr) else site.like(value, site.dtype)
    return site.expand(site.reshape(filling, ()), site.shape)


@rule("angle.default")
def _angle(site: Site, x: Expr) -> Expr:
    """Of real numbers: pi below 0, and NaN stays."""
    wide = site.cast(x, site.dtype)
    turned = site.where(site("less", wide, 0), math.pi, site.like(0, wide))
    return turned if category(x.dtype) != 2 else site.where(site("equal", wide, wide), turned, wide)


@rule("_to_copy.default", "to.dtype", "_to_dim_order_copy.default", "convert_element_type.default",
      "prims.convert_element_type.default")  # fmt: skip
def _to(site: Site, x: Expr, *_: Any, **__: Any) -> Expr:
    """Floats beyond a type of 8 or 16 bits wrap in PyTorch, as those of 32 bits do that they become first."""
    narrow = category(x.dtype) == 2 and site.dtype in ("int8", "uint8", "int16", "uint16")
    return site.cast(site.cast(x, "int32") if narrow else x, site.dtype)
