"""Errors of the runtime."""

from __future__ import annotations

from ..sim.result import RunResult


class RuntimeLayerError(Exception):
    """Base of the errors that ``weft.runtime`` raises; ``hint`` says what to change."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message = message
        self.hint = hint


class ArtifactError(RuntimeLayerError):
    """A file that cannot be loaded: damaged, of another version, for another core, or made with bad intent."""


class InputError(RuntimeLayerError):
    """Data that does not fit the model's inputs."""


class DeviceError(RuntimeLayerError):
    """A device that cannot do what is asked."""


class CoreFaultError(DeviceError):
    """The core stopped with a fault; the message names engine, instruction and cause, ``result`` has the rest."""

    def __init__(self, message: str, result: RunResult) -> None:
        super().__init__(message)
        self.result = result
