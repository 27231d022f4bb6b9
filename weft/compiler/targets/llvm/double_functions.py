"""Functions in double precision, of operations that every processor has: for targets without a C library.

Those in single precision that have no polynomial of their own are computed in double and rounded once. Errors are a few
units in the last place (``tests/compiler/targets/llvm/test_double_functions.py`` measures them); infinities, nan, signs
of zero and numbers below the smallest normal one are as C has them.

The series are those of the functions' definitions; for erf far from 0 a Chebyshev fit takes their place, made when the
module is loaded. Large angles are taken modulo pi / 2 by whole numbers (M. Payne and R. Hanek, "Radian
reduction for trigonometric functions", 1983).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction

import llvmlite.ir as ll
import numpy as np
from numpy.polynomial import Chebyshev, Polynomial

from .llvm_types import DOUBLE, FLOAT, I64, Value, intrinsic

LOG2 = math.log(2.0)
LOG2_HIGH = float(np.float32(LOG2))  # its multiples by exponents are exact
LOG2_LOW = float(Decimal(2).ln() - Decimal(LOG2_HIGH))
_I128 = ll.IntType(128)


class Real:
    """A double while code is emitted; arithmetic emits more of it."""

    def __init__(self, builder: ll.IRBuilder, value: Value) -> None:
        self.builder, self.value = builder, value

    def of(self, value: Real | float) -> Real:
        """A number as one of these."""
        return value if isinstance(value, Real) else Real(self.builder, ll.Constant(DOUBLE, float(value)))

    def _made(self, name: str, *values: Real | float) -> Real:
        return Real(self.builder, getattr(self.builder, name)(*(self.of(each).value for each in values)))

    def __add__(self, other: Real | float) -> Real:
        return self._made("fadd", self, other)

    def __radd__(self, other: float) -> Real:
        return self._made("fadd", other, self)

    def __sub__(self, other: Real | float) -> Real:
        return self._made("fsub", self, other)

    def __rsub__(self, other: float) -> Real:
        return self._made("fsub", other, self)

    def __mul__(self, other: Real | float) -> Real:
        return self._made("fmul", self, other)

    def __rmul__(self, other: float) -> Real:
        return self._made("fmul", other, self)

    def __truediv__(self, other: Real | float) -> Real:
        return self._made("fdiv", self, other)

    def __rtruediv__(self, other: float) -> Real:
        return self._made("fdiv", other, self)

    def __neg__(self) -> Real:
        return Real(self.builder, self.builder.fneg(self.value))

    def called(self, name: str, *others: Real | float) -> Real:
        """An intrinsic of LLVM with this and others."""
        values = [self.value, *(self.of(each).value for each in others)]
        return Real(self.builder, intrinsic(self.builder, f"llvm.{name}", DOUBLE, values))

    def fma(self, by: Real | float, plus: Real | float) -> Real:
        """``self * by + plus``, rounded once."""
        return self.called("fma", by, plus)

    def is_(self, sign: str, other: Real | float) -> Value:
        """A comparison; with nan it does not hold."""
        return self.builder.fcmp_ordered(sign, self.value, self.of(other).value)

    def is_nan(self) -> Value:
        return self.builder.fcmp_unordered("uno", self.value, self.value)

    def where(self, condition: Value, otherwise: Real | float) -> Real:
        """This where a condition holds."""
        return Real(self.builder, self.builder.select(condition, self.value, self.of(otherwise).value))

    def bits(self) -> Value:
        return self.builder.bitcast(self.value, I64)

    def series(self, coefficients: Sequence[float]) -> Real:
        """A polynomial of this, constant first."""
        result = self.of(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            result = result.fma(self, coefficient)
        return result


def call_double(builder: ll.IRBuilder, name: str, arguments: Sequence[Value]) -> Value:
    """The value of a function of scalars: doubles, or floats by way of doubles."""
    single = arguments[0].type == FLOAT
    reals = [Real(builder, builder.fpext(each, DOUBLE) if single else each) for each in arguments]
    result = FUNCTIONS[name](*reals).value
    return builder.fptrunc(result, FLOAT) if single else result


# Exponentials and logarithms

_EXP = tuple(1 / math.factorial(power) for power in range(14))
_SINH = tuple(1 / math.factorial(power) for power in range(1, 24, 2))
_ATANH = tuple(2 / power for power in range(1, 26, 2))


def _power_of_two(x: Real, exponent: Value) -> Real:
    """``x * 2**exponent``, in two steps so that numbers below the smallest normal one come out."""
    builder = x.builder
    half = builder.ashr(exponent, ll.Constant(I64, 1))
    for part in (half, builder.sub(exponent, half)):
        bits = builder.shl(builder.add(part, ll.Constant(I64, 1023)), ll.Constant(I64, 52))
        x = x * Real(builder, builder.bitcast(bits, DOUBLE))
    return x


def _exp(x: Real, low: Real | float = 0.0) -> Real:
    """exp(x + low), where ``low`` is small."""
    inside = x.of(-760.0).where(x.is_("<", -760.0), x)
    inside = x.of(720.0).where(inside.is_(">", 720.0), inside)
    inside = x.of(0.0).where(x.is_nan(), inside)
    count = (inside * (1 / LOG2)).called("roundeven")
    rest = count.fma(-LOG2_LOW, count.fma(-LOG2_HIGH, inside)) + low
    exponent = x.builder.fptosi(count.value, I64)
    return x.where(x.is_nan(), _power_of_two(rest.series(_EXP), exponent))


def _logarithm(x: Real) -> tuple[Real, Real, Real]:
    """Of a positive finite number: a logarithm in two parts, and 0 or nan or infinity for all others."""
    builder = x.builder
    tiny = x.is_("<", 2.0**-1022)
    scaled = (x * 2.0**54).where(tiny, x)
    bits = scaled.bits()
    # The mantissa is between the square roots of 1/2 and of 2.
    moved = builder.sub(bits, ll.Constant(I64, 0x3FE6A09E667F3BCD))
    exponent = builder.ashr(moved, ll.Constant(I64, 52))
    mantissa = Real(builder, builder.bitcast(builder.sub(bits, builder.shl(exponent, ll.Constant(I64, 52))), DOUBLE))
    count = Real(builder, builder.sitofp(exponent, DOUBLE))
    count = count - x.of(54.0).where(tiny, 0.0)
    f = mantissa - 1.0
    below = mantissa + 1.0
    below_low = mantissa - (below - 1.0)
    s = f / below
    s_low = (s.called("fma", -below, f) - s * below_low) / below
    z = s * s
    tail = 2.0 * s_low + s * z * z.series(_ATANH[1:])
    whole = count * LOG2_HIGH
    high = whole + 2.0 * s
    small = (whole - high) + 2.0 * s
    swapped = (2.0 * s - high) + whole
    error = swapped.where(whole.called("fabs").is_("<", (2.0 * s).called("fabs")), small)
    special = x.of(-math.inf).where(x.is_("==", 0.0), x.of(math.nan))
    special = x.where(x.is_("==", math.inf), special)
    return high, tail + error + count * LOG2_LOW, special


def _is_usual(x: Real) -> Value:
    return x.builder.and_(x.is_(">", 0.0), x.is_("<", math.inf))


def _log(x: Real) -> Real:
    high, low, special = _logarithm(x)
    return (high + low).where(_is_usual(x), special)


def _log1p(x: Real) -> Real:
    """log(1 + x), for x from 0 on."""
    total = 1.0 + x
    lost = x - (total - 1.0)
    return x.where(total.is_("==", math.inf), _log(total) + lost / total)


def _pow(x: Real, y: Real) -> Real:
    builder, size = x.builder, x.called("fabs")
    usual = builder.and_(size.is_(">", 0.0), size.is_("<", math.inf))
    most, rest, _ = _logarithm(size.where(usual, 1.0))
    high = most + rest
    low = rest - (high - most)
    limited = y.of(1e300).where(y.is_(">", 1e300), y)
    limited = y.of(-1e300).where(limited.is_("<", -1e300), limited)
    product = limited * high
    rest = limited.fma(high, -product) + limited * low
    bounded = builder.and_(product.is_("<", 1000.0), product.is_(">", -1000.0))
    result = _exp(product, rest.where(bounded, 0.0))
    grows = x.of(math.inf).where(y.is_(">", 0.0), 0.0)
    shrinks = x.of(0.0).where(y.is_(">", 0.0), math.inf)
    result = result.where(usual, shrinks.where(size.is_("==", 0.0), grows))
    whole = y.called("floor").is_("==", y)
    odd = builder.and_(whole, builder.not_((y * 0.5).called("floor").is_("==", y * 0.5)))
    negative = builder.icmp_signed("<", x.bits(), ll.Constant(I64, 0))
    result = (-result).where(builder.and_(negative, odd), result)
    wrong = builder.and_(builder.and_(x.is_("<", 0.0), size.is_("<", math.inf)), builder.not_(whole))
    result = x.of(math.nan).where(wrong, result)
    result = (x + y).where(builder.or_(x.is_nan(), y.is_nan()), result)
    endless = builder.and_(y.called("fabs").is_("==", math.inf), size.is_("==", 1.0))
    one = builder.or_(builder.or_(y.is_("==", 0.0), x.is_("==", 1.0)), endless)
    return x.of(1.0).where(one, result)


# Hyperbolic functions and their inverses


def _half_exponential(x: Real) -> Real:
    return _exp(x.called("fabs") * 0.5)


def _sinh(x: Real) -> Real:
    root = _half_exponential(x)
    far = 0.5 * root * root - 0.5 / root / root
    near = x * (x * x).series(_SINH)
    return near.where(x.called("fabs").is_("<", 1.0), far.called("copysign", x))


def _cosh(x: Real) -> Real:
    root = _half_exponential(x)
    return 0.5 * root * root + 0.5 / root / root


def _tanh(x: Real) -> Real:
    far = 1.0 - 2.0 / (_exp(2.0 * x.called("fabs")) + 1.0)
    near = x * (x * x).series(_SINH) / _cosh(x)
    near = near.where(x.called("fabs").is_("<", 1.0), far.called("copysign", x))
    return x.where(x.is_nan(), near)


def _asinh(x: Real) -> Real:
    size = x.called("fabs")
    small = _log1p(size + size * size / (1.0 + (size * size + 1.0).called("sqrt")))
    result = small.where(size.is_("<", 1e100), _log(size) + LOG2)
    return x.where(x.is_nan(), result.called("copysign", x))


def _acosh(x: Real) -> Real:
    above = x - 1.0
    small = _log1p(above + (2.0 * above + above * above).called("sqrt"))
    result = small.where(x.is_("<", 1e100), _log(x) + LOG2)
    return x.of(math.nan).where(x.builder.or_(x.is_("<", 1.0), x.is_nan()), result)


def _atanh(x: Real) -> Real:
    size = x.called("fabs")
    inside = 0.5 * _log1p(2.0 * size / (1.0 - size))
    inside = x.of(math.inf).where(size.is_("==", 1.0), inside)
    inside = inside.called("copysign", x)
    return inside.where(size.is_("<=", 1.0), math.nan)


# Angles


_ATAN = tuple((-1) ** n / (2 * n + 1) for n in range(22))
_TAN_PI_8 = 0.41421356237309503
_PI_4, _PI_2 = math.pi / 4, math.pi / 2
_PI_2_LOW = 6.123233995736766e-17


def _atan(x: Real) -> Real:
    size = x.called("fabs")
    turned = size.is_(">", 1.0)
    y = (1.0 / size).where(turned, size)
    far = y.is_(">", _TAN_PI_8)
    w = ((y - 1.0) / (y + 1.0)).where(far, y)
    angle = w * (w * w).series(_ATAN)
    angle = (angle + _PI_4).where(far, angle)
    angle = (_PI_2 - angle + _PI_2_LOW).where(turned, angle)
    return x.where(x.is_nan(), angle.called("copysign", x))


def _asin(x: Real) -> Real:
    return _atan(x / ((1.0 - x) * (1.0 + x)).called("sqrt"))


def _acos(x: Real) -> Real:
    return 2.0 * _atan(((1.0 - x) / (1.0 + x)).called("sqrt"))


_SIN = tuple((-1) ** n / math.factorial(2 * n + 1) for n in range(11))
_COS = tuple((-1) ** n / math.factorial(2 * n) for n in range(11))
_WORDS = 21
_TABLE = "weft_two_over_pi"


def _two_over_pi() -> list[int]:
    """2 / pi as words of 64 bits behind the point, with one of zeros in front."""
    bits = 64 * _WORDS
    # Machin: pi / 4 = 4 atan(1/5) - atan(1/239), in whole numbers.
    scale = 1 << (bits + 64)

    def inverse(of: int) -> int:
        total, term, sign, power = 0, scale // of, 1, 1
        while term:
            total += sign * (term // power)
            term //= of * of
            sign, power = -sign, power + 2
        return total

    pi = Fraction(4 * (4 * inverse(5) - inverse(239)), scale)
    number = int(2 / pi * (1 << bits))
    return [0, *(number >> 64 * (_WORDS - 1 - word) & ((1 << 64) - 1) for word in range(_WORDS))]


def _table(module: ll.Module) -> Value:
    if _TABLE not in module.globals:
        words = _two_over_pi()
        kind = ll.ArrayType(I64, len(words))
        table = ll.GlobalVariable(module, kind, _TABLE)
        table.global_constant, table.linkage = True, "internal"
        table.initializer = ll.Constant(kind, [ll.Constant(I64, word) for word in words])
    return module.globals[_TABLE]


def _quarter_turns(x: Real) -> tuple[Value, Real]:
    """Whole quarter turns of an angle (modulo 4), and what is left: from -pi / 4 to pi / 4."""
    builder = x.builder

    def number(value: int) -> Value:
        return ll.Constant(I64, value)

    near = x.called("fabs").is_("<=", _PI_4)
    size = x.called("fabs")
    usual = builder.and_(builder.not_(near), size.is_("<", math.inf))
    bits = size.where(usual, 1.0).bits()
    mantissa = builder.or_(builder.and_(bits, number((1 << 52) - 1)), number(1 << 52))
    exponent = builder.sub(builder.lshr(bits, number(52)), number(1075))
    start = builder.add(exponent, number(62))  # bits that whole turns are made of are left out
    word, by = builder.lshr(start, number(6)), builder.and_(start, number(63))
    table = _table(builder.module)
    words = []
    for place in range(4):
        pointer = builder.gep(table, [number(0), builder.add(word, number(place))], inbounds=True)
        words.append(builder.load(pointer))
    parts = [intrinsic(builder, "llvm.fshl", I64, [words[n], words[n + 1], by]) for n in range(3)]
    products = [builder.mul(builder.zext(part, _I128), builder.zext(mantissa, _I128)) for part in parts]
    low = [builder.trunc(each, I64) for each in products]
    high = [builder.trunc(builder.lshr(each, ll.Constant(_I128, 64)), I64) for each in products]
    second = builder.add(low[1], high[2])
    carry = builder.zext(builder.icmp_unsigned("<", second, low[1]), I64)
    first = builder.add(builder.add(low[0], high[1]), carry)
    # ``first`` starts with the number of quarter turns; what follows is a part of one.
    turns = builder.lshr(first, number(62))
    part_high = builder.or_(builder.shl(first, number(2)), builder.lshr(second, number(62)))
    part_low = builder.shl(second, number(2))
    turns = builder.and_(builder.add(turns, builder.lshr(part_high, number(63))), number(3))
    rest = Real(builder, builder.sitofp(part_high, DOUBLE)) * 2.0**-64
    rest = rest + Real(builder, builder.uitofp(part_low, DOUBLE)) * 2.0**-128
    angle = rest * _PI_2
    negative = builder.icmp_signed("<", x.bits(), number(0))
    angle = (-angle).where(negative, angle)
    turns = builder.select(negative, builder.and_(builder.sub(number(4), turns), number(3)), turns)
    angle = x.where(near, angle.where(usual, x.of(math.nan)))
    return builder.select(usual, turns, number(0)), angle


def _sine(x: Real, *, turned: bool) -> Real:
    builder = x.builder
    turns, angle = _quarter_turns(x)
    if turned:
        turns = builder.add(turns, ll.Constant(I64, 1))
    square = angle * angle
    sine, cosine = angle * square.series(_SIN), square.series(_COS)
    is_odd = builder.trunc(turns, ll.IntType(1))
    is_minus = builder.trunc(builder.lshr(turns, ll.Constant(I64, 1)), ll.IntType(1))
    value = cosine.where(is_odd, sine)
    return (-value).where(is_minus, value)


def _tan(x: Real) -> Real:
    return _sine(x, turned=False) / _sine(x, turned=True)


# The error function

_ERF = tuple((-1) ** n * 2 / math.sqrt(math.pi) / (math.factorial(n) * (2 * n + 1)) for n in range(21))
_ERFC_MIDDLE, _ERFC_HALF = 0.5 * (2 / 3 + 0.25), 0.5 * (2 / 3 - 0.25)


def _scaled_erfc(u: float) -> float:
    """erfc(x) exp(x * x) at the x with 2 / (2 + x) = middle + half * u."""
    x = 2 / (_ERFC_MIDDLE + _ERFC_HALF * u) - 2
    return math.erfc(x) * math.exp(x * x)


_ERFC = tuple(
    float(each) for each in Chebyshev.interpolate(np.vectorize(_scaled_erfc), 18).convert(kind=Polynomial).coef
)


def _erf(x: Real) -> Real:
    size = x.called("fabs")
    near = x * (x * x).series(_ERF)
    limited = size.where(size.is_("<", 6.0), 6.0)
    u = (2.0 / (2.0 + limited) - _ERFC_MIDDLE) * (1 / _ERFC_HALF)
    far = 1.0 - _exp(-(limited * limited)) * u.series(_ERFC)
    result = near.where(size.is_("<", 1.0), far.called("copysign", x))
    return x.where(x.is_nan(), result)


FUNCTIONS: dict[str, Callable[..., Real]] = {
    "exp": _exp, "log": _log, "pow": _pow, "sinh": _sinh, "cosh": _cosh, "tanh": _tanh, "asinh": _asinh,
    "acosh": _acosh, "atanh": _atanh, "atan": _atan, "asin": _asin, "acos": _acos, "erf": _erf, "tan": _tan,
    "sin": lambda x: _sine(x, turned=False), "cos": lambda x: _sine(x, turned=True),
}  # fmt: skip
"""By name in the loop IR; the rest has an instruction of its own everywhere."""
