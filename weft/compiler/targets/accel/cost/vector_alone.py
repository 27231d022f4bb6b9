"""Layers of the vector engine alone: what they lose while it waits for operands, by the places that these have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....hw.memories import Memory
from ..schedule.tiling import Problem
from .bursts import lost_to_latency
from .tiles import Array, Buffers

STORE_TURN = 60
"""Cycles that a place of results waits for beyond the memory's latency and the bus: the pipeline of the vector engine,
the store's own, two tokens, the answer to a write. Tiles of 13 to 50 entries on `tiny` come back 165 cycles and twice
the bus after their first value."""


def is_alone(problem: Problem) -> bool:
    """Whether a layer is the vector engine's, and no kernel of the array runs beside it."""
    return not problem.is_matrix and not problem.beside


def cycles_waiting(
    problem: Problem, buffers: Sequence[Buffers], used: Array, vector: float, traffic: Array, times: Array
) -> Array:
    """Cycles in which the vector engine, with ``vector`` cycles of work, waits for what it reads or for room for its
    results, whichever is more. ``used``: entries of ``acc``; ``traffic``: cycles of the bus, which loads and stores
    share; ``times``: how often results are stored."""
    out = next(each for each in buffers if each.scratchpad is Memory.OUT)
    for_stores = np.maximum(_turn(problem, out, traffic / times) - np.maximum(traffic, vector) / times, 0) * times
    waited: Array = np.maximum(_for_operands(problem, buffers, used, vector), for_stores)
    return waited


def _turn(problem: Problem, out: Buffers, bus: Array) -> Array:
    """Cycles between two stores: a place is taken when the last stage begins, and free when memory has answered."""
    entries = np.asarray(out.entries)
    places = np.clip(problem.rooms[str(Memory.OUT)] // entries, 1, problem.config.token_depth)
    turn: Array = (problem.rate.latency + STORE_TURN + bus + entries) / places
    return turn


def _for_operands(problem: Problem, buffers: Sequence[Buffers], used: Array, vector: float) -> Array:
    """Loads go round in the banks of ``acc`` that results leave (`accumulator_zones`). Threads of a window have done
    with what they read one after another; those of a layer without one, whose stages take turns, all at once."""
    brought = [each for each in buffers if each.zone == "load" and not isinstance(each.loads, int)]
    if not brought:
        return np.zeros(len(used))
    config = problem.config
    copies = brought[0].copies
    together = 1 if problem.kernel.window is not None else copies
    entries = sum((each.entries for each in brought), np.zeros(len(used), np.int64))
    results = config.acc_depth // config.acc_banks if config.acc_banks > 1 else 0
    room = np.minimum(config.acc_depth - results, problem.rooms[str(Memory.ACC)] - used + entries * copies)
    places = np.maximum(room // (entries * together), copies // together)
    bus = sum(
        (np.maximum(each.entries * each.entry_bytes / problem.bytes_per_cycle, each.entries) for each in brought),
        np.zeros(len(used)),
    )
    turns = np.asarray(brought[0].loads / together)
    lost: Array = lost_to_latency(problem, places, bus * together, np.asarray(vector / turns)) * turns
    return lost
