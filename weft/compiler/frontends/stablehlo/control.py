"""Control flow: branches, and loops whose course is known while the module is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph import Array, Constant, Expr, GraphError
from ...graph.dtypes import numpy_dtype
from ..errors import ModelError
from ..onnx.loop import LEAST_STEPS, looped
from .site import Region, Result, Site, rule

MOST_STEPS = 100_000


@rule("if", "case")
def _case(site: Site) -> Result:
    """The branch that is known to be taken; else all of them, and of each result the one that counts. Of ``case``, a
    number that no branch has takes the last."""
    *branches, last = site.regions
    tests = [site.x if site.op == "if" else site("equal", site.x, number) for number in range(len(branches))]
    known = [_truth(site.static(test)) for test in tests]
    if None not in known:
        return next((branch for branch, taken in zip(branches, known, strict=True) if taken), last).run(())
    chosen = last.run(())
    for branch, test in reversed(list(zip(branches, tests, strict=True))):
        chosen = [site.where(test, yes, no) for yes, no in zip(branch.run(()), chosen, strict=True)]
    return chosen


def _truth(value: Array | None) -> bool | None:
    return None if value is None else bool(value.reshape(()))


@rule("while")
def _while(site: Site) -> Result:
    """One operator for a loop that counts to a limit; else the body once for each step, as long as whether it goes on
    is known before."""
    condition, body = site.regions
    counter = _counter(site, condition, body)
    if counter is not None:
        try:
            return _counted(site, body, *counter)
        except (ModelError, GraphError):  # of a value that only its own step knows: each step has a copy of the body
            pass
    values = list(site.operands)
    for _ in range(MOST_STEPS):
        goes_on = site.static(condition.run(values)[0])
        if goes_on is None:
            raise site.error("whether it goes on depends on values of a run")
        if not _truth(goes_on):
            return values
        values = [_settled(site, each) for each in body.run(values)]
    raise site.error(f"it goes on after {MOST_STEPS:,} steps")


def _settled(site: Site, value: Expr) -> Expr:
    """What is known is a constant, so that no step computes the counters of those before it again."""
    known = None if isinstance(value, Constant) else site.static(value)
    return value if known is None else site.constant(known)


def _counter(site: Site, condition: Region, body: Region) -> tuple[int, int, int] | None:
    """Which operand counts by ones up to a limit that is known, where it begins, and the limit."""
    if not condition.returned or condition.returned[0][0] != "result":
        return None
    test = condition.operations[condition.returned[0][1]]
    if test.name != "compare" or test.attrs.get("comparison_direction") != "LT" or test.operands[0][0] != "argument":
        return None
    place = test.operands[0][1]
    limit = _number(site, condition, test.operands[1])
    start = site.static(site.operands[place])
    after = body.returned[place]
    if limit is None or start is None or after[0] != "result":
        return None
    step = body.operations[after[1]]
    if step.name != "add" or step.operands[0] != ("argument", place) or _number(site, body, step.operands[1]) != 1:
        return None
    begin = int(start.reshape(()))
    return (place, begin, limit) if LEAST_STEPS <= limit - begin <= MOST_STEPS else None


def _number(site: Site, region: Region, place: tuple[Any, ...]) -> int | None:
    """The number at a place inside a region, if it is known."""
    if place[0] == "outer":
        known = site.static(place[1])
    elif place[0] == "result" and region.operations[place[1]].name == "constant":
        known = np.asarray(region.operations[place[1]].attrs["value"])
    else:
        return None
    return None if known is None or known.size != 1 else int(known.reshape(()))


def _counted(site: Site, body: Region, place: int, begin: int, limit: int) -> list[Expr]:
    """The loop as one operator whose body is given its number."""
    dtype = numpy_dtype(site.operands[place].dtype)
    turns = site.constant(np.arange(begin, limit).astype(dtype))
    states = [value for number, value in enumerate(site.operands) if number != place]

    def step(state: Sequence[Expr], taken: Sequence[Expr]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        results = body.run([*state[:place], taken[0], *state[place:]])
        return tuple(value for number, value in enumerate(results) if number != place), ()

    after, _ = looped(site.node, step, states, [turns], (False,))
    return [*after[:place], site.constant(np.array(limit, dtype)), *after[place:]]
