"""Errors of boards and the designs for them."""

from __future__ import annotations

from ..errors import WeftError


class BoardError(WeftError):
    """A board's file that is wrong, or a core that a board cannot hold."""


class BuildError(WeftError):
    """A tool that is missing or has failed."""
