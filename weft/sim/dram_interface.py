"""What ``dram_banks.h`` and Python share: the timings of a DRAM with banks, what it did, and its commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, unique
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from .c_interface import CStruct, enumeration, fields
from .dram import DramModel

_TIMES = (
    "access_bytes", "access_ticks", "banks", "groups", "row_bytes", "CL", "CWL", "RCD", "RP", "RPA", "RAS", "RFC",
    "REFI", "RRD_S", "RRD_L", "CCD_S", "CCD_L", "WTR_S", "WTR_L", "FAW", "WR", "RTP", "RTW", "PPD", "activate_slots",
    "column_slots", "precharge_slots",
)  # fmt: skip
"""Of a :class:`~weft.sim.dram_kinds.DramKind`."""

# `cycles` of the core are `ticks` of the DRAM; `front`: cycles on the way, outside the DRAM.
_BANKS = CStruct("WeftBanks", fields("int64_t", "ticks", "cycles", "front", *_TIMES))
_USE = CStruct("WeftDramUse", fields("int64_t", "hits", "misses", "conflicts", "refreshes", "turns", "busy_ticks"))
_COMMAND = CStruct(
    "WeftDramCommand", (*fields("uint64_t", "tick", "row"), *fields("uint32_t", "kind", "bank", "column", "unused"))
)

_BURST = CStruct("WeftDramBurst", (*fields("uint64_t", "cycle", "address"), *fields("uint32_t", "beats", "write")))

Banks, Use = _BANKS.python(), _USE.python()

COMMAND: np.dtype[np.void] = np.dtype(_COMMAND.python())
"""A command on the bus of a DRAM: its ``tick``, ``kind`` (:class:`DramCommand`), ``bank``, ``row``, and ``column`` in
accesses. The bank is 0 where all are meant."""

BURST: np.dtype[np.void] = np.dtype(_BURST.python())
"""A burst that a DRAM is asked for: the ``cycle`` of the core in which its address is taken (of a write its last word),
the byte ``address``, the words (``beats``), and 1 where they are a ``write``."""


@unique
class DramCommand(IntEnum):
    """Kinds of commands."""

    ACTIVATE = 0
    READ = 1
    WRITE = 2
    PRECHARGE = 3
    PRECHARGE_ALL = 4
    REFRESH = 5


@dataclass(frozen=True)
class DramUse:
    """What a DRAM with banks did in a run.

    hits, misses, conflicts
        Accesses to an open row; to a closed bank; to a bank with another row open.
    refreshes
        Of all banks.
    turns
        Changes between reads and writes.
    busy_ticks
        Clocks of the DRAM in which its data bus was in use.
    commands
        Records of :data:`COMMAND` in the order in which they were decided, where that was recorded.
    """

    hits: int = 0
    misses: int = 0
    conflicts: int = 0
    refreshes: int = 0
    turns: int = 0
    busy_ticks: int = 0
    commands: npt.NDArray[np.void] | None = field(default=None, compare=False, repr=False)

    @property
    def accesses(self) -> int:
        return self.hits + self.misses + self.conflicts

    @property
    def activations(self) -> int:
        return self.misses + self.conflicts

    @classmethod
    def of(cls, use: Any) -> DramUse:
        """From the struct that the C++ fills in."""
        numbers: dict[str, Any] = {name: int(getattr(use, name)) for name, _ in use._fields_}
        return cls(**numbers)

    def __add__(self, other: DramUse) -> DramUse:
        """Of one run after another; without commands."""
        sums: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name, _ in Use._fields_}
        return DramUse(**sums)


def describe_banks(dram: DramModel) -> Any | None:
    """The struct for a memory with banks, or None. It is kept, so that its address stays good."""
    return None if dram.banks is None else _described(dram)


@cache
def _described(dram: DramModel) -> Any:
    assert dram.banks is not None
    ratio, kind = dram.banks.ticks_per_cycle, dram.banks.kind
    front = dram.latency - dram.banks.lone_cycles
    return Banks(ratio.numerator, ratio.denominator, front, *(getattr(kind, name) for name in _TIMES))


def interface_lines() -> list[str]:
    """C++ for all that is shared."""
    kinds = enumeration("WeftDramCommandKind", "uint32_t", "kDram", DramCommand.__members__)
    return [kinds, *(struct.text for struct in (_BANKS, _USE, _COMMAND, _BURST))]
