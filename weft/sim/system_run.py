"""Programs of several cores on one memory, and what a run of them reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..hw.bus import PAGE_BYTES
from ..hw.system_config import SystemConfig
from .dram_interface import DramUse
from .errors import SimulationError
from .result import RunResult

BusUse = npt.NDArray[np.void]
"""Records of :data:`~weft.sim.result.BUS_USE`."""

NOTHING = range(0)
"""No byte is shared."""


@dataclass(frozen=True, kw_only=True)
class CoreProgram:
    """What one core runs: ``count`` instructions at byte ``offset`` of a DMA window of ``window_bytes``, which begins
    at byte ``window_start`` of the memory. ``start``: cycle of the run in which the core is started."""

    offset: int
    count: int
    window_start: int
    window_bytes: int
    start: int = 0


@dataclass(frozen=True)
class PortUse:
    """How a core got on at its memory port.

    bursts_read, bursts_written
        Bursts that it asked for.
    read_wait, write_wait
        Cycles, over all its bursts, from the address at the core to the first word read, or to the answer of a write,
        beyond those that a burst alone on the port would take. The waits of bursts under way at once all count, and
        those for other cores that are to share a read.
    bursts_shared
        Bursts of ``bursts_read`` that one read of the memory answered together with those of other cores.
    """

    bursts_read: int
    bursts_written: int
    read_wait: int
    write_wait: int
    bursts_shared: int


@dataclass(frozen=True)
class SystemResult:
    """Outcome of a run: of each core its result (``None`` for one that did not run), in the order of the system.

    starts
        Cycle of each core's start, counted from the first; 0 for one that did not run.
    port_use
        Of each core, where the simulator knows it.
    bus
        Of each port that several cores share, what its bus did, where that was recorded: records of
        :data:`~weft.sim.result.BUS_USE`.
    dram
        What the DRAM behind all ports did, if it has banks.
    """

    cores: tuple[RunResult | None, ...]
    starts: tuple[int, ...]
    port_use: tuple[PortUse | None, ...] = ()
    bus: tuple[BusUse | None, ...] = field(default=(), compare=False, repr=False)
    dram: DramUse | None = None

    @property
    def cycles(self) -> int | None:
        """From the first start to the last end; ``None`` where the simulator does not model time."""
        ran = [(start, core.cycles) for start, core in zip(self.starts, self.cores, strict=True) if core is not None]
        ends = [start + cycles for start, cycles in ran if cycles is not None]
        return max(ends) if ends and len(ends) == len(ran) else None

    @property
    def faults(self) -> dict[int, RunResult]:
        """Results of the cores that ended in a fault, by the core's number."""
        return {n: core for n, core in enumerate(self.cores) if core is not None and core.fault is not None}


def check_shared(config: SystemConfig, shared: range) -> None:
    """:class:`SimulationError` if these bytes of the memory cannot be read by several cores at once."""
    if not isinstance(shared, range) or shared.step != 1:
        raise SimulationError(f"shared is {shared!r:.80}, but must be a range of bytes", hint="range(start, stop)")
    if not shared:
        return
    if not config.shared_reads:
        raise SimulationError(f"{config.name!r} shares no reads", hint="give its SystemConfig shared_reads=True")
    if shared.start < 0 or shared.start % PAGE_BYTES or shared.stop % PAGE_BYTES:
        raise SimulationError(f"bytes {shared.start} to {shared.stop} are to be shared, but only whole pages of "
                              f"{PAGE_BYTES} bytes can be")  # fmt: skip


def check_programs(config: SystemConfig, programs: Sequence[CoreProgram | None]) -> None:
    """:class:`SimulationError` if there is not a program, or None, for each core, or none at all."""
    if len(programs) != len(config.cores):
        raise SimulationError(
            f"{len(programs)} programs for {len(config.cores)} cores", hint="give None for a core that does not run"
        )
    if all(program is None for program in programs):
        raise SimulationError("no core has a program")
    for core, program in enumerate(programs):
        if program is not None and program.start < 0:
            raise SimulationError(f"core {core}: start is {program.start}, but must be at least 0")
