"""Token insertion: waits and sends that let the engines overlap without changing what the sequential stream means.

For every instruction the pass finds the latest instruction of each other engine that must be finished first (read after
write, write after read, write after write, entry by entry). A dependence that tokens already set, or the order of an
engine, imply costs nothing; every other becomes one token from the earlier to the later instruction. Tokens of a pair
of engines are first in, first out, and the pass makes edges of a pair in increasing order on both sides, so that the
k-th wait meets the k-th send. The stream run one by one never holds more than ``token_depth`` tokens of a pair: where
it would, two tokens become one, from the later sender to the earlier taker. That, and bounded queues filled in program
order, rules out deadlock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from .....hw.config import CoreConfig
from .....hw.isa import Engine
from .accesses import Ints
from .conflicts import Conflicts, conflicts_of
from .stream import Issue

ENGINES = len(Engine)


def insert_tokens(
    config: CoreConfig, issues: Sequence[Issue], conflicts: Conflicts | None = None, *, in_turn: bool = False
) -> list[Issue]:
    """The stream with ``waits`` and ``sends`` filled in.

    ``conflicts``: the stream's, where they are known. ``in_turn``: each instruction waits for the one before it, so
    that no two engines ever work at the same time.
    """
    edges = _edges_in_turn(issues) if in_turn else _find_edges(issues, conflicts or conflicts_of(issues))
    _set_tokens(config, issues, edges)
    return list(issues)


def _edges_in_turn(issues: Sequence[Issue]) -> list[tuple[int, int]]:
    """From each instruction to the next, where that is another engine's; an engine keeps its own in order."""
    engines = [issue.instruction.engine for issue in issues]
    return [(place, place + 1) for place in range(len(issues) - 1) if engines[place] != engines[place + 1]]


def _find_edges(issues: Sequence[Issue], conflicts: Conflicts) -> list[tuple[int, int]]:
    """Pairs (earlier, later) of positions in the stream: a token goes from the one to the other."""
    engines = np.array([issue.instruction.engine for issue in issues], np.int64)
    numbers, position_of = np.zeros(len(issues), np.int64), []  # of an engine's instructions, from 1
    for engine in range(ENGINES):
        own = np.flatnonzero(engines == engine)
        numbers[own] = np.arange(1, len(own) + 1)
        position_of.append([-1, *own.tolist()])
    # The latest instruction of each other engine that has to be finished first.
    earlier, later = conflicts.pairs
    latest = np.zeros((len(issues), ENGINES), np.int64)
    np.maximum.at(latest.ravel(), later * ENGINES + engines[earlier], numbers[earlier])
    latest[np.arange(len(issues)), engines] = 0
    clocks = [[0] * ENGINES for _ in range(ENGINES)]
    learned = [([0], [[0] * ENGINES]) for _ in range(ENGINES)]  # by the engine's instruction, what it knew from then on
    edges: list[tuple[int, int]] = []
    engine_of, number_of = engines.tolist(), numbers.tolist()
    asking, needs = _news(engines, latest)
    for position, needed in zip(asking, needs, strict=True):
        engine = engine_of[position]
        clock = clocks[engine]
        late = [other for other in range(ENGINES) if needed[other] > clock[other]]
        if len(late) > 1:  # the latest first: it may know that the earlier ones have finished
            late.sort(key=lambda each: position_of[each][needed[each]], reverse=True)
        for other in late:
            if needed[other] > clock[other]:
                edges.append((position_of[other][needed[other]], position))
                since, known = learned[other]
                clock[:] = map(max, clock, known[bisect_right(since, needed[other]) - 1])
                clock[other] = needed[other]
        if late:
            since, known = learned[engine]
            since.append(number_of[position])
            known.append(clock.copy())
    return edges


def _news(engines: Ints, latest: Ints) -> tuple[list[int], list[list[int]]]:
    """The instructions that need more of another engine than those of their own engine before, by position, and what
    they need of each: the number of its instruction, or 0."""
    needs = np.zeros_like(latest)
    for engine in range(ENGINES):
        own = np.flatnonzero(engines == engine)
        before = np.zeros((len(own), ENGINES), np.int64)
        np.maximum.accumulate(latest[own[:-1]], axis=0, out=before[1:])
        needs[own] = np.where(latest[own] > before, latest[own], 0)
    asking = np.flatnonzero(needs.any(axis=1))
    return asking.tolist(), needs[asking].tolist()


def _set_tokens(config: CoreConfig, issues: Sequence[Issue], edges: Sequence[tuple[int, int]]) -> None:
    """Tokens for the edges, or for fewer that imply them.

    Where a pair would hold one token too many, two in a row become one, from the later sender to the earlier taker. No
    taker has come yet, so all senders stand before it, and what the two said follows from the order of the engines.
    They are joined where the taker is furthest behind its new sender, so that it loses least.
    """
    takers: dict[int, list[int]] = {}
    for earlier, later in edges:
        takers.setdefault(earlier, []).append(later)
    held: dict[tuple[int, int], list[tuple[int, int]]] = {}  # tokens of a pair: positions of sender and taker
    for position in sorted({position for edge in edges for position in edge}):
        issue = issues[position]
        engine = int(issue.instruction.engine)
        if issue.waits:
            for source in range(ENGINES):
                if issue.waits >> source & 1:
                    held[source, engine].pop(0)
        for later in takers.get(position, ()):
            target = int(issues[later].instruction.engine)
            tokens = held.setdefault((engine, target), [])
            tokens.append((position, later))
            issue.sends |= 1 << target
            issues[later].waits |= 1 << engine
            if len(tokens) > config.token_depth:
                first = max(range(len(tokens) - 1), key=lambda each: tokens[each][1] - tokens[each + 1][0])
                (sender, taker), (next_sender, next_taker) = tokens[first : first + 2]
                issues[sender].sends &= ~(1 << target)
                issues[next_taker].waits &= ~(1 << engine)
                tokens[first : first + 2] = [(next_sender, taker)]
