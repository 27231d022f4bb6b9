"""Random programs as hypothesis strategies, and helpers to run hand-written ones."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from weft.hw.assembly import parse_instruction
from weft.hw.config import CoreConfig
from weft.hw.isa import Instruction
from weft.hw.programs import assemble
from weft.sim.fsim import FunctionalSimulator
from weft.sim.fuzz import Case, random_case
from weft.sim.result import RunResult
from weft.sim.rtl import RtlSimulator

Simulator = FunctionalSimulator | RtlSimulator


@st.composite
def cases(draw: st.DrawFn, config: CoreConfig, most_instructions: int = 25) -> Case:
    """A race-free program with data and DRAM timing; shrinks towards few instructions and small numbers."""

    def choose(low: int, high: int) -> int:
        return draw(st.integers(low, high))

    return random_case(config, choose, most_instructions=most_instructions)


def parse(text: str) -> list[Instruction]:
    """Instructions from assembly text, one a line."""
    return [parse_instruction(line) for line in text.strip().splitlines()]


def run_text(simulator: Simulator, text: str, **options: int) -> RunResult:
    """Assemble a program, put it at the start of the memory and run it."""
    return run(simulator, parse(text), **options)


def run(simulator: Simulator, program: Sequence[Instruction], **options: int) -> RunResult:
    code = assemble(simulator.config, program)
    simulator.dram[: len(code)] = code
    return simulator.run(0, len(program), **options)
