"""Numbers of 8 bits and less as kernels compute with them: a byte of memory each, which is read and written here.

Loops have no such types: they move bytes (`element_type`), and what a byte means stands in expressions.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ..graph.dtypes import SMALL_INTEGERS, STORAGE, limits, numpy_dtype
from ..tensor import ir as tir
from ..tensor.view import NotLoweredError, element_type

POWER_OF_TWO = "float8_e8m0fnu"
"""The type that holds an exponent alone, without a sign."""

_MANTISSA, _BIAS, _WIDEST = 23, 127, 254  # of float32; the last: its largest exponent as it is stored


@dataclass(frozen=True)
class _Format:
    """A float with a sign, in the last ``bits`` + 1 bits of a byte.

    ``largest``: the code of the largest number. ``overflow``: the code of what is larger. ``nan``: that of no number.
    ``infinity``: its code; None where there is none. ``unsigned_zero``: whether -0 is missing, so that its code is nan.
    ``saturates``: whether it holds nothing beyond its largest number, so that what is larger always becomes that.
    """

    bits: int
    mantissa: int
    bias: int
    largest: int
    overflow: int
    nan: int
    infinity: int | None
    unsigned_zero: bool
    saturates: bool


@functools.cache
def _format(dtype: str) -> _Format:
    info: Any = ml_dtypes.finfo(numpy_dtype(dtype))  # type: ignore[no-untyped-call]

    def code(value: float) -> int:
        with np.errstate(over="ignore", invalid="ignore"):
            return int(np.array(value, np.float32).astype(numpy_dtype(dtype)).view(np.uint8))

    bits, largest, overflow = info.nexp + info.nmant, code(float(info.max)), code(math.inf)
    infinity = overflow if np.isinf(np.array(overflow, np.uint8).view(numpy_dtype(dtype)).astype(np.float32)) else None
    return _Format(
        bits, info.nmant, 1 - info.minexp, largest, overflow, code(math.nan), infinity,
        unsigned_zero=code(-0.0) == 0, saturates=overflow == largest,
    )  # fmt: skip


def literal(value: float, dtype: str) -> tir.Const:
    """A number as kernels hold it."""
    if dtype not in STORAGE:
        return tir.Const(value, element_type(dtype))
    return tir.Const(int(np.array(value).astype(numpy_dtype(dtype)).view(np.uint8)), "uint8")


def number_of(code: tir.Expr, dtype: str) -> tir.Expr:
    """What a byte means: an int32 of the small integers, a float32 of the small floats."""
    if dtype in SMALL_INTEGERS:
        return _integer_of(code, dtype)
    if dtype == POWER_OF_TWO:
        return _power_of(code)
    form = _format(dtype)
    magnitude = code % (1 << form.bits)
    exponent, fraction = magnitude // (1 << form.mantissa), magnitude % (1 << form.mantissa)
    # Without the leading bit of a number that is not below the smallest normal one its exponent counts from 1, too.
    digits = tir.select(exponent.eq(0), fraction, fraction + (1 << form.mantissa)).astype("int64")
    whole = (digits << tir.maximum(exponent, 1).astype("int64")).astype("float32")
    sign = tir.select((code // (1 << form.bits) % 2).eq(0), tir.Const(1, "float32"), -1)
    value = whole * 2.0 ** (-form.bias - form.mantissa) * sign
    nan: tir.Expr = tir.Const(math.nan, "float32")
    if form.unsigned_zero:
        return tir.select(code.eq(form.nan), nan, value)
    if form.saturates:
        return value
    if form.infinity is not None:
        nan = tir.select(magnitude.eq(form.infinity), sign * math.inf, nan)
    return tir.select(magnitude <= form.largest, value, nan)


def code_of(value: tir.Expr, dtype: str, saturate: bool = True, rounding: str = "nearest") -> tir.Expr:
    """The byte that ``cast`` makes of a number (`operators.cast`); NotLoweredError where a type has more digits than
    are looked at here."""
    if dtype in SMALL_INTEGERS:
        return _code_of_integer(value, dtype)
    if dtype == POWER_OF_TWO:
        return _code_of_power(value, saturate, rounding)
    form = _format(dtype)
    value = value.astype("float32")  # rounds twice, as NumPy does
    smallest, largest = 2.0 ** (1 - form.bias), limits(dtype)[1]
    # NaN is replaced at the end, and so is what is larger: it must only be larger than the largest here, too.
    size = tir.select(_size(value) < 2 * largest, _size(value), tir.Const(2 * largest, "float32"))
    cut = _MANTISSA - form.mantissa
    bits = size.bits("int32")
    to_even = bits + (bits >> cut) % 2 + ((1 << cut - 1) - 1)
    normal = (to_even >> cut) - (_BIAS - form.bias << form.mantissa)
    tiny = tir.Call("round", (size * 2.0 ** (form.bias - 1 + form.mantissa),)).astype("int32")
    code = tir.select(size < smallest, tiny, normal)
    beyond = form.largest if saturate or form.saturates else form.overflow
    code = tir.select(code <= form.largest, code, tir.Const(beyond, "int32"))
    negative = value.bits("int32") < 0
    if form.unsigned_zero:
        negative = negative & code.ne(0) & code.ne(form.nan)
    signed = tir.select(negative, code + (1 << form.bits), code)
    return tir.select(value.ne(value), tir.Const(form.nan, "int32"), signed).astype("uint8")


def _size(value: tir.Expr) -> tir.Expr:
    return tir.maximum(value, value * -1.0)


def _integer_of(code: tir.Expr, dtype: str) -> tir.Expr:
    low, high = map(int, limits(dtype))
    held = (code % (high - low + 1)).astype("int32")
    return tir.select(held > high, held - (high - low + 1), held) if low else held


def _code_of_integer(value: tir.Expr, dtype: str) -> tir.Expr:
    """The last bits; of a float rounded towards 0, where that fits an int32."""
    low, high = map(int, limits(dtype))
    if value.dtype in tir.FLOATS:
        fits = (value < float(1 << 31)) & (value > -float(1 << 31))
        value = tir.select(fits, value.astype("int32"), tir.Const(0, "int32"))
    return value.astype("uint8") % (high - low + 1)


def _power_of(code: tir.Expr) -> tir.Expr:
    """Exponents of float32 count alike; only the least is below its normal numbers."""
    normal = (code.astype("int32") << _MANTISSA).bits("float32")
    other = tir.select(code.eq(0), tir.Const(2.0**-_BIAS, "float32"), tir.Const(math.nan, "float32"))
    return tir.select(code.ne(0) & code.ne(_WIDEST + 1), normal, other)


def _code_of_power(value: tir.Expr, saturate: bool, rounding: str) -> tir.Expr:
    if value.dtype == "float64" or (value.dtype not in tir.FLOATS and value.dtype not in (
        "bool", "int8", "uint8", "int16", "uint16"
    )):  # fmt: skip
        raise NotLoweredError(f"{value.dtype} as {POWER_OF_TWO}")
    value = value.astype("float32")
    bits = (_size(value) + 0.0).bits("int32")  # of 0 and -0 either may be the larger
    exponent, fraction = bits >> _MANTISSA, bits % (1 << _MANTISSA)
    half = 1 << _MANTISSA - 1
    normal, tiny, least = {  # the largest fractions that are not raised, and the least that is raised to 2**-127
        "nearest": (half - 1, half + half // 2 - 1, half - half // 4), "up": (0, half, half // 2 + 1),
        "down": (2 * half, 2 * half, half),
    }[rounding]  # fmt: skip
    raised = tir.select(exponent.eq(0), fraction > tiny, fraction > normal)
    most = tir.Const(_WIDEST if saturate else _WIDEST + 1, "int32")
    code = tir.minimum(exponent + raised.astype("int32"), most)
    invalid = value.ne(value) if saturate else value.ne(value) | (exponent.eq(0) & (fraction < least))
    return tir.select(invalid, tir.Const(_WIDEST + 1, "int32"), code).astype("uint8")
