"""Loads and matrix work go into the queues before the vector work that they do not depend on.

The walk emits a tile's epilogue before the next tile's loads. Engines take their instructions in order and queues are
short, so loads of an epilogue that wait for room would hold up those of the next tile behind them, and full queues
would keep fetch from reaching matrix work that could run. This pass moves such instructions up, to right behind the
last one with which they share an entry (of a scratchpad or of DRAM), but not more than ``DISTANCE`` places; weights and
parameters go as much further as :mod:`.prefetch` finds good.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .....hw.config import CoreConfig
from .....hw.dram_rate import DramRate
from .....hw.isa import Engine
from .prefetch import prefetches
from .stream import Issue, memory_sizes

DISTANCE = {Engine.LOAD: 48, Engine.LOADW: 48, Engine.GEMM: 24}
"""Places by which an engine's instructions may move: more would only fill the queues."""

BEGINNING = 96
"""Places of a program in which matrix work moves as far as loads: nothing runs yet, and the first products would stand
behind loads that overtook them, for which the queues have no room."""

REORDERED = (Engine.LOAD, Engine.LOADW)
"""Engines whose instructions may overtake one another."""


def advance(config: CoreConfig, rate: DramRate, issues: Sequence[Issue]) -> list[Issue]:
    """The stream in the new order, which means the same."""
    written: dict[str, npt.NDArray[np.int32]] = {}
    touched: dict[str, npt.NDArray[np.int32]] = {}  # written or read
    for memory, size in memory_sizes(config, issues).items():
        written[memory], touched[memory] = np.full(size, -1, np.int32), np.full(size, -1, np.int32)
    further = prefetches(config, rate, issues)
    places: list[int] = []  # behind which original position each instruction goes
    last = dict.fromkeys(Engine, -1)
    for position, issue in enumerate(issues):
        engine = issue.instruction.engine
        # What is read and written needs no look at what was read: nothing stands behind the last that wrote it.
        reads, writes = issue.places
        place = position
        if engine in DISTANCE:
            distance = DISTANCE[engine] if position >= BEGINNING else DISTANCE[Engine.LOAD]
            place = max(min(position - distance, further.get(position, position)), -1)
            if engine not in REORDERED:
                place = max(place, last[engine])
            for memory, selector in reads:
                place = max(place, int(np.maximum.reduce(written[memory][selector])))
            for memory, selector in writes:
                place = max(place, int(np.maximum.reduce(touched[memory][selector])))
        places.append(place)
        last[engine] = place
        for memory, selector in reads:
            # An instruction that keeps its place stands behind all before it.
            latest = place if place == position else np.maximum(touched[memory][selector], place)
            touched[memory][selector] = latest
        for memory, selector in writes:  # nothing that touched the entries stands behind this place
            written[memory][selector] = touched[memory][selector] = place
    # Equal places keep their order, so each instruction stays behind all that it depends on.
    return [issues[position] for position in sorted(range(len(issues)), key=lambda each: (places[each], each))]
