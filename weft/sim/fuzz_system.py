"""Random programs on several cores at once: the RTL against the functional simulator and the timing model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..hw.bus import PAGE_BYTES
from ..hw.config import TINY, CoreConfig
from ..hw.isa import Engine, Fault, Instruction
from ..hw.programs import Code, assemble, moved
from ..hw.system_config import MOST_CORES, SystemConfig
from .dram import BusErrors, DramModel
from .dram_kinds import DRAM_KINDS, BankedDram
from .fuzz import MEMORY_BYTES, Case, random_case, seeded
from .result import RunResult
from .system_fsim import FunctionalSystem
from .system_rtl import RtlSystem
from .system_run import NOTHING, CoreProgram, SystemResult
from .system_timing import predict_system
from .timing_ports import TimedProgram

SEEDS_APART = 1_000_003
"""Between the programs of two cores."""

LATEST_START = 60
"""Cycles by which starts differ at most, where they differ."""

NARROW = replace(TINY, name="narrow", acc_banks=1, queue_depth=2, token_depth=1, read_outstanding=1,
                 write_outstanding=1, burst_beats=8)  # fmt: skip
"""A small core that meets its own limits early."""

CLOCKS = (33, 100, 125, 200, 333)
"""Of cores beside a DRAM with banks, in MHz."""


@dataclass(frozen=True)
class SystemCase:
    """A legal program for each core, each in memory of its own; the cycles in which they start; the memory.

    With ``one_source``, all cores read their weights in one more such memory, the first, which nobody writes. Reads of
    weights in ``shared`` are shared.
    """

    cases: tuple[Case, ...]
    starts: tuple[int, ...]
    dram: DramModel
    data_seed: int
    one_source: bool = False
    shared: range = NOTHING

    @property
    def memory_bytes(self) -> int:
        """Bytes of all cores' memories together."""
        return memory_bytes(len(self.cases))

    def programs(self) -> list[tuple[Code, CoreProgram]]:
        """The instructions of each core, and where they lie."""
        placed = []
        for number, (part, start) in enumerate(zip(self.cases, self.starts, strict=True)):
            place = (number + 1) * MEMORY_BYTES + part.window_start
            instructions: Sequence[Instruction] = part.instructions
            window, size = place, part.window_bytes
            if self.one_source:
                granule = part.config.granule_bytes
                instructions = moved(instructions, part.window_start // granule, lambda _: True)
                own = (number + 1) * MEMORY_BYTES // granule
                instructions = moved(instructions, own, lambda each: each.engine is not Engine.LOADW)
                window, size = 0, self.memory_bytes
            program = CoreProgram(
                offset=place + part.program_offset - window, count=len(instructions), window_start=window,
                window_bytes=size, start=start,
            )  # fmt: skip
            placed.append((assemble(part.config, instructions), program))
        return placed


def memory_bytes(cores: int) -> int:
    """Bytes of the memory that a case for so many cores needs."""
    return (cores + 1) * MEMORY_BYTES


def random_system_case(config: SystemConfig, seed: int, *, most_instructions: int = 60) -> SystemCase:
    """The case of a seed; every third starts all cores in one cycle.

    Where reads are shared, three of four cases share some: unlike programs, and ones that read their weights in one
    place, all alike or every other one.
    """
    rng = np.random.default_rng(seed)
    kind = seed % 4 if config.shared_reads else 0
    number_of = {0: len(config.cores), 1: len(config.cores), 2: 1, 3: 2}[kind]
    cases = tuple(
        random_case(core, seeded(seed + number % number_of * SEEDS_APART), most_instructions=most_instructions)
        for number, core in enumerate(config.cores)
    )
    starts = rng.integers(0, LATEST_START, len(cases)) if seed % 3 else np.zeros(len(cases))
    dram = replace(cases[0].dram, jitter=0, reorder=False, errors=None)
    pages = int(rng.integers(1, MEMORY_BYTES // PAGE_BYTES + 1)) if kind > 1 else memory_bytes(len(cases)) // PAGE_BYTES
    shared = range(pages * PAGE_BYTES) if kind else NOTHING
    return SystemCase(cases, tuple(int(start) for start in starts), dram, seed, kind > 1, shared)


def banked(dram: DramModel, seed: int) -> DramModel:
    """The memory with banks of some kind, beside a core of some clock."""
    draw = seeded(seed)
    kind = list(DRAM_KINDS.values())[draw(0, len(DRAM_KINDS) - 1)]
    banks = BankedDram(kind, CLOCKS[draw(0, len(CLOCKS) - 1)])
    return replace(dram, jitter=0, reorder=False, banks=banks, latency=banks.lone_cycles + draw(0, 60))


def random_system(seed: int) -> SystemConfig:
    """A system of small cores: as many as the seed says, from one to the most and again, in any order on any ports."""
    rng, count = np.random.default_rng(seed), 1 + seed % MOST_CORES
    kinds: list[CoreConfig] = [TINY] * 2 if rng.random() < 0.3 else [TINY, NARROW]
    cores = tuple(kinds[int(rng.integers(2))] for _ in range(count))
    ports = int(rng.integers(1, count // 2 + 2))
    of = rng.permutation([*range(ports), *rng.integers(0, ports, count - ports)])
    shares = ports < count and bool(rng.integers(2))
    own = tuple(int(each) for each in of)
    weights = tuple(int(rng.integers(1, 6)) if own.count(port) > 1 else 1 for port in own) if rng.integers(2) else ()
    return SystemConfig(name=f"random-{seed}", cores=cores, ports=own, weights=weights, shared_reads=shares)


def fill(case: SystemCase, simulator: FunctionalSystem | RtlSystem) -> list[CoreProgram]:
    """Put data and programs into a simulator's memory; returns the programs to run."""
    rng = np.random.default_rng(case.data_seed)
    simulator.dram[...] = rng.integers(0, 256, len(simulator.dram), np.uint8)
    placed = case.programs()
    for code, program in placed:
        simulator.dram[program.window_start + program.offset :][: len(code)] = code
    return [program for _, program in placed]


def compare_system(case: SystemCase, functional: FunctionalSystem, rtl: RtlSystem) -> str:
    """The first difference in faults, bytes, cycles or counters; an empty text if there is none.

    Scratchpads keep their content on both sides, so cases have to be run on the same two simulators from the first on.
    """
    rtl.set_dram(case.dram)
    expected = functional.run(fill(case, functional))
    got = rtl.run(fill(case, rtl), shared=case.shared)
    for core, (first, second) in enumerate(zip(expected.cores, got.cores, strict=True)):
        assert first is not None
        assert second is not None
        if first.fault != second.fault:
            return f"core {core}: faults {first.fault} and {second.fault}"
    wrong = np.flatnonzero(functional.dram != rtl.dram)
    if len(wrong):
        byte = int(wrong[0])
        return f"byte {byte:#x} is {functional.dram[byte]} and {rtl.dram[byte]}; {len(wrong)} bytes differ"
    return _time_differs(predicted(case, rtl.config, got), got)


def compare_with_fault(case: SystemCase, core: int, functional: FunctionalSystem, rtl: RtlSystem) -> str:
    """The first difference where one core cannot read its program: it alone faults, and all end with their bytes.

    Simulators as for :func:`compare_system`: the core does nothing on either side.
    """
    code, own = case.programs()[core]
    first = own.window_start + own.offset
    rtl.set_dram(replace(case.dram, errors=BusErrors(first, first + len(code), writes=False)))
    functional.run([None if number == core else each for number, each in enumerate(fill(case, functional))])
    got = rtl.run(fill(case, rtl), shared=case.shared)
    causes = {number: each.fault.cause for number, each in got.faults.items() if each.fault is not None}
    if causes != {core: Fault.BUS_READ}:
        return f"core {core} cannot read its program, but the faults are {causes}"
    wrong = np.flatnonzero(functional.dram != rtl.dram)
    return f"byte {int(wrong[0]):#x} differs beside the fault of core {core}" if len(wrong) else ""


def compare_kind(config: SystemConfig, seed: int, functional: FunctionalSystem, rtl: RtlSystem) -> str:
    """The first difference of a seed's programs. Four seeds of eight have a DRAM with banks, every fifth a fault."""
    case = random_system_case(config, seed)
    if seed // 4 % 2:
        case = replace(case, dram=banked(case.dram, seed))
    if seed % 5 == 4 and len(config.cores) > 1:
        return compare_with_fault(case, seed % len(config.cores), functional, rtl)
    return compare_system(case, functional, rtl)


def predicted(case: SystemCase, config: SystemConfig, got: SystemResult) -> SystemResult:
    """What the timing model says, with the starts that the RTL had."""
    return predict_system(config, timed(case, got.starts), case.dram, shared=case.shared)


def timed(case: SystemCase, starts: tuple[int, ...]) -> list[TimedProgram]:
    """The programs as the timing model takes them."""
    return [
        TimedProgram(code=code, offset=program.offset, start=start, window_start=program.window_start)
        for (code, program), start in zip(case.programs(), starts, strict=True)
    ]


def _time_differs(model: SystemResult, got: SystemResult) -> str:
    if model.dram != got.dram:
        return f"the DRAM did {got.dram}, in the model {model.dram}"
    return runs_differ(model.cores, got.cores)


def runs_differ(model: Sequence[RunResult | None], got: Sequence[RunResult | None]) -> str:
    """How a run of each core differs from what the timing model says of it; "" if none does."""
    for core, (first, second) in enumerate(zip(got, model, strict=True)):
        assert first is not None
        assert second is not None
        for what in ("cycles", "counters", "bytes_read", "bytes_written"):
            if getattr(first, what) != getattr(second, what):
                return f"core {core}: {what} are {getattr(first, what)}, of the model {getattr(second, what)}"
    return ""
