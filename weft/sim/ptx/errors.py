"""What the PTX interpreter refuses."""

from __future__ import annotations

from ..errors import SimulationError


class PtxError(SimulationError):
    """Any error about a PTX text."""


class PtxSyntaxError(PtxError):
    """A text that is no PTX, or that uses what the interpreter does not know."""


class KernelFaultError(PtxError):
    """What a GPU would get wrong silently, or by chance: a race, memory that is not there, a barrier that some threads
    do not reach."""
