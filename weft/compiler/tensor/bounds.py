"""Proof that a function stays inside its buffers, whatever its data are: what code for a machine relies on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from .errors import BoundsError
from .intervals import EXACT, Facts, Interval, cases
from .intrinsic import call_loops
from .ir import (
    Allocate,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    If,
    IntrinsicCall,
    Load,
    PrimFunc,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
)
from .printer import expr_text
from .simplify import lower_bound, simplify, upper_bound
from .visitor import children, free_vars, loads, stores_of, substitute

Loops = tuple[tuple[Var, Expr], ...]
Elements = Mapping[str, tuple[Interval, ...]]
"""For parameters by name: between which numbers their elements lie, as `Facts.elements`."""


def require_bounds(func: PrimFunc, elements: Elements | None = None) -> None:
    """What stands before code is made of a function. Schedules keep the meaning: what the function was before them,
    where that is known, is easier to prove. BoundsError as `check_bounds`."""
    check_bounds(func.origin or func, elements)


def check_bounds(func: PrimFunc, elements: Elements | None = None) -> None:
    """BoundsError for the first access that is not proved to lie inside its buffer, by the loops around it and by the
    comparisons (of ``select`` and ``if``) that guard it.

    ``elements``: what is known of data that are indices, and stay as they are while the function runs.
    """
    written = {buffer.name for buffer, _ in stores_of(func.body)}
    known = {name: each for name, each in (elements or {}).items() if name not in written}
    # Nothing writes between a comparison in an expression and what it guards, so reading again gives the same.
    _Prover(Facts(known, rereads=True), (), "the function's body", "").statement(func.body)


@dataclass(frozen=True)
class _Prover:
    """Looks at all accesses in a place: what is known there, the loops around it, its name, and where in the user's
    program the stage is written."""

    facts: Facts
    loops: Loops
    at: str
    source: str

    def statement(self, stmt: Stmt) -> None:
        match stmt:
            case For(var=var, extent=extent, body=body):
                replace(self, at=f"loop {var.name!r}").expression(extent)
                self.inside_loop(var, extent).statement(body)
            case Allocate(body=body):
                self.statement(body)
            case Seq(body=items):
                for item in items:
                    self.statement(item)
            case If(cond, then):
                replace(self, at="if").expression(cond)
                overwritten = {buffer for buffer, _ in stores_of(then)}
                steady = not any(node.buffer in overwritten for node in loads(cond))
                (self.given(cond, True) if steady else self).statement(then)
            case Block(name=name, body=store, source=source):
                replace(self, at=f"block {name!r}", source=source).store(store)
            case Store():
                replace(self, at=f"store to {stmt.buffer.name!r}").store(stmt)
            case IntrinsicCall(block=block):
                inner, store = call_loops(stmt)
                prover = replace(self, at=f"block {block!r}")
                for var, count in inner:
                    prover = prover.inside_loop(var, Const(count))
                prover.store(store)

    def store(self, store: Store) -> None:
        self.access(store.buffer, store.indices)
        for expr in (*store.indices, store.value):
            self.expression(expr)

    def expression(self, expr: Expr) -> None:
        if isinstance(expr, Select):
            self.expression(expr.cond)
            self.given(expr.cond, True).expression(expr.a)
            self.given(expr.cond, False).expression(expr.b)
            return
        if isinstance(expr, Load):
            self.access(expr.buffer, expr.indices)
        for child in children(expr):
            self.expression(child)

    def access(self, buffer: Buffer, indices: Sequence[Expr]) -> None:
        for axis, (index, size) in enumerate(zip(indices, buffer.shape, strict=True)):
            if not is_within(index, size - 1, self.facts, self.loops):
                known = cases(self.facts, index)
                low = min(each.interval(index)[0] for each in known)
                high = max(each.interval(index)[1] for each in known)
                values = f"{'any' if low < -EXACT else low}..{'any' if high > EXACT else high}"
                guard = "guard the access: select(condition, access, other value)"
                raise BoundsError(
                    f"index {expr_text(index)!r} of {buffer.name!r} may be {values}, but axis {axis} has {size} "
                    "elements", at=self.at, hint=f"{guard} in {self.source}" if self.source else guard,
                )  # fmt: skip

    def inside_loop(self, var: Var, extent: Expr) -> _Prover:
        return replace(self, facts=self.facts.inside_loop(var, extent), loops=(*self.loops, (var, extent)))

    def given(self, cond: Expr, holds: bool) -> _Prover:
        return replace(self, facts=self.facts.given(cond, holds))


def is_within(index: Expr, last: int, facts: Facts, loops: Loops) -> bool:
    """Whether an index lies in ``0..last``, and no part of it wraps."""
    if isinstance(index, Var | Const):  # most are
        low, high = facts.interval(index)
        if low >= 0 and high <= last:
            return True
    known = cases(facts, index)
    if not all(each.are_exact(index) for each in known):
        return False
    intervals = [each.interval(index) for each in known if not each.contradictory]
    if all((low >= 0 and high <= last) or low > high for low, high in intervals):  # an empty one: it is never reached
        return True
    if loads(index):
        return False
    variables = free_vars(index)
    needed = [(var, extent) for var, extent in loops if var in variables or not isinstance(extent, Const)]
    if _is_bounded(index, last, needed):
        return True
    outer = {other for var, extent in needed if var in variables for other in free_vars(extent)}
    tried = [(var, extent) for var, extent in loops if var in outer and isinstance(extent, Const)]
    if not tried or prod(int(extent.value) for _, extent in tried) > MOST_TRIED:
        return False
    return all(
        _is_bounded(substitute(index, turn), last, [(var, simplify(substitute(extent, turn))) for var, extent in needed
                                                    if var not in turn])
        for turn in _iterations(tried)
    )  # fmt: skip


MOST_TRIED = 256
"""Iterations of loops that are looked at one by one where a proof for all of them at once fails: such as of tiles, of
which the last one is shorter."""


def _is_bounded(index: Expr, last: int, loops: Sequence[tuple[Var, Expr]]) -> bool:
    least, most = lower_bound(index, loops), upper_bound(index, loops)
    return isinstance(least, Const) and isinstance(most, Const) and least.value >= 0 and most.value <= last


def _iterations(loops: Sequence[tuple[Var, Const]]) -> Iterator[dict[Var, Expr]]:
    """The variables of loops with constant extents, in all iterations."""
    for values in product(*(range(int(extent.value)) for _, extent in loops)):
        yield {var: Const(value) for (var, _), value in zip(loops, values, strict=True)}
