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

import numpy as np

from .....hw.config import CoreConfig
from ...llvm.scan import scan
from .conflicts import ENGINES, Conflicts, Pairs
from .rows import Ints


def tokens_of(config: CoreConfig, engines: Ints, conflicts: Conflicts | None) -> tuple[Ints, Ints]:
    """Waits and sends of each instruction of a stream, as masks of engines. ``engines``: the stream's.

    ``conflicts``: the stream's; without them each instruction waits for the one before it, so that no two engines ever
    work at the same time.
    """
    return _tokens(config, engines, _edges_in_turn(engines) if conflicts is None else _find_edges(conflicts))


def _edges_in_turn(engines: Ints) -> Pairs:
    """From each instruction to the next, where that is another engine's; an engine keeps its own in order."""
    earlier = np.flatnonzero(engines[:-1] != engines[1:])
    return earlier, earlier + 1


def _find_edges(conflicts: Conflicts) -> Pairs:
    """The earlier and the later positions in the stream: a token goes from the one to the other."""
    engines = conflicts.engines
    numbers = np.zeros(len(engines), np.int64)  # of an engine's instructions, from 1
    position_of, firsts = np.argsort(engines, kind="stable"), np.searchsorted(np.sort(engines), np.arange(ENGINES))
    numbers[position_of] = np.arange(1, len(engines) + 1) - firsts[engines[position_of]]
    # The latest instruction of each other engine that has to be finished first.
    earlier, later = conflicts.pairs
    latest = np.zeros((len(engines), ENGINES), np.int64)
    np.maximum.at(latest.ravel(), later * ENGINES + engines[earlier], numbers[earlier])
    latest[np.arange(len(engines)), engines] = 0
    asking, needs = _news(engines, latest)
    room = len(asking) + 1
    earlier, later = (np.empty(ENGINES * room, np.int64) for _ in range(2))
    found = _scan_edges(
        asking, needs.ravel(), len(asking), engines, numbers, position_of, firsts, np.zeros(ENGINES**2, np.int64),
        np.ones(ENGINES, np.int64), room, np.zeros(ENGINES * room, np.int64),
        np.zeros(ENGINES * room * ENGINES, np.int64), earlier, later,
    )  # fmt: skip
    return earlier[:found], later[:found]


@scan
def _scan_edges(
    asking: Ints, needs: Ints, count: int, engines: Ints, numbers: Ints, position_of: Ints, firsts: Ints, clocks: Ints,
    learned: Ints, room: int, since: Ints, known: Ints, earlier: Ints, later: Ints,
) -> int:  # fmt: skip
    """How many edges there are. Of each engine: what it knows now in ``clocks``; how often it ``learned`` something,
    ``since`` which of its instructions, and what was ``known`` from then on."""
    found = 0
    for number in range(count):
        position = asking[number]
        engine = engines[position]
        clock = engine * ENGINES
        before = found
        while True:
            sender = -1  # the latest first: it may know that the earlier ones have finished
            for other in range(ENGINES):
                needed = needs[number * ENGINES + other]
                if needed > clocks[clock + other]:
                    sender = max(sender, position_of[firsts[other] + needed - 1])
            if sender < 0:
                break
            earlier[found] = sender
            later[found] = position
            found += 1
            other = engines[sender]
            low = 0
            high = learned[other]
            while high - low > 1:
                middle = (low + high) >> 1
                if since[other * room + middle] <= numbers[sender]:
                    low = middle
                else:
                    high = middle
            row = (other * room + low) * ENGINES
            for each in range(ENGINES):
                clocks[clock + each] = max(clocks[clock + each], known[row + each])
            clocks[clock + other] = numbers[sender]
        if found > before:
            row = engine * room + learned[engine]
            since[row] = numbers[position]
            for each in range(ENGINES):
                known[row * ENGINES + each] = clocks[clock + each]
            learned[engine] += 1
    return found


def _news(engines: Ints, latest: Ints) -> Pairs:
    """The instructions that need more of another engine than those of their own engine before, by position, and what
    they need of each: the number of its instruction, or 0."""
    needs = np.zeros_like(latest)
    for engine in range(ENGINES):
        own = np.flatnonzero(engines == engine)
        before = np.zeros((len(own), ENGINES), np.int64)
        np.maximum.accumulate(latest[own[:-1]], axis=0, out=before[1:])
        needs[own] = np.where(latest[own] > before, latest[own], 0)
    asking = np.flatnonzero(needs.any(axis=1))
    return asking, needs[asking]


def _tokens(config: CoreConfig, engines: Ints, edges: Pairs) -> tuple[Ints, Ints]:
    """Waits and sends of tokens for the edges, or for fewer that imply them.

    Where a pair would hold one token too many, two in a row become one, from the later sender to the earlier taker. No
    taker has come yet, so all senders stand before it, and what the two said follows from the order of the engines.
    They are joined where the taker is furthest behind its new sender, so that it loses least.
    """
    order = np.argsort(edges[0], kind="stable")
    earlier, later = edges[0][order], edges[1][order]
    positions = np.unique(np.concatenate([earlier, later]))
    waits, sends = (np.zeros(len(engines), np.int64) for _ in range(2))
    senders, takers = (np.empty(ENGINES**2 * (config.token_depth + 1), np.int64) for _ in range(2))
    _scan_tokens(
        positions, len(positions), engines, earlier, later, len(earlier), config.token_depth,
        np.zeros(ENGINES**2, np.int64), senders, takers, waits, sends,
    )  # fmt: skip
    return waits, sends


@scan
def _scan_tokens(
    positions: Ints, count: int, engines: Ints, earlier: Ints, later: Ints, edges: int, depth: int, held: Ints,
    senders: Ints, takers: Ints, waits: Ints, sends: Ints,
) -> None:  # fmt: skip
    """Set the masks ``waits`` and ``sends``. A pair of engines has so many tokens ``held``, the oldest first, with
    positions of ``senders`` and ``takers``, of which there may be ``depth``."""
    edge = 0
    for place in range(count):
        position = positions[place]
        engine = engines[position]
        for source in range(ENGINES):
            if waits[position] >> source & 1:
                pair = source * ENGINES + engine
                held[pair] -= 1
                for token in range(pair * (depth + 1), pair * (depth + 1) + held[pair]):
                    senders[token] = senders[token + 1]
                    takers[token] = takers[token + 1]
        while edge < edges and earlier[edge] == position:
            target = engines[later[edge]]
            pair = engine * ENGINES + target
            first = pair * (depth + 1)
            senders[first + held[pair]] = position
            takers[first + held[pair]] = later[edge]
            held[pair] += 1
            sends[position] |= 1 << target
            waits[later[edge]] |= 1 << engine
            edge += 1
            if held[pair] > depth:
                joined = first
                for token in range(first, first + depth):
                    if takers[token] - senders[token + 1] > takers[joined] - senders[joined + 1]:
                        joined = token
                sends[senders[joined]] &= ~(1 << target)
                waits[takers[joined + 1]] &= ~(1 << engine)
                senders[joined] = senders[joined + 1]
                held[pair] -= 1
                for token in range(joined + 1, first + held[pair]):
                    senders[token] = senders[token + 1]
                    takers[token] = takers[token + 1]
