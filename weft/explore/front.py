"""Pareto fronts and hypervolumes of points to be minimised."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def pareto_front(points: Sequence[Sequence[float]]) -> list[int]:
    """Indices of the points that no other one dominates, in order; of equal points only the first."""
    values = np.asarray(points, np.float64)
    if not len(values):
        return []
    kept: list[int] = []
    # A point is dominated only by one that comes before it in lexicographic order.
    for place in np.lexsort((np.arange(len(values)), *reversed(values.T))).tolist():
        if not kept or not np.any(np.all(values[kept] <= values[place], axis=1)):
            kept.append(place)
    return sorted(kept)


def hypervolume(points: Sequence[Sequence[float]], reference: Sequence[float]) -> float:
    """Volume that lies between ``reference`` and the points, of any dimension; points beyond it count nothing."""
    limit = np.asarray(reference, np.float64)
    values = np.asarray(points, np.float64).reshape(-1, len(limit))
    values = values[np.all(values < limit, axis=1)]
    return _volume(values[pareto_front(values.tolist())], limit)


def growing_hypervolume(points: Floats, counts: Sequence[int], reference: Sequence[float]) -> list[float]:
    """The hypervolume of the first so many points, for each of some increasing numbers."""
    front, found, place = np.empty((0, len(reference))), [], 0
    for count in counts:
        for point in points[place:count]:
            if not np.any(np.all(front <= point, axis=1)):
                front = np.vstack([front[~np.all(point <= front, axis=1)], point])
        place = count
        found.append(hypervolume(front.tolist(), reference))
    return found


def _volume(values: Floats, limit: Floats) -> float:
    """By slices along the last dimension."""
    if not len(values):
        return 0.0
    if len(limit) == 1:
        return float(limit[0] - values[:, 0].min())
    order = np.argsort(values[:, -1], kind="stable")
    heights = np.append(values[order, -1], limit[-1])
    return sum(
        float(heights[place + 1] - heights[place]) * _volume(values[order[: place + 1], :-1], limit[:-1])
        for place in range(len(order)) if heights[place + 1] > heights[place]
    )  # fmt: skip
