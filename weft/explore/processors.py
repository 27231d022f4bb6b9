"""The processors beside the logic, and how long one takes for what is left to it.

The time is an estimate in a stated way, so that a point costs the same on every machine: the processor does
``operations_per_cycle`` and moves ``bytes_per_cycle``, one after the other, on one of its cores. No board has confirmed
the rates.
"""

from __future__ import annotations

from dataclasses import dataclass

from .parts import Part


@dataclass(frozen=True)
class HostWork:
    """Of one run: multiply-accumulates, which are among the operations as two each; operations; bytes."""

    macs: int
    operations: int
    nbytes: int


@dataclass(frozen=True)
class Processor:
    """One core of a processor: its clock, and what it does in a cycle with the code that weft makes for it."""

    name: str
    mhz: float
    operations_per_cycle: float
    bytes_per_cycle: float

    def cycles(self, work: HostWork) -> float:
        """Its cycles for the work: arithmetic and memory in turn."""
        return work.operations / self.operations_per_cycle + work.nbytes / self.bytes_per_cycle

    def seconds(self, work: HostWork) -> float:
        return self.cycles(work) / self.mhz / 1e6


PROCESSORS = {
    "cortex-a9": Processor("cortex-a9", 650, 2, 1),
    "cortex-a53": Processor("cortex-a53", 1200, 8, 2),
}
"""Assumed, not measured: a multiply-accumulate a cycle in order with 64 bits of NEON, four with 128 bits and two
issues; memory as fast as copies of what no cache holds. The clocks are those of PYNQ's images."""

USUAL_PROCESSOR = PROCESSORS["cortex-a9"]
"""Where a part has no processor, or none that is known."""


def processor_of(part: Part) -> Processor:
    """The processor beside the logic of a part."""
    return USUAL_PROCESSOR if part.board is None else PROCESSORS.get(part.board.processor, USUAL_PROCESSOR)
