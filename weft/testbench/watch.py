"""Coroutines that show every AXI channel of the core to the protocol checkers, in the cycles in which it matters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge
from cocotb.utils import get_sim_time

from .protocol import Payload, ReadChecker, Violation, WriteChecker

CLOCK_NS = 10

ADDRESS = ("id", "addr", "len", "size", "burst", "cache", "prot")
LITE_ADDRESS = ("addr", "prot")
AXI4_PAYLOADS: dict[str, Sequence[str]] = {
    "ar": ADDRESS,
    "r": ("id", "data", "resp", "last"),
    "aw": ADDRESS,
    "w": ("data", "strb", "last"),
    "b": ("id", "resp"),
}
LITE_PAYLOADS: dict[str, Sequence[str]] = {
    "ar": LITE_ADDRESS,
    "r": ("data", "resp"),
    "aw": LITE_ADDRESS,
    "w": ("data", "strb"),
    "b": ("resp",),
}


def clock_cycle() -> int:
    """Number of the clock cycle."""
    return int(get_sim_time("ns")) // CLOCK_NS


@dataclass
class BusWatch:
    """Checkers of one AXI port. ``transfers`` counts the handshakes of each channel."""

    read: ReadChecker
    write: WriteChecker
    transfers: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def start(
        dut: Any, prefix: str, payloads: dict[str, Sequence[str]], bus_bytes: int, burst_beats: int = 1
    ) -> BusWatch:
        """Watch the port called ``prefix`` from now on, in reset as well."""
        violations: list[Violation] = []
        limits = (bus_bytes, burst_beats, f"{prefix}_", violations)
        watch = BusWatch(ReadChecker(*limits), WriteChecker(*limits))
        for channel, names in payloads.items():
            signals = {name: getattr(dut, f"{prefix}_{channel}{name}") for name in names}
            cocotb.start_soon(watch._follow(dut, f"{prefix}_{channel}", channel, signals))
        return watch

    @property
    def violations(self) -> list[Violation]:
        """All that both sides have found, in order."""
        return self.read.violations

    @property
    def idle(self) -> bool:
        """Is every request answered?"""
        return self.read.idle and self.write.idle

    def finish(self) -> None:
        """The end of a test: nothing may be left open."""
        self.read.finish(clock_cycle())
        self.write.finish(clock_cycle())

    async def _follow(self, dut: Any, port: str, channel: str, signals: dict[str, Any]) -> None:
        """Sample at each rising edge while VALID is high, and once when it has fallen."""
        valid, ready, reset = getattr(dut, f"{port}valid"), getattr(dut, f"{port}ready"), dut.rst
        edge, rises = RisingEdge(dut.clk), RisingEdge(valid)
        checker = self.read if channel in self.read.channels else self.write
        self.transfers[channel] = 0
        while not valid.value.is_resolvable:  # a simulator of four states knows nothing before the reset
            await edge
            assert reset.value, f"{port}valid is {valid.value} after the reset"
        while True:
            if not valid.value:
                await rises
            offered = True
            while offered:
                await edge
                offered = bool(valid.value)
                is_ready = bool(ready.value)
                payload: Payload | None = None
                if offered:
                    payload = {name: int(signal.value) for name, signal in signals.items()}
                    self.transfers[channel] += is_ready
                checker.sample(channel, clock_cycle(), payload, ready=is_ready, reset=bool(reset.value))
