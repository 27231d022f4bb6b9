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

ROUNDS = 8
"""Cuts that are measured at most."""


def staged(phases: Sequence[Phase], count: int, measure: Measure) -> list[Phase]:
    """The phases, those on the core cut into ``count`` stages; the longest is as short as measured cuts make it.

    The first cuts follow from what each call takes as a program of its own. Together they take less, so each stage is
    measured, what its calls take is brought to that, and the cuts are made anew, as long as there are new ones.
    CompileError where there are fewer calls than stages.
    """
    groups = [phase.calls for phase in phases if phase.on_core]
    everything = [node for group in groups for node in group]
    if len(everything) < count:
        raise CompileError(f"{len(everything)} functions run on the core, which are no {count} stages",
                           hint="ask for fewer stages")  # fmt: skip
    starts = [0, *accumulate(map(len, groups))]
    known: dict[tuple[int, int], int] = {}

    def cycles(first: int, stop: int) -> int:
        """Of a stage: a program for each phase that it has a part of."""
        if (first, stop) not in known:
            edges = [first, *(start for start in starts if first < start < stop), stop]
            known[first, stop] = sum(measure(everything[begin:end]) for begin, end in pairwise(edges))
        return known[first, stop]

    costs = [float(cycles(number, number + 1)) for number in range(len(everything))]
    return _cut(phases, shortest([costs] * count, lambda _, first, stop: cycles(first, stop)))


def shortest(costs: Sequence[list[float]], cycles: Callable[[int, int, int], float]) -> tuple[int, ...]:
    """Where to cut a row of items so that the longest stage is as short as measured cuts make it.

    ``costs``: for each stage, what each item would take there by itself; they are brought to what was measured, so
    stages on like cores share one list. ``cycles``: of a stage with the items from the first number to the last but
    one.
    """
    tried: dict[tuple[int, ...], float] = {}
    for _ in range(ROUNDS):
        cuts = balanced(costs)
        if cuts in tried:
            break
        stages = list(enumerate(zip((0, *cuts), (*cuts, len(costs[0])), strict=True)))
        tried[cuts] = max(cycles(number, *stage) for number, stage in stages)
        for number, (first, stop) in stages:
            own = costs[number]
            factor = cycles(number, first, stop) / (sum(own[first:stop]) or 1)
            own[first:stop] = [cost * factor for cost in own[first:stop]]
    return min(tried, key=tried.__getitem__)


def balanced(costs: Sequence[Sequence[float]]) -> tuple[int, ...]:
    """Where to cut a row of items into a run for each stage, none empty, of which the largest sum is as small as it can
    be. ``costs``: for each stage, of each item."""
    items = len(costs[0])
    sums = [[0.0, *accumulate(own)] for own in costs]
    best = sums[0]  # of the first items, in as many runs as were looked at
    before: list[list[int]] = []
    for runs in range(2, len(costs) + 1):
        own, found, chosen = sums[runs - 1], [0.0] * (items + 1), [0] * (items + 1)
        for stop in range(runs, items + 1):
            found[stop], chosen[stop] = min(
                (max(best[cut], own[stop] - own[cut]), cut) for cut in range(runs - 1, stop)
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
