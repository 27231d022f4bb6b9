"""What it costs to reduce a long window on the vector engine in chunks: one is loaded while another is reduced.

A window is cut along its longer axis (`Problem.window_axis`), into chunks of ``Tiling.reduction`` places; 0 stands for
the whole window.
"""

from __future__ import annotations

import numpy as np

from ..operators.builder import Window
from ..schedule.tiling import Problem
from .tiles import Array, Tiles


def chunks_of_window(problem: Problem, tiling: Tiles) -> Array:
    """Chunks of each tile."""
    return np.where(tiling.reduction > 0, -(-problem.window_places // np.maximum(tiling.reduction, 1)), 1)


def reach_of_chunk(problem: Problem, window: Window, tiling: Tiles, reach: tuple[Array, Array]) -> tuple[Array, Array]:
    """Rows and columns that a chunk reads, from those that a whole window does."""
    axis = problem.window_axis
    left = np.where(tiling.reduction > 0, window.kernel[axis] - tiling.reduction, 0) * window.dilations[axis]
    height, width = reach
    return (height, width - left) if axis else (height - left, width)


def pixels_together(problem: Problem, window: Window, height: Array, width: Array) -> Array:
    """Of so many rows and columns, the pixels that lie together in DRAM: whole rows of the picture do."""
    _, left, _, right = window.pads
    _, whole = window.reach(*problem.output[2:])
    return np.where(width >= whole - left - right, height * width, width)


def lost_with_chunk(problem: Problem, entries: Array | int, bus: Array | float, vector: Array) -> Array:
    """Cycles lost with each chunk of so many accumulator ``entries``, which takes so many cycles of the ``bus`` and of
    the ``vector`` engine: its load begins when the chunk before it in the same place is reduced, and a bank has a few
    places.
    """
    bank = problem.config.acc_depth // problem.config.acc_banks
    places = np.maximum(bank // np.asarray(entries), 1)
    lost: Array = (problem.rate.latency + bus + vector) / places - np.maximum(bus, vector)
    return np.maximum(lost, 0)
