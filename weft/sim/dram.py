"""The DRAM behind the core's AXI port, as the Verilator harness models it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, unique

from ..hw.dram_rate import DramRate
from .dram_kinds import BankedDram
from .errors import SimulationError


@dataclass(frozen=True)
class BusErrors:
    """Byte range of DRAM, from the start of the memory, that answers reads or writes with an error."""

    start: int
    stop: int
    reads: bool = True
    writes: bool = True

    def hits(self, start: int, stop: int, *, write: bool) -> bool:
        """Does an access to ``start..stop`` get an error response?"""
        return (self.writes if write else self.reads) and start < self.stop and self.start < stop


@unique
class BusFault(IntEnum):
    """What the memory of :class:`~weft.sim.rtl.RtlSimulator` can be told to do wrong, once."""

    READ_ERROR = 1  # the next word read comes with SLVERR
    WRITE_ERROR = 2  # the next burst written is answered with SLVERR and not stored
    LOST_READ = 3  # the next read burst is never answered
    LOST_WRITE = 4  # the next burst written is stored, but never answered
    HUNG = 5  # no channel moves any more
    FLIPPED_READ = 6  # the next word for one reader comes with one bit inverted


@dataclass(frozen=True, kw_only=True)
class DramModel(DramRate):
    """Timing and faults of the memory: latency and bandwidth of :class:`DramRate`, and

    jitter
        Up to this many cycles are added to each latency at random, and handshakes stall at random; 0: none.
    seed
        Of all that is random.
    outstanding
        Read bursts, and write bursts, that the memory takes before it answers the first.
    reorder
        Bursts of different IDs may overtake each other, and their beats mix.
    errors
        Part of the memory that answers with SLVERR.
    banks
        The DRAM behind the ports, all of which share it; a read of a closed bank then takes ``latency`` cycles, and a
        port has ``bytes_per_cycle``. None: each port has a memory of its own, and addresses decide nothing.
    """

    jitter: int = 0
    seed: int = 0
    outstanding: int = 32
    reorder: bool = False
    errors: BusErrors | None = None
    banks: BankedDram | None = None

    def __str__(self) -> str:
        return super().__str__() if self.banks is None else f"{super().__str__()}, {self.banks}"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("jitter", 0), ("seed", 0), ("outstanding", 1)):
            value = getattr(self, name)
            if value < least:
                raise SimulationError(f"DRAM model: {name} is {value}, but must be at least {least}")
        if self.banks is not None and self.latency < self.banks.lone_cycles:
            raise SimulationError(
                f"DRAM model: latency is {self.latency}, but a read of a closed bank of {self.banks} takes "
                f"{self.banks.lone_cycles} cycles",
                hint="give a longer latency",
            )
