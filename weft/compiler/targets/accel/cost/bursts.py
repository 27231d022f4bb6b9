"""What memory costs beyond the bytes that it moves: bursts that are short, and answers that come late.

The core has a few bursts under way at a time, and each is answered after the memory's latency. So loads and stores of
short bursts move fewer bytes a cycle than the bus does; and an engine that waits for what a load brings waits for the
latency, too, unless loads run far enough ahead.

The other terms of the estimate are those of a memory with the usual latency. Of it only rows of a matrix and long
windows have bursts so short that they count; all else here is about memories that are slower to answer.
"""

from __future__ import annotations

import numpy as np

from .....hw.dram_rate import USUAL_RATE
from .....hw.isa import Scratchpad
from ..operators.builder import Window
from ..schedule.tiling import Problem
from .tiles import Array, Tiles

BURST_GAP = 7
"""Cycles that the bus loses at a short burst among long ones, such as rows of a matrix among its weights: 32 rows of 64
bytes beside 8 KiB of weights take 1,440 cycles, 160 more than their bytes."""

PAGE_BYTES = 4096
"""No burst crosses a page."""

Moved = tuple[Array | float, Array | float]
"""Of an entry that is moved: bytes for which the bus is taken, and bursts that a slow memory answers."""


def moved(problem: Problem, entry_bytes: float, together: Array, outstanding: int, *, rows: bool = False) -> Moved:
    """An entry where so many lie ``together``: these are a burst, or several of the longest.

    ``rows``: of a matrix or of a long window; the bus is taken while all bursts that can be ``outstanding`` are.
    """
    config = problem.config
    if rows:
        gap = BURST_GAP if problem.images_are_rows else 0
        slowest = problem.bytes_per_cycle * problem.rate.latency / outstanding / together
        return np.maximum(entry_bytes + problem.bytes_per_cycle * gap / together, slowest), 0.0
    longest = min(config.burst_beats * config.bus_bytes, PAGE_BYTES)
    return entry_bytes, np.maximum(1 / together, entry_bytes / longest)


def moved_input(problem: Problem, tiling: Tiles, together: Array) -> Moved:
    """An input entry of a matrix product, of which so many lie ``together``; of images that are rows, the entries of
    one image do."""
    config, rows = problem.config, problem.images_are_rows
    if rows:
        together = np.where(tiling.reduction < problem.reduction, tiling.reduction, np.inf)
    return moved(problem, Scratchpad.INP.dram_bytes(config), together, config.read_outstanding, rows=rows)


def moved_matrix(problem: Problem, tiling: Tiles) -> Moved:
    """A matrix of weights: those of all input groups lie together, for each output group."""
    matrices = np.maximum(tiling.reduction, 1) * problem.taps
    together = np.where(tiling.reduction < problem.reduction, matrices, np.inf)
    return moved(problem, problem.matrix_bytes, together, problem.config.read_outstanding)


def moved_result(problem: Problem, tiling: Tiles, outstanding: int) -> Moved:
    """An entry of a result, or of an operand like it."""
    _, groups, height, width = problem.output
    part, rows = tiling.epilogue_groups, problem.images_are_rows
    if rows:
        together = np.where(part < groups, part * problem.parts, np.inf)
    else:
        together = _together((tiling.epilogue_rows, tiling.columns), (height, width), part) * problem.parts
    return moved(problem, problem.config.out_bytes, together, outstanding, rows=rows)


def inputs_together(problem: Problem, window: Window, read: tuple[Array, Array], groups: Array) -> Array:
    """Pixels that lie together in DRAM, of so many rows and columns that are ``read`` of each of ``groups``."""
    top, left, bottom, right = window.pads
    height, width = window.reach(*problem.output[2:])
    if window.row_step > 1:  # rows between them are left out
        return np.where(read[0] > 1, read[1], _together(read, (height, width - left - right), groups))
    return _together(read, (height - top - bottom, width - left - right), groups)


def _together(read: tuple[Array, Array], picture: tuple[int, int], groups: Array) -> Array:
    """Whole rows of a picture lie together, and so do whole pictures."""
    height, width = read
    rows = np.where(width >= picture[1], height * width, width)
    together: Array = np.where((height >= picture[0]) & (width >= picture[1]), rows * groups, rows)
    return together


def answered(problem: Problem, bursts: Array | float, outstanding: int) -> Array | float:
    """Cycles in which a slow memory answers so many bursts, or any memory those of the vector engine's layers, whose
    tiles are small."""
    latency = problem.rate.latency
    counts = latency > USUAL_RATE.latency or not (problem.is_matrix or problem.beside)
    return bursts * latency / outstanding if counts else 0.0 * bursts


def places_of(problem: Problem, entries: Array | int, copies: Array | int, free: Array, *, vector: bool) -> Array:
    """How many loads of so many ``entries`` a scratchpad has places for: its ``copies``, and what is ``free``.

    ``vector``: what the vector engine reads goes round in a bank of ``acc``; what is larger has a place for each copy.
    Beside another kernel each tile has its turn, and loads do not run ahead.
    """
    places: Array = free // entries + copies
    if vector:
        bank = problem.config.acc_depth // problem.config.acc_banks
        places = np.maximum(0 if problem.beside else bank // np.asarray(entries), copies) + 0 * places
    return places


def lost_to_latency(problem: Problem, places: Array, bus: Array, work: Array) -> Array:
    """Cycles that each load loses where a scratchpad has so many ``places`` for what it brings.

    A place is loaded anew when the ``work`` on what lies there is done, and is ready after the latency and the cycles
    of the ``bus``. Where the array works, what is lost with the usual latency is in the other terms.
    """

    def lost(latency: int) -> Array:
        turn: Array = (latency + bus + work) / np.clip(places, 1, problem.config.token_depth)
        each: Array = np.maximum(turn - np.maximum(bus, work), 0)
        return each

    known = 0.0 if not problem.is_matrix and not problem.beside else lost(USUAL_RATE.latency)
    beyond: Array = np.maximum(lost(problem.rate.latency) - known, 0)
    return beyond
