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
from .accesses import Ints
from .conflicts import Conflicts
from .prefetch import prefetches
from .stream import Issue

DISTANCE = {Engine.LOAD: 48, Engine.LOADW: 48, Engine.GEMM: 24}
"""Places by which an engine's instructions may move: more would only fill the queues."""

BEGINNING = 96
"""Places of a program in which matrix work moves as far as loads: nothing runs yet, and the first products would stand
behind loads that overtook them, for which the queues have no room."""

REORDERED = (Engine.LOAD, Engine.LOADW)
"""Engines whose instructions may overtake one another."""


def early_order(config: CoreConfig, rate: DramRate, issues: Sequence[Issue], conflicts: Conflicts) -> list[int]:
    """The new order of the stream, which means the same: positions in the old one."""
    further = prefetches(config, rate, issues, conflicts)
    engines = [issue.instruction.engine for issue in issues]
    wished = [_wished(position, engine, further) for position, engine in enumerate(engines)]
    before = _before(conflicts, np.array(wished))
    places: list[int] = []  # behind which original position each instruction goes
    last = dict.fromkeys(Engine, -1)
    for position, (engine, place) in enumerate(zip(engines, wished, strict=True)):
        if engine not in REORDERED:
            place = max(place, last[engine])
        for other in before.get(position, ()):
            place = max(place, places[other])
        places.append(place)
        last[engine] = place
    # Equal places keep their order, so each instruction stays behind all that it depends on.
    return sorted(range(len(issues)), key=places.__getitem__)  # the sort is stable


def _wished(position: int, engine: Engine, further: Mapping[int, int]) -> int:
    """Behind which position an instruction would go if it shared no entry with others."""
    if engine not in DISTANCE:
        return position
    distance = DISTANCE[engine] if position >= BEGINNING else DISTANCE[Engine.LOAD]
    return max(min(position - distance, further.get(position, position)), -1)


def _before(conflicts: Conflicts, wished: Ints) -> dict[int, list[int]]:
    """For each instruction, the earlier ones that may keep it from going where it is wished."""
    earlier, later = conflicts.pairs
    near = earlier > wished[later]  # nothing goes further down than it stood
    keys = np.unique(later[near] * conflicts.length + earlier[near])
    found: dict[int, list[int]] = {}
    for key in keys.tolist():
        position, other = divmod(key, conflicts.length)
        found.setdefault(position, []).append(other)
    return found
