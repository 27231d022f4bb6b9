"""A profile's engines over time, in bins: runs of tens of millions of cycles become a picture's worth of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from ..hw.isa import Engine
from .profile import Profile
from .profile_cycles import CLASSES, KINDS, Cause, Integers, totals


class Wait(Enum):
    """What an engine waits for, as far as the picture tells it apart."""

    MEMORY = "memory"
    PORT = "a scratchpad port or a hazard"
    TOKEN = "a token"


@dataclass(frozen=True)
class Timeline:
    """Cycles in each bin.

    ``edges``: the bins' limits, in cycles. ``busy[engine]``: ``(bins, layers of the profile)``, by the layer that the
    engine worked for. ``waits[engine][wait]``: ``(bins,)``. ``causes``: ``(bins, Cause)``.
    """

    edges: Integers
    busy: dict[Engine, Integers]
    waits: dict[Engine, dict[Wait, Integers]]
    causes: Integers


def timeline(profile: Profile, bins: int) -> Timeline:
    """Add up the profile's cycles in at most ``bins`` bins of equal length (as near as whole cycles allow)."""
    edges = np.unique(np.linspace(0, profile.cycles, min(bins, profile.cycles) + 1).astype(np.int64))
    count = len(edges) - 1
    busy = {engine: np.zeros((count, len(profile.layers)), np.int64) for engine in Engine}
    waits = {engine: {wait: np.zeros(count, np.int64) for wait in Wait} for engine in Engine}
    causes = np.zeros((count, len(Cause)), np.int64)
    first = 0
    for origin, program in profile.programs:
        inside = np.clip(edges - origin, 0, program.cycles)
        places = {span.layer: first + place for place, span in enumerate(program.spans)}
        for engine in Engine:
            owners = 2 + max(places, default=0)
            counts = totals(
                inside, [program.working_for[engine], program.activity[engine]], [owners, CLASSES]
            )  # by owner (1 + layer) and class
            owned = counts[:, :, KINDS["BUSY"]]
            for layer, place in places.items():
                busy[engine][:, place] += owned[:, layer + 1]
            kinds = counts.sum(axis=1)
            waits[engine][Wait.MEMORY] += kinds[:, KINDS["MEMORY"]]
            waits[engine][Wait.PORT] += kinds[:, KINDS["CONFLICT"]]
            waits[engine][Wait.TOKEN] += kinds[:, KINDS["TOKEN_LOAD"] :].sum(axis=1)
        causes += program.causes_between(inside)
        first += len(program.spans)
    return Timeline(edges, busy, waits, causes)

