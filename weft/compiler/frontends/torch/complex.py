"""Complex numbers: tensors in two parts, which exist while a graph is read alone. An input or output of a model has
both in an axis behind the others, as `torch.view_as_real` gives them.

A rule of complex numbers takes `Complex` for such a tensor, and gives one where PyTorch says that its result is. The
types of its site are then those of either part. What moves or adds up elements does so with either part, by the rule of
real numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np

from ...graph import UNKNOWN, Array, Constant, Expr, Span
from ...graph.dtypes import numpy_dtype
from ..functions import log1p
from ..site import OperatorSite
from .product import product
from .site import RULES, Site


@dataclass(frozen=True)
class Complex:
    """Both parts, of one type."""

    real: Expr
    imaginary: Expr


Number = Complex | Expr | complex
"""What may stand beside a complex operand."""

COMPLEX_RULES: dict[str, Callable[..., Any]] = {}
"""Of operators that take or give complex numbers, by the full name of the overload."""

BY_PARTS = frozenset(
    f"aten.{name}"
    for name in (
        "clone.default", "alias.default", "detach.default", "lift_fresh_copy.default", "contiguous.default",
        "view.default", "_unsafe_view.default", "reshape.default", "unsqueeze.default", "squeeze.dim", "squeeze.dims",
        "squeeze.default", "permute.default", "transpose.int", "t.default", "expand.default", "repeat.default",
        "slice.Tensor", "select.int", "split_with_sizes.default", "split.Tensor", "unbind.int", "flip.default",
        "roll.default", "as_strided.default", "diagonal.default", "unfold.default", "tril.default", "triu.default",
        "narrow.default", "index_select.default", "gather.default", "index.Tensor", "embedding.default", "neg.default",
        "sum.default", "sum.dim_IntList", "mean.default", "mean.dim", "cumsum.default",
    )
)  # fmt: skip
"""Operators of one complex operand that do the same to either part."""

F = TypeVar("F", bound=Callable[..., Any])


def _rule(*names: str) -> Callable[[F], F]:
    def add(function: F) -> F:
        COMPLEX_RULES.update(dict.fromkeys((f"aten.{name}" for name in names), function))
        return function

    return add


def reads_complex(name: str) -> bool:
    """Whether there is a rule of complex numbers for an operator."""
    return name in COMPLEX_RULES or name in BY_PARTS


def constant(value: Array, name: str, span: Span = UNKNOWN) -> Constant | Complex:
    """A constant of either kind."""
    if not np.iscomplexobj(value):
        return Constant(value, name, span)
    return Complex(Constant(value.real, f"{name}.real", span), Constant(value.imag, f"{name}.imag", span))


def converted(site: Site, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What the operator of a site gives of complex operands, or as complex results."""
    if site.op in COMPLEX_RULES:
        return COMPLEX_RULES[site.op](site, *args, **kwargs)
    rule: Callable[..., Any] = RULES[site.op]
    x, *others = args
    real, imaginary = rule(site, x.real, *others, **kwargs), rule(site, x.imaginary, *others, **kwargs)
    if isinstance(real, tuple):
        return tuple(Complex(*parts) for parts in zip(real, imaginary, strict=True))
    return Complex(real, imaginary)


# Operands


def _complex(site: Site, x: Number, dtype: str = "") -> Complex:
    """An operand in both parts, by default of the result's type."""
    dtype = dtype or site.dtype
    if isinstance(x, Complex):
        return Complex(site.cast(x.real, dtype), site.cast(x.imaginary, dtype))
    if isinstance(x, Expr):
        return Complex(site.cast(x, dtype), Constant(np.zeros(x.shape, numpy_dtype(dtype))))
    return Complex(site.like(complex(x).real, dtype), site.like(complex(x).imag, dtype))


def _is_real(x: Number) -> bool:
    return isinstance(x, Expr) or (not isinstance(x, Complex) and complex(x).imag == 0)


def _each(site: Site, op: str, x: Complex, factor: Expr | float) -> Complex:
    """``op`` of either part and a real number."""
    return Complex(site(op, x.real, factor), site(op, x.imaginary, factor))


def _scaled(site: Site, x: Complex, factor: float) -> Complex:
    return x if factor == 1 else _each(site, "multiply", x, factor)


def _of_real_numbers(op: str) -> Callable[..., Expr]:
    """The rule of an operator with one result."""
    return cast("Callable[..., Expr]", RULES[op])


def _length(site: Site, x: Complex) -> Expr:
    return _of_real_numbers("aten.hypot.default")(site, x.real, x.imaginary)


def _angle(site: Site, x: Complex) -> Expr:
    return _of_real_numbers("aten.atan2.default")(site, x.imaginary, x.real)


def _polar(site: Site, length: Expr, angle: Expr) -> Complex:
    return Complex(site("multiply", length, site("cos", angle)), site("multiply", length, site("sin", angle)))


# From real numbers, and to them


@_rule("complex.default")
def _of_parts(site: Site, real: Expr, imaginary: Expr) -> Complex:
    return Complex(*(site.expand(part, site.shape) for part in (real, imaginary)))


@_rule("polar.default")
def _of_angle(site: Site, length: Expr, angle: Expr) -> Complex:
    return _polar(site, length, angle)


@_rule("view_as_complex.default")
def of_pairs(site: OperatorSite, x: Expr) -> Complex:
    last = len(x.shape) - 1
    return Complex(*(site.reshape(site.slice(x, last, number, 1), x.shape[:-1]) for number in (0, 1)))


@_rule("view_as_real.default")
def pairs(site: OperatorSite, x: Complex) -> Expr:
    return site.concat([site.reshape(part, (*part.shape, 1)) for part in (x.real, x.imaginary)], len(x.real.shape))


@_rule("real.default")
def _real(site: Site, x: Complex) -> Expr:
    return x.real


@_rule("imag.default")
def _imaginary(site: Site, x: Complex) -> Expr:
    return x.imaginary


@_rule("abs.default")
def _abs(site: Site, x: Complex) -> Expr:
    return _length(site, x)


@_rule("angle.default")
def _angle_of(site: Site, x: Complex) -> Expr:
    return _angle(site, x)


@_rule("_to_copy.default")
def _to(site: Site, x: Number, *, dtype: str | None = None, **_: Any) -> Complex | Expr:
    if dtype is not None and "complex" not in dtype:  # the imaginary part is dropped, as PyTorch does
        return site.cast(x.real if isinstance(x, Complex) else _complex(site, x).real, site.dtype)
    return _complex(site, x)


# Element by element


@_rule("_conj.default", "_conj_physical.default", "conj_physical.default", "resolve_conj.default")
def _conjugate(site: Site, x: Complex) -> Complex:
    return x if site.op.endswith("resolve_conj.default") else Complex(x.real, site("negative", x.imaginary))


@_rule("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar")
def _sum(site: Site, a: Number, b: Number, alpha: complex = 1) -> Complex:
    return _joined_by(site, "add" if site.op.startswith("aten.add") else "subtract", a,
                      b if alpha == 1 else _times(site, b, alpha))  # fmt: skip


def _joined_by(site: Site, op: str, a: Number, b: Number) -> Complex:
    """``add`` or ``subtract``."""
    x, y = _complex(site, a), _complex(site, b)
    return Complex(site(op, x.real, y.real), site(op, x.imaginary, y.imaginary))


def _plus(site: Site, a: Number, b: Number) -> Complex:
    return _joined_by(site, "add", a, b)


def _shifted(site: Site, x: Complex, by: float) -> Complex:
    """With a real number added; the sign of an imaginary zero, which says the side of a cut, stays."""
    return Complex(site("add", x.real, by), x.imaginary)


def _opposite(site: Site, x: Complex) -> Complex:
    return Complex(site("negative", x.real), site("negative", x.imaginary))


def _minus(site: Site, a: Number, b: Number) -> Complex:
    return _joined_by(site, "subtract", a, b)


@_rule("mul.Tensor", "mul.Scalar")
def _times(site: Site, a: Number, b: Number) -> Complex:
    x, y = _complex(site, a), _complex(site, b)
    if _is_real(b):
        return _each(site, "multiply", x, y.real)
    if _is_real(a):
        return _each(site, "multiply", y, x.real)
    return _products(site, x, y, lambda p, q: site("multiply", p, q))


def _products(site: Site, x: Complex, y: Complex, by: Callable[[Expr, Expr], Expr]) -> Complex:
    return Complex(site("subtract", by(x.real, y.real), by(x.imaginary, y.imaginary)),
                   site("add", by(x.real, y.imaginary), by(x.imaginary, y.real)))  # fmt: skip


@_rule("div.Tensor", "div.Scalar")
def _quotient(site: Site, a: Number, b: Number) -> Complex:
    """By the larger part of the divisor, whose square might be infinite."""
    x, y = _complex(site, a), _complex(site, b)
    if _is_real(b):
        return _each(site, "divide", x, y.real)
    large = site("maximum", site("abs", y.real), site("abs", y.imaginary))
    y = _each(site, "divide", y, large)
    square = site("add", site("multiply", y.real, y.real), site("multiply", y.imaginary, y.imaginary))
    conjugate = Complex(y.real, site("negative", y.imaginary))
    above = _products(site, x, conjugate, lambda p, q: site("multiply", p, q))
    return _each(site, "divide", _each(site, "divide", above, square), large)


@_rule("reciprocal.default")
def _reciprocal(site: Site, x: Complex) -> Complex:
    return _quotient(site, 1.0, x)


@_rule("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def _power(site: Site, base: Number, exponent: Number) -> Complex:
    """Small whole powers are products, others go by length and angle."""
    if not isinstance(exponent, (Complex, Expr)):
        if exponent in (2, 3, 4):
            x = found = _complex(site, base)
            for _ in range(int(complex(exponent).real) - 1):
                found = _times(site, found, x)
            return found
        if _is_real(exponent) and isinstance(base, Complex):
            real = float(complex(exponent).real)
            length = site("power", _length(site, base), real)
            return _polar(site, length, site("multiply", _angle(site, base), real))
    x, y = (_broadcast(site, each) for each in (base, exponent))
    found = _exponential(site, _times(site, y, _logarithm(site, x)))
    nothing = site("and", site("equal", x.real, 0), site("equal", x.imaginary, 0))  # whose logarithm is infinite
    whole = site("and", site("equal", y.real, 0), site("equal", y.imaginary, 0))
    at_zero = site.where(whole, site.like(1, site.dtype), site.where(site("less", y.real, 0), math.inf,
                                                                     site.like(0, site.dtype)))  # fmt: skip
    return Complex(site.where(nothing, at_zero, found.real), site.where(nothing, 0, found.imaginary))


def _broadcast(site: Site, x: Number) -> Complex:
    found = _complex(site, x)
    return Complex(site.expand(found.real, site.shape), site.expand(found.imaginary, site.shape))


@_rule("exp.default")
def _exponential(site: Site, x: Complex) -> Complex:
    return _polar(site, site("exp", x.real), x.imaginary)


@_rule("log.default")
def _logarithm(site: Site, x: Complex) -> Complex:
    return Complex(site("log", _length(site, x)), _angle(site, x))


@_rule("log2.default", "log10.default")
def _other_logarithm(site: Site, x: Complex) -> Complex:
    return _scaled(site, _logarithm(site, x), 1 / math.log(2 if site.op == "aten.log2.default" else 10))


@_rule("log1p.default")
def _log1p(site: Site, x: Complex) -> Complex:
    """Of the length it is log1p(2 re + |x|^2) / 2 near 0, where 1 + re would lose digits."""
    above = _shifted(site, x, 1.0)
    square = site("add", site("multiply", x.real, x.real), site("multiply", x.imaginary, x.imaginary))
    near = site("multiply", log1p(site, site("add", site("multiply", x.real, 2), square)), 0.5)
    size = site.where(site("less", square, 0.25), near, site("log", _length(site, above)))
    return Complex(size, _angle(site, above))


@_rule("sqrt.default")
def sqrt(site: Site, x: Complex) -> Complex:
    """The one with a real part that is not negative."""
    half = site("multiply", site("add", _length(site, x), site("abs", x.real)), 0.5)
    main = site("sqrt", half)
    nothing = site("equal", main, 0)
    other = site("divide", site("multiply", site("abs", x.imaginary), 0.5), site.where(nothing, 1, main))
    right = site("less_equal", site.like(0, x.real), x.real)
    sign = _of_real_numbers("aten.copysign.Tensor")
    return Complex(site.where(right, main, other), sign(site, site.where(right, other, main), x.imaginary))


@_rule("rsqrt.default")
def _rsqrt(site: Site, x: Complex) -> Complex:
    return _reciprocal(site, sqrt(site, x))


@_rule("square.default")
def _square(site: Site, x: Complex) -> Complex:
    return _times(site, x, x)


@_rule("sinh.default")
def _sinh(site: Site, x: Complex) -> Complex:
    return Complex(site("multiply", site("sinh", x.real), site("cos", x.imaginary)),
                   site("multiply", site("cosh", x.real), site("sin", x.imaginary)))  # fmt: skip


@_rule("cosh.default")
def _cosh(site: Site, x: Complex) -> Complex:
    return Complex(site("multiply", site("cosh", x.real), site("cos", x.imaginary)),
                   site("multiply", site("sinh", x.real), site("sin", x.imaginary)))  # fmt: skip


@_rule("tanh.default")
def _tanh(site: Site, x: Complex) -> Complex:
    """By tanh of the real part and tan of the other, none of which is infinite for large numbers."""
    t, u = site("tanh", x.real), site("tan", x.imaginary)
    squares = site("multiply", u, u)
    below = site("add", site("multiply", site("multiply", t, t), squares), 1)
    fall = site("cosh", site("minimum", site("abs", x.real), 40))  # 1 - tanh^2 would lose digits
    rest = site("divide", site("divide", u, fall), fall)
    return Complex(site("divide", site("multiply", t, site("add", squares, 1)), below), site("divide", rest, below))


def _turned(site: Site, x: Complex) -> Complex:
    """Times i."""
    return Complex(site("negative", x.imaginary), x.real)


def _turned_back(site: Site, x: Complex) -> Complex:
    return Complex(x.imaginary, site("negative", x.real))


def _by_turning(hyperbolic: Callable[[Site, Complex], Complex]) -> Callable[[Site, Complex], Complex]:
    """f(x) = g(ix) / i, as sin has it of sinh."""
    return lambda site, x: _turned_back(site, hyperbolic(site, _turned(site, x)))


@_rule("asinh.default")
def _asinh(site: Site, x: Complex) -> Complex:
    """log(x + sqrt(x^2 + 1)) of the numbers on the right; it is odd. The root has two factors, whose product keeps what
    x^2 + 1 would lose, and the side of the cut."""
    negative = site("or", site("less", x.real, 0), _of_real_numbers("aten.signbit.default")(site, x.real))
    turn = site.where(negative, site.like(-1, x.real), 1)
    x = _each(site, "multiply", x, turn)
    up = _turned(site, x)
    root = _times(site, *(sqrt(site, _shifted(site, each, 1.0)) for each in (up, _opposite(site, up))))
    small = _quotient(site, _times(site, x, x), _shifted(site, root, 1.0))  # root - 1
    return _each(site, "multiply", _log1p(site, _plus(site, x, small)), turn)


@_rule("acosh.default")
def _acosh(site: Site, x: Complex) -> Complex:
    root = _times(site, *(sqrt(site, _shifted(site, x, each)) for each in (1.0, -1.0)))
    return _logarithm(site, _plus(site, x, root))


@_rule("atanh.default")
def _atanh(site: Site, x: Complex) -> Complex:
    return _scaled(site, _minus(site, _log1p(site, x), _log1p(site, _opposite(site, x))), 0.5)


@_rule("acos.default")
def _acos(site: Site, x: Complex) -> Complex:
    return _minus(site, math.pi / 2, _by_turning(_asinh)(site, x))


for _name, _hyperbolic in (("sin", _sinh), ("tan", _tanh), ("asin", _asinh), ("atan", _atanh)):
    COMPLEX_RULES[f"aten.{_name}.default"] = _by_turning(_hyperbolic)
COMPLEX_RULES["aten.cos.default"] = lambda site, x: _cosh(site, _turned(site, x))


@_rule("sigmoid.default")
def _sigmoid(site: Site, x: Complex) -> Complex:
    """1 / (1 + e) on the right and e / (1 + e) on the left, by an exponential e that is no more than 1."""
    right = site("less_equal", site.like(0, x.real), x.real)
    e = _exponential(site, _each(site, "multiply", x, site.where(right, site.like(-1, x.real), 1)))
    above = Complex(site.where(right, 1, e.real), site.where(right, 0, e.imaginary))
    return _quotient(site, above, _shifted(site, e, 1.0))


@_rule("isnan.default", "isinf.default")
def _either(site: Site, x: Complex) -> Expr:
    op = "is_nan" if site.op == "aten.isnan.default" else "is_infinite"
    return site("or", site(op, x.real), site(op, x.imaginary))


@_rule("prod.default", "prod.dim_int")
def _product_of_all(site: Site, x: Complex, dim: int | None = None, keepdim: bool = False, **_: Any) -> Complex:
    """Of halves, again and again."""
    x = _complex(site, x)
    flat = Complex(site.flat(x.real), site.flat(x.imaginary)) if dim is None else x
    if not flat.real.shape:
        return x
    axis = site.axis(dim or 0, len(flat.real.shape))

    def part(each: Complex, start: int, size: int) -> Complex:
        return Complex(*(site.slice(one, axis, start, size) for one in (each.real, each.imaginary)))

    while (size := flat.real.shape[axis]) > 1:
        half = size // 2
        made = _times(site, part(flat, 0, half), part(flat, half, half))
        if size % 2:
            last = part(flat, size - 1, 1)
            made = Complex(*(site.concat(list(both), axis) for both in
                             ((made.real, last.real), (made.imaginary, last.imaginary))))  # fmt: skip
        flat = made
    return Complex(site.reshape(flat.real, site.shape), site.reshape(flat.imaginary, site.shape))


@_rule("sgn.default")
def _direction(site: Site, x: Complex) -> Complex:
    length = _length(site, x)
    return _each(site, "divide", x, site.where(site("equal", length, 0), 1.0, length))


@_rule("eq.Tensor", "eq.Scalar", "ne.Tensor", "ne.Scalar")
def _equality(site: Site, a: Number, b: Number) -> Expr:
    dtype = next(each.real.dtype for each in (a, b) if isinstance(each, Complex))
    x, y = _complex(site, a, dtype), _complex(site, b, dtype)
    same = site("and", site("equal", x.real, y.real), site("equal", x.imaginary, y.imaginary))
    return same if site.op.startswith("aten.eq") else site("not", same)


# Several operands


@_rule("cat.default", "stack.default")
def _joined(site: Site, parts: Sequence[Number], dim: int = 0) -> Complex:
    rule, both = _of_real_numbers(site.op), [_complex(site, part) for part in parts]
    return Complex(rule(site, [each.real for each in both], dim), rule(site, [each.imaginary for each in both], dim))


@_rule("where.self")
def _where(site: Site, condition: Expr, a: Number, b: Number) -> Complex:
    rule, x, y = _of_real_numbers(site.op), _complex(site, a), _complex(site, b)
    return Complex(rule(site, condition, x.real, y.real), rule(site, condition, x.imaginary, y.imaginary))


@_rule("copy.default", "slice_scatter.default", "select_scatter.default", "diagonal_scatter.default")
def _written(site: Site, x: Number, source: Number, *more: Any, **options: Any) -> Complex:
    rule, target, given = _of_real_numbers(site.op), _complex(site, x), _complex(site, source)
    return Complex(rule(site, target.real, given.real, *more, **options),
                   rule(site, target.imaginary, given.imaginary, *more, **options))  # fmt: skip


@_rule("index_put.default")
def _index_put(site: Site, x: Number, places: Sequence[Any], source: Number, accumulate: bool = False) -> Complex:
    rule, target, given = _of_real_numbers(site.op), _complex(site, x), _complex(site, source)
    return Complex(rule(site, target.real, places, given.real, accumulate),
                   rule(site, target.imaginary, places, given.imaginary, accumulate))  # fmt: skip


@_rule("constant_pad_nd.default")
def _pad(site: Site, x: Complex, pads: Sequence[int], value: complex = 0) -> Complex:
    rule = _of_real_numbers(site.op)
    return Complex(rule(site, x.real, pads, complex(value).real), rule(site, x.imaginary, pads, complex(value).imag))


@_rule("mm.default", "bmm.default", "mv.default")
def _product(site: Site, a: Complex, b: Complex) -> Complex:
    """PyTorch has none of a complex and a real operand."""
    return _products(site, a, b, lambda p, q: product(site, p, q))


@_rule("addmm.default", "baddbmm.default", "addmv.default")
def _add_product(
    site: Site, bias: Complex, a: Complex, b: Complex, *, beta: complex = 1, alpha: complex = 1
) -> Complex:
    """beta * bias + alpha * a b; without beta the bias is not read."""
    total = _product(site, a, b)
    total = total if alpha == 1 else _times(site, total, alpha)
    return total if beta == 0 else _plus(site, total, bias if beta == 1 else _times(site, bias, beta))


# Fourier transforms: ``normalisation`` is 0 for none, 1 for one by the root of the number of elements, 2 by it


@_rule("_fft_r2c.default")
def _of_real(site: Site, x: Expr, dims: Sequence[int], normalisation: int, onesided: bool) -> Complex:
    *others, last = (site.axis(dim, len(x.shape)) for dim in dims)
    found = site.onnx("DFT", site.reshape(x, (*x.shape, 1)), None, site.integers([last]), onesided=int(onesided))
    factor = _factor([x.shape[dim] for dim in dims], normalisation)
    return _scaled(site, of_pairs(site, _along(site, found, others, inverse=False)), factor)


@_rule("_fft_c2c.default")
def _of_complex(site: Site, x: Complex, dims: Sequence[int], normalisation: int, forward: bool) -> Complex:
    axes = [site.axis(dim, len(x.real.shape)) for dim in dims]
    sizes = [x.real.shape[axis] for axis in axes]
    found = of_pairs(site, _along(site, pairs(site, x), axes, inverse=not forward))
    return _scaled(site, found, _factor(sizes, normalisation) * (1 if forward else math.prod(sizes)))


@_rule("_fft_c2r.default")
def _to_real(site: Site, x: Complex, dims: Sequence[int], normalisation: int, size: int) -> Expr:
    *others, last = (site.axis(dim, len(x.real.shape)) for dim in dims)
    found = _along(site, pairs(site, x), others, inverse=True)
    found = site.onnx("DFT", found, site.integers([size]), site.integers([last]), onesided=1, inverse=1)
    sizes = [*(x.real.shape[axis] for axis in others), size]
    factor = _factor(sizes, normalisation) * math.prod(sizes)
    result = site.reshape(found, site.shape)
    return result if factor == 1 else site("multiply", result, factor)


def _along(site: Site, x: Expr, axes: Sequence[int], *, inverse: bool) -> Expr:
    """Of pairs, along one axis after the other; an inverse one is divided by the number of elements."""
    for axis in axes:
        x = site.onnx("DFT", x, None, site.integers([axis]), onesided=0, inverse=int(inverse))
    return x


def _factor(sizes: Sequence[int], normalisation: int) -> float:
    count = math.prod(sizes)
    return 1.0 if normalisation == 0 else 1 / math.sqrt(count) if normalisation == 1 else 1 / count
