"""Patterns over graphs.

A match gives the values by the names that the pattern gave them:

    matmul = op("nn.dense", any_value("x"), constant("w"))
    biased = op("nn.add", matmul, constant("b"), commutative=True)
    match = biased.match(node)          # {"x": ..., "w": ..., "b": ...} or None
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import permutations

from .ir import AttrValue, Call, Constant, Expr

Match = dict[str, Expr]
Uses = Mapping[Expr, int]


@dataclass(frozen=True)
class Pattern:
    """Base: ``name`` binds what was met; ``conditions`` must all hold; ``single_use`` asks for one consumer only."""

    name: str = field(default="", kw_only=True)
    conditions: tuple[Callable[[Expr], bool], ...] = field(default=(), kw_only=True)
    single_use: bool = field(default=False, kw_only=True)

    def match(self, node: Expr, uses: Uses | None = None) -> Match | None:
        """What the names are bound to, or ``None``. ``uses`` (from `use_counts`) is needed by `used_once`."""
        return self._match(node, {}, uses or {})

    def _match(self, node: Expr, bound: Match, uses: Uses) -> Match | None:
        if not all(condition(node) for condition in self.conditions):
            return None
        if self.single_use and uses.get(node, 0) != 1:
            return None
        if self.name and self.name in bound and bound[self.name] != node:
            return None
        inner = self._match_inside(node, bound, uses)
        if inner is None or not self.name:
            return inner
        return {**inner, self.name: node}

    def _match_inside(self, node: Expr, bound: Match, uses: Uses) -> Match | None:
        return bound

    def where(self, condition: Callable[[Expr], bool]) -> Pattern:
        """The same pattern with one condition more."""
        return replace(self, conditions=(*self.conditions, condition))

    def typed(self, dtype: str = "", rank: int | None = None) -> Pattern:
        """The same pattern for one tensor of this element type and rank."""

        def fits(node: Expr) -> bool:
            kind = node.tensor_type
            return (not dtype or kind.dtype == dtype) and (rank is None or kind.rank == rank)

        return self.where(fits)

    def used_once(self) -> Pattern:
        """The same pattern, for a value with exactly one consumer."""
        return replace(self, single_use=True)

    def __or__(self, other: Pattern) -> Pattern:
        return OneOf((self, other))


@dataclass(frozen=True)
class AnyValue(Pattern):
    """Meets every value."""


@dataclass(frozen=True)
class AnyConstant(Pattern):
    """Meets constants."""

    def _match_inside(self, node: Expr, bound: Match, uses: Uses) -> Match | None:
        return bound if isinstance(node, Constant) else None


@dataclass(frozen=True)
class OneOf(Pattern):
    """Meets what one of the alternatives meets; the first counts."""

    alternatives: tuple[Pattern, ...] = ()

    def _match_inside(self, node: Expr, bound: Match, uses: Uses) -> Match | None:
        for alternative in self.alternatives:
            match = alternative._match(node, bound, uses)
            if match is not None:
                return match
        return None


@dataclass(frozen=True)
class OpPattern(Pattern):
    """Meets calls of an operator, its operands (in any order, if ``commutative``) and its attributes."""

    op: str = ""
    operands: tuple[Pattern, ...] = ()
    attrs: tuple[tuple[str, AttrValue], ...] = ()
    commutative: bool = False

    def _match_inside(self, node: Expr, bound: Match, uses: Uses) -> Match | None:
        if not isinstance(node, Call) or node.op != self.op or len(node.args) != len(self.operands):
            return None
        if any(node.attrs.get(key) != value for key, value in self.attrs):
            return None
        orders = permutations(self.operands) if self.commutative else iter([self.operands])
        for order in orders:
            match: Match | None = bound
            for pattern, arg in zip(order, node.args, strict=True):
                match = pattern._match(arg, match, uses) if match is not None else None
            if match is not None:
                return match
        return None


def any_value(name: str = "") -> Pattern:
    return AnyValue(name=name)


def constant(name: str = "") -> Pattern:
    return AnyConstant(name=name)


def one_of(*alternatives: Pattern, name: str = "") -> Pattern:
    return OneOf(alternatives, name=name)


def op(name_of_op: str, *operands: Pattern, commutative: bool = False, name: str = "", **attrs: AttrValue) -> Pattern:
    """A call of ``name_of_op`` with these operands and (at least) these attributes."""
    return OpPattern(name_of_op, operands, tuple(attrs.items()), commutative, name=name)
