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
