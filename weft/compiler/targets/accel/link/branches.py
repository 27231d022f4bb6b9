"""Branches of a network side by side: calls that do not need each other, each whole on a core of its own.

Cores that share each layer wait for each other after it, and each reads bytes that another one reads, too: all weights
where rows are cut, all inputs where channels are. Calls side by side do neither, but the cores end together only where
the calls take equally long. So in a stretch of calls with branches, large calls are shared and small ones lie side by
side, as many as measured programs say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import combinations

from ....graph.ir import Call

TURN_CYCLES = 20
"""From the end of a turn to the begin of the next, where cores start each other."""

ALL_SETS = 9
"""Calls of a stretch of which all sets are looked at."""

ALL_COUNTS = 32
"""Of more calls only the longest are shared: so many, one after the other, and then about twice as many each time."""

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
    stretches = _Stretches(calls, needs)
    refused: dict[int, int] = {}  # length of the last stretch that had no plan, by its stop
    first = 0
    while first < len(calls):
        plan, stop = None, stretches.stop(first)
        # A long stretch without its first call is not worth another look.
        if stop is not None and (stop - first <= ALL_SETS or 2 * (stop - first) <= refused.get(stop, 2 * len(calls))):
            plan = _fastest(calls[first:stop], needs, cores, costs, cycles)
            refused[stop] = stop - first
        if plan is None or stop is None:
            turns.append(Turn((calls[first],)))
            first += 1
        else:
            turns += plan
            first = stop
    return turns


def branches(calls: Sequence[Call], needs: Needs) -> list[list[Call]]:
    """The calls, those together of which one needs another, by the first of each."""
    owner: dict[Call, list[Call]] = {}
    for node in calls:
        joined = list({id(owner[other]): owner[other] for other in needs(node) if other in owner}.values())
        branch = max(joined, key=len, default=[])
        for other in (each for each in joined if each is not branch):
            owner.update(dict.fromkeys(other, branch))
            branch += other
        branch.append(node)
        owner[node] = branch
    found: dict[int, list[Call]] = {}
    for node in calls:
        found.setdefault(id(owner[node]), []).append(node)
    return list(found.values())


class _Stretches:
    """Stretches of calls that fall into branches, for first calls that only grow."""

    def __init__(self, calls: Sequence[Call], needs: Needs) -> None:
        place = {node: at for at, node in enumerate(calls)}
        self._needed = [[place[other] for other in needs(node) if other in place] for node in calls]
        self._behind: list[list[int]] = [[] for _ in range(len(calls) + 1)]  # by the last call that they need, plus one
        for at, needed in enumerate(self._needed):
            self._behind[max(needed, default=-1) + 1].append(at)
        self._entrances: list[int] = []  # a heap: calls that need none from the first one on
        self._first = 0  # entrances are those for first calls before it

    def stop(self, first: int) -> int | None:
        """Where the shortest stretch from ``first`` on ends that falls into branches which the next call joins, or with
        which the calls end. None where there is none."""
        while self._first <= first:
            for at in self._behind[self._first]:
                heappush(self._entrances, at)
            self._first += 1
        while self._entrances and self._entrances[0] <= first:
            heappop(self._entrances)
        if not self._entrances:
            return None
        entrance = self._entrances[0]  # all calls before it need one from `first` on, so they are one branch
        root: dict[int, int] = {}

        def branch_of(at: int) -> int:
            at = at if at >= entrance else first
            while (above := root.get(at, at)) != at:
                root[at] = root.get(above, above)
                at = above
            return at

        count = 1
        for at in range(entrance, len(self._needed)):
            joined = {branch_of(other) for other in self._needed[at] if other >= first}
            count += 1 - len(joined)
            if count == 1:
                return at
            root.update(dict.fromkeys((at, *joined), min(joined, default=at)))
        return len(self._needed)


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
    if len(calls) <= ALL_SETS:
        yield from (set(large) for count in range(len(calls) - 1) for large in combinations(longest, count))
        return
    count = 0
    while count < len(calls) - 1:
        yield set(longest[:count])
        count += max(1, count - ALL_COUNTS)


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
    waiting = dict.fromkeys(calls)
    while waiting:
        small: dict[Call, None] = {}
        for node in waiting:
            if node not in large and all(other in small or other not in waiting for other in needs(node)):
                small[node] = None
        for node in small:
            del waiting[node]
        turns += _side_by_side(list(small), needs, cores, costs)
        ready = [node for node in waiting if node in large and not any(other in waiting for other in needs(node))]
        for node in ready:
            del waiting[node]
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
