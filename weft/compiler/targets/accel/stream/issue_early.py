"""Loads and matrix work go into the queues before the vector work that they do not depend on.

The walk emits a tile's epilogue before the next tile's loads. Engines take their instructions in order and queues are
short, so loads of an epilogue that wait for room would hold up those of the next tile behind them, and full queues
would keep fetch from reaching matrix work that could run. This pass moves such instructions up, to right behind the
last one with which they share an entry (of a scratchpad or of DRAM), but not more than ``DISTANCE`` places; weights and
parameters go as much further as :mod:`.prefetch` finds good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .....hw.config import CoreConfig
from .....hw.dram_rate import DramRate
from .....hw.isa import Engine
from ...llvm.scan import scan
from .conflicts import Conflicts
from .prefetch import prefetches
from .rows import Ints
from .stream import Issue

DISTANCE = {Engine.LOAD: 48, Engine.LOADW: 48, Engine.GEMM: 24}
"""Places by which an engine's instructions may move: more would only fill the queues."""

BEGINNING = 96
"""Places of a program in which matrix work moves as far as loads: nothing runs yet, and the first products would stand
behind loads that overtook them, for which the queues have no room."""

REORDERED = (Engine.LOAD, Engine.LOADW)
"""Engines whose instructions may overtake one another."""


def early_order(config: CoreConfig, rate: DramRate, issues: Sequence[Issue], conflicts: Conflicts) -> Ints:
    """The new order of the stream, which means the same: positions in the old one."""
    engines = conflicts.engines
    wished = _wished(engines, prefetches(config, rate, issues, conflicts))
    earlier, later = conflicts.pairs
    near = np.flatnonzero(earlier > wished[later])  # nothing goes further down than it stood
    near = near[np.argsort(later[near], kind="stable")]
    places = np.empty(len(issues), np.int64)  # behind which original position each instruction goes
    in_order = np.array([engine not in REORDERED for engine in Engine], np.int64)
    _scan_places(
        engines, wished, len(issues), earlier[near], later[near], len(near), in_order, np.full(len(Engine), -1), places
    )
    # Equal places keep their order, so each instruction stays behind all that it depends on.
    return np.argsort(places, kind="stable")


@scan
def _scan_places(
    engines: Ints, wished: Ints, count: int, earlier: Ints, later: Ints, pairs: int, in_order: Ints, last: Ints,
    places: Ints,
) -> None:  # fmt: skip
    pair = 0
    for position in range(count):
        engine = engines[position]
        place = wished[position]
        if in_order[engine]:
            place = max(place, last[engine])
        while pair < pairs and later[pair] == position:
            place = max(place, places[earlier[pair]])
            pair += 1
        places[position] = place
        last[engine] = place


def _wished(engines: Ints, further: Mapping[int, int]) -> Ints:
    """Behind which position each instruction would go if it shared no entry with others."""
    positions = np.arange(len(engines))
    distance = np.array([DISTANCE.get(engine, 0) for engine in Engine])[engines]
    beginning = distance[:BEGINNING]
    beginning[beginning > 0] = DISTANCE[Engine.LOAD]
    wished = positions - distance
    ahead = np.fromiter(further.keys(), np.int64, len(further))
    wished[ahead] = np.minimum(wished[ahead], np.fromiter(further.values(), np.int64, len(further)))
    last: Ints = np.maximum(wished, -1)
    return last
