"""Between which numbers an integer expression of a function lies, given the loops, guards and data around it.

A part of an expression that the machine's arithmetic might wrap counts as any number of its type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import gcd
from typing import TypeAlias

from .ir import FLOATS, INTEGER_RANGES, BinOp, Cast, Const, Expr, Load, Select, Var
from .linear import Linear
from .visitor import children, free_vars, loads, walk_exprs

Interval: TypeAlias = tuple[int, int]
Terms: TypeAlias = frozenset[tuple[Expr, int]]

EXACT = 1 << 62
"""Magnitude up to which sums and products of int64 count as exact: far enough from where they wrap."""

CASES_AT_MOST = 4
"""Conditions in one expression that are looked at both ways."""

_COMPARISONS = ("lt", "le", "eq", "ne")


@dataclass(frozen=True)
class Facts:
    """What is known at a point of a kernel.

    ``elements``: for a buffer whose content is known and stays as it is, between which numbers the elements lie: one
    interval, or one for each index of the last axis. ``variables``: of the loops around. ``upper``: the most that a sum
    of terms can be. ``nonzero``: expressions that are not 0. ``rereads``: whether a condition on what memory holds says
    something of what is read there next: only where another number does no harm to memory. ``contradictory``: no
    numbers of the variables agree with all that is known, so what stands here is never reached.
    """

    elements: Mapping[str, tuple[Interval, ...]]
    variables: Mapping[Var, Interval] = field(default_factory=dict)
    upper: Mapping[Terms, int] = field(default_factory=dict)
    nonzero: frozenset[Expr] = frozenset()
    rereads: bool = False
    contradictory: bool = False
    _memo: dict[Expr, tuple[Interval, Linear]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _sums: dict[Terms, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def inside_loop(self, var: Var, extent: Expr) -> Facts:
        """In an iteration of a loop."""
        last = max(0, self.interval(extent)[1] - 1)
        inner = replace(self, variables={**self.variables, var: (0, last)})
        return inner if isinstance(extent, Const) else inner.given(BinOp("lt", var, extent), True)

    def given(self, cond: Expr, holds: bool) -> Facts:
        """Where a condition holds, or does not."""
        if not isinstance(cond, BinOp) or cond.a.dtype in FLOATS:
            return self
        op, a, b = cond.op, cond.a, cond.b
        if a.dtype == "bool":
            both = (op == "and" and holds) or (op == "or" and not holds)
            return self.given(a, holds).given(b, holds) if both else self
        if op in ("lt", "le"):
            strict = (op == "lt") == holds
            return self._at_most(a, b, -strict) if holds else self._at_most(b, a, -strict)
        if op in ("eq", "ne") and (op == "eq") == holds:
            return self._at_most(a, b, 0)._at_most(b, a, 0)
        if op in ("eq", "ne") and isinstance(b, Const) and b.value == 0:
            return replace(self, nonzero=self.nonzero | {a})
        return self

    def _at_most(self, a: Expr, b: Expr, constant: int) -> Facts:
        """Given that ``a <= b + constant``."""
        if isinstance(a, BinOp) and a.op == "max":
            return self._at_most(a.a, b, constant)._at_most(a.b, b, constant)
        if isinstance(b, BinOp) and b.op == "min":
            return self._at_most(a, b.a, constant)._at_most(a, b.b, constant)
        if not self.rereads and any(load.buffer.name not in self.elements for load in (*loads(a), *loads(b))):
            return self
        (a_range, a_sum), (b_range, b_sum) = self._analysed(a), self._analysed(b)
        known = dict(self.upper)
        whole = a_sum.add(b_sum, -1)
        contradictory = self.contradictory or -self._most(Linear().add(whole, -1)) > constant
        for total, bound in (  # the second and third say something of one side, whatever the other one is
            (whole, constant),
            (a_sum, b_range[1] + constant),
            (Linear().add(b_sum, -1), constant - a_range[0]),
            *self._in_steps(whole, constant),
            *self._in_parts(whole, constant),
        ):
            terms, most = frozenset(total.terms.items()), bound - total.constant
            if terms and known.get(terms, most + 1) > most:
                known[terms] = most
        if known == self.upper and contradictory == self.contradictory:
            return self
        return replace(self, upper=known, contradictory=contradictory)

    def _in_steps(self, total: Linear, bound: int) -> list[tuple[Linear, int]]:
        """What a sum's bound says of its parts that go by steps: ``16 * i + j < 48``, with ``j`` from 0, says that
        ``i < 3``."""
        step = min((abs(each) for each in total.terms.values() if abs(each) > 1), default=0)
        large = {atom: each // step for atom, each in total.terms.items() if step and each % step == 0}
        small = [term for term in total.terms.items() if term[0] not in large]
        if not large or not small:
            return []
        least = -sum(self._largest((atom, -each)) for atom, each in small)
        return [(Linear(large), (bound - total.constant - least) // step)]

    def _in_parts(self, total: Linear, bound: int) -> list[tuple[Linear, int]]:
        """What a sum's bound says of each of its parts: ``i + 4 * j < 8`` with ``i`` from 0 says that ``j < 2``."""
        least = -sum(self._largest((atom, -each)) for atom, each in total.terms.items())
        parts = []
        for atom, each in total.terms.items():
            others = least + self._largest((atom, -each))
            sign = 1 if each > 0 else -1
            parts.append((Linear({atom: sign}), (bound - total.constant - others) // abs(each)))
        return parts

    def interval(self, expr: Expr) -> Interval:
        """Numbers between which an integer or truth value lies."""
        return self._analysed(expr)[0]

    def with_rereads(self) -> Facts:
        """The same for expressions that only make a value."""
        return replace(self, rereads=True)

    def is_exact(self, expr: Expr) -> bool:
        """Whether an int64 expression, if it is a sum or a product, cannot wrap."""
        if not isinstance(expr, BinOp) or expr.op not in ("add", "sub", "mul") or expr.dtype != "int64":
            return True
        low, high = self.interval(expr)
        return low >= -EXACT and high <= EXACT

    def are_exact(self, expr: Expr) -> bool:
        """Whether no part of an expression can wrap. What is converted to fewer bits is as good as exact: it is some
        number of its type."""
        waiting = [expr]
        while waiting:
            node = waiting.pop()
            if not self.is_exact(node):
                return False
            if not (isinstance(node, Cast) and node.dtype != "int64" and node.dtype in INTEGER_RANGES):
                waiting += children(node)
        return True

    def is_nonzero(self, expr: Expr) -> bool:
        """Whether an integer cannot be 0."""
        low, high = self.interval(expr)
        if low > 0 or high < 0 or expr in self.nonzero:
            return True
        if not isinstance(expr, Select):
            return False
        return self.given(expr.cond, True).is_nonzero(expr.a) and self.given(expr.cond, False).is_nonzero(expr.b)

    def _analysed(self, expr: Expr) -> tuple[Interval, Linear]:
        """The interval, and the expression as a sum of parts that cannot wrap."""
        if expr not in self._memo:
            self._memo[expr] = self._analyse(expr)
        return self._memo[expr]

    def _analyse(self, expr: Expr) -> tuple[Interval, Linear]:
        if isinstance(expr, Const) and expr.type not in FLOATS:
            return (int(expr.value), int(expr.value)), Linear({}, int(expr.value))
        own = self._own(expr)
        if isinstance(expr, BinOp) and expr.op in ("add", "sub", "mul") and expr.dtype in INTEGER_RANGES:
            (a, a_sum), (b, b_sum) = self._analysed(expr.a), self._analysed(expr.b)
            low, high = _exact(expr.op, a, b)
            least, most = (-EXACT, EXACT) if expr.dtype == "int64" else INTEGER_RANGES[expr.dtype]
            if least <= low and high <= most:
                own, total = (low, high), _combined(expr.op, a_sum, b_sum)
                if total is not None:
                    return (max(low, -self._most(Linear().add(total, -1))), min(high, self._most(total))), total
        terms = (expr, 1), (expr, -1)
        high = min(own[1], self.upper.get(frozenset(terms[:1]), own[1]))
        return (max(own[0], -self.upper.get(frozenset(terms[1:]), -own[0])), high), Linear({expr: 1})

    def _own(self, expr: Expr) -> Interval:
        """The interval of a part that is no sum."""
        least, most = INTEGER_RANGES.get(expr.dtype, (-EXACT, EXACT))
        match expr:
            case Var():
                return self.variables.get(expr, (least, most))
            case Load(buffer, indices) if buffer.name in self.elements:
                known = self.elements[buffer.name]
                last = indices[-1] if indices else None
                if len(known) > 1 and isinstance(last, Const) and 0 <= last.value < len(known):
                    return known[int(last.value)]
                return min(low for low, _ in known), max(high for _, high in known)
            case Cast(_, x) if x.dtype not in FLOATS and expr.dtype not in (*FLOATS, "bool"):
                low, high = self.interval(x)
                fits = least <= low and high <= most and (expr.dtype == "int64" or self.are_exact(x))
                return (low, high) if fits else (least, most)
            case Select(cond, a, b):
                yes, no = self.given(cond, True).interval(a), self.given(cond, False).interval(b)
                return min(yes[0], no[0]), max(yes[1], no[1])
            case BinOp(op, a, b) if expr.dtype in INTEGER_RANGES and op not in _COMPARISONS and expr.dtype != "bool":
                interval = _of_operator(op, self.interval(a), self.interval(b))
                if interval is not None and least <= interval[0] and interval[1] <= most:
                    return interval
        return least, most

    def _most(self, total: Linear) -> int:
        """The most that a sum can be."""
        items = frozenset(total.terms.items())
        if items not in self._sums:
            self._sums[items] = self._most_of(items)
        return total.constant + self._sums[items]

    def _most_of(self, items: Terms) -> int:
        """The most that terms can be together. Parts of which nothing is known together are looked at one by one."""
        quotients = [item for item in items if isinstance(item[0], BinOp) and item[0].op == "floordiv"]
        parts = self._apart(items) if quotients else []
        if len(parts) > 1:
            return sum(self._most(Linear(dict(part))) for part in parts)
        best, coefficients = sum(map(self._largest, items)), dict(items)
        for terms, bound in self.upper.items():
            times = _times_in(terms, coefficients)
            if times:
                others = [item for item in items if (item[0], item[1] // times) not in terms]
                best = min(best, times * bound + sum(map(self._largest, others)))
        common = gcd(*(times for _, times in items))
        if quotients and common > 1:
            best = min(best, common * self._most(Linear({atom: times // common for atom, times in items})))
        for quotient, times in quotients:
            match quotient:
                case BinOp("floordiv", x, Const(divisor)) if divisor > 1:
                    # divisor * quotient lies in x - (divisor - 1) .. x, whatever else is known of x
                    rest = Linear(dict(items - {(quotient, times)}))
                    whole = Linear().add(rest, int(divisor)).add(self._analysed(x)[1], times)
                    best = min(best, (self._most(whole) + max(0, -times) * (int(divisor) - 1)) // int(divisor))
        return best

    def _apart(self, items: Terms) -> list[Terms]:
        """The terms of a sum in parts that have no variable or load in common, nor stand in a bound together that may
        bound it: not one of what is taken away where the sum adds it."""
        times = dict(items)
        bounds = [terms for terms in self.upper if all(times.get(term, each) * each > 0 for term, each in terms)]
        together = [{atom for term, _ in terms for atom in _atoms(term)} for terms in bounds]
        parts: list[tuple[frozenset[Expr], Terms]] = []
        for item in items:
            names = _atoms(item[0]).union(*(each for each in together if not each.isdisjoint(_atoms(item[0]))))
            joined = [part for part in parts if not part[0].isdisjoint(names)]
            parts = [part for part in parts if part[0].isdisjoint(names)]
            parts.append((names.union(*(part[0] for part in joined)),
                          frozenset([item]).union(*(part[1] for part in joined))))  # fmt: skip
        return [terms for _, terms in parts]

    def _largest(self, term: tuple[Expr, int]) -> int:
        low, high = self.interval(term[0])
        return max(low * term[1], high * term[1])


def _times_in(terms: Terms, coefficients: Mapping[Expr, int]) -> int:
    """How many times all of the terms are in a sum with these coefficients; 0 where they are not, or not a whole number
    of times."""
    atom, each = next(iter(terms))
    times, left = divmod(coefficients.get(atom, 0), each)
    if left or times < 1 or any(coefficients.get(other) != times * each for other, each in terms):
        return 0
    return times


def _atoms(expr: Expr) -> frozenset[Expr]:
    """The variables and loads in an expression."""
    return frozenset[Expr](free_vars(expr)).union(loads(expr))


def cases(facts: Facts, expr: Expr) -> list[Facts]:
    """What is known in each case, where conditions are numbers in an expression: ``(x < 0).astype(int64)``."""
    numbers = [node for node in walk_exprs(expr) if isinstance(node, Cast) and node.x.dtype == "bool"]
    result = [facts]
    for number in list(dict.fromkeys(numbers))[:CASES_AT_MOST]:
        result = [
            each.given(number.x, holds).given(BinOp("eq", number, Const(holds, number.dtype)), True)
            for each in result for holds in (True, False)
        ]  # fmt: skip
    return result


def _combined(op: str, a: Linear, b: Linear) -> Linear | None:
    """A sum, a difference or a product as a sum; None for a product of two that are not constant."""
    if op in ("add", "sub"):
        return a.add(b, 1 if op == "add" else -1)
    for constant, other in ((a, b), (b, a)):
        if not constant.terms:
            return Linear().add(other, constant.constant) if constant.constant else Linear()
    return None


def _exact(op: str, a: Interval, b: Interval) -> Interval:
    """Interval of a sum, a difference or a product."""
    if op == "add":
        return a[0] + b[0], a[1] + b[1]
    if op == "sub":
        return a[0] - b[1], a[1] - b[0]
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _of_operator(op: str, a: Interval, b: Interval) -> Interval | None:
    """Interval of another operator; None where none is known."""
    match op:
        case "min" | "max":
            choose = min if op == "min" else max
            return choose(a[0], b[0]), choose(a[1], b[1])
        case "floordiv" if b[0] > 0:
            corners = [x // y for x in a for y in b]
            return min(corners), max(corners)
        case "mod" if b[0] > 0:
            if b[0] == b[1] and a[0] // b[0] == a[1] // b[0]:
                return a[0] % b[0], a[1] % b[0]
            return 0, min(a[1], b[1] - 1) if a[0] >= 0 else b[1] - 1
        case "shl" | "shr" if b[0] >= 0 and b[1] < 64:
            corners = [x << y if op == "shl" else x >> y for x in a for y in b]
            return min(corners), max(corners)
    return None
