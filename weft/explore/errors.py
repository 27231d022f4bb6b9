"""What can go wrong with an exploration as a whole; what goes wrong at one point is kept with the point."""

from __future__ import annotations

from ..errors import WeftError


class ExploreError(WeftError):
    """A space file that is wrong, a network that fits no core, a validation that finds a difference."""
