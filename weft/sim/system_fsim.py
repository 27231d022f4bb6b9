"""Functional simulator of several cores on one DRAM: exact bytes, without time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, permutations

import numpy as np

from ..hw.footprint import Footprint
from ..hw.system_config import SystemConfig
from .errors import SharedBytesError
from .fsim import FunctionalSimulator
from .result import RunResult
from .state import Bytes
from .system_run import NOTHING, CoreProgram, SystemResult, check_programs, check_shared


class FunctionalSystem:
    """The cores of a system, each as :class:`~weft.sim.fsim.FunctionalSimulator`, on one memory.

    Programs run one core after the other. That is what cores at once do if no core touches a byte that another writes,
    and only then; so :meth:`run` refuses all else with :class:`SharedBytesError`. Cores may read the same bytes.
    """

    def __init__(self, config: SystemConfig, memory_bytes: int, *, check_races: bool = True) -> None:
        self.config = config
        self.dram: Bytes = np.zeros(memory_bytes, np.uint8)
        self.cores = tuple(
            FunctionalSimulator(core, memory_bytes, check_races=check_races, memory=self.dram) for core in config.cores
        )

    def run(self, programs: Sequence[CoreProgram | None], *, shared: range = NOTHING) -> SystemResult:
        """Run a program on each core that has one (None: it does not run). A fault of one core stops that core alone.
        ``shared`` is as for :meth:`~weft.sim.system_rtl.RtlSystem.run`, and changes no byte.

        After :class:`SharedBytesError` the memory holds what one order of the cores has made of it.
        """
        check_programs(self.config, programs)
        check_shared(self.config, shared)
        apart = not any(_overlap(*pair) for pair in combinations([each for each in programs if each is not None], 2))
        footprints = {core: Footprint() for core, program in enumerate(programs) if program is not None}
        results: list[RunResult | None] = []
        for core, (simulator, program) in enumerate(zip(self.cores, programs, strict=True)):
            # A core cannot leave its window: where windows lie apart there is nothing to look for.
            simulator.footprint = None if apart else footprints.get(core)
            results.append(
                None
                if program is None
                else simulator.run(
                    program.offset, program.count, window_start=program.window_start, window_bytes=program.window_bytes
                )
            )
        if not apart:
            check_apart(footprints)
        starts = tuple(0 if program is None else program.start for program in programs)
        return SystemResult(tuple(results), starts)


def _overlap(first: CoreProgram, second: CoreProgram) -> bool:
    ends = first.window_start + first.window_bytes, second.window_start + second.window_bytes
    return first.window_start < ends[1] and second.window_start < ends[0]


def check_apart(footprints: dict[int, Footprint]) -> None:
    """:class:`SharedBytesError` if a core writes a byte that another one reads or writes."""
    written = {core: footprint.intervals(write=True) for core, footprint in footprints.items()}
    read = {core: footprint.intervals(write=False) for core, footprint in footprints.items()}
    for writer, other in permutations(footprints, 2):
        for touched, verb in ((written, "writes"), (read, "reads")):
            byte = written[writer].common(touched[other])
            if byte is not None:
                raise SharedBytesError(
                    f"core {writer} writes byte {byte:#x} of the memory, which core {other} {verb}",
                    writer=writer, other=other, byte=byte,
                )  # fmt: skip
