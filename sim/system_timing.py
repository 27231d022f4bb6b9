"""The timing model of several cores: exact cycles of a program on each, with one memory behind each port."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..hw.programs import disassemble
from ..hw.system_config import SystemConfig
from . import timing_interface
from .dram import DramModel
from .errors import SimulationError
from .result import ACTIVITY, BUS_USE, EVENT, RunResult, Trace
from .system_run import NOTHING, BusUse, PortUse, SystemResult, check_shared
from .timing import CYCLE_LIMIT, check_program, in_order, predict, records, result_of
from .timing_interface import describe_core
from .timing_library import timing_library


@dataclass(frozen=True, kw_only=True)
class TimedProgram:
    """Instruction bytes of one core, their place in its window, the cycle in which the core is started, and where its
    window begins, which counts only where reads are shared."""

    code: npt.NDArray[np.uint8]
    offset: int = 0
    start: int = 0
    window_start: int = 0


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

    ``dram`` is the memory as each port sees it: ports do not slow each other down. A port that one core alone uses is
    that of :func:`~weft.sim.timing.predict`. What a core has to keep is as there; :class:`SimulationError` also for
    jitter or reordering behind an arbiter, which is not modelled. ``shared``: as for
    :meth:`~weft.sim.system_rtl.RtlSystem.run`. ``trace``: results have traces, and ports their ``bus``.
    ``every_cycle``: as in :func:`~weft.sim.timing.predict_details`.
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
    for port in range(config.port_count):
        members = config.cores_of(port)
        if len(members) == 1:
            if (alone := programs[members[0]]) is not None:
                core = config.cores[members[0]]
                results[members[0]] = predict(core, alone.code, memory, offset=alone.offset, trace=trace)
            continue
        predicted, bus[port] = _predict_port(config, members, programs, memory, shared, trace, every_cycle)
        for number, result, used in predicted:
            results[number], use[number] = result, used
    starts = tuple(0 if program is None else program.start for program in programs)
    return SystemResult(tuple(results), starts, tuple(use), tuple(bus))


def _predict_port(
    config: SystemConfig, members: tuple[int, ...], programs: Sequence[TimedProgram | None], dram: DramModel,
    shared: range, trace: bool, every_cycle: bool,
) -> tuple[list[tuple[int, RunResult, PortUse]], BusUse | None]:  # fmt: skip
    """The cores on one port, behind its arbiter; a core that does not run asks for nothing, but has its turns."""
    if dram.jitter or dram.reorder:
        raise SimulationError("the timing model of cores that share a port knows no jitter and no reordering",
                              hint="use a memory without them, or RtlSystem")  # fmt: skip
    ran = [(core, program) for core in members if (program := programs[core]) is not None]
    if not ran:
        return [], None
    library = timing_library()
    codes = []
    for core, program in ran:
        code = np.ascontiguousarray(program.code, np.uint8)
        check_program(config.cores[core], code, program.offset)
        codes.append(code)
    described = [describe_core(config.cores[core], dram) for core, _ in ran]
    together = timing_interface.SharedReads(config.shared_reads, shared.start, shared.stop)
    asked = (timing_interface.Program * len(ran))()
    for place, ((core, program), code) in enumerate(zip(ran, codes, strict=True)):
        asked[place].core = ctypes.addressof(described[place])
        asked[place].code = code.ctypes.data
        asked[place].count = len(code) // config.cores[core].instruction_bytes
        asked[place].offset = program.offset
        asked[place].start = program.start
        asked[place].window_start = program.window_start
    results = (timing_interface.Result * len(ran))()
    use = (timing_interface.PortUse * len(ran))()
    machine = ctypes.c_void_p()
    outcome = library.weft_timing_predict_shared(
        asked, ctypes.byref(together), len(ran), CYCLE_LIMIT, every_cycle, results, use,
        ctypes.byref(machine) if trace else None,
    )  # fmt: skip
    try:
        traces = [_trace(library, machine, place) for place in range(len(ran))] if machine else [None] * len(ran)
        bus = _bus(library, machine, [core for core, _ in ran]) if machine else None
    finally:
        library.weft_timing_shared_delete(machine)
    if outcome <= -2:
        core = ran[-2 - outcome][0]
        disassemble(config.cores[core], codes[-2 - outcome])  # raises, and says why
    if outcome < 0:
        raise SimulationError("a program does not end: its engines wait for each other",
                              hint="run each on the functional simulator, which names them")  # fmt: skip
    predicted = [
        (
            core,
            replace(result_of(config.cores[core], result), trace=recorded),
            PortUse(*(int(getattr(used, name)) for name, _ in used._fields_)),
        )
        for (core, _), result, used, recorded in zip(ran, results, use, traces, strict=True)
    ]
    return predicted, bus


def _trace(library: ctypes.CDLL, machine: ctypes.c_void_p, place: int) -> Trace:
    return in_order(
        records(library, machine, "shared_events", EVENT, place),
        records(library, machine, "shared_activity", ACTIVITY, place),
    )


def _bus(library: ctypes.CDLL, machine: ctypes.c_void_p, cores: list[int]) -> BusUse:
    """What the bus did, with a bit for each core of the system instead of its place on the port."""
    uses = records(library, machine, "shared_bus", BUS_USE)
    places = uses["cores"].copy()
    uses["cores"] = 0
    for place, core in enumerate(cores):
        uses["cores"] |= (places >> np.uint32(place) & np.uint32(1)) << np.uint32(core)
    return uses
