"""Elementwise operators (names start with ``nn.``): arithmetic, comparison, logic, and functions of one number.

float16 and bfloat16 are computed in float32 and rounded once. Integers wrap.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..graph.dtypes import ARITHMETIC, DTYPES, FLOATS, HALVES, INTEGERS, NUMBERS, SIGNED, STORAGE, is_float, numpy_dtype
from ..graph.dtypes import limits as limits_of
from ..graph.ir import Array, Attrs, GraphError, TensorType
from ..graph.registry import INTEGER_HAS_NO_GRADIENT, NOT_LOWERED, REQUIRED, Fusion, TypeRule, register, unsupported
from .integer import require, require_dtype

NO_GRADIENT_YET = unsupported("training is not part of the stack yet")
NOT_DIFFERENTIABLE = unsupported("the result is piecewise constant")

Meaning = Callable[..., Array]


def broadcast_shape(*operands: TensorType) -> tuple[int, ...]:
    """The shape of operands under NumPy's broadcasting."""
    try:
        return np.broadcast_shapes(*(operand.shape for operand in operands))
    except ValueError:
        raise GraphError(f"{' and '.join(map(str, operands))} do not broadcast") from None


def rounded_once(meaning: Meaning) -> Meaning:
    """``meaning`` with operands of 16-bit floats computed in float32; a float32 result is narrowed again."""

    @functools.wraps(meaning)
    def run(*operands: Array, **attrs: Any) -> Array:
        half = next((x.dtype for x in operands if x.dtype.name in HALVES), None)
        if half is None:
            return np.asarray(meaning(*operands, **attrs))
        wide = [x.astype(np.float32) if x.dtype.name in HALVES else x for x in operands]
        result = np.asarray(meaning(*wide, **attrs))
        return result.astype(half) if result.dtype == np.float32 else result

    return run


def _broadcast(dtypes: tuple[str, ...], result: str = "") -> TypeRule:
    """Operands of one type of ``dtypes``, broadcast; the result has their type or ``result``."""

    def rule(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
        for operand in operands:
            require_dtype(operand, "an operand", *dtypes)
            require(operand.dtype == operands[0].dtype, f"operands differ in type: {operands[0]} and {operand}")
        return TensorType(broadcast_shape(*operands), result or operands[0].dtype)

    return rule


def _divide(a: Array, b: Array) -> Array:
    """Integers are divided towards zero; by zero gives 0."""
    if a.dtype.kind not in "iu":
        return np.asarray(a / b)
    quotient = np.asarray(np.floor_divide(a, b))
    if a.dtype.kind == "u":
        return quotient
    up = (np.remainder(a, b) != 0) & ((a < 0) != (b < 0)) & (b != 0)
    return np.asarray(quotient + up.astype(a.dtype))


def _modulo(a: Array, b: Array, truncated: bool) -> Array:
    return np.asarray(np.fmod(a, b) if truncated else np.mod(a, b))


def _modulo_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    require(isinstance(attrs["truncated"], bool), f"truncated must be true or false, not {attrs['truncated']!r}")
    return _broadcast(NUMBERS)(operands, attrs)  # type: ignore[return-value]


def _power(a: Array, b: Array) -> Array:
    if a.dtype.kind in "iu" and (b.dtype.kind not in "iu" or np.any(b < 0)):
        return np.power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
    return np.asarray(np.power(a, b)).astype(a.dtype)


def _power_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    base, exponent = operands
    require_dtype(base, "the base", *NUMBERS)
    require_dtype(exponent, "the exponent", *NUMBERS)
    return TensorType(broadcast_shape(base, exponent), base.dtype)


def _outside(a: Array, b: Array) -> Array:
    """Whether a shift of ``a`` by ``b`` leaves nothing: negative shifts count as long ones."""
    return np.asarray((b < 0) | (b >= a.dtype.itemsize * 8))


def _shift_left(a: Array, b: Array) -> Array:
    outside = _outside(a, b)
    return np.where(outside, 0, np.left_shift(a, np.where(outside, 0, b).astype(a.dtype))).astype(a.dtype)


def _shift_right(a: Array, b: Array) -> Array:
    longest = a.dtype.itemsize * 8 - 1
    shifted = np.right_shift(a, np.where(_outside(a, b), longest, b).astype(a.dtype))
    return np.where(_outside(a, b) & (a >= 0), 0, shifted).astype(a.dtype)


_BINARY: dict[str, tuple[tuple[str, ...], str, Meaning, str]] = {
    "nn.add": (NUMBERS, "", lambda a, b: a + b, "Sum, with broadcasting."),
    "nn.subtract": (NUMBERS, "", lambda a, b: a - b, "Difference, with broadcasting."),
    "nn.multiply": (NUMBERS, "", lambda a, b: a * b, "Product, with broadcasting."),
    "nn.divide": (NUMBERS, "", _divide, "Quotient, with broadcasting; integers towards zero, and x / 0 = 0."),
    "nn.minimum": (NUMBERS, "", np.minimum, "The smaller operand; NaN wins."),
    "nn.maximum": (NUMBERS, "", np.maximum, "The larger operand; NaN wins."),
    "nn.equal": (ARITHMETIC, "bool", np.equal, "a = b."),
    "nn.less": (ARITHMETIC, "bool", np.less, "a < b."),
    "nn.less_equal": (ARITHMETIC, "bool", np.less_equal, "a <= b."),
    "nn.and": (("bool",), "", np.logical_and, "Both are true."),
    "nn.or": (("bool",), "", np.logical_or, "At least one is true."),
    "nn.xor": (("bool",), "", np.logical_xor, "Exactly one is true."),
    "nn.bitwise_and": (INTEGERS, "", np.bitwise_and, "Bits that both operands have."),
    "nn.bitwise_or": (INTEGERS, "", np.bitwise_or, "Bits that an operand has."),
    "nn.bitwise_xor": (INTEGERS, "", np.bitwise_xor, "Bits that exactly one operand has."),
    "nn.shift_left": (INTEGERS, "", _shift_left, "a * 2**b, low bits; 0 when b is negative or the width or more."),
    "nn.shift_right": (INTEGERS, "", _shift_right, "a / 2**b, rounded down; b is as in nn.shift_left."),
}


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)), x.dtype)


_erf = np.frompyfunc(math.erf, 1, 1)

_FLOAT_FUNCTIONS: dict[str, tuple[Meaning, str]] = {
    "exp": (np.exp, "e to the power of x."),
    "log": (np.log, "Natural logarithm; NaN below 0."),
    "sqrt": (np.sqrt, "Square root; NaN below 0."),
    "sin": (np.sin, "Sine of x radians."),
    "cos": (np.cos, "Cosine of x radians."),
    "tan": (np.tan, "Tangent of x radians."),
    "asin": (np.arcsin, "Angle whose sine is x."),
    "acos": (np.arccos, "Angle whose cosine is x."),
    "atan": (np.arctan, "Angle whose tangent is x."),
    "sinh": (np.sinh, "Hyperbolic sine."),
    "cosh": (np.cosh, "Hyperbolic cosine."),
    "tanh": (np.tanh, "Hyperbolic tangent."),
    "asinh": (np.arcsinh, "Inverse of sinh."),
    "acosh": (np.arccosh, "Inverse of cosh."),
    "atanh": (np.arctanh, "Inverse of tanh."),
    "erf": (lambda x: np.asarray(_erf(x), x.dtype), "The error function, 2/sqrt(pi) times the integral of exp(-t*t)."),
    "sigmoid": (_sigmoid, "1 / (1 + exp(-x))."),
    "floor": (np.floor, "The largest integer that is not above x."),
    "ceil": (np.ceil, "The smallest integer that is not below x."),
    "round": (np.rint, "The nearest integer, halves to even."),
}

_OTHER_FUNCTIONS: dict[str, tuple[tuple[str, ...], str, Meaning, str]] = {
    "abs": (NUMBERS, "", np.abs, "Magnitude."),
    "negative": (SIGNED + FLOATS, "", np.negative, "-x."),
    "sign": (NUMBERS, "", np.sign, "-1, 0 or 1."),
    "not": (("bool",), "", np.logical_not, "The other truth value."),
    "bitwise_not": (INTEGERS, "", np.bitwise_not, "Every bit inverted."),
    "is_nan": (FLOATS, "bool", np.isnan, "x is not a number."),
    "is_infinite": (FLOATS, "bool", np.isinf, "x is inf or -inf."),
}


def _clip(x: Array, low: float, high: float) -> Array:
    return np.asarray(np.clip(x, x.dtype.type(low), x.dtype.type(high)))


def _where_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    condition, x, y = operands
    require_dtype(condition, "the condition", "bool")
    require(x.dtype == y.dtype, f"the choices differ in type: {x} and {y}")
    return TensorType(broadcast_shape(condition, x, y), x.dtype)


def target_dtype(attrs: Attrs, name: str) -> str:
    """Attribute ``name``, which must be an element type."""
    value = attrs[name]
    require(value in DTYPES, f"{name} must be an element type, not {value!r}")
    return str(value)


def _cast_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    require(attrs["rounding"] in _ROUNDINGS, f"rounding must be one of {_ROUNDINGS}, not {attrs['rounding']!r}")
    return TensorType(operands[0].shape, target_dtype(attrs, "to"))


_ROUNDINGS = ("nearest", "up", "down")


def _to_power_of_two(x: Array, saturate: bool, rounding: str) -> Array:
    """Positive numbers as float8_e8m0fnu, 2**-127 .. 2**127; ``up`` and ``down`` are away from and towards zero."""
    target = numpy_dtype("float8_e8m0fnu")
    mantissa, exponent = np.frexp(np.abs(x.astype(np.float64)))  # x = mantissa * 2**exponent, 0.5 <= mantissa < 1
    raised = {"up": mantissa > 0.5, "down": np.zeros(x.shape, bool), "nearest": mantissa >= 0.75}[rounding]
    power = exponent.astype(np.int64) - 1 + raised
    power = np.where(x == 0, -127, power)
    biased = np.clip(power + 127, 0, 254)
    invalid = np.isnan(x) | (np.isinf(x) | (power > 127) if not saturate else False)
    biased = np.where(np.isinf(x) & saturate, 254, biased)
    return np.where(invalid, 255, biased).astype(np.uint8).view(target)


def _truncated(x: Array, to: str) -> Array:
    """Floats as integers, rounded towards 0 and limited to what the type holds."""
    wide, (low, high) = x.astype(np.float64), limits_of(to)
    # A double holds every limit, or the power of two next to it, exactly.
    inside = (wide > float(low) - 1) & (wide < float(high) + 1)
    beyond = np.where(np.isnan(wide), 0, np.where(wide > 0, high, low)).astype(to)
    return np.where(inside, np.where(inside, wide, 0).astype(to), beyond)


def cast(x: Array, to: str, saturate: bool = True, rounding: str = "nearest") -> Array:
    """``x`` in another element type: to integers by truncation, to bool by x != 0, to floats by rounding to even.

    A float that an integer of 8 to 64 bits cannot hold becomes the nearest integer that fits, and NaN becomes 0; NumPy
    leaves that to the machine. Integers wrap.
    ``saturate``: what is too large for an 8-bit float becomes its largest value, and not NaN or infinity.
    ``rounding`` is about float8_e8m0fnu alone.
    """
    source, target = x.dtype.name, numpy_dtype(to)
    if source == to:
        return x
    if to == "bool":
        return np.asarray(x.astype(np.float32) != 0 if source in STORAGE else x != 0)
    if source in STORAGE and to in STORAGE:
        x = x.astype(np.float32)
    if to == "float8_e8m0fnu":
        return _to_power_of_two(x, saturate, rounding)
    if to.startswith("float8") and saturate:
        low, high = limits_of(to)
        wide = x.astype(np.float32) if x.dtype.itemsize < 4 else x
        return np.asarray(np.clip(wide, low, high).astype(target))
    if to in INTEGERS and is_float(source):
        return _truncated(x, to)
    if to in ("uint4", "int4", "uint2", "int2") and not is_float(source):
        return x.astype(np.int64).astype(target)
    return x.astype(target)


def _bitcast_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, to = operands[0], target_dtype(attrs, "to")
    same = numpy_dtype(x.dtype).itemsize == numpy_dtype(to).itemsize and (x.dtype in STORAGE) == (to in STORAGE)
    require(same or (x.dtype in _BYTES and to in _BYTES), f"{x.dtype} and {to} differ in width")
    return TensorType(x.shape, to)


_BYTES = ("int8", "uint8", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")


def _register(
    name: str, arguments: str, types: TypeRule, meaning: Meaning, doc: str, gradient: Any = NO_GRADIENT_YET, **rest: Any
) -> None:
    register(
        name, arguments, types=types, numpy=rounded_once(meaning), gradient=gradient, lower=NOT_LOWERED,
        fusion=Fusion.ELEMENTWISE, doc=doc, **rest,
    )  # fmt: skip


def _gradient_for(dtypes: tuple[str, ...], result: str) -> Any:
    if result:
        return NOT_DIFFERENTIABLE
    return NO_GRADIENT_YET if "float32" in dtypes else INTEGER_HAS_NO_GRADIENT


for _name, (_dtypes, _result, _meaning, _doc) in _BINARY.items():
    _register(_name, "a b", _broadcast(_dtypes, _result), _meaning, _doc, _gradient_for(_dtypes, _result))
for _name, (_meaning, _doc) in _FLOAT_FUNCTIONS.items():
    _register(f"nn.{_name}", "x", _broadcast(FLOATS), _meaning, _doc)
for _name, (_dtypes, _result, _meaning, _doc) in _OTHER_FUNCTIONS.items():
    _register(f"nn.{_name}", "x", _broadcast(_dtypes, _result), _meaning, _doc, _gradient_for(_dtypes, _result))

_register("nn.modulo", "a b", _modulo_type, _modulo, "Remainder: of the sign of b, or of a when truncated.",
          truncated=False)  # fmt: skip
_register("nn.power", "base exponent", _power_type, _power, "base ** exponent, in the type of the base.")
_register("nn.clip", "x", _broadcast(FLOATS), _clip, "Limit to low..high; Relu is low = 0, high = inf.",
          low=-math.inf, high=math.inf)  # fmt: skip
register(
    "nn.where", "condition x y", types=_where_type, numpy=lambda condition, x, y: np.where(condition, x, y),
    gradient=NO_GRADIENT_YET, lower=NOT_LOWERED, fusion=Fusion.ELEMENTWISE,
    doc="x where the condition holds, y elsewhere.",
)
register(
    "nn.cast", "x", types=_cast_type, numpy=cast, to=REQUIRED, saturate=True, rounding="nearest",
    gradient=NO_GRADIENT_YET, lower=NOT_LOWERED, fusion=Fusion.ELEMENTWISE,
    doc="x in another element type: to integers by truncation (NaN to 0) and, as to 8-bit floats, with saturation; "
    "integers wrap; to bool by x != 0.",
)
register(
    "nn.bitcast", "x", types=_bitcast_type, numpy=lambda x, to: x.view(numpy_dtype(to)), to=REQUIRED,
    gradient=NOT_DIFFERENTIABLE, lower=NOT_LOWERED, fusion=Fusion.ELEMENTWISE,
    doc="The same bits read as another type of the same width.",
)
