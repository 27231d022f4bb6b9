"""Control flow, whose bodies are further graphs of the file. Its course is known while the file is read."""

from __future__ import annotations

from ...graph import Constant
from .site import Held, Result, Site, rule

BODIES = {"IF": ("then", "otherwise"), "WHILE": ("condition", "body")}
"""By operator: the options that name a graph."""

MOST_STEPS = 100_000


def _known(site: Site, held: Held, what: str) -> bool | None:
    """A condition's value; None if it depends on a run's."""
    if held.expr.dtype != "bool" or held.expr.shape not in ((), (1,)):
        raise site.error(f"{what} must be one bool, not {held.expr.type}")
    value = site.node.scope.static_value(held.expr)
    return None if value is None else bool(value.reshape(()))


@rule("IF")
def _if(site: Site) -> tuple[Result, ...]:
    """The branch that is known to be taken; else both, and of each result the one that counts."""
    operands = [site.held(index) for index in range(1, len(site.values))]
    condition = site.held(0)
    known = _known(site, condition, "the condition")
    if known is not None:
        return tuple(site.body(site, site.option("then" if known else "otherwise"), operands))
    one, other = _both(site, operands)
    chosen: list[Result] = []
    for yes, no in zip(one, other, strict=True):
        if yes.shape != no.shape or yes.expr.dtype != no.expr.dtype:
            raise site.error(f"its branches give {yes.expr.type} and {no.expr.type}, and which one depends on a run")
        chosen.append(site.where(site.reshape(condition.expr, ()), site.ordered(yes), site.ordered(no)))
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
        goes_on = _known(site, site.body(site, site.option("condition"), values)[0], "what the condition gives")
        if goes_on is None:
            hint = "convert its body with a signature of its own, and go round the loop outside"
            raise site.error("whether it goes on depends on values of a run", hint=hint)
        if not goes_on:
            return tuple(values)
        values = [_settled(site, each) for each in site.body(site, site.option("body"), values)]
    raise site.error(f"it goes on after {MOST_STEPS:,} steps")


def _settled(site: Site, held: Held) -> Held:
    """What is known is a constant, so that no step computes the counters of those before it again."""
    if isinstance(held.expr, Constant):
        return held
    known = site.node.scope.static_value(held.expr)
    return held if known is None else Held(Constant(known, span=held.expr.span), held.order)
