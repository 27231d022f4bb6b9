"""Control flow, whose bodies are further graphs of the file. Its course is known while the file is read, or the model
is cut before it."""

from __future__ import annotations

from ...graph import Constant, Expr
from ..errors import NeedsValueError
from .site import Held, Result, Site, rule

BODIES = {"IF": ("then", "otherwise"), "WHILE": ("condition", "body")}
"""By operator: the options that name a graph."""

MOST_STEPS = 100_000


def _condition(site: Site, held: Held, what: str) -> Expr:
    """One bool."""
    if held.expr.dtype != "bool" or held.expr.shape not in ((), (1,)):
        raise site.error(f"{what} must be one bool, not {held.expr.type}")
    return held.expr


@rule("IF")
def _if(site: Site) -> tuple[Result, ...]:
    """The branch that is known to be taken; else both, and of each result the one that counts."""
    operands = [site.held(index) for index in range(1, len(site.values))]
    condition = _condition(site, site.held(0), "the condition")
    known = site.node.scope.static_value(condition)
    if known is not None:
        return tuple(site.body(site, site.option("then" if known.reshape(()) else "otherwise"), operands))
    one, other = _both(site, operands)
    chosen: list[Result] = []
    for yes, no in zip(one, other, strict=True):
        if yes.shape != no.shape or yes.expr.dtype != no.expr.dtype:
            raise NeedsValueError(site.op, "the condition, whose branches give results of different types,",
                                  at=site.span, value=condition, reader="from_litert")  # fmt: skip
        chosen.append(site.where(site.reshape(condition, ()), site.ordered(yes), site.ordered(no)))
    return tuple(chosen)


def _both(site: Site, operands: list[Held]) -> list[list[Held]]:
    """What either branch gives. A variable that one of them assigns has the value that counts."""
    before, results, after = dict(site.memory.values), [], []
    for name in BODIES["IF"]:
        site.memory.values = dict(before)
        results.append(site.body(site, site.option(name), operands))
        after.append(site.memory.values)
    for name in after[0].keys() | after[1].keys():
        yes, no = (values.get(name) for values in after)
        if yes is None or no is None:
            raise site.error(f"one of its branches alone gives the variable {name!r} a value")
        if yes is not no:
            yes = Held.plain(site.where(site.reshape(site.held(0).expr, ()), site.ordered(yes), site.ordered(no)))
        site.memory.values[name] = yes
    return results


@rule("WHILE")
def _while(site: Site) -> tuple[Result, ...]:
    """The body once for each step; whether it goes on must be known before each."""
    values = [site.held(index) for index in range(len(site.values))]
    for _ in range(MOST_STEPS):
        goes_on = _condition(site, site.body(site, site.option("condition"), values)[0], "what the condition gives")
        if not site.known(goes_on, "whether it goes on").reshape(()):
            return tuple(values)
        values = [settled(site, each) for each in site.body(site, site.option("body"), values)]
    raise site.error(f"it goes on after {MOST_STEPS:,} steps")


def settled(site: Site, held: Held) -> Held:
    """What is known is a constant, so that no step computes the counters of those before it again."""
    if isinstance(held.expr, Constant):
        return held
    known = site.node.scope.static_value(held.expr)
    return held if known is None else Held(Constant(known, span=held.expr.span), held.order)
