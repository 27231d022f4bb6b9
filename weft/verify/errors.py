"""What a verification that cannot be made says."""

from __future__ import annotations

from ..errors import WeftError


class VerifyError(WeftError):
    """A program cannot be verified at all: it says nothing of what it computes, or belongs to another model."""


class NotProvedError(Exception):
    """A program does what no proof covers; the text says what. The verifier turns it into an alarm."""
