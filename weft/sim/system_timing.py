"""The timing model of several cores: exact cycles of a program on each, with one memory behind each port or all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..hw.config import CoreConfig
from ..hw.dram_rate import DramRate
from ..hw.system_config import SystemConfig
from .dram import DramModel
from .errors import SimulationError
from .result import RunResult
from .system_run import NOTHING, BusUse, PortUse, SystemResult, check_shared
from .timing import predict
from .timing_ports import TimedProgram, predict_together


def predict_system(
    config: SystemConfig,
    programs: Sequence[TimedProgram | None],
    dram: DramModel | None = None,
    *,
    shared: range = NOTHING,
    trace: bool = False,
    every_cycle: bool = False,
) -> SystemResult:
    """Predict a run of a program on each core that has one (None: it does not run).

    ``dram`` is the memory as each port sees it: ports do not slow each other down, unless it has banks: then all share
    them. A port that one core alone uses is that of :func:`~weft.sim.timing.predict`. What a core has to keep is as
    there; :class:`SimulationError` also for jitter or reordering behind an arbiter, which is not modelled. ``shared``:
    as for :meth:`~weft.sim.system_rtl.RtlSystem.run`. ``trace``: results have traces, ports their ``bus``, and a DRAM
    with banks its commands. ``every_cycle``: as in :func:`~weft.sim.timing.predict_details`.
    """
    check_shared(config, shared)
    memory = dram or DramModel.of(config.cores[0])
    if len(programs) != len(config.cores):
        raise SimulationError(
            f"{len(programs)} programs for {len(config.cores)} cores", hint="give None for a core that does not run"
        )
    results: list[RunResult | None] = [None] * len(programs)
    use: list[PortUse | None] = [None] * len(programs)
    bus: list[BusUse | None] = [None] * config.port_count
    used = None
    ports = range(config.port_count)
    for together in [tuple(ports)] if memory.banks is not None else [(port,) for port in ports]:
        members = config.cores_of(together[0])
        if memory.banks is None and len(members) == 1:
            if (alone := programs[members[0]]) is not None:
                core = config.cores[members[0]]
                results[members[0]] = predict(core, alone.code, memory, offset=alone.offset, trace=trace)
            continue
        done = predict_together(config, together, programs, memory, shared=shared, trace=trace, every_cycle=every_cycle)
        used = done.dram
        for number, result in done.results.items():
            results[number], use[number] = result, done.use.get(number)
        for port, uses in done.bus.items():
            bus[port] = uses
    starts = tuple(0 if program is None else program.start for program in programs)
    return SystemResult(tuple(results), starts, tuple(use), tuple(bus), used)


def cycles_together(
    cores: Sequence[CoreConfig], ports: Sequence[int], rate: DramRate,
    programs: Sequence[tuple[npt.NDArray[np.uint8], int]],
) -> tuple[int, ...]:  # fmt: skip
    """Cycles that each of these cores, on these ports, takes for its program, which lies at an offset of its window,
    with DRAM of this rate: what a compilation may ask for, as ``Job.together``."""
    system = SystemConfig(cores=tuple(cores), ports=tuple(ports))
    dram = DramModel(latency=rate.latency, bytes_per_cycle=rate.bytes_per_cycle)
    run = predict_system(system, [TimedProgram(code=code, offset=offset) for code, offset in programs], dram)
    return tuple(core.cycles for core in run.cores if core is not None and core.cycles is not None)  # of all: it counts
