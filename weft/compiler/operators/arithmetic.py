"""Arithmetic, comparisons and logic of two operands, which broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import tensor as te
from ..graph.dtypes import ARITHMETIC, FLOATS, INTEGERS, NUMBERS, STRING, dtype_name
from ..graph.ir import Array, Attrs, Call, Expr, TensorType
from ..graph.registry import Accuracy, Gradient, Role, Unsupported, call, register
from ..graph.strings import same_strings
from ..integers.arithmetic import at_least, at_most, linear
from ..tensor import ir as tir
from ..tensor.view import Builder, View
from .build import nn
from .derivatives import like, times, where
from .elementwise_entry import FLOAT_ONLY, INTEGER_ONLY, SIGNED, Formula, elementwise, formula, function, zero
from .functions import bitwise_not
from .meanings import Meaning
from .reasons import INTEGER_HAS_NO_GRADIENT, PIECEWISE_CONSTANT
from .samples import variable
from .type_rules import broadcast_shape, broadcasting, flag, require_dtype


def _divide(a: Array, b: Array) -> Array:
    """Integers are divided towards zero; by zero gives 0."""
    if a.dtype.kind not in "iu":
        return np.asarray(a / b)
    quotient = np.asarray(np.floor_divide(a, b))
    if a.dtype.kind == "u":
        return quotient
    up = (np.remainder(a, b) != 0) & ((a < 0) != (b < 0)) & (b != 0)
    return np.asarray(quotient + up.astype(a.dtype))


def divide(a: tir.Expr, b: tir.Expr) -> tir.Expr:
    """Integers are divided towards zero; by zero gives 0."""
    if a.dtype in tir.FLOATS:
        return a / b
    divisor = tir.select(b.eq(zero(b)), tir.Const(1, b.dtype), b)
    quotient = a // divisor
    if a.dtype in SIGNED:
        up = (a % divisor).ne(zero(a)) & (a < zero(a)).ne(b < zero(b))
        quotient = quotient + up.astype(a.dtype)
    return tir.select(b.eq(zero(b)), zero(a), quotient)


def _modulo(a: Array, b: Array, truncated: bool) -> Array:
    return np.asarray(np.fmod(a, b) if truncated else np.mod(a, b))


def _modulo_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    flag(attrs, "truncated")
    return broadcasting(NUMBERS)(operands, attrs)  # type: ignore[return-value]


def modulo(a: tir.Expr, b: tir.Expr) -> tir.Expr:
    """The remainder has the sign of the divisor; by zero gives 0."""
    return tir.select(b.eq(zero(b)), zero(a), a % tir.select(b.eq(zero(b)), tir.Const(1, b.dtype), b))


def _truncated_modulo(a: tir.Expr, b: tir.Expr) -> tir.Expr:
    """The remainder has the sign of the dividend; by zero gives 0."""
    rest = modulo(a, b)
    return tir.select(rest.ne(zero(b)) & (a < zero(a)).ne(b < zero(b)), rest - b, rest)


def _lower_modulo(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    rest = _truncated_modulo if call.attr("truncated") else modulo
    return formula(rest, INTEGER_ONLY)(builder, call, operands)


def _power(a: Array, b: Array) -> Array:
    if a.dtype.kind in "iu" and (b.dtype.kind not in "iu" or np.any(b < 0)):
        return np.power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
    return np.asarray(np.power(a, b)).astype(a.dtype)


def _power_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    base, exponent = operands
    require_dtype(base, "the base", *NUMBERS)
    require_dtype(exponent, "the exponent", *NUMBERS)
    return TensorType(broadcast_shape(base, exponent), base.dtype)


def _lower_power(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    """Of operands of two types in double precision, as in NumPy. The powers of integers that wrap are NumPy's."""
    base, exponent = operands
    if base.dtype == exponent.dtype or not {base.dtype, exponent.dtype} & set(FLOAT_ONLY):
        return formula(function("pow"), FLOAT_ONLY)(builder, call, operands)
    target = base.dtype

    def of_elements(a: tir.Expr, b: tir.Expr) -> tir.Expr:
        a, b = a.astype("float64"), b.astype("float64")
        power = te.pow(a, b)
        if target not in FLOAT_ONLY:  # the power of a whole number is one, which a function may miss by a little
            power = tir.select(te.floor(b).eq(b), te.round(power), power)
        return power.astype(target)

    return formula(of_elements)(builder, call, operands)


def _sample_power(dtype: str) -> Call:
    return call("nn.power", variable(dtype, 2, 3), variable(dtype, 3, name="exponent"))


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


def _inside(a: tir.Expr, b: tir.Expr) -> tir.Expr:
    """Whether ``a`` can be shifted by ``b``."""
    low, high = tir.INTEGER_RANGES[a.dtype]
    return (b < tir.Const((high - low).bit_length(), b.dtype)) & (zero(b) <= b)


def shift_left(a: tir.Expr, b: tir.Expr) -> tir.Expr:
    inside = _inside(a, b)
    return tir.select(inside, a << tir.select(inside, b, zero(b)), zero(a))


def shift_right(a: tir.Expr, b: tir.Expr) -> tir.Expr:
    inside = _inside(a, b)
    beyond = tir.select(a < zero(a), bitwise_not(zero(a)), zero(a))
    return tir.select(inside, a >> tir.select(inside, b, zero(b)), beyond)


def _multiply_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    a, b = node.args
    return nn.multiply(upstream, b), nn.multiply(upstream, a)


def _divide_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    first = nn.divide(upstream, node.args[1])
    return first, nn.negative(nn.multiply(first, node))


def _extreme_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    """All of it goes to the operand that is the result; equal ones get half each."""
    a, b = node.args
    shared = nn.equal(a, b)
    half = times(upstream, 0.5)

    def of(x: Expr) -> Expr:
        return nn.where(shared, half, where(nn.equal(x, node), upstream))

    return of(a), of(b)


def _modulo_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    """a - b * quotient, whose quotient is a whole number."""
    a, b = node.args
    quotient = nn.divide(a, b)
    whole = nn.floor(quotient)
    if node.attr("truncated"):
        whole = nn.where(nn.less(quotient, like(a, 0)), nn.ceil(quotient), whole)
    return upstream, nn.negative(nn.multiply(upstream, whole))


def _power_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    """Of x ** 0 it is 0 for the base; for the exponent it is 0 where the base is not above 0."""
    base, given = node.args
    exponent: Expr = given if given.dtype == base.dtype else nn.cast(given, to=base.dtype)
    less = nn.power(base, nn.subtract(exponent, like(base, 1)))
    slope = nn.where(nn.equal(exponent, like(base, 0)), like(base, 0), nn.multiply(exponent, less))
    above = nn.less(like(base, 0), base)
    grows = where(above, nn.multiply(node, nn.log(nn.where(above, base, like(base, 1)))))
    of_exponent: Expr = nn.multiply(upstream, grows)
    if given.dtype != base.dtype and given.dtype in FLOATS:
        of_exponent = nn.cast(of_exponent, to=given.dtype)
    return nn.multiply(upstream, slope), of_exponent if given.dtype in FLOATS else None


def _binary(
    name: str, dtypes: tuple[str, ...], numpy: Meaning, of_elements: Formula, doc: str,
    lowered: tuple[tir.DType, ...] = (), gradient: Gradient | Unsupported = INTEGER_HAS_NO_GRADIENT, **facts: Any,
) -> None:  # fmt: skip
    """An operator on two operands of one type of ``dtypes``, of which ``lowered`` become loops."""
    types = facts.pop("types", None) or broadcasting(dtypes)
    register(elementwise(name, "a b", doc, types=types, numpy=numpy, lower=formula(of_elements, lowered),
                         gradient=gradient, **facts))  # fmt: skip


def _equal(a: Array, b: Array) -> Array:
    return same_strings(a, b) if dtype_name(a.dtype) == STRING else np.asarray(np.equal(a, b))


def _comparison(
    name: str, numpy: Meaning, of_elements: Formula, doc: str, dtypes: tuple[str, ...] = ARITHMETIC
) -> None:
    _binary(name, dtypes, numpy, of_elements, doc, types=broadcasting(dtypes, "bool"),
            gradient=PIECEWISE_CONSTANT, accuracy=Accuracy.JUMPS)  # fmt: skip


_binary("nn.add", NUMBERS, lambda a, b: a + b, lambda a, b: a + b, "Sum, with broadcasting.",
        gradient=lambda upstream, node: (upstream, upstream), role=Role.ADD, integer=linear)  # fmt: skip
_binary("nn.subtract", NUMBERS, lambda a, b: a - b, lambda a, b: a - b, "Difference, with broadcasting.",
        gradient=lambda upstream, node: (upstream, nn.negative(upstream)), role=Role.SUBTRACT,
        integer=linear)  # fmt: skip
_binary("nn.multiply", NUMBERS, lambda a, b: a * b, lambda a, b: a * b, "Product, with broadcasting.",
        gradient=_multiply_gradient, role=Role.MULTIPLY, integer=linear)  # fmt: skip
_binary("nn.divide", NUMBERS, _divide, divide, "Quotient, with broadcasting; integers towards zero, and x / 0 = 0.",
        gradient=_divide_gradient, role=Role.DIVIDE, integer=linear)  # fmt: skip
_binary("nn.minimum", NUMBERS, np.minimum, tir.minimum, "The smaller operand; NaN wins.", accuracy=Accuracy.EXACT,
        gradient=_extreme_gradient, integer=at_most)  # fmt: skip
_binary("nn.maximum", NUMBERS, np.maximum, tir.maximum, "The larger operand; NaN wins.", accuracy=Accuracy.EXACT,
        gradient=_extreme_gradient, integer=at_least)  # fmt: skip
_comparison("nn.equal", _equal, lambda a, b: a.eq(b), "a = b.", (*ARITHMETIC, STRING))
_comparison("nn.less", np.less, lambda a, b: a < b, "a < b.")
_comparison("nn.less_equal", np.less_equal, lambda a, b: a <= b, "a <= b.")
_binary("nn.and", ("bool",), np.logical_and, lambda a, b: a & b, "Both are true.")
_binary("nn.or", ("bool",), np.logical_or, lambda a, b: a | b, "At least one is true.")
_binary("nn.xor", ("bool",), np.logical_xor, lambda a, b: a.ne(b), "Exactly one is true.")
_binary("nn.bitwise_and", INTEGERS, np.bitwise_and, lambda a, b: a & b, "Bits that both operands have.", INTEGER_ONLY)
_binary("nn.bitwise_or", INTEGERS, np.bitwise_or, lambda a, b: a | b, "Bits that an operand has.", INTEGER_ONLY)
_binary("nn.bitwise_xor", INTEGERS, np.bitwise_xor, lambda a, b: (a | b) - (a & b),
        "Bits that exactly one operand has.", INTEGER_ONLY)  # fmt: skip
_binary("nn.shift_left", INTEGERS, _shift_left, shift_left,
        "a * 2**b, low bits; 0 when b is negative or the width or more.", INTEGER_ONLY)  # fmt: skip
_binary("nn.shift_right", INTEGERS, _shift_right, shift_right,
        "a / 2**b, rounded down; b is as in nn.shift_left.", INTEGER_ONLY)  # fmt: skip
register(elementwise(
    "nn.modulo", "a b", "Remainder: of the sign of b, or of a when truncated.", types=_modulo_type, numpy=_modulo,
    lower=_lower_modulo, accuracy=Accuracy.JUMPS, defaults={"truncated": False},
    gradient=_modulo_gradient,
))  # fmt: skip
register(elementwise(
    "nn.power", "base exponent", "base ** exponent, in the type of the base.", types=_power_type, numpy=_power,
    lower=_lower_power, cost=64, sample=_sample_power, gradient=_power_gradient, role=Role.POWER,
))  # fmt: skip
