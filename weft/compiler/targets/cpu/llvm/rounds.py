"""Launches that one function runs in order, and the counters that they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....model import LaunchStep
from .threads import PART_BYTES

Rounds = Sequence[tuple[int, Sequence[LaunchStep]]]
"""Launches, and how often they run in turn."""


def counter_bytes(rounds: Rounds, parts: Mapping[str, int]) -> int:
    """Bytes of the counters of a function that runs these: each launch has its own in every round. ``parts``: of each
    kernel, by symbol."""
    return PART_BYTES * sum(count * parts[launch.symbol] for count, launches in rounds for launch in launches)
