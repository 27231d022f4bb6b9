"""The memories of a core, by name: the four scratchpads, the tables that some cores have, and DRAM.

:class:`~weft.hw.config.CoreConfig` has their sizes, :data:`weft.hw.isa.MEMORY_USERS` says who reads and writes them.
"""

from __future__ import annotations

from enum import StrEnum, unique


@unique
class Memory(StrEnum):
    """A memory; equal to its name, which is also the scope of a buffer that lies in it."""

    INP = "inp"  # activations, int8
    WGT = "wgt"  # weights, int8
    ACC = "acc"  # accumulators, int32
    OUT = "out"  # results, int8
    TAB = "tab"  # tables in the lanes of the vector engine, int8; only on cores with tables
    DRAM = "dram"

    def __repr__(self) -> str:
        return repr(self.value)

    @property
    def element_bytes(self) -> int:
        """Bytes of one element of an entry."""
        return 4 if self is Memory.ACC else 1


SCRATCHPADS = (Memory.INP, Memory.WGT, Memory.ACC, Memory.OUT)
"""Those that every core has; a core's own are :attr:`weft.hw.config.CoreConfig.scratchpads`."""
