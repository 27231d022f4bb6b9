"""Tilings for the first layer of a program, which hides the wait for its first products nowhere.

Nothing runs before it, so the array stands still until the first tile has its inputs and weights. Cut into portions of
the input channels, with instructions of their own, loads and products overlap from the first portion on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .....hw.memories import Memory
from ..schedule.tiling import Problem, Tiling
from .tile_costs import buffers_of, estimates, tilings, works_of
from .tiles import Array, Tiles

WORTH = 0.003
"""Share of the cost that another tiling has to gain: about what the estimates of long layers are wrong by. With
0 a 3x3 convolution of ResNet-18 whose stride is 2 takes 1.1 % more cycles."""

MOST_CHANNEL_GROUPS = 32
"""Input channel groups of which portions are made: each means a load for every channel group of a tile."""

MOST_PORTIONS = 8
"""Portions that a tile is cut into. More would fill the queues and the token counters."""

CUT_PENALTY = 0.01
"""Share of the cost that a cut adds: products that go on with an accumulator read it, and vector work waits."""

TILES_AT_ONCE = 3
"""Cut tiles that the matrix half of ``acc`` must hold. Their products read what they add to, so the vector engine needs
the tile before in another bank, and the next one begins in a third."""


def first_tilings(problem: Problem) -> Sequence[Tiling]:
    """Tilings for the first layer of a program, the cheapest first. It may take a single virtual thread."""
    uncut = tilings(problem)
    if len(uncut) and works_of(problem, Tiles.of(uncut[:1])).ahead[0]:
        return uncut  # the array stands still for want of bytes, however they come
    if not uncut or not 1 < problem.portionable <= MOST_CHANNEL_GROUPS:
        return uncut
    alone = tilings(replace(problem, threads=1)) if problem.threads > 1 else uncut
    portion = problem.whole_units(-(-problem.reduction // MOST_PORTIONS))
    cut = [replace(tiling, portion=portion) for tiling in alone if _can_be_cut(problem, tiling)]
    candidates = Tiles.of(dict.fromkeys([*uncut, *alone, *cut]))
    costs = _costs(problem, candidates)
    if costs.min() > (1 - WORTH) * costs[0]:
        return uncut
    return candidates.take(np.argsort(costs, kind="stable"))


def _can_be_cut(problem: Problem, tiling: Tiling) -> bool:
    room = problem.config.acc_depth // 2
    tile = tiling.groups * problem.parts * tiling.rows * tiling.columns
    return tiling.reduction == problem.reduction and TILES_AT_ONCE * tile <= room


def _products(problem: Problem, outer: int, groups: Any, rows: Any, columns: Any) -> Any:
    """Cycles that the array works for outputs of this shape; shapes may be arrays."""
    return outer * groups * problem.parts * rows * columns * problem.reduction * problem.taps


def _costs(problem: Problem, tiles: Tiles) -> Array:
    """The estimates, but with the first loads as they share the bus with what their engines load ahead, and as they
    overlap with products."""
    zero = np.zeros(len(tiles))
    needed = {Memory.INP: zero, Memory.WGT: zero}  # cycles of the bus for the first tile
    more = {Memory.INP: zero, Memory.WGT: zero}  # what is left for the tiles behind
    for buffer in buffers_of(problem, tiles):
        if buffer.scratchpad in needed:
            cycles = buffer.entries * buffer.entry_bytes / problem.bytes_per_cycle
            needed[buffer.scratchpad] = needed[buffer.scratchpad] + cycles
            more[buffer.scratchpad] = more[buffer.scratchpad] + cycles * (buffer.loads - 1)
    inputs, weights = needed[Memory.INP], needed[Memory.WGT]
    inputs_last = inputs > weights
    most, less = np.maximum(inputs, weights), np.minimum(inputs, weights)
    more_of_less = np.where(inputs_last, more[Memory.WGT], more[Memory.INP])
    loading = most + np.minimum(most, less + more_of_less)  # the engines take turns at the bus
    products = _products(problem, 1, tiles.groups, tiles.rows, tiles.columns)
    products = products * tiles.reduction // problem.reduction
    portions = np.where(tiles.portion > 0, -(-problem.reduction // np.maximum(tiles.portion, 1)), 1)
    waiting = np.maximum(loading / portions, loading + products / portions - products)
    apart = estimates(problem, tiles) - (inputs + weights)
    costs: Array = (apart + waiting) * (1 + CUT_PENALTY * (tiles.portion > 0))
    return costs
