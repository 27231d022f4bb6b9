"""The classes of cycles, which the hardware counts and traces and all simulators predict."""

from __future__ import annotations

from enum import Enum, unique

from .isa import Engine

FIRST_TOKEN_CLASS = 8
"""The classes from here on are waits for a token, one for each engine."""


@unique
class CycleClass(Enum):
    """What an engine did in a cycle; each cycle of each engine is in exactly one class.

    ``TOKEN_*`` are waits for a token of that engine (the lowest-numbered missing one).
    """

    IDLE = 0  # queue empty and nothing more to come, or the core is not running
    BUSY = 1  # a micro-op issued, or data moved
    INSTRUCTION = 2  # queue empty while fetch has not reached FINISH
    MEMORY = 3  # waiting for DRAM
    CONFLICT = 4  # waiting for a scratchpad port, a hazard, or its own pipeline to drain
    SEND = 5  # waiting for room for a token
    TOKEN_LOAD = FIRST_TOKEN_CLASS + Engine.LOAD
    TOKEN_LOADW = FIRST_TOKEN_CLASS + Engine.LOADW
    TOKEN_GEMM = FIRST_TOKEN_CLASS + Engine.GEMM
    TOKEN_VECTOR = FIRST_TOKEN_CLASS + Engine.VECTOR
    TOKEN_STORE = FIRST_TOKEN_CLASS + Engine.STORE


def token_class(engine: Engine) -> CycleClass:
    """The class of a cycle in which an engine waits for a token of ``engine``."""
    return CycleClass(FIRST_TOKEN_CLASS + engine)
