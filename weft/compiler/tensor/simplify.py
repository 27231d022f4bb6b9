"""Simplification of index arithmetic, and bounds of expressions over loops.

``int64`` expressions are brought to a canonical linear form ``sum(coefficient * atom) + constant``, where an atom is a
variable or a node that is not linear (floordiv, mod, min, max, ...). ``Loops`` lists the loops around an expression,
outermost first; the extent of each may depend on those before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, reduce
from itertools import count
from math import gcd, prod
from operator import is_
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .evaluate import ARRAY_VALUES, fold_constants
from .ir import FLOATS, BinOp, Call, Cast, Const, Expr, Select, Var
from .linear import Linear, collect, divided, joined, linear_form, order_key, reduced_by
from .visitor import children, free_vars, rebuild

Loops: TypeAlias = Sequence[tuple[Var, Expr]]

UNBOUNDED = 1 << 62
"""Magnitude that stands for "no bound known"."""

LONG = 160
"""Characters of the keys of a minimum's candidates from which on it is worth trying all places, up to
``MOST_PLACES``."""

MOST_PLACES = 4096

MOST_REMEMBERED, MOST_OUTSIDE = 10_000, 256
"""Expressions whose simple form a simplifier remembers; and the one of no loops, which lives as long as the process."""


def simplify(expr: Expr, loops: Loops = ()) -> Expr:
    """An equal expression in canonical form, given that each variable of ``loops`` is in ``0 .. extent-1``."""
    return _simplifier(tuple(loops)).simplify(expr)


def constant_range(expr: Expr, loops: Loops) -> tuple[int, int]:
    """Constants between which the ``int64`` expression lies; ``UNBOUNDED`` where none is known."""
    return _simplifier(tuple(loops)).range_of(expr)


def lower_bound(expr: Expr, inner: Loops, outer: Loops = ()) -> Expr | None:
    """Smallest value over the ``inner`` loops as an expression of the outer variables; None if none is known."""
    return _simplifier((*outer, *inner)).eliminate(expr, inner, upper=False)


def upper_bound(expr: Expr, inner: Loops, outer: Loops = ()) -> Expr | None:
    """Largest value over the ``inner`` loops as an expression of the outer variables; None if none is known."""
    return _simplifier((*outer, *inner)).eliminate(expr, inner, upper=True)


def is_zero(expr: Expr) -> bool:
    """Whether the expression is the constant 0."""
    return isinstance(expr, Const) and expr.value == 0


def _value(expr: Expr, places: Mapping[Var, npt.NDArray[np.int64]]) -> npt.NDArray[np.int64] | None:
    """The expression's value at all places; None if it is more than arithmetic of these variables."""
    match expr:
        case Const(value):
            return np.asarray(int(value))
        case Var():
            return places.get(expr)
        case BinOp(op, a, b) if op in _ON_INTEGERS:
            left, right = _value(a, places), _value(b, places)
            if left is None or right is None or (op in ("floordiv", "mod") and np.any(right <= 0)):
                return None
            result: npt.NDArray[np.int64] = _ON_INTEGERS[op](left, right)
            return result
    return None


_ON_INTEGERS: Mapping[str, Callable[..., Any]] = {
    **{op: ARRAY_VALUES[op] for op in ("add", "sub", "mul", "min", "max")},
    "floordiv": np.floor_divide, "mod": np.mod,
}  # fmt: skip


_numbers = count()


class Simplifier:
    """Simplifies under one set of loops; remembers what it has seen. ``number``: no other one has it."""

    def __init__(self, loops: Loops, most: int = MOST_REMEMBERED) -> None:
        self.number = next(_numbers)
        self._most = most
        self.loops = list(loops)
        # Looking for bounds simplifies, and simplifying looks for bounds: only the outermost search eliminates loops.
        self._searching = False
        self._memos: dict[bool, dict[Expr, Expr]] = {False: {}, True: {}}
        self._ranges: dict[Var, tuple[int, int]] = {}
        self._uneven = any(not isinstance(extent, Const) for _, extent in self.loops)
        for var, extent in self.loops:
            self._ranges[var] = (0, max(0, self.interval(self.simplify(extent))[1] - 1))
        self._memos = {False: {}, True: {}}

    def inside(self, var: Var, extent: Expr) -> Simplifier:
        """The simplifier of one more loop, the innermost. What is known of the others is not worked out again, and who
        asks again gets the same one."""
        return _inside(self, var, extent)

    def _inside(self, var: Var, extent: Expr) -> Simplifier:
        inner = Simplifier(())
        inner.loops = [*self.loops, (var, extent)]
        inner._uneven = self._uneven or not isinstance(extent, Const)
        inner._ranges = {**self._ranges, var: (0, max(0, self.interval(self.simplify(extent))[1] - 1))}
        return inner

    def simplify(self, expr: Expr) -> Expr:
        """An equal expression in canonical form."""
        if isinstance(expr, Const):
            return expr
        if isinstance(expr, Var):
            return Const(0) if self._ranges.get(expr) == (0, 0) else expr
        memo = self._memos[self._searching]
        simple = memo.get(expr)
        if simple is None:
            simple = self._simplify(expr)
            if len(memo) >= self._most:
                memo.clear()
            memo[expr] = simple = expr if simple == expr else simple  # what stays as it is stays the same object
        return simple

    def _simplify(self, expr: Expr) -> Expr:
        if isinstance(expr, Select):
            cond = self.simplify(expr.cond)
            if isinstance(cond, Const):
                return self.simplify(expr.a if cond.value else expr.b)
            a, b = self.simplify(expr.a), self.simplify(expr.b)
            return a if a == b else Select(cond, a, b)
        old = children(expr)
        new = tuple([self.simplify(child) for child in old])
        if not all(map(is_, new, old)):
            expr = rebuild(expr, new)
        folded = fold_constants(expr)
        if folded is not None:
            return folded
        match expr:
            case Cast(dtype, x) if x.dtype == dtype:
                return x
            case Call("floor" | "ceil" | "round", (Call("floor" | "ceil" | "round") as whole,)):
                return whole
            case BinOp(op, a, b) if op in ("lt", "le", "eq", "ne") and a.dtype == "int64":
                return self._compare(op, a, b)
            case BinOp("and" | "or" as op, a, b) if expr.dtype == "bool":
                return _logic(op, a, b)
            case BinOp(op, a, b) if expr.dtype == "int64":
                return self._index(op, a, b)
            case BinOp(op, a, b):
                return _identities(op, a, b)
        return expr

    def _index(self, op: str, a: Expr, b: Expr) -> Expr:
        if op in ("add", "sub"):
            return joined(linear_form(a).add(linear_form(b), 1 if op == "add" else -1)).to_expr()
        if op == "mul" and (isinstance(a, Const) or isinstance(b, Const)):
            return linear_form(BinOp("mul", a, b)).to_expr()
        if op == "mul" and order_key(b) < order_key(a):
            return BinOp("mul", b, a)
        if op in ("floordiv", "mod") and isinstance(b, Const) and b.value > 0:
            divisor = int(b.value)
            return self._floordiv(a, divisor) if op == "floordiv" else self._mod(a, divisor)
        if op in ("min", "max"):
            return self._extremum(op, a, b)
        return _identities(op, a, b)

    def _floordiv(self, a: Expr, divisor: int) -> Expr:
        if isinstance(a, BinOp) and a.op == "floordiv" and isinstance(a.b, Const) and a.b.value > 0:
            return self._floordiv(a.a, divisor * int(a.b.value))
        quotient, rest = divided(linear_form(a), divisor)
        low, high = self._linear_interval(rest)
        if low // divisor == high // divisor:
            quotient.constant += low // divisor
            return quotient.to_expr()
        if (parts := self._in_units(rest, divisor)) is not None:
            unit, whole, _ = parts
            found = self._floordiv(whole.to_expr(), divisor // unit)
            return joined(quotient.add(linear_form(found))).to_expr()
        factor, rest, _ = reduced_by(rest, divisor)
        atom = rest.to_expr() if divisor == factor else BinOp("floordiv", rest.to_expr(), Const(divisor // factor))
        return joined(quotient.add(linear_form(atom))).to_expr()

    def _mod(self, a: Expr, divisor: int) -> Expr:
        _, rest = divided(linear_form(a), divisor)
        low, high = self._linear_interval(rest)
        if low // divisor == high // divisor:
            rest.constant -= (low // divisor) * divisor
            return rest.to_expr()
        if (parts := self._in_units(rest, divisor)) is not None:
            unit, whole, within = parts
            return joined(within.add(linear_form(self._mod(whole.to_expr(), divisor // unit)), unit)).to_expr()
        factor, rest, remainder = reduced_by(rest, divisor)
        if divisor == factor:
            return Const(remainder)
        atom = BinOp("mod", rest.to_expr(), Const(divisor // factor))
        return Linear({atom: factor}, remainder).to_expr()

    def _in_units(self, rest: Linear, divisor: int) -> tuple[int, Linear, Linear] | None:
        """``rest = unit * whole + within`` with a divisor of the divisor and ``0 <= within < unit``: places in blocks,
        which are read in larger ones, are such. None where no unit is."""
        for unit in sorted({gcd(value, divisor) for value in rest.terms.values()} - {1}, reverse=True):
            whole, within = divided(rest, unit)
            low, high = self._linear_interval(within)
            if within.terms and low >= 0 and high < unit:
                return unit, whole, within
        return None

    def _extremum(self, op: str, a: Expr, b: Expr) -> Expr:
        kept: list[Expr] = []
        candidates = [*_flatten(op, a), *_flatten(op, b)]
        if sum(len(order_key(candidate)) for candidate in candidates) > LONG:
            candidates = self._needed(op, candidates)
        for candidate in candidates:
            if any(self._dominates(op, other, candidate) for other in kept):
                continue
            kept = [other for other in kept if not self._dominates(op, candidate, other)]
            kept.append(candidate)
        return reduce(lambda x, y: BinOp(op, x, y), sorted(kept, key=order_key))

    def _needed(self, op: str, candidates: list[Expr]) -> list[Expr]:
        """Those of the candidates for a minimum or maximum that are it somewhere, where all places can be tried.

        Bounds of bounds would otherwise collect candidates that only several others together make superfluous, and
        moving a sum inside doubles all of them. What intervals say of the whole stays the same: sizes of buffers, which
        are taken from that, do not depend on how long an expression was on the way.
        """
        table = self._values(candidates)
        if table is None:
            return candidates
        choose, interval = (np.minimum, min) if op == "min" else (np.maximum, max)
        wanted = choose.reduce(table)
        ends = [self.interval(candidate) for candidate in candidates]

        def bounds(places: Sequence[int]) -> tuple[int, ...]:
            return tuple(interval(ends[place][side] for place in places) for side in (0, 1))

        kept = list(range(len(candidates)))
        known = bounds(kept)
        for place in sorted(kept, key=lambda each: -len(order_key(candidates[each]))):
            others = [each for each in kept if each != place]
            if others and bounds(others) == known and np.array_equal(choose.reduce(table[others]), wanted):
                kept = others
        return [candidates[place] for place in kept]

    def _values(self, exprs: Sequence[Expr]) -> npt.NDArray[np.int64] | None:
        """The values of the expressions, one row each, at all places; None where these are too many or unknown."""
        variables = sorted(set().union(*map(free_vars, exprs)), key=lambda var: var.name)
        sizes = [high - low + 1 for low, high in (self._ranges.get(var, (0, UNBOUNDED)) for var in variables)]
        if prod(sizes) > MOST_PLACES:
            return None
        grid = np.indices(sizes, sparse=True)
        places = {var: grid[axis] + self._ranges[var][0] for axis, var in enumerate(variables)}
        values = [_value(expr, places) for expr in exprs]
        rows = [np.broadcast_to(value, sizes).ravel() for value in values if value is not None]
        return np.stack(rows) if len(rows) == len(values) else None

    def _dominates(self, op: str, winner: Expr, other: Expr) -> bool:
        low, high = self.range_of(BinOp("sub", winner, other))
        return high <= 0 if op == "min" else low >= 0

    def _compare(self, op: str, a: Expr, b: Expr) -> Expr:
        low, high = self.range_of(BinOp("sub", a, b))
        outcome: bool | None = None
        match op:
            case "lt":
                outcome = True if high < 0 else False if low >= 0 else None
            case "le":
                outcome = True if high <= 0 else False if low > 0 else None
            case "eq" | "ne":
                equal = True if low == high == 0 else False if low > 0 or high < 0 else None
                outcome = equal if equal is None or op == "eq" else not equal
        return BinOp(op, a, b) if outcome is None else Const(outcome, "bool")

    def range_of(self, expr: Expr) -> tuple[int, int]:
        """Constants between which the expression lies; ``UNBOUNDED`` where none is known."""
        low, high = self.interval(self.simplify(expr))
        if not self._uneven or self._searching or low == high:
            return low, high
        # Extents that depend on outer loops correlate with them: eliminating the loops one by one sees that.
        self._searching = True
        try:
            for upper in (False, True):
                bound = self.eliminate(expr, self.loops, upper=upper)
                if isinstance(bound, Const):
                    low, high = (low, min(high, int(bound.value))) if upper else (max(low, int(bound.value)), high)
        finally:
            self._searching = False
        return low, high

    def greatest(self, expr: Expr) -> int:
        """A constant that the expression does not exceed: its largest value, where all places can be tried."""
        bound = self.range_of(expr)[1]
        values = None if isinstance(expr, Const) else self._values([expr])
        return bound if values is None else min(bound, int(values.max()))

    def interval(self, expr: Expr) -> tuple[int, int]:
        """Bounds of a simplified expression by interval arithmetic."""
        match expr:
            case Const(value):
                return int(value), int(value)
            case Var():
                return self._ranges.get(expr, (-UNBOUNDED, UNBOUNDED))
            case BinOp("add" | "sub", _, _):
                return self._linear_interval(linear_form(expr))
            case BinOp("mul", a, b):
                (a_low, a_high), (b_low, b_high) = self.interval(a), self.interval(b)
                corners = [x * y for x in (a_low, a_high) for y in (b_low, b_high)]
                return _limit(min(corners)), _limit(max(corners))
            case BinOp("floordiv", a, Const(value)) if value > 0:
                low, high = self.interval(a)
                return (
                    low if low == -UNBOUNDED else low // int(value),
                    high if high == UNBOUNDED else high // int(value),
                )
            case BinOp("mod", a, Const(value)) if value > 0:
                low, high = self.interval(a)
                return (0, min(high, int(value) - 1)) if low >= 0 else (0, int(value) - 1)
            case BinOp("min" | "max" as op, a, b):
                choose = min if op == "min" else max
                (a_low, a_high), (b_low, b_high) = self.interval(a), self.interval(b)
                return choose(a_low, b_low), choose(a_high, b_high)
            case Select(_, a, b):
                (a_low, a_high), (b_low, b_high) = self.interval(a), self.interval(b)
                return min(a_low, b_low), max(a_high, b_high)
        return -UNBOUNDED, UNBOUNDED

    def _linear_interval(self, linear: Linear) -> tuple[int, int]:
        low = high = linear.constant
        for atom, coefficient in linear.terms.items():
            ends = [end * coefficient for end in self.interval(atom)]
            low, high = _limit(low + min(ends)), _limit(high + max(ends))
        return low, high

    def eliminate(self, expr: Expr, inner: Loops, *, upper: bool) -> Expr | None:
        """Bound of the expression over the ``inner`` loops; None if none is known. The innermost loop goes first."""
        simple = self._push(expr)
        bound = _linear_bound(linear_form(simple), inner, upper)
        if bound is not None:
            return bound.to_expr()
        result: Expr | None = simple
        for var, extent in reversed(list(inner)):
            if result is not None and var in free_vars(result):
                result = self._eliminate(result, var, extent, upper)
                result = None if result is None else self._push(result)
        return result

    def _eliminate(self, expr: Expr, var: Var, extent: Expr, upper: bool) -> Expr | None:
        """Bound over one variable of an expression in which it may occur several times."""
        if var not in free_vars(expr):
            return expr
        linear = linear_form(expr)
        if list(linear.terms.items()) != [(expr, 1)]:
            total: Expr = Const(linear.constant)
            for atom, coefficient in linear.terms.items():
                bound = self._eliminate(atom, var, extent, upper == (coefficient > 0))
                if bound is None:
                    return None
                total = total + bound * coefficient
            return total
        match expr:
            case Var():
                return extent - 1 if upper else Const(0)
            case BinOp("floordiv", a, Const(value)) if value > 0:
                bound = self._eliminate(a, var, extent, upper)
                return None if bound is None else bound // int(value)
            case BinOp("mod", a, Const(value)) if value > 0:
                low = self._eliminate(a, var, extent, False)
                high = self._eliminate(a, var, extent, True)
                if low is not None and high is not None and is_zero(self.simplify(high // value - low // value)):
                    return (high if upper else low) % int(value)
                return Const(int(value) - 1 if upper else 0)
            case BinOp("min" | "max", a, b) | Select(_, a, b):
                a_bound, b_bound = self._eliminate(a, var, extent, upper), self._eliminate(b, var, extent, upper)
                if a_bound is None or b_bound is None:
                    return None
                op = expr.op if isinstance(expr, BinOp) else ("max" if upper else "min")
                return BinOp(op, a_bound, b_bound)
        return None

    def _push(self, expr: Expr) -> Expr:
        """The simplified expression with sums and factors moved inside min and max, where they can cancel."""
        expr = self.simplify(expr)
        linear = linear_form(expr)
        if list(linear.terms.items()) == [(expr, 1)]:
            if isinstance(expr, BinOp) and expr.op in ("min", "max"):
                return self.simplify(BinOp(expr.op, self._push(expr.a), self._push(expr.b)))
            return expr
        for atom, coefficient in linear.terms.items():
            if isinstance(atom, BinOp) and atom.op in ("min", "max"):
                rest = linear.add(Linear({atom: coefficient}), -1).to_expr()
                op = atom.op if coefficient > 0 else {"min": "max", "max": "min"}[atom.op]
                sides = [self._push(rest + side * coefficient) for side in (atom.a, atom.b)]
                return self._extremum(op, *sides)
        return expr

    def extent(self, expr: Expr) -> Expr:
        """A loop extent in its shortest form: a constant, or a min of linear expressions where possible."""
        return expr if isinstance(expr, Const) else self._push(expr)

    def position(self, indices: Sequence[Expr], strides: Sequence[int]) -> Linear:
        """Where the element at ``indices`` lies in a buffer with these strides."""
        terms: dict[Expr, int] = {}
        constant = sum(
            collect(self.simplify(index), stride, terms) for index, stride in zip(indices, strides, strict=True)
        )
        return joined(Linear(terms, constant))


@lru_cache(maxsize=1024)
def _inside(outer: Simplifier, var: Var, extent: Expr) -> Simplifier:
    return outer._inside(var, extent)


@lru_cache(maxsize=64)
def _simplifier(loops: tuple[tuple[Var, Expr], ...]) -> Simplifier:
    """One for several questions about the same loops: what it has found for one it need not find again."""
    return simplifier_of(loops)


def simplifier_of(loops: Loops) -> Simplifier:
    """The simplifier of these loops, which may be one that was asked before."""
    simplifier = _OUTERMOST
    for var, extent in loops:
        simplifier = simplifier.inside(var, extent)
    return simplifier


_OUTERMOST = Simplifier((), MOST_OUTSIDE)


def _linear_bound(linear: Linear, inner: Loops, upper: bool) -> Linear | None:
    """The bound over the ``inner`` loops of a sum of multiples of variables; None if it is something else, or loops in
    it run a number of times that is not constant."""
    last = dict(inner)
    rest = Linear({}, linear.constant)
    for atom, coefficient in linear.terms.items():
        if not isinstance(atom, Var):
            return None
        extent = last.get(atom)
        if extent is None:
            rest.terms[atom] = coefficient
        elif not isinstance(extent, Const):
            return None
        elif upper == (coefficient > 0):
            rest.constant += coefficient * (int(extent.value) - 1)
    return rest


def _limit(value: int) -> int:
    return max(-UNBOUNDED, min(UNBOUNDED, value))


def _flatten(op: str, expr: Expr) -> list[Expr]:
    if isinstance(expr, BinOp) and expr.op == op:
        return _flatten(op, expr.a) + _flatten(op, expr.b)
    return [expr]


def _logic(op: str, a: Expr, b: Expr) -> Expr:
    neutral = op == "and"
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Const):
            return y if x.value is neutral else x
    return a if a == b else BinOp(op, a, b)


def _identities(op: str, a: Expr, b: Expr) -> Expr:
    """Neutral elements of the types that have no linear form."""
    if op in ("add", "sub", "shl", "shr") and is_zero(b) and b.dtype not in FLOATS:
        return a
    if op == "add" and is_zero(a) and a.dtype not in FLOATS:
        return b
    if op == "mul":
        for x, y in ((a, b), (b, a)):
            if isinstance(x, Const) and x.value == 1:
                return y
            if is_zero(x) and x.dtype not in FLOATS:
                return x
    if op == "div" and isinstance(b, Const) and b.value == 1:
        return a
    if op in ("min", "max") and a == b:
        return a
    return BinOp(op, a, b)
