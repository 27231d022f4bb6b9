"""Random programs on cores that start each other: the RTL against the functional simulator and the timing model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from ..hw.programs import Code, assemble, moved
from ..hw.relay_plan import RelayPlan
from ..hw.system_config import SystemConfig
from .dram import DramModel
from .fuzz import MEMORY_BYTES
from .fuzz_system import SystemCase, banked, random_system_case, runs_differ
from .relay_fsim import run_relay
from .relay_run import RelayResult
from .relay_timing import predict_relay
from .system_fsim import FunctionalSystem
from .system_rtl import RtlSystem
from .system_run import CoreProgram
from .timing_ports import TimedProgram

MOST_SLOTS = 3
MOST_TURNS = 3

TURNS_APART = 7_368_787
"""Between the seeds of two turns."""


@dataclass(frozen=True)
class RelayCase:
    """Programs of cores, each in memory of its own, for each turn; how often each core runs, and what it waits for."""

    turns: tuple[SystemCase, ...]
    dram: DramModel
    plan: RelayPlan
    runs: int

    def programs(self) -> list[list[tuple[Code, CoreProgram]]]:
        """Of each core and turn, the instructions and where they lie: one window a core, with a part for each turn."""
        size = len(self.turns) * MEMORY_BYTES
        placed: list[list[tuple[Code, CoreProgram]]] = [[] for _ in self.turns[0].cases]
        for turn, case in enumerate(self.turns):
            for core, part in enumerate(case.cases):
                start = turn * MEMORY_BYTES + part.window_start
                instructions = moved(part.instructions, start // part.config.granule_bytes, lambda _: True)
                program = CoreProgram(offset=start + part.program_offset, count=len(instructions),
                                      window_start=core * size, window_bytes=size)  # fmt: skip
                placed[core].append((assemble(part.config, instructions), program))
        return placed


def relay_memory_bytes(cores: int) -> int:
    """Bytes of the memory that a case for so many cores needs."""
    return MOST_SLOTS * MOST_TURNS * cores * MEMORY_BYTES


def random_relay_case(config: SystemConfig, seed: int) -> RelayCase:
    """The case of a seed: every other one is a pipeline with windows; in one of any plan, each core has one window. Two
    of three have several turns, of those of no pipeline every other one with a barrier."""
    rng = np.random.default_rng(seed)
    count = 1 + seed % MOST_TURNS
    system = replace(config, shared_reads=False)
    turns = tuple(random_system_case(system, seed + turn * TURNS_APART) for turn in range(count))
    dram = banked(turns[0].dram, seed) if seed // 2 % 2 else turns[0].dram
    cores, slots = len(config.cores), int(rng.integers(1, MOST_SLOTS + 1))
    runs = int(rng.integers(1, 5))
    if seed % 2:
        return RelayCase(turns, dram, RelayPlan.pipeline(cores, slots, cores * count * MEMORY_BYTES), runs)
    if count > 1 and seed // 2 % 2:
        return RelayCase(turns, dram, RelayPlan.barrier(cores), runs)
    order = [int(core) for core in rng.permutation(cores)]
    after = {core: frozenset(other for other in order[:place] if rng.integers(2)) for place, core in enumerate(order)}
    room = tuple(frozenset(other for other in range(cores) if rng.integers(2)) for _ in range(cores))
    return RelayCase(turns, dram, RelayPlan(tuple(after[core] for core in range(cores)), room, slots), runs)


def fill(relay: RelayCase, simulator: FunctionalSystem | RtlSystem) -> list[list[CoreProgram]]:
    """Put data into a simulator's memory, and the programs into each window; returns these."""
    rng = np.random.default_rng(relay.turns[0].data_seed)
    simulator.dram[...] = rng.integers(0, 256, len(simulator.dram), np.uint8)
    placed = relay.programs()
    for slot in range(relay.plan.slots if relay.plan.pitch else 1):
        for code, program in chain.from_iterable(placed):
            simulator.dram[slot * relay.plan.pitch + program.window_start + program.offset :][: len(code)] = code
    return [[program for _, program in own] for own in placed]


def compare_relay(relay: RelayCase, functional: FunctionalSystem, rtl: RtlSystem) -> str:
    """The first difference in bytes, in the cycles of any run, or in what a last run counted; an empty text if there is
    none. Simulators as for :func:`~weft.sim.fuzz_system.compare_system`."""
    rtl.set_dram(relay.dram)
    expected = run_relay(functional, relay.plan, fill(relay, functional), relay.runs)
    got = rtl.relay(relay.plan, fill(relay, rtl), relay.runs)
    if got.faults or got.ended != expected.ended:
        return f"{got.ended} runs ended with faults {got.faults}, and {expected.ended}"
    wrong = np.flatnonzero(functional.dram != rtl.dram)
    if len(wrong):
        byte = int(wrong[0])
        return f"byte {byte:#x} is {functional.dram[byte]} and {rtl.dram[byte]}; {len(wrong)} bytes differ"
    timed = [
        [TimedProgram(code=code, offset=program.offset, window_start=program.window_start) for code, program in own]
        for own in relay.programs()
    ]
    return _time_differs(predict_relay(rtl.config, relay.plan, timed, relay.runs, relay.dram), got)


def _time_differs(model: RelayResult, got: RelayResult) -> str:
    for what in ("spans", "cycles", "dram"):
        if getattr(model, what) != getattr(got, what):
            return f"{what} are {getattr(got, what)}, of the model {getattr(model, what)}"
    return runs_differ(model.last, got.last)
