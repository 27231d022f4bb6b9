"""What quantisation refuses."""

from __future__ import annotations

from ..errors import WeftError


class QuantiseError(WeftError):
    """A model, or what was measured of it, cannot be quantised."""
