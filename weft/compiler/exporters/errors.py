"""What an export refuses."""

from __future__ import annotations

from ...errors import WeftError


class ExportError(WeftError):
    """A graph, or a part of one, has no form in the file that is asked for."""
