"""Errors of the test bench itself; what it finds wrong with a core fails the test instead."""

from __future__ import annotations


class BenchError(Exception):
    """A test cannot be run as asked; ``hint`` says what to change."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message = message
        self.hint = hint
