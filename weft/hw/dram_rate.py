"""How fast the memory behind the core's port is: what schedules are chosen for, and what simulators model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ..whole import whole
from .config import CoreConfig
from .errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class DramRate:
    """Latency and bandwidth of DRAM, in the core's cycles.

    latency
        Cycles from an accepted address to the first data beat, and from the last write beat to its response.
    bytes_per_cycle
        Bandwidth that reads and writes share.
    """

    latency: int = 100
    bytes_per_cycle: int = 8

    def __str__(self) -> str:
        return f"DRAM of {self.bytes_per_cycle} bytes a cycle, latency {self.latency}"

    def __post_init__(self) -> None:
        for name, value in (("latency", self.latency), ("bytes_per_cycle", self.bytes_per_cycle)):
            number = whole(value)
            if number is None or number < 1:
                raise ConfigError(f"DRAM: {name} is {value!r}, but must be an integer of at least 1")
            object.__setattr__(self, name, number)

    @classmethod
    def of(cls, config: CoreConfig) -> Self:
        """The memory of a core where nobody says another, for compilers and simulators alike: as fast as its bus."""
        return cls(bytes_per_cycle=config.bus_bytes)

    def for_bus(self, config: CoreConfig) -> int:
        """Bytes a cycle that reach a core: no more than its bus takes."""
        return min(self.bytes_per_cycle, config.bus_bytes)


USUAL_RATE = DramRate()


def parse_dram_rate(text: str) -> DramRate:
    """``BYTES`` or ``BYTES,LATENCY`` as a rate; :class:`ConfigError` for anything else."""
    bandwidth, comma, latency = text.partition(",")
    try:
        rate = {"bytes_per_cycle": int(bandwidth)} | ({"latency": int(latency)} if comma else {})
    except ValueError:
        raise ConfigError(f"DRAM: {text!r} is no rate", hint="bytes a cycle, or BYTES,LATENCY: 4 or 4,120") from None
    return DramRate(**rate)
