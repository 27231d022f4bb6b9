"""What is chosen about a core that stands alone; nothing here needs Amaranth."""

from __future__ import annotations

from dataclasses import dataclass

from ..config import CoreConfig
from ..errors import ConfigError
from .protocol import SILENCE_BYTES
from .sdram_chip import SdramChip, burst_length

LEDS = 8
LEAST_MEMORY, LARGEST_MEMORY = 1 << 12, 1 << 30
"""Bytes: a page of the bus, which a window begins at, and what the link's addresses reach."""

LEAST_DIVISOR = 4
"""Cycles of the shortest bit on the serial line: it is sampled in its middle, to within one cycle."""

MOST_BAUD_ERROR = 0.02
"""How far a line's rate may be from the one asked for: at half of a bit's length, ten bits later, it would fail."""


@dataclass(frozen=True)
class Standalone:
    """A core with ``memory_bytes`` (a power of two), at a clock of ``clock_hz``, and a serial line of ``baud`` bits a
    second. The memory is all of the chip ``sdram``, or block RAM. :class:`ConfigError` for what cannot be."""

    core: CoreConfig
    memory_bytes: int
    clock_hz: int
    baud: int
    sdram: SdramChip | None = None

    def __post_init__(self) -> None:
        size = self.memory_bytes
        if size & (size - 1) or not LEAST_MEMORY <= size <= LARGEST_MEMORY:
            raise ConfigError(
                f"must be a power of two in {LEAST_MEMORY}..{LARGEST_MEMORY}, not {size}", at="memory_bytes"
            )
        if self.sdram is not None:
            if size != self.sdram.size:
                raise ConfigError(f"must be {self.sdram.size}, all of the chip, not {size}", at="memory_bytes")
            self.sdram.check_clock(self.clock_hz)
            burst_length(self.core.bus_bytes)
        if not 0 < self.baud <= self.clock_hz // LEAST_DIVISOR:
            raise ConfigError(
                f"must be in 1..{self.clock_hz // LEAST_DIVISOR}, so that a bit takes {LEAST_DIVISOR} cycles of "
                f"{self.clock_hz} Hz, not {self.baud}",
                at="baud",
            )
        if abs(self.clock_hz / self.divisor / self.baud - 1) > MOST_BAUD_ERROR:
            nearest = self.clock_hz / self.divisor
            raise ConfigError(
                f"{self.baud} is not possible with a clock of {self.clock_hz} Hz: the nearest rate is {nearest:.0f}",
                at="baud",
            )

    @property
    def divisor(self) -> int:
        """Cycles of a bit."""
        return round(self.clock_hz / self.baud)

    @property
    def silence(self) -> int:
        """Cycles after which an unfinished question is forgotten."""
        return 10 * SILENCE_BYTES * self.divisor
