"""Expressions of the loop IR: scalars, and the operators and functions on them.

Integer arithmetic wraps at the width of its type; floats follow IEEE 754, and every operation is rounded once to its
type (``bfloat16`` is the upper half of a ``float32``). The operands of an operator have one type. Loads, the one
expression that needs memory, stand beside the buffers in ``statements``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, TypeAlias

from ...records import quick_init
from .errors import IRError

DType: TypeAlias = Literal[
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32",
    "float64", "bool",
]  # fmt: skip
FLOATS: tuple[DType, ...] = ("float16", "bfloat16", "float32", "float64")

INTEGER_RANGES: dict[DType, tuple[int, int]] = {
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint64": (0, 2**64 - 1),
    "bool": (0, 1),
}
DTYPES: tuple[DType, ...] = (*INTEGER_RANGES, *FLOATS)

ARITHMETIC = ("add", "sub", "mul", "div", "floordiv", "mod", "min", "max", "shl", "shr")
LOGIC = ("and", "or")
COMPARISONS = ("lt", "le", "eq", "ne")
OPERATORS = ARITHMETIC + LOGIC + COMPARISONS
_OPERATORS = frozenset(OPERATORS)
_COMPARISONS = frozenset(COMPARISONS)

FUNCTIONS: dict[str, int] = {
    **dict.fromkeys(
        ("exp", "log", "sqrt", "erf", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh",
         "acosh", "atanh", "floor", "ceil", "round"),
        1,
    ),
    "pow": 2,
}  # fmt: skip
"""Functions on floats and how many operands each takes. ``round`` goes to the nearest, ties to the even one."""

Number: TypeAlias = int | float | bool


class Expr:
    """A scalar value. Operators build new expressions; both operands have one type, Python numbers adapt to it."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()

    def remembered_hash(self) -> int:
        """The hash of the fields, worked out once: that of an expression visits all that is below it."""
        found: int | None = self.__dict__.get("_hash")
        if found is None:
            found = self.__dict__["_hash"] = hash(tuple([getattr(self, name) for name in self.__match_args__]))
        return found

    def __getstate__(self) -> dict[str, object]:
        # Other processes hash others, and what can be worked out again need not travel.
        return {name: self.__dict__[name] for name in self.__match_args__}

    @property
    def dtype(self) -> DType:
        """Type of the value."""
        raise NotImplementedError

    def __add__(self, other: Expr | Number) -> Expr:
        return BinOp("add", self, _like(other, self))

    def __radd__(self, other: Number) -> Expr:
        return BinOp("add", _like(other, self), self)

    def __sub__(self, other: Expr | Number) -> Expr:
        return BinOp("sub", self, _like(other, self))

    def __rsub__(self, other: Number) -> Expr:
        return BinOp("sub", _like(other, self), self)

    def __mul__(self, other: Expr | Number) -> Expr:
        return BinOp("mul", self, _like(other, self))

    def __rmul__(self, other: Number) -> Expr:
        return BinOp("mul", _like(other, self), self)

    def __truediv__(self, other: Expr | Number) -> Expr:
        return BinOp("div", self, _like(other, self))

    def __rtruediv__(self, other: Number) -> Expr:
        return BinOp("div", _like(other, self), self)

    def __floordiv__(self, other: Expr | Number) -> Expr:
        return BinOp("floordiv", self, _like(other, self))

    def __mod__(self, other: Expr | Number) -> Expr:
        return BinOp("mod", self, _like(other, self))

    def __lshift__(self, other: Expr | Number) -> Expr:
        return BinOp("shl", self, _like(other, self))

    def __rlshift__(self, other: Number) -> Expr:
        return BinOp("shl", _like(other, self), self)

    def __rshift__(self, other: Expr | Number) -> Expr:
        return BinOp("shr", self, _like(other, self))

    def __and__(self, other: Expr | Number) -> Expr:
        return BinOp("and", self, _like(other, self))

    def __or__(self, other: Expr | Number) -> Expr:
        return BinOp("or", self, _like(other, self))

    def __neg__(self) -> Expr:
        """Of floats a product, since 0 - 0 has not the sign of -0."""
        return self * -1.0 if self.dtype in FLOATS else BinOp("sub", _like(0, self), self)

    def __lt__(self, other: Expr | Number) -> Expr:
        return BinOp("lt", self, _like(other, self))

    def __le__(self, other: Expr | Number) -> Expr:
        return BinOp("le", self, _like(other, self))

    def __gt__(self, other: Expr | Number) -> Expr:
        return BinOp("lt", _like(other, self), self)

    def __ge__(self, other: Expr | Number) -> Expr:
        return BinOp("le", _like(other, self), self)

    def eq(self, other: Expr | Number) -> Expr:
        """The comparison ``self == other`` as an expression."""
        return BinOp("eq", self, _like(other, self))

    def ne(self, other: Expr | Number) -> Expr:
        """The comparison ``self != other`` as an expression."""
        return BinOp("ne", self, _like(other, self))

    def astype(self, dtype: DType) -> Expr:
        """The value converted to ``dtype``; integers wrap. A conversion to the same type is left out."""
        return self if dtype == self.dtype else Cast(dtype, self)

    def bits(self, dtype: DType) -> Expr:
        """The value's bits read as a value of ``dtype``. Those of the same type are left as they are."""
        return self if dtype == self.dtype else Bits(dtype, self)

    def __bool__(self) -> bool:
        raise IRError(
            "an expression has no truth value while the program is built",
            hint="use select(condition, a, b), & and | instead of if, and, or",
        )


@quick_init
@dataclass(frozen=True)
class Var(Expr):
    """A loop variable (``int64``) or a scalar parameter of an intrinsic (any type)."""

    name: str
    type: DType = "int64"

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def dtype(self) -> DType:
        return self.type


@quick_init
@dataclass(frozen=True)
class Const(Expr):
    """A literal. Integers must fit ``type``; IRError otherwise."""

    value: Number
    type: DType = "int64"

    def __post_init__(self) -> None:
        limits = INTEGER_RANGES.get(self.type)
        if limits is None:
            object.__setattr__(self, "value", float(self.value))
        elif not limits[0] <= self.value <= limits[1]:
            raise IRError(f"constant {self.value!r} does not fit {self.type}, which holds {limits[0]}..{limits[1]}")
        elif self.value != int(self.value):
            raise IRError(f"constant {self.value!r} is not an integer, but its type is {self.type}")
        elif type(self.value) is not int or self.type == "bool":
            object.__setattr__(self, "value", bool(self.value) if self.type == "bool" else int(self.value))

    @property
    def dtype(self) -> DType:
        return self.type


@quick_init
@dataclass(frozen=True)
class BinOp(Expr):
    """``a op b`` with one of ``OPERATORS``. ``floordiv``, ``mod`` and ``shr`` round down; comparisons give bool.

    ``div`` is the division of floats, ``floordiv`` that of integers. ``min`` and ``max`` of a nan are nan.
    """

    op: str
    a: Expr
    b: Expr

    __hash__ = Expr.remembered_hash

    def __post_init__(self) -> None:
        if self.op not in _OPERATORS:
            raise IRError(f"unknown operator {self.op!r}", hint=f"the operators are {', '.join(OPERATORS)}")
        dtype = self.a.dtype
        self.__dict__["dtype"] = "bool" if self.op in _COMPARISONS else dtype  # asked for very often
        if dtype != self.b.dtype:
            raise IRError(
                f"{self.op!r} of {dtype} and {self.b.dtype}: both operands must have one type",
                hint="convert one of them with .astype(...)",
            )
        if dtype in FLOATS:
            if self.op in ("shl", "shr", "and", "or", "floordiv", "mod"):
                raise IRError(f"{self.op!r} is not defined for {dtype}")
        elif self.op == "div":
            raise IRError(
                f"'div' is not defined for {dtype}", hint="use // for integers, or convert with .astype('float32')"
            )
        elif dtype == "bool" and self.op in ARITHMETIC:
            raise IRError(f"{self.op!r} is not defined for bool", hint="convert with .astype('int32') first")

    @cached_property
    def dtype(self) -> DType:
        return "bool" if self.op in _COMPARISONS else self.a.dtype


@quick_init
@dataclass(frozen=True)
class Select(Expr):
    """``a`` where ``cond`` holds, else ``b``. Only the chosen side is evaluated, so it may guard a load."""

    cond: Expr
    a: Expr
    b: Expr

    __hash__ = Expr.remembered_hash

    def __post_init__(self) -> None:
        if self.cond.dtype != "bool":
            raise IRError(f"the condition of select is {self.cond.dtype}, but must be bool")
        if self.a.dtype != self.b.dtype:
            raise IRError(f"select between {self.a.dtype} and {self.b.dtype}: both sides must have one type")

    @property
    def dtype(self) -> DType:
        return self.a.dtype


@quick_init
@dataclass(frozen=True)
class Call(Expr):
    """A function of ``FUNCTIONS`` on floats of one type: the exact value, rounded once (a target may be less exact)."""

    function: str
    args: tuple[Expr, ...]

    __hash__ = Expr.remembered_hash

    def __post_init__(self) -> None:
        if self.function not in FUNCTIONS:
            raise IRError(f"unknown function {self.function!r}", hint=f"the functions are {', '.join(FUNCTIONS)}")
        if len(self.args) != FUNCTIONS[self.function]:
            raise IRError(f"{self.function!r} takes {FUNCTIONS[self.function]} operands, not {len(self.args)}")
        for arg in self.args:
            if arg.dtype not in FLOATS:
                raise IRError(
                    f"{self.function!r} of {arg.dtype}: the operand must be a float",
                    hint="convert it with .astype('float32')",
                )
            if arg.dtype != self.args[0].dtype:
                raise IRError(f"{self.function!r} of {self.args[0].dtype} and {arg.dtype}: operands must have one type")

    @property
    def dtype(self) -> DType:
        return self.args[0].dtype


@quick_init
@dataclass(frozen=True)
class Cast(Expr):
    """``x`` converted to ``type``. Integers wrap to the narrower type.

    Float to integer rounds toward zero; what does not fit becomes the nearest integer that does, and nan becomes 0.
    """

    type: DType
    x: Expr

    __hash__ = Expr.remembered_hash

    @property
    def dtype(self) -> DType:
        return self.type


@dataclass(frozen=True)
class Bits(Expr):
    """The bits of ``x`` as a value of ``type``, which is as wide. A nan that signals may become one that does not."""

    type: DType
    x: Expr

    __hash__ = Expr.remembered_hash

    def __post_init__(self) -> None:
        if "bool" in (self.type, self.x.dtype) or _width(self.type) != _width(self.x.dtype):
            raise IRError(f"{self.x.dtype} and {self.type} have no bits in common",
                          hint="both must be numbers of one width")  # fmt: skip

    @property
    def dtype(self) -> DType:
        return self.type


def _width(dtype: DType) -> str:
    """The bits of a number's type, as its name says."""
    return dtype.lstrip("abcdefghijklmnopqrstuvwxyz")


def as_expr(value: Expr | Number, dtype: DType = "int64") -> Expr:
    """``value`` as an expression; Python numbers become constants of ``dtype``."""
    return value if isinstance(value, Expr) else Const(value, dtype)


def int_value(expr: Expr) -> int:
    """Value of an integer constant; IRError if ``expr`` is anything else."""
    if not isinstance(expr, Const) or isinstance(expr.value, float):
        raise IRError(f"expected an integer constant, not {expr}")
    return int(expr.value)


def select(cond: Expr, a: Expr | Number, b: Expr | Number) -> Expr:
    """``a`` where ``cond`` holds, else ``b``."""
    return Select(cond, *_pair(a, b))


def minimum(a: Expr | Number, b: Expr | Number) -> Expr:
    """The smaller of both."""
    return BinOp("min", *_pair(a, b))


def maximum(a: Expr | Number, b: Expr | Number) -> Expr:
    """The larger of both."""
    return BinOp("max", *_pair(a, b))


def clamp(x: Expr, low: Expr | Number, high: Expr | Number) -> Expr:
    """``x`` limited to ``low .. high``."""
    return minimum(maximum(x, low), high)


def exp(x: Expr) -> Expr:
    """e to the power of ``x``."""
    return Call("exp", (x,))


def log(x: Expr) -> Expr:
    """Natural logarithm; nan below 0, minus infinity at 0."""
    return Call("log", (x,))


def sqrt(x: Expr) -> Expr:
    """Square root; nan below 0."""
    return Call("sqrt", (x,))


def tanh(x: Expr) -> Expr:
    """Hyperbolic tangent."""
    return Call("tanh", (x,))


def erf(x: Expr) -> Expr:
    """Error function."""
    return Call("erf", (x,))


def sin(x: Expr) -> Expr:
    """Sine of an angle in radians."""
    return Call("sin", (x,))


def cos(x: Expr) -> Expr:
    """Cosine of an angle in radians."""
    return Call("cos", (x,))


def floor(x: Expr) -> Expr:
    """The next whole number at or below ``x``, as a float."""
    return Call("floor", (x,))


def ceil(x: Expr) -> Expr:
    """The next whole number at or above ``x``, as a float."""
    return Call("ceil", (x,))


def round(x: Expr) -> Expr:
    """The nearest whole number, as a float; of two, the even one."""
    return Call("round", (x,))


def pow(x: Expr | Number, y: Expr | Number) -> Expr:
    """``x`` to the power of ``y``."""
    return Call("pow", _pair(x, y))


def _pair(a: Expr | Number, b: Expr | Number) -> tuple[Expr, Expr]:
    if isinstance(a, Expr):
        return a, as_expr(b, a.dtype)
    if isinstance(b, Expr):
        return as_expr(a, b.dtype), b
    return as_expr(a), as_expr(b)


def _like(value: Expr | Number, other: Expr) -> Expr:
    return as_expr(value, other.dtype)


Rewrite: TypeAlias = Callable[[Expr], Expr | None]
"""A rule on expressions: the new node, or None for "does not apply"."""
