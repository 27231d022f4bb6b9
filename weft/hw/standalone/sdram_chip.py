"""What a chip of SDR SDRAM with 16 data bits and four banks asks for, and what that is in cycles of a clock."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from ..errors import ConfigError

DATA_BITS = 16
DATA_BYTES = DATA_BITS // 8
BANK_BITS = 2
ALL_BANKS = 10
"""The address bit that lets PRECHARGE close all banks."""

STARTUP_REFRESHES = 8
MODE_CYCLES = 2
LEAST_RECOVERY = 2
"""Cycles that every chip asks for: after MODE REGISTER SET; from a bank's last data to PRECHARGE, whatever ns say."""

BURSTS = (1, 2, 4, 8)
"""Lengths that the mode register knows, beside whole rows."""

ROUTE_NS = 8.0
"""Of a cycle, for the way of the clock through the FPGA to the chip and that of data back."""

_ROWS, _COLUMNS, _LATENCIES = (11, 13), (8, 9), (2, 3)


@dataclass(frozen=True)
class SdramChip:
    """Times of the data sheet, in ns: at least so much between two commands. :class:`ConfigError` names a field.

    ``rcd``: ACTIVATE to READ or WRITE. ``rp``: PRECHARGE to ACTIVATE or REFRESH. ``ras``: ACTIVATE to PRECHARGE.
    ``rc``: ACTIVATE to ACTIVATE, in one bank. ``rrd``: the same in two. ``rfc``: REFRESH to what follows. ``wr``: last
    data written to PRECHARGE. ``refresh``: between two REFRESH, on average. ``startup``: before the first command.
    ``access``: from the clock's edge to the data, with ``latency`` (CAS) cycles.
    """

    row_bits: int
    column_bits: int
    latency: int
    rcd_ns: float
    rp_ns: float
    ras_ns: float
    rc_ns: float
    rrd_ns: float
    rfc_ns: float
    wr_ns: float
    refresh_ns: float
    startup_ns: float
    access_ns: float

    def __post_init__(self) -> None:
        for name, known in (("row_bits", _ROWS), ("column_bits", _COLUMNS), ("latency", _LATENCIES)):
            low, high = known
            if not low <= getattr(self, name) <= high:
                raise ConfigError(f"must be in {low}..{high}, not {getattr(self, name)}", at=name)
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("_ns") and not (math.isfinite(value) and value > 0):
                raise ConfigError(f"must be a time above 0, not {value:g}", at=field.name)
        if self.rrd_ns > self.ras_ns:
            raise ConfigError(f"must not be above ras_ns, {self.ras_ns:g}, but is {self.rrd_ns:g}", at="rrd_ns")

    @property
    def size(self) -> int:
        """Bytes."""
        return DATA_BYTES << (self.row_bits + BANK_BITS + self.column_bits)

    def cycles(self, name: str, clock_hz: int) -> int:
        """The least number of cycles that is not less than the time of a field, ``rcd_ns`` and so on."""
        time: float = getattr(self, name)
        return max(1, math.ceil(time * clock_hz / 1e9 - 1e-9))

    def check_clock(self, clock_hz: int) -> None:
        """:class:`ConfigError` for a clock whose data would come too late, or too rarely to refresh."""
        if clock_hz * (self.access_ns + ROUTE_NS) > 1e9:
            most = 1e3 / (self.access_ns + ROUTE_NS)
            raise ConfigError(f"at most {most:.1f} MHz, as data take {self.access_ns:g} ns, not {clock_hz / 1e6:g} MHz",
                              at="clock")  # fmt: skip


def burst_length(word_bytes: int) -> int:
    """Data of the chip in a word of the bus; :class:`ConfigError` for words that are no burst."""
    if word_bytes // DATA_BYTES not in BURSTS:
        most = 8 * DATA_BYTES * BURSTS[-1]
        raise ConfigError(f"must be at most {most}, eight times the chip's, not {8 * word_bytes}", at="bus_bits")
    return word_bytes // DATA_BYTES
