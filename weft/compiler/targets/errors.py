"""Errors of the code generators."""

from __future__ import annotations

from ...errors import WeftError


class CompileError(WeftError):
    """A model, function or program that cannot be compiled."""


class ScratchpadFullError(CompileError):
    """A buffer that finds no room beside those that are live."""


class FactorError(CompileError):
    """A second operand that is computed, and may be a number that the core does not take whole."""


class ProgramError(CompileError):
    """A finished program that the checker refuses: a race, a deadlock, a token left over, an index out of range."""
