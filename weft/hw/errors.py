"""Errors of the hardware description."""

from __future__ import annotations

from ..errors import WeftError


class HardwareError(WeftError):
    """A core that cannot be described or written."""


class ConfigError(HardwareError):
    """A core that cannot be built."""


class InstructionError(HardwareError):
    """An instruction that cannot be encoded, decoded or parsed."""


class SynthesisError(HardwareError):
    """A synthesis tool that is missing or has failed."""


class PlanError(HardwareError):
    """A plan by which cores that start each other stop for ever, or meet."""
