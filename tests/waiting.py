"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], bool], seconds: float = 60) -> None:
    """Return as soon as ``holds`` is seen to hold; AssertionError if it does not in this time.

    It is not asked again: what holds now may not a moment later, as that a worker sleeps.
    """
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not so within {seconds} s"
        time.sleep(0.001)
