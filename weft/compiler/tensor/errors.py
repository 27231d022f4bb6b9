"""Errors of the tensor IR; ``at`` names the loop, block or buffer."""

from __future__ import annotations

from ...errors import WeftError


class TensorError(WeftError):
    """Base of the errors of this package."""


class IRError(TensorError):
    """A node that no program may contain: wrong types, wrong number of indices, a value out of its range."""


class BoundsError(IRError):
    """An access that is not proved to lie inside its buffer: the message gives buffer, index, range and extent."""


class ScheduleError(TensorError):
    """A schedule primitive that would not keep the meaning, or that names something that is not there."""


class InterpreterError(TensorError):
    """A program that goes wrong when it runs: an index out of its buffer, a missing array."""
