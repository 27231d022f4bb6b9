"""Branches of a network side by side: calls that do not need each other, each whole on a core of its own.

Cores that share each layer wait for each other after it, and each reads bytes that another one reads, too: all weights
where rows are cut, all inputs where channels are. Calls side by side do neither, but the cores end together only where
the calls take equally long. So in a stretch of calls with branches, large calls are shared and small ones lie side by
side, as many as measured programs say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from ....graph.ir import Call

TURN_CYCLES = 20
"""From the end of a turn to the begin of the next, where cores start each other."""

ALL_SETS = 9
"""Calls of a stretch of which all sets are looked at."""

TRIED = 2
"""Plans of a stretch that are measured at most; estimates choose them."""


@dataclass(frozen=True, eq=False)
class Turn:
    """A call that all cores share; or, with ``cores``, calls side by side, each on the core with that number."""

    calls: tuple[Call, ...]
    cores: tuple[int, ...] = ()


@dataclass(frozen=True)
class Cost:
    """Cycles of a call: ``whole`` on one core, and ``shared`` by all, as it is cut best."""

    whole: int
    shared: int


Needs = Callable[[Call], Iterable[Call]]
"""The calls whose results a call reads."""

Cycles = Callable[[Sequence[Turn]], int]
"""Of turns one after the other, measured."""


def shared(calls: Iterable[Call]) -> list[Turn]:
    """Turns without branches."""
    return [Turn((node,)) for node in calls]


def with_branches(
    calls: Sequence[Call], needs: Needs, cores: int, costs: Mapping[Call, Cost], cycles: Cycles
) -> list[Turn]:
    """The turns of calls, which stand in an order in which they can run. Each stretch of calls that falls into several
    branches gets the turns in which it was measured to end first; the first plan is to share each call."""
    turns: list[Turn] = []
    first = 0
    while first < len(calls):
        stop = _end_of_branches(calls, first, needs)
        plan = None if stop is None else _fastest(calls[first:stop], needs, cores, costs, cycles)
        if plan is None or stop is None:
            turns.append(Turn((calls[first],)))
            first += 1
        else:
            turns += plan
            first = stop
    return turns


def branches(calls: Sequence[Call], needs: Needs) -> list[list[Call]]:
    """The calls, those together of which one needs another, by the first of each."""
    found: list[list[Call]] = []
    for node in calls:
        needed = set(needs(node))
        joined = [branch for branch in found if not needed.isdisjoint(branch)]
        if not joined:
            found.append([node])
            continue
        for branch in joined[1:]:
            joined[0] += branch
            found.remove(branch)
        joined[0].append(node)
    return found


def _end_of_branches(calls: Sequence[Call], first: int, needs: Needs) -> int | None:
    """The stop of the shortest stretch from ``first`` on that falls into branches which the next call joins, or with
    which the calls end. None where there is none."""
    apart = False
    for stop in range(first + 1, len(calls) + 1):
        several = len(branches(calls[first:stop], needs)) > 1
        if apart and not several:
            return stop - 1
        apart = several
    return len(calls) if apart else None


def _fastest(
    calls: Sequence[Call], needs: Needs, cores: int, costs: Mapping[Call, Cost], cycles: Cycles
) -> list[Turn] | None:
    """The plan of a stretch by which it ends first; None if that is to share each call."""

    def estimate(turns: Sequence[Turn]) -> int:
        return sum(TURN_CYCLES + _estimate(turn, cores, costs) for turn in turns)

    one_by_one = shared(calls)
    plans = [_plan(calls, large, needs, cores, costs) for large in _to_be_shared(calls, costs)]
    hopeful = [plan for plan in plans if any(turn.cores for turn in plan) and estimate(plan) < estimate(one_by_one)]
    tried = sorted(hopeful, key=estimate)[:TRIED]
    best = min([one_by_one, *tried], key=cycles) if tried else one_by_one
    return None if best is one_by_one else best


def _to_be_shared(calls: Sequence[Call], costs: Mapping[Call, Cost]) -> Iterator[set[Call]]:
    """Sets of calls that may be shared, while the others may lie side by side: all sets of a few calls, and of many
    the longest ones."""
    longest = sorted(calls, key=lambda node: -costs[node].whole)
    for count in range(len(calls) - 1):
        sets = combinations(longest, count) if len(calls) <= ALL_SETS else [longest[:count]]
        yield from map(set, sets)


def _estimate(turn: Turn, cores: int, costs: Mapping[Call, Cost]) -> int:
    """Cycles of a turn, if calls took as long together as by themselves."""
    if not turn.cores:
        return sum(costs[node].shared for node in turn.calls)
    loads = [0] * cores
    for node, core in zip(turn.calls, turn.cores, strict=True):
        loads[core] += costs[node].whole
    return max(loads)


def _plan(calls: Sequence[Call], large: set[Call], needs: Needs, cores: int, costs: Mapping[Call, Cost]) -> list[Turn]:
    """Turns in which the large calls are shared, and those between them lie side by side, where they can."""
    turns: list[Turn] = []
    waiting = list(calls)

    def is_ready(node: Call) -> bool:
        return all(other not in waiting for other in needs(node))

    while waiting:
        small: list[Call] = []
        for node in waiting:
            if node not in large and all(other in small or other not in waiting for other in needs(node)):
                small.append(node)
        waiting = [node for node in waiting if node not in small]
        turns += _side_by_side(small, needs, cores, costs)
        ready = [node for node in waiting if node in large and is_ready(node)]
        waiting = [node for node in waiting if node not in ready]
        turns += shared(ready)
    return turns


def _side_by_side(calls: Sequence[Call], needs: Needs, cores: int, costs: Mapping[Call, Cost]) -> list[Turn]:
    """Branches on cores, the longest first on the core that has least to do; a single one is shared call by call."""
    found = branches(calls, needs)
    if len(found) < 2:
        return shared(calls)
    loads = [0] * cores
    place: dict[Call, int] = {}
    for branch in sorted(found, key=lambda each: -sum(costs[node].whole for node in each)):
        core = loads.index(min(loads))
        loads[core] += sum(costs[node].whole for node in branch)
        place.update(dict.fromkeys(branch, core))
    return [Turn(tuple(calls), tuple(place[node] for node in calls))]
