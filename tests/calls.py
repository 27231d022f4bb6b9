"""Work counted in calls of Python functions, so that neither machine nor load matters."""

from __future__ import annotations

import cProfile
import gc
import pstats
from collections.abc import Callable
from typing import Any


def calls_of(function: Callable[[], Any]) -> int:
    """How many calls a function takes, its own included. Those that finish what earlier tests have left are none of
    it: the collector waits."""
    profile = cProfile.Profile()
    gc.disable()
    try:
        profile.runcall(function)
    finally:
        gc.enable()
    return sum(entry[1] for entry in pstats.Stats(profile).stats.values())  # type: ignore[attr-defined]
