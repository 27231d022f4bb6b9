"""Errors of the simulators. Faults of the simulated core are not errors: they stand in the result of a run."""

from __future__ import annotations


class SimulationError(Exception):
    """Base of what ``weft.sim`` raises; ``hint`` says what to change."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message = message
        self.hint = hint


class RaceError(SimulationError):
    """Two instructions touch one entry, one of them writing, and no chain of tokens orders them."""

    def __init__(self, message: str, *, first: int, second: int, memory: str, entry: int) -> None:
        super().__init__(message, hint="send a token from the first to the second, or let one engine do both")
        self.first = first
        self.second = second
        self.memory = memory
        self.entry = entry


class BuildError(SimulationError):
    """The simulator of a core's RTL cannot be built on this machine."""
