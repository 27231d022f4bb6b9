"""What a run of a program reports, whichever simulator ran it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..hw.cycle_class import CycleClass
from ..hw.isa import ENGINE_NAMES, Engine, Fault
from . import c_interface
from .dram_interface import DramUse

EVENT: np.dtype[np.void] = np.dtype(c_interface.EVENT.python())
"""One instruction's life: ``engine``, ``number``, and the cycles ``start`` and ``retire``."""

ACTIVITY: np.dtype[np.void] = np.dtype(c_interface.ACTIVITY.python())
"""Consecutive ``cycles`` from ``start`` that an ``engine`` spent in one :class:`CycleClass` (``kind``)."""

BUS_USE: np.dtype[np.void] = np.dtype(c_interface.BUS_USE.python())
"""Consecutive ``cycles`` from ``start`` in which a bus had words of one kind (``writes`` is 1, or 0 for reads) for the
same ``cores``, a bit for each."""


@dataclass(frozen=True)
class FaultRecord:
    """Why the core stopped; two records are equal when cause, engine and instruction are.

    ``engine`` is an :class:`Engine` or ``FETCH``, ``number`` the instruction's place in the program.
    """

    cause: Fault
    engine: int
    number: int
    message: str = field(default="", compare=False)

    def __str__(self) -> str:
        place = f"{self.cause.name} fault, engine {ENGINE_NAMES[self.engine]!r}, instruction {self.number}"
        return f"{place}: {self.message}" if self.message else place


@dataclass(frozen=True)
class Trace:
    """Instruction lives (:data:`EVENT`, in order of retirement) and cycle classes (:data:`ACTIVITY`) of a run."""

    events: npt.NDArray[np.void]
    activity: npt.NDArray[np.void]


@dataclass(frozen=True)
class RunResult:
    """Outcome of one program.

    cycles
        Clock cycles from start to done, or ``None`` where the simulator does not model time.
    counters
        Cycles of each engine in each class; the classes of one engine sum to ``cycles``. Empty without time.
    bytes_read, bytes_written
        DRAM traffic on the data bus, the program's own instructions included.
    tokens_left
        Tokens (from, to) that nobody took; ``None`` where the simulator cannot see them. Empty for a balanced program.
    dram
        What a DRAM with banks did; ``None`` where the memory has none, or in a system, whose cores share it.
    """

    cycles: int | None
    fault: FaultRecord | None
    bytes_read: int
    bytes_written: int
    counters: Mapping[Engine, Mapping[CycleClass, int]] = field(default_factory=dict)
    tokens_left: Mapping[tuple[Engine, Engine], int] | None = None
    trace: Trace | None = None
    dram: DramUse | None = None
