"""Programs of cores that share a port, or one DRAM behind all ports, in the timing model; what it leaves as records."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..hw.config import PROGRAM_ALIGNMENT, CoreConfig
from ..hw.cycle_class import CycleClass
from ..hw.isa import Engine, Opcode
from ..hw.pipelines import HANDOVER_CYCLES
from ..hw.programs import disassemble
from ..hw.relay_plan import RelayPlan, mask_of
from ..hw.system_config import SystemConfig
from . import timing_interface
from .dram import DramModel
from .dram_interface import COMMAND, DramUse, Use, describe_banks
from .errors import SimulationError
from .relay_run import RelayResult
from .result import ACTIVITY, BUS_USE, EVENT, RunResult, Trace
from .system_run import BusUse, PortUse
from .timing_interface import describe_core
from .timing_library import timing_library
from .work import check_work

CYCLE_LIMIT = 10_000_000_000


@dataclass(frozen=True, kw_only=True)
class TimedProgram:
    """Instruction bytes of one core, their place in its window, the cycle in which the core is started, and where its
    window begins, which counts only where reads are shared or the DRAM has banks."""

    code: npt.NDArray[np.uint8]
    offset: int = 0
    start: int = 0
    window_start: int = 0


@dataclass(frozen=True)
class Together:
    """What cores did that were predicted together: results and use of its port by core, bus by port, and the DRAM."""

    results: dict[int, RunResult]
    use: dict[int, PortUse]
    bus: dict[int, BusUse]
    dram: DramUse | None
    evaluated: int
    spans: tuple[tuple[range, ...], ...] = ()
    traces: tuple[tuple[Trace, ...], ...] = ()
    """With a relay: of each core, those of its runs."""


def predict_together(
    config: SystemConfig, ports: Sequence[int], programs: Sequence[TimedProgram | None], dram: DramModel, *,
    shared: range = range(0), trace: bool = False, every_cycle: bool = False, relay: RelayPlan | None = None,
    runs: int = 1, later: Sequence[Sequence[TimedProgram]] = (),
) -> Together:  # fmt: skip
    """The cores on these ports, of which there is one, or which have one DRAM with banks behind them.

    A core that does not run asks for nothing. With ``relay``, for all cores of a system, each has so many ``runs``,
    in turn of its program and of those of the ``later`` turns. Errors as of
    :func:`~weft.sim.system_timing.predict_system`.
    """
    ran = [
        (core, program) for core, program in enumerate(programs) if program is not None and config.ports[core] in ports
    ]
    if not ran:
        return Together({}, {}, {}, None, 0)
    arbiters = [port for port in ports if len(config.cores_of(port)) > 1]
    if arbiters and (dram.jitter or dram.reorder):
        raise SimulationError("the timing model of cores that share a port knows no jitter and no reordering",
                              hint="use a memory without them, or RtlSystem")  # fmt: skip
    library = timing_library()
    codes, programs_of_turns = [], ran + [each for turn in later for each in enumerate(turn)]
    for core, program in programs_of_turns:
        code = np.ascontiguousarray(program.code, np.uint8)
        check_program(config.cores[core], code, program.offset)
        codes.append(code)
    described = [describe_core(config.cores[core], dram) for core, _ in ran]
    together = timing_interface.SharedReads(config.shared_reads, shared.start, shared.stop)
    asked = (timing_interface.Program * len(codes))()
    for place, ((core, program), code) in enumerate(zip(programs_of_turns, codes, strict=True)):
        asked[place].core = ctypes.addressof(described[place % len(ran)])
        asked[place].code = code.ctypes.data
        asked[place].count = len(code) // config.cores[core].instruction_bytes
        asked[place].offset = program.offset
        asked[place].start = program.start
        asked[place].window_start = program.window_start
        asked[place].port = config.ports[core]
        asked[place].arbiter = config.ports[core] in arbiters
        asked[place].weight = config.weight_of(core)
    results = (timing_interface.Result * len(ran))()
    use = (timing_interface.PortUse * len(ran))()
    banks, dram_use = describe_banks(dram), Use()
    machine = ctypes.c_void_p()
    spans = (timing_interface.Span * (len(ran) * runs))()
    outcome = library.weft_timing_predict_shared(
        asked, ctypes.byref(together), None if banks is None else ctypes.byref(banks), len(ran), CYCLE_LIMIT,
        every_cycle, results, use, ctypes.byref(dram_use), ctypes.byref(machine) if trace else None,
        None if relay is None else ctypes.byref(_described(relay, runs, 1 + len(later))), spans,
    )  # fmt: skip
    commands, busy = None, {}
    traces: tuple[tuple[Trace, ...], ...] = ()
    try:
        if machine:
            traces = tuple(
                tuple(_trace(library, machine, place, run) for run in range(runs)) for place in range(len(ran))
            )
            busy = {
                port: _bus(library, machine, port, [core for core, _ in ran if config.ports[core] == port])
                for port in arbiters
                if any(config.ports[core] == port for core, _ in ran)
            }
            commands = None if banks is None else records(library, machine, "timing_shared_commands", COMMAND)
    finally:
        library.weft_timing_shared_delete(machine)
    if outcome <= -2:
        core = programs_of_turns[-2 - outcome][0]
        disassemble(config.cores[core], codes[-2 - outcome])  # raises, and says why
    if outcome < 0:
        raise SimulationError("a program does not end: its engines wait for each other",
                              hint="run each on the functional simulator, which names them")  # fmt: skip
    return Together(
        {
            core: replace(result_of(config.cores[core], result), trace=traces[place][-1] if traces else None)
            for place, ((core, _), result) in enumerate(zip(ran, results, strict=True))
        },
        {
            core: PortUse(*(int(getattr(used, name)) for name, _ in used._fields_))
            for (core, _), used in zip(ran, use, strict=True)
            if config.ports[core] in arbiters
        },
        busy,
        None if banks is None else replace(DramUse.of(dram_use), commands=commands),
        outcome,
        ()
        if relay is None
        else tuple(
            tuple(range(span.start, span.start + span.cycles) for span in spans[place * runs :][:runs])
            for place in range(len(ran))
        ),
        traces,
    )


def predict_relayed(
    config: SystemConfig, plan: RelayPlan, programs: Sequence[Sequence[TimedProgram]], runs: int, dram: DramModel, *,
    shared: range = range(0), trace: bool = False, every_cycle: bool = False,
) -> RelayResult:  # fmt: skip
    """Cores that start each other, stepped together; as for :func:`~weft.sim.relay_timing.predict_relay`."""
    ports = range(config.port_count)
    first, *later = zip(*programs, strict=True)
    done = predict_together(
        config, ports, first, dram, shared=shared, trace=trace, every_cycle=every_cycle, relay=plan, runs=runs,
        later=later,
    )  # fmt: skip
    last = tuple(done.results[core] for core in range(len(programs)))
    cycles = max(each[-1].stop for each in done.spans)
    bus = tuple(done.bus.get(port) for port in ports) if trace else ()
    return RelayResult((runs,) * len(programs), last, done.spans, cycles, done.dram, done.traces, bus)


def _described(plan: RelayPlan, runs: int, turns: int) -> Any:
    relay = timing_interface.Relay(runs, HANDOVER_CYCLES, plan.slots, turns, plan.pitch)
    for core, (after, room) in enumerate(zip(plan.after, plan.room, strict=True)):
        relay.after[core], relay.room[core] = mask_of(after), mask_of(room)
    return relay


def _trace(library: ctypes.CDLL, machine: ctypes.c_void_p, place: int, run: int) -> Trace:
    return in_order(
        records(library, machine, "timing_shared_events", EVENT, place, run),
        records(library, machine, "timing_shared_activity", ACTIVITY, place, run),
    )


def _bus(library: ctypes.CDLL, machine: ctypes.c_void_p, port: int, cores: list[int]) -> BusUse:
    """What the bus did, with a bit for each core of the system instead of its place on the port."""
    uses = records(library, machine, "timing_shared_bus", BUS_USE, port)
    places = uses["cores"].copy()
    uses["cores"] = 0
    for place, core in enumerate(cores):
        uses["cores"] |= (places >> np.uint32(place) & np.uint32(1)) << np.uint32(core)
    return uses


def result_of(config: CoreConfig, result: Any) -> RunResult:
    """The struct that the model fills in, as a run reports it."""
    counters = {
        which: {kind: total for kind in CycleClass.__members__.values() if (total := int(row[kind.value]))}
        for which, row in zip(Engine, result.counters, strict=True)
    }
    return RunResult(
        cycles=int(result.cycles),
        fault=None,
        bytes_read=int(result.read_beats) * config.bus_bytes,
        bytes_written=int(result.write_beats) * config.bus_bytes,
        counters=counters,
    )


def check_program(config: CoreConfig, code: npt.NDArray[np.uint8], offset: int) -> None:
    """Only what would make the model read or count nonsense: :class:`SimulationError`."""
    if offset % PROGRAM_ALIGNMENT:
        raise SimulationError(f"program offset {offset:#x} is not a multiple of {PROGRAM_ALIGNMENT}")
    size = config.instruction_bytes
    if len(code) % size:
        disassemble(config, code)  # raises, and says why
    words = code.reshape(-1, size)
    opcodes, engines = words[:, 0] & 7, words[:, 0] >> 3 & 7
    if np.any(opcodes == 0) or np.any(engines >= len(Engine)):
        disassemble(config, code)
    if not np.any(opcodes == Opcode.FINISH):
        raise SimulationError("the program has no FINISH")
    check_work(config, code)


def in_order(events: npt.NDArray[np.void], activity: npt.NDArray[np.void]) -> Trace:
    """Records as the model leaves them, in the order in which the RTL's are: events as they retire, activity by
    engine."""
    return Trace(
        events[np.lexsort((events["engine"], events["retire"]))],
        activity[np.lexsort((activity["start"], activity["engine"]))],
    )


def records(
    library: ctypes.CDLL, machine: Any, name: str, dtype: np.dtype[np.void], *which: int
) -> npt.NDArray[np.void]:
    """A copy of what the library's function ``name`` shows of a machine; ``which``: of which of its cores."""
    first = ctypes.c_void_p()
    count = getattr(library, f"weft_{name}")(machine, *which, ctypes.byref(first))
    if not count:
        return np.zeros(0, dtype)
    raw = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(first.value or 0)
    return np.frombuffer(raw, dtype).copy()
