"""Random programs on several cores at once: the RTL against the functional simulator and the timing model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..hw.programs import assemble
from ..hw.system_config import SystemConfig
from .dram import DramModel
from .fuzz import MEMORY_BYTES, Case, random_case, seeded
from .system_fsim import FunctionalSystem
from .system_rtl import RtlSystem
from .system_run import CoreProgram, SystemResult
from .system_timing import TimedProgram, predict_system

SEEDS_APART = 1_000_003
"""Between the programs of two cores."""

LATEST_START = 60
"""Cycles by which starts differ at most, where they differ."""


@dataclass(frozen=True)
class SystemCase:
    """A legal program for each core, each in memory of its own; the cycles in which they start; the memory."""

    cases: tuple[Case, ...]
    starts: tuple[int, ...]
    dram: DramModel
    data_seed: int

    @property
    def memory_bytes(self) -> int:
        """Bytes of all cores' memories together."""
        return len(self.cases) * MEMORY_BYTES


def random_system_case(config: SystemConfig, seed: int, *, most_instructions: int = 60) -> SystemCase:
    """The case of a seed; every third starts all cores in one cycle."""
    rng = np.random.default_rng(seed)
    cases = tuple(
        random_case(core, seeded(seed + number * SEEDS_APART), most_instructions=most_instructions)
        for number, core in enumerate(config.cores)
    )
    starts = rng.integers(0, LATEST_START, len(cases)) if seed % 3 else np.zeros(len(cases))
    dram = replace(cases[0].dram, jitter=0, reorder=False, errors=None)
    return SystemCase(cases, tuple(int(start) for start in starts), dram, seed)


def fill(case: SystemCase, simulator: FunctionalSystem | RtlSystem) -> list[CoreProgram]:
    """Put data and programs into a simulator's memory; returns the programs to run."""
    rng = np.random.default_rng(case.data_seed)
    simulator.dram[...] = rng.integers(0, 256, len(simulator.dram), np.uint8)
    programs = []
    for number, (part, start) in enumerate(zip(case.cases, case.starts, strict=True)):
        code = assemble(part.config, part.instructions)
        window = number * MEMORY_BYTES + part.window_start
        simulator.dram[window + part.program_offset :][: len(code)] = code
        programs.append(
            CoreProgram(
                offset=part.program_offset,
                count=len(part.instructions),
                window_start=window,
                window_bytes=part.window_bytes,
                start=start,
            )
        )
    return programs


def compare_system(case: SystemCase, functional: FunctionalSystem, rtl: RtlSystem) -> str:
    """The first difference in faults, bytes, cycles or counters; an empty text if there is none.

    Scratchpads keep their content on both sides, so cases have to be run on the same two simulators from the first on.
    """
    rtl.set_dram(case.dram)
    expected = functional.run(fill(case, functional))
    got = rtl.run(fill(case, rtl))
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


def predicted(case: SystemCase, config: SystemConfig, got: SystemResult) -> SystemResult:
    """What the timing model says, with the starts that the RTL had."""
    programs = [
        TimedProgram(code=assemble(part.config, part.instructions), offset=part.program_offset, start=start)
        for part, start in zip(case.cases, got.starts, strict=True)
    ]
    return predict_system(config, programs, case.dram)


def _time_differs(model: SystemResult, got: SystemResult) -> str:
    for core, (first, second) in enumerate(zip(got.cores, model.cores, strict=True)):
        assert first is not None
        assert second is not None
        for what in ("cycles", "counters", "bytes_read", "bytes_written"):
            if getattr(first, what) != getattr(second, what):
                return f"core {core}: {what} are {getattr(first, what)}, of the model {getattr(second, what)}"
    return ""
