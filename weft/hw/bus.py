"""The bus between a core and memory as numbers: pages, bursts, buffers, IDs. What simulators know of it as well, so it
says nothing in Amaranth."""

from __future__ import annotations

from enum import IntEnum, unique

from .config import CoreConfig
from .isa import Engine

PAGE_BYTES = 4096
"""No burst crosses a multiple of this; the DMA window starts at one."""

REGISTER_BITS = 32
"""Data width of the AXI4-Lite slave."""

REGISTER_ADDRESS_BITS = 12
"""Address width of the AXI4-Lite slave: one page."""

BURST_INCR = 0b01
CACHE_NORMAL = 0b0011
"""AxCACHE: normal memory, bufferable, not cached, as Xilinx asks of masters on HP ports."""


@unique
class Response(IntEnum):
    """AXI response; the upper bit tells an error."""

    OKAY = 0
    EXOKAY = 1
    SLVERR = 2
    DECERR = 3


@unique
class ReadClient(IntEnum):
    """Who reads memory; the value is the AXI ID, so that an interconnect may reorder between them."""

    LOAD = Engine.LOAD
    LOADW = Engine.LOADW
    FETCH = 2


ID_BITS = 2
"""Width of the read IDs; writes all have ID 0."""

OFFSET_BITS = 32
"""Width of a byte offset into the DMA window, which is at most 4 GiB."""

WINDOW_BITS = OFFSET_BITS + 1
"""Width of the window's size: up to 4 GiB, inclusive."""

LEAST_BUFFER_BEATS = 256
"""Words that a buffer holds at least: the latency that it covers at the bus's full rate, however short the bursts."""

FETCH_BUFFER_WORDS = 64
MOST_FETCH_BEATS = 16
"""Short bursts: the loads share the bus."""

WRITES_ORDERED = 16
"""Write bursts whose address an arbiter has granted and whose words are not all sent."""

READS_WAITING = 1
"""Bursts of a core that wait for the same reads of other cores. With more it is no faster."""


def longest_burst(config: CoreConfig) -> int:
    """Beats of the longest burst, a power of two: as configured, but not more than a page holds."""
    return min(config.burst_beats, PAGE_BYTES // config.bus_bytes)


def buffer_beats(config: CoreConfig) -> int:
    """Words that the buffer of a load, or of the writes, holds: some are filled while others are emptied."""
    return max(LEAST_BUFFER_BEATS, 4 * longest_burst(config))


def fetch_burst_beats(config: CoreConfig) -> int:
    """Beats of the longest burst of a program."""
    return min(MOST_FETCH_BEATS, longest_burst(config))


def port_id_bits(cores: int) -> int:
    """Width of the IDs at a port of several cores: the core's number on the port stands above the core's own ID."""
    return ID_BITS + (cores - 1).bit_length()
