"""A profile's engines over time, in bins: runs of tens of millions of cycles become a picture's worth of numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..hw.isa import Engine
from .profile import Profile
from .profile_cycles import CLASSES, Cause, Integers, totals


@dataclass(frozen=True)
class Timeline:
    """Cycles in each bin.

    ``edges``: the bins' limits, in cycles. ``kinds[engine]``: by the class of what the engine did, shape
    ``(bins, CLASSES)``. ``causes``: as seen from the array, shape ``(bins, Cause)``. Each sums to the bins' cycles.
    """

    edges: Integers
    kinds: dict[Engine, Integers]
    causes: Integers


def timeline(profile: Profile, bins: int, cycles: int | None = None) -> Timeline:
    """Add up the profile's cycles in at most ``bins`` bins of equal length (as near as whole cycles allow).

    ``cycles``: of the picture, if that is longer than the profile; there is nothing in bins behind its end.
    """
    whole = profile.cycles if cycles is None else cycles
    edges = np.unique(np.linspace(0, whole, min(bins, whole) + 1).astype(np.int64))
    kinds = {engine: np.zeros((len(edges) - 1, CLASSES), np.int64) for engine in Engine}
    causes = np.zeros((len(edges) - 1, len(Cause)), np.int64)
    for origin, program in profile.programs:
        inside = np.clip(edges - origin, 0, program.cycles)
        for engine in Engine:
            kinds[engine] += totals(inside, [program.activity[engine]], [CLASSES])
        causes += program.causes_between(inside)
    return Timeline(edges, kinds, causes)
