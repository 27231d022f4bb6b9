"""Errors of the simulators. Faults of the simulated core are not errors: they stand in the result of a run."""

from __future__ import annotations

from ..errors import WeftError


class SimulationError(WeftError):
    """A program that cannot be simulated as asked."""


class RaceError(SimulationError):
    """Two instructions touch one entry, one of them writing, and no chain of tokens orders them."""

    def __init__(self, message: str, *, first: int, second: int, memory: str, entry: int) -> None:
        super().__init__(message, hint="send a token from the first to the second, or let one engine do both")
        self.first = first
        self.second = second
        self.memory = memory
        self.entry = entry


class SharedBytesError(SimulationError):
    """Programs of two cores touch one byte of DRAM, one of them writing: what comes out depends on their order."""

    def __init__(self, message: str, *, writer: int, other: int, byte: int) -> None:
        super().__init__(message, hint="give each core memory of its own to write to")
        self.writer = writer
        self.other = other
        self.byte = byte


class BuildError(SimulationError):
    """The simulator of a core's RTL cannot be built on this machine."""
