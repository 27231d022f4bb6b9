"""Loop nests around one intrinsic call: every operand's position as a linear form of the loops.

Worked out once a nest; the emitter then only adds numbers for each tile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from .....shown import with_article
from ....tensor.ir import BinOp, Buffer, Cast, Const, Expr, For, IntrinsicCall, Region, Select, Stmt, Var
from ....tensor.linear import Linear, linear_form
from ....tensor.simplify import simplifier_of
from ....tensor.visitor import free_vars
from ...errors import CompileError

Environment = dict[str, int]
Evaluator = Callable[[Environment], int]

_SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "shl": "<<", "shr": ">>",
    "and": "and", "or": "or", "lt": "<", "le": "<=", "eq": "==", "ne": "!=",
}  # fmt: skip


@lru_cache(maxsize=4096)
def compile_expr(expr: Expr) -> Evaluator:
    """A function from the values of the loop variables (by name) to the value of an index or condition. Kernels share
    many of them."""
    return eval(f"lambda e: {_source(expr)}", {"min": min, "max": max})  # type: ignore[no-any-return]


def _source(expr: Expr) -> str:
    match expr:
        case Const(value):
            return repr(value)
        case Var(name):
            return f"e[{name!r}]"
        case BinOp("min" | "max" as op, a, b):
            return f"{op}({_source(a)}, {_source(b)})"
        case BinOp(op, a, b):
            return f"({_source(a)} {_SYMBOLS[op]} {_source(b)})"
        case Select(cond, a, b):
            return f"({_source(a)} if {_source(cond)} else {_source(b)})"
        case Cast("int64" | "bool" | "int32", x):
            return _source(x)
    raise CompileError(
        f"an index must be integer arithmetic of loop variables, but contains {with_article(type(expr).__name__)}"
    )


@dataclass(frozen=True)
class Position:
    """Where an operand's tile starts: ``base`` (of the outer variables) plus ``strides`` times the folded loops."""

    buffer: Buffer
    base: Evaluator
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Bound:
    """A condition on one folded loop: ``coefficient * index + rest >= 0``. ``loop`` -1: no loop takes part."""

    loop: int
    coefficient: int
    rest: Evaluator

    def limit(self, environment: Environment, low: int, high: int) -> tuple[int, int]:
        """The part of ``low .. high-1`` in which the condition holds."""
        rest = self.rest(environment)
        if self.loop < 0:
            return (low, high) if rest >= 0 else (low, low)
        if self.coefficient > 0:
            return max(low, -(rest // self.coefficient)), high
        return low, min(high, rest // -self.coefficient + 1)


@dataclass(frozen=True)
class IntrinsicNest:
    """An intrinsic call and the loops around it. ``iterated`` loops repeat the rest, all unrolled ones among them;
    ``folded`` ones go into it.

    ``positions`` (in elements) stand in the order of the intrinsic's operands. ``bounds`` replace the scalar
    ``inside``. All strides and bounds count loops by their place in ``folded``.
    """

    call: IntrinsicCall
    iterated: tuple[tuple[str, Evaluator], ...]
    folded: tuple[tuple[str, Evaluator], ...]
    positions: tuple[Position, ...]
    bounds: tuple[Bound, ...]
    scalars: dict[str, Evaluator]

    @cached_property
    def starting(self) -> tuple[str, ...] | None:
        """The loops outside of ``folded`` that must be at 0 where the call starts from its identity; None: it never
        does."""
        inside = {name for name, _ in self.folded}
        return None if self.call.init is None else tuple(var.name for var in self.call.init if var.name not in inside)


def nest_call(stmt: Stmt) -> IntrinsicCall | None:
    """The call inside a nest of serial loops and nothing else, or None."""
    while isinstance(stmt, For) and stmt.kind in ("serial", "unroll"):
        stmt = stmt.body
    return stmt if isinstance(stmt, IntrinsicCall) else None


def analyse_nest(stmt: Stmt, outer: list[tuple[Var, Expr]]) -> IntrinsicNest:
    """Analyse the nest ``stmt`` inside the ``outer`` loops."""
    nest: list[tuple[Var, Expr]] = []
    iterated: set[Var] = set()
    while isinstance(stmt, For):
        nest.append((stmt.var, stmt.extent))
        if stmt.kind == "unroll":
            iterated.add(stmt.var)
        stmt = stmt.body
    if not isinstance(stmt, IntrinsicCall):
        raise CompileError("a leaf is loops around one intrinsic call")
    call = stmt
    simplifier = simplifier_of([*outer, *nest])
    inside_nest = {var for var, _ in nest}
    extents = {var: simplifier.simplify(extent) for var, extent in nest}
    offsets = [simplifier.position(region.indices, region.buffer.strides) for region in call.operands]
    conditions = _conjunction(simplifier.simplify(dict(call.scalars).get("inside", Const(True, "bool"))))

    for extent in extents.values():
        iterated |= free_vars(extent) & inside_nest
    for linear in (*offsets, *conditions):
        for atom in linear.terms:
            if not isinstance(atom, Var):
                iterated |= free_vars(atom) & inside_nest
    for name, value in call.scalars:
        if name != "inside":
            iterated |= free_vars(value) & inside_nest
    for linear in conditions:  # one loop a condition can become padding; of several, the innermost
        among = [var for var, _ in nest if var in linear.terms and var not in iterated and extents[var] != Const(1)]
        iterated |= set(among[:-1])
    folded = [var for var, _ in nest if var not in iterated]

    def base(linear: Linear) -> Evaluator:
        rest = {atom: factor for atom, factor in linear.terms.items() if atom not in folded}
        return compile_expr(Linear(rest, linear.constant).to_expr())

    def position(region: Region, linear: Linear) -> Position:
        return Position(region.buffer, base(linear), tuple(linear.terms.get(var, 0) for var in folded))

    def bound(linear: Linear) -> Bound:
        involved = [(place, linear.terms[var]) for place, var in enumerate(folded) if var in linear.terms]
        involved = [pair for pair in involved if extents[folded[pair[0]]] != Const(1)]
        place, factor = involved[0] if involved else (-1, 0)
        return Bound(place, factor, base(linear))

    return IntrinsicNest(
        call,
        tuple((var.name, compile_expr(extents[var])) for var, _ in nest if var in iterated),
        tuple((var.name, compile_expr(extents[var])) for var in folded),
        tuple(position(region, linear) for region, linear in zip(call.operands, offsets, strict=True)),
        tuple(bound(linear) for linear in conditions),
        {name: compile_expr(simplifier.simplify(value)) for name, value in call.scalars if name != "inside"},
    )


def _conjunction(condition: Expr) -> list[Linear]:
    """A condition as linear forms that must all be at least 0."""
    match condition:
        case Const(value):
            return [] if value else [Linear({}, -1)]
        case BinOp("and", a, b):
            return _conjunction(a) + _conjunction(b)
        case BinOp("lt", a, b):
            return [linear_form(b).add(linear_form(a), -1).add(Linear({}, -1))]
        case BinOp("le", a, b):
            return [linear_form(b).add(linear_form(a), -1)]
    # Anything else is decided for every single iteration: an atom that is not a variable makes its loops iterate.
    return [Linear({Select(condition, Const(1), Const(0)): 1}, -1)]
