"""Errors of the hardware description."""

from __future__ import annotations


class HardwareError(Exception):
    """Base of the errors that ``weft.hw`` raises; ``hint`` says what to change."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message = message
        self.hint = hint


class ConfigError(HardwareError):
    """A core that cannot be built."""


class InstructionError(HardwareError):
    """An instruction that cannot be encoded, decoded or parsed."""


class SynthesisError(HardwareError):
    """A synthesis tool that is missing or has failed."""
