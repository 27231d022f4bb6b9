"""Linear forms of index arithmetic: ``sum(coefficient * atom) + constant``, and what divides them.

An atom is a variable or an ``int64`` node that is not linear (floordiv, mod, min, max, ...).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from math import gcd

from .ir import BinOp, Call, Const, Expr, Load, Var
from .visitor import children


@dataclass
class Linear:
    """``sum(coefficient * atom) + constant``; no coefficient is 0."""

    terms: dict[Expr, int] = field(default_factory=dict)
    constant: int = 0

    def add(self, other: Linear, factor: int = 1) -> Linear:
        """``self + factor * other``."""
        terms = dict(self.terms)
        for atom, coefficient in other.terms.items():
            total = terms.pop(atom, 0) + factor * coefficient
            if total:
                terms[atom] = total
        return Linear(terms, self.constant + factor * other.constant)

    def to_expr(self) -> Expr:
        """The canonical expression: added terms first, then subtracted ones, then the constant."""
        if not self.terms:
            return Const(self.constant)
        leading = self.constant > 0 and all(value < 0 for value in self.terms.values())
        result: Expr | None = Const(self.constant) if leading else None
        ordered = list(self.terms.items())
        if len(ordered) > 1:
            ordered.sort(key=lambda item: (item[1] < 0, order_key(item[0])))
        for atom, coefficient in ordered:
            term = atom if abs(coefficient) == 1 else atom * abs(coefficient)
            if result is None:
                result = term if coefficient > 0 else (atom * coefficient)
            else:
                result = result + term if coefficient > 0 else result - term
        assert result is not None
        if self.constant and not leading:
            result = result + self.constant if self.constant > 0 else result - (-self.constant)
        return result


def linear_form(expr: Expr) -> Linear:
    """The linear form of an already simplified ``int64`` expression."""
    terms: dict[Expr, int] = {}
    return Linear(terms, collect(expr, 1, terms))


def collect(expr: Expr, factor: int, terms: dict[Expr, int]) -> int:
    """Add ``factor`` times the expression's terms to ``terms``; gives what its constants add up to."""
    if isinstance(expr, Const):
        return factor * int(expr.value)
    if isinstance(expr, BinOp):
        op, a, b = expr.op, expr.a, expr.b
        if op == "add":
            return collect(a, factor, terms) + collect(b, factor, terms)
        if op == "sub":
            return collect(a, factor, terms) + collect(b, -factor, terms)
        if op == "mul":
            if not isinstance(b, Const):
                a, b = b, a
            if isinstance(b, Const):
                return collect(a, factor * int(b.value), terms) if b.value else 0
    total = terms.pop(expr, 0) + factor
    if total:
        terms[expr] = total
    return 0


def order_key(expr: Expr) -> str:
    """A text that orders atoms the same way in every run: plain variables first. The expression remembers it."""
    found: str | None = expr.__dict__.get("_key")
    if found is None:
        found = expr.__dict__["_key"] = _key_text(expr)
    return found


def _key_text(expr: Expr) -> str:
    match expr:
        case Var(name):
            return "0" + name
        case Const(value):
            return f"1{value}"
        case BinOp(op, a, b):
            return f"2{op}({order_key(a)},{order_key(b)})"
        case Load(buffer, _):
            return f"3{buffer.name}({','.join(map(order_key, children(expr)))})"
    name = expr.function if isinstance(expr, Call) else type(expr).__name__
    return f"4{name}{expr.dtype}({','.join(map(order_key, children(expr)))})"


def divided(linear: Linear, divisor: int) -> tuple[Linear, Linear]:
    """Quotient of the terms that the divisor divides, and the rest, whose constant is in ``0 .. divisor-1``."""
    quotient, rest = Linear(constant=linear.constant // divisor), Linear(constant=linear.constant % divisor)
    for atom, coefficient in linear.terms.items():
        if coefficient % divisor == 0:
            quotient.terms[atom] = coefficient // divisor
        else:
            rest.terms[atom] = coefficient
    return quotient, rest


def reduced_by(rest: Linear, divisor: int) -> tuple[int, Linear, int]:
    """``rest = factor * reduced + remainder`` with a factor of the divisor and ``0 <= remainder < factor``."""
    factor = reduce(gcd, rest.terms.values(), divisor)
    reduced = Linear({atom: value // factor for atom, value in rest.terms.items()}, rest.constant // factor)
    return factor, reduced, rest.constant % factor


def joined(linear: Linear) -> Linear:
    """``(x // c) * c * k + (x % c) * k`` becomes ``x * k``."""
    for atom, coefficient in linear.terms.items():
        if isinstance(atom, BinOp) and atom.op == "mod" and isinstance(atom.b, Const):
            partner = BinOp("floordiv", atom.a, atom.b)
            if linear.terms.get(partner) == coefficient * int(atom.b.value):
                both = Linear({atom: coefficient, partner: coefficient * int(atom.b.value)})
                return joined(linear.add(both, -1).add(linear_form(atom.a), coefficient))
    return linear
