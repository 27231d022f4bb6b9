"""Errors of the code generators: what was expected, what came, where, and what to try next."""

from __future__ import annotations


class CompileError(Exception):
    """A model, function or program that cannot be compiled. ``at`` names the place; ``hint`` says what to change."""

    def __init__(self, message: str, *, at: str = "", hint: str = "") -> None:
        self.message = message
        self.at = at
        self.hint = hint
        text = f"{at}: {message}" if at else message
        super().__init__(f"{text}; hint: {hint}" if hint else text)


class ScratchpadFullError(CompileError):
    """A buffer that finds no room beside those that are live."""


class ProgramError(CompileError):
    """A finished program that the checker refuses: a race, a deadlock, a token left over, an index out of range."""
