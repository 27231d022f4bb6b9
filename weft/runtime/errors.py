"""Errors of the runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import WeftError

if TYPE_CHECKING:
    from ..sim.result import RunResult


class ArtifactError(WeftError):
    """A file that cannot be loaded: damaged, of another version, for another core, or made with bad intent."""


class InputError(WeftError):
    """Data that does not fit the model's inputs."""


class SessionError(InputError):
    """What a session cannot do: too many tokens, a cache of another model, a model that has no cache."""


class DeviceError(WeftError):
    """A device that cannot do what is asked."""


class CoreFaultError(DeviceError):
    """The core stopped with a fault; the message names engine, instruction and cause, ``result`` has the rest."""

    def __init__(self, message: str, result: RunResult) -> None:
        super().__init__(message)
        self.result = result
