"""Kinds of DRAM as data: banks, rows and timings in clocks, each with its source."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ..whole import whole
from .errors import SimulationError

USUAL_CORE_MHZ = 100
"""Clock of the core where nobody says another."""


@dataclass(frozen=True, kw_only=True)
class DramKind:
    """Chips side by side that make one data bus. Times are in clocks of the DRAM, whose data come twice a clock.

    clock_mhz
        Of the DRAM; its data rate is twice that.
    bus_bits, burst
        Width of the data bus, and transfers in one access.
    banks, groups, row_bytes
        Banks, groups that they are in, and bytes of an open row over all chips.
    CL, CWL
        From a read, or a write, to its first data.
    RCD, RP, RPA, RAS, RFC, REFI
        From an activation to a column command; from a precharge (of all banks: RPA) to an activation; from an
        activation to a precharge; a refresh; from one refresh to the next.
    RRD_S, RRD_L, CCD_S, CCD_L, WTR_S, WTR_L
        Between activations, between column commands, and from written data to a read: in any bank, and in the same
        group.
    FAW, WR, RTP, RTW, PPD
        In which at most four activations are; from written data to a precharge; from a read to a precharge; from a
        read to a write; between precharges.
    activate_slots, column_slots, precharge_slots
        Clocks for which a command takes the command bus.
    source
        Where the numbers are from.
    """

    name: str
    clock_mhz: Fraction
    bus_bits: int
    burst: int
    banks: int
    groups: int
    row_bytes: int
    CL: int
    CWL: int
    RCD: int
    RP: int
    RPA: int
    RAS: int
    RFC: int
    REFI: int
    RRD_S: int
    RRD_L: int
    CCD_S: int
    CCD_L: int
    WTR_S: int
    WTR_L: int
    FAW: int
    WR: int
    RTP: int
    RTW: int
    PPD: int = 1
    activate_slots: int = 1
    column_slots: int = 1
    precharge_slots: int = 1
    source: str

    @property
    def access_bytes(self) -> int:
        """Bytes that one column command moves."""
        return self.bus_bits * self.burst // 8

    @property
    def access_ticks(self) -> int:
        """Clocks for which an access has the data bus."""
        return self.burst // 2

    @property
    def lone_read(self) -> int:
        """Clocks of a read of a closed bank, from the request to the last of its data."""
        return self.RCD + self.CL + self.access_ticks

    @property
    def bytes_per_second(self) -> Fraction:
        """With the data bus always in use."""
        return self.clock_mhz * 2 * self.bus_bits / 8 * 10**6


def _ddr3_1066(bus_bits: int) -> DramKind:
    return DramKind(
        name=f"ddr3-1066x{bus_bits}", clock_mhz=Fraction(1600, 3), bus_bits=bus_bits, burst=8, banks=8, groups=1,
        row_bytes=2048 * bus_bits // 16, CL=7, CWL=6, RCD=7, RP=7, RPA=7, RAS=20, RFC=139, REFI=4160, RRD_S=6, RRD_L=6,
        CCD_S=4, CCD_L=4, WTR_S=4, WTR_L=4, FAW=27, WR=8, RTP=4, RTW=7,
        source="JESD79-3F, DDR3-1066F (7-7-7) at 1.875 ns, x16 chips with pages of 2 KiB; tRFC 260 ns of 4 Gb chips "
               "(MT41K256M16, as on PYNQ and Zybo boards); as DRAMSys' MICRON_1Gb_DDR3-1066_16bit_G.json but for tRFC",
    )  # fmt: skip


DRAM_KINDS: dict[str, DramKind] = {
    kind.name: kind
    for kind in (
        _ddr3_1066(16),
        _ddr3_1066(32),
        DramKind(
            name="ddr4-2400x64", clock_mhz=Fraction(1200), bus_bits=64, burst=8, banks=8, groups=2, row_bytes=8192,
            CL=17, CWL=12, RCD=17, RP=17, RPA=17, RAS=39, RFC=420, REFI=9360, RRD_S=7, RRD_L=8, CCD_S=4, CCD_L=6,
            WTR_S=3, WTR_L=9, FAW=36, WR=18, RTP=9, RTW=11,
            source="JESD79-4, DDR4-2400T (17-17-17) at 0.833 ns, four x16 chips of 8 Gb with pages of 2 KiB; as "
                   "DRAMsim3's DDR4_8Gb_x16_2400.ini",
        ),
        DramKind(
            name="lpddr4-3200x32", clock_mhz=Fraction(1600), bus_bits=32, burst=16, banks=8, groups=1, row_bytes=4096,
            CL=28, CWL=15, RCD=29, RP=29, RPA=34, RAS=68, RFC=448, REFI=6246, RRD_S=16, RRD_L=16, CCD_S=8, CCD_L=8,
            WTR_S=16, WTR_L=16, FAW=64, WR=29, RTP=12, RTW=30, PPD=4, activate_slots=4, column_slots=4,
            precharge_slots=2,
            source="JESD209-4 at 0.625 ns, two channels of 16 bits in step, 8 Gb each: RL 28, WL 14 (set A) and one "
                   "clock of tDQSS, tDQSCK 3.5 ns in RTW; as DRAMSys' JEDEC_8Gb_LPDDR4-3200_16bit.json but for tRPab, "
                   "tPPD and these two",
        ),
    )
}  # fmt: skip


@dataclass(frozen=True)
class BankedDram:
    """A kind of DRAM beside a core whose clock has ``core_mhz``."""

    kind: DramKind
    core_mhz: int = USUAL_CORE_MHZ

    def __post_init__(self) -> None:
        number = whole(self.core_mhz)
        if number is None or number < 1:
            raise SimulationError(
                f"DRAM {self.kind.name}: a core's clock is {self.core_mhz!r} MHz, but must be an integer of at least 1"
            )
        object.__setattr__(self, "core_mhz", number)

    def __str__(self) -> str:
        return f"{self.kind.name} beside a core of {self.core_mhz} MHz"

    @property
    def ticks_per_cycle(self) -> Fraction:
        """Clocks of the DRAM in a cycle of the core."""
        return self.kind.clock_mhz / self.core_mhz

    @property
    def lone_cycles(self) -> int:
        """Cycles that a read of a closed bank takes in the DRAM itself."""
        return -int(-self.kind.lone_read // self.ticks_per_cycle)


def parse_dram_kind(text: str) -> BankedDram:
    """``NAME`` or ``NAME@MHZ``, the clock of the core; :class:`SimulationError` names the known kinds."""
    name, at, clock = text.partition("@")
    kind = DRAM_KINDS.get(name.lower())
    if kind is None:
        raise SimulationError(f"unknown memory {name!r}", hint=f"known: {', '.join(DRAM_KINDS)}")
    if at and not (clock.isascii() and clock.isdigit() and int(clock)):
        raise SimulationError(
            f"memory {text!r}: {clock!r} is no clock of a core in MHz", hint=f"such as {kind.name}@100"
        )
    return BankedDram(kind, int(clock) if at else USUAL_CORE_MHZ)
