"""Random programs on cores that start each other: the RTL against the functional simulator and the timing model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..hw.programs import Code
from ..hw.relay_plan import RelayPlan
from ..hw.system_config import SystemConfig
from .fuzz_system import SystemCase, banked, memory_bytes, random_system_case, runs_differ
from .relay_fsim import run_relay
from .relay_run import RelayResult
from .relay_timing import predict_relay
from .system_fsim import FunctionalSystem
from .system_rtl import RtlSystem
from .system_run import CoreProgram
from .timing_ports import TimedProgram

MOST_SLOTS = 3


@dataclass(frozen=True)
class RelayCase:
    """Programs of cores, each in memory of its own, how often each runs, and what it waits for."""

    case: SystemCase
    plan: RelayPlan
    runs: int


def relay_memory_bytes(cores: int) -> int:
    """Bytes of the memory that a case for so many cores needs."""
    return MOST_SLOTS * memory_bytes(cores)


def random_relay_case(config: SystemConfig, seed: int) -> RelayCase:
    """The case of a seed: every other one is a pipeline with windows; in one of any plan, each core has one window."""
    rng = np.random.default_rng(seed)
    case = replace(random_system_case(replace(config, shared_reads=False), seed), one_source=False)
    if seed // 2 % 2:
        case = replace(case, dram=banked(case.dram, seed))
    cores, slots = len(config.cores), int(rng.integers(1, MOST_SLOTS + 1))
    runs = int(rng.integers(1, 5))
    if seed % 2:
        return RelayCase(case, RelayPlan.pipeline(cores, slots, memory_bytes(cores)), runs)
    order = [int(core) for core in rng.permutation(cores)]
    after = {core: frozenset(other for other in order[:place] if rng.integers(2)) for place, core in enumerate(order)}
    room = tuple(frozenset(other for other in range(cores) if rng.integers(2)) for _ in range(cores))
    return RelayCase(case, RelayPlan(tuple(after[core] for core in range(cores)), room, slots), runs)


def fill(relay: RelayCase, simulator: FunctionalSystem | RtlSystem) -> list[tuple[Code, CoreProgram]]:
    """Put data into a simulator's memory, and the programs into each window; returns these."""
    rng = np.random.default_rng(relay.case.data_seed)
    simulator.dram[...] = rng.integers(0, 256, len(simulator.dram), np.uint8)
    placed = relay.case.programs()
    for slot in range(relay.plan.slots if relay.plan.pitch else 1):
        for code, program in placed:
            simulator.dram[slot * relay.plan.pitch + program.window_start + program.offset :][: len(code)] = code
    return placed


def compare_relay(relay: RelayCase, functional: FunctionalSystem, rtl: RtlSystem) -> str:
    """The first difference in bytes, in the cycles of any run, or in what a last run counted; an empty text if there is
    none. Simulators as for :func:`~weft.sim.fuzz_system.compare_system`."""
    rtl.set_dram(relay.case.dram)
    programs = [program for _, program in fill(relay, functional)]
    expected = run_relay(functional, relay.plan, programs, relay.runs)
    placed = fill(relay, rtl)
    got = rtl.relay(relay.plan, programs, relay.runs)
    if got.faults or got.ended != expected.ended:
        return f"{got.ended} runs ended with faults {got.faults}, and {expected.ended}"
    wrong = np.flatnonzero(functional.dram != rtl.dram)
    if len(wrong):
        byte = int(wrong[0])
        return f"byte {byte:#x} is {functional.dram[byte]} and {rtl.dram[byte]}; {len(wrong)} bytes differ"
    timed = [
        TimedProgram(code=code, offset=program.offset, window_start=program.window_start) for code, program in placed
    ]
    return _time_differs(predict_relay(rtl.config, relay.plan, timed, relay.runs, relay.case.dram), got)


def _time_differs(model: RelayResult, got: RelayResult) -> str:
    for what in ("spans", "cycles", "dram"):
        if getattr(model, what) != getattr(got, what):
            return f"{what} are {getattr(got, what)}, of the model {getattr(model, what)}"
    return runs_differ(model.last, got.last)
