"""Errors of the tensor IR: what was expected, what came, where, and what to try next."""

from __future__ import annotations


class TensorError(Exception):
    """Base of the errors of this package. ``at`` names the loop, block or buffer; ``hint`` says what to change."""

    def __init__(self, message: str, *, at: str | None = None, hint: str | None = None) -> None:
        self.message = message
        self.at = at
        self.hint = hint
        text = message
        if at is not None:
            text += f" (at {at})"
        if hint is not None:
            text += f"; hint: {hint}"
        super().__init__(text)


class IRError(TensorError):
    """A node that no program may contain: wrong types, wrong number of indices, a value out of its range."""


class ScheduleError(TensorError):
    """A schedule primitive that would not keep the meaning, or that names something that is not there."""


class InterpreterError(TensorError):
    """A program that goes wrong when it runs: an index out of its buffer, a missing array."""
