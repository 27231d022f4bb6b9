"""Stages of a pipeline of cores: where the calls on the core are cut so that no stage takes much longer than another.

A cut costs nothing but what two programs take longer than one: results of a layer lie in DRAM anyway, and a chain is
one call, so it stays in a core.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from ....graph.ir import Call
from ...errors import CompileError
from .phases import Phase

Measure = Callable[[Sequence[Call]], int]
"""Cycles of calls as one program."""

Together = Callable[[Sequence[Sequence[Sequence[Call]]]], Sequence[int]]
"""Cycles of each stage where all run at once: of a stage the calls of each of its programs."""

Cost = tuple[int, float]
"""What an item, or a stage, takes on a core: layers that it leaves to the host and that another core would run, and
cycles."""

Taken = Callable[[Sequence[tuple[int, int]]], Sequence[Cost]]
"""What stages take, each with the items from its first number to its last but one."""

ROUNDS = 8
"""Cuts that are measured at most."""


def staged(phases: Sequence[Phase], count: int, measure: Measure, together: Together | None = None) -> list[Phase]:
    """The phases, those on the core cut into ``count`` stages; the longest is as short as measured cuts make it.

    The first cuts follow from what each call takes as a program of its own. Together they take less, so each stage is
    measured, what its calls take is brought to that, and the cuts are made anew, as long as there are new ones.
    ``together``: measures stages whose cores share ports and wait for each other there; else each has its memory alone.
    CompileError where there are fewer calls than stages.
    """
    groups = [phase.calls for phase in phases if phase.on_core]
    everything = [node for group in groups for node in group]
    if len(everything) < count:
        functions = "1 function runs" if len(everything) == 1 else f"{len(everything)} functions run"
        raise CompileError(f"{functions} on the core, too few for {count} stages",
                           hint="ask for fewer stages")  # fmt: skip
    starts = [0, *accumulate(map(len, groups))]
    known: dict[tuple[int, int], int] = {}

    def programs(first: int, stop: int) -> list[Sequence[Call]]:
        """Of a stage: the calls of each phase that it has a part of."""
        edges = [first, *(start for start in starts if first < start < stop), stop]
        return [everything[begin:end] for begin, end in pairwise(edges)]

    def alone(stages: Sequence[tuple[int, int]]) -> list[Cost]:
        for stage in stages:
            if stage not in known:
                known[stage] = sum(map(measure, programs(*stage)))
        return [(0, known[stage]) for stage in stages]

    def at_once(stages: Sequence[tuple[int, int]]) -> list[Cost]:
        assert together is not None
        return [(0, cycles) for cycles in together([programs(*stage) for stage in stages])]

    costs = alone([(number, number + 1) for number in range(len(everything))])
    if together is None:
        return _cut(phases, shortest([costs] * count, alone))
    return _cut(phases, shortest([[*costs] for _ in range(count)], at_once))


def shortest(costs: Sequence[list[Cost]], taken: Taken) -> tuple[int, ...]:
    """Where to cut a row of items so that the fewest layers are left to the host and, of these cuts, the longest stage
    is as short as measured cuts make it.

    ``costs``: for each stage, what each item would take there by itself; the cycles are brought to what was measured,
    so stages on like cores share one list.
    """
    tried: dict[tuple[int, ...], Cost] = {}
    for _ in range(ROUNDS):
        cuts = balanced(costs)
        if cuts in tried:
            break
        stages = list(pairwise((0, *cuts, len(costs[0]))))
        found = taken(stages)
        tried[cuts] = of_stages(found)
        for own, (first, stop), (_, cycles) in zip(costs, stages, found, strict=True):
            factor = cycles / (sum(cost for _, cost in own[first:stop]) or 1)
            own[first:stop] = [(left, cost * factor) for left, cost in own[first:stop]]
    return min(tried, key=tried.__getitem__)


def of_stages(stages: Sequence[Cost]) -> Cost:
    """Of a pipeline with such stages: all layers that are left to the host, and the cycles of the longest stage."""
    return sum(left for left, _ in stages), max(cycles for _, cycles in stages)


def balanced(costs: Sequence[Sequence[Cost]]) -> tuple[int, ...]:
    """Where to cut a row of items into a run for each stage, none empty, so that the fewest layers are left to the host
    and, of these cuts, the longest run is as short as it can be. ``costs``: for each stage, of each item."""
    items = len(costs[0])
    sums = [
        list(accumulate(own, lambda whole, item: (whole[0] + item[0], whole[1] + item[1]), initial=(0, 0.0)))
        for own in costs
    ]
    best = sums[0]  # of the first items, in as many runs as were looked at
    before: list[list[int]] = []
    for runs in range(2, len(costs) + 1):
        own, found, chosen = sums[runs - 1], [(0, 0.0)] * (items + 1), [0] * (items + 1)
        for stop in range(runs, items + 1):
            (left, cycles), options = own[stop], range(runs - 1, stop)
            found[stop], chosen[stop] = min(
                (of_stages((best[cut], (left - own[cut][0], cycles - own[cut][1]))), cut) for cut in options
            )
        best = found
        before.append(chosen)
    cuts: list[int] = []
    for chosen in reversed(before):
        cuts.insert(0, chosen[cuts[0] if cuts else items])
    return tuple(cuts)


def _cut(phases: Sequence[Phase], cuts: tuple[int, ...]) -> list[Phase]:
    """The phases, with those on the core cut in front of the calls with these numbers."""
    found, stage, number = [], 0, 0
    for phase in phases:
        if not phase.on_core:
            found.append(phase)
            continue
        part: list[Call] = []
        for node in phase.calls:
            if number in cuts:
                if part:
                    found.append(replace(phase, calls=part, stage=stage))
                part, stage = [], stage + 1
            part.append(node)
            number += 1
        if part:
            found.append(replace(phase, calls=part, stage=stage))
    return found
