"""Waveforms of the RTL: their formats, which cycles are wanted, and what explains the numbers in them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..files import write_atomically
from ..hw.assembly import format_instruction
from ..hw.config import CoreConfig
from ..hw.cycle_class import CycleClass
from ..hw.decode import decode
from ..hw.errors import InstructionError
from ..hw.isa import ENGINE_NAMES, Engine
from ..hw.programs import program_words
from ..hw.verilog import SYSTEM_TOP, TOP
from .errors import BuildError, SimulationError
from .saif import write_saif


class Waves(StrEnum):
    """What a model shows of its signals: nothing, a waveform of a format, or what registers hold (:mod:`.states`)."""

    NONE = "none"
    VCD = "vcd"
    FST = "fst"
    STATES = "states"

    @property
    def in_file(self) -> bool:
        return self in (Waves.VCD, Waves.FST)

    @property
    def verilator_flags(self) -> tuple[str, ...]:
        return (f"--trace-{self}",) if self.in_file else ()

    @property
    def defines(self) -> tuple[str, ...]:
        trace = (f"-DVM_TRACE={int(self.in_file)}", f"-DVM_TRACE_FST={int(self is Waves.FST)}", "-DVM_COVERAGE=0")
        return (*trace, *(("-DWEFT_STATES=1",) if self is Waves.STATES else ()))

    @property
    def sources(self) -> tuple[str, ...]:
        return (f"verilated_{self}_c.cpp",) if self.in_file else ()

    @property
    def libraries(self) -> tuple[str, ...]:
        return ("-llz4", "-lz") if self is Waves.FST else ()


def wave_format() -> Waves:
    """FST where its two libraries can be compiled against, else VCD: many times larger, but needs nothing."""
    includes = "#include <lz4.h>\n#include <zlib.h>\n"
    compiler = os.environ.get("CXX", "g++")
    try:
        command = [compiler, "-E", "-x", "c++", "-"]
        result = subprocess.run(command, input=includes, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return Waves.VCD  # the build says what is missing
    return Waves.FST if result.returncode == 0 else Waves.VCD


ACTIVITY_SUFFIX = ".saif"

CYCLE_NS = 10
"""A cycle in a waveform: cycle c begins with the rising edge at this many times c."""


@dataclass(frozen=True)
class WaveRequest:
    """A waveform of the cycles ``first .. stop - 1`` (to the end for None), counted over all programs in their order.

    ``path`` ends in ``.vcd`` or ``.fst``, or in ``.saif`` for how often each bit changed in these cycles, which is
    counted in a waveform beside it, ``file``, that then goes. :class:`SimulationError` for
    another, or cycles that do not exist; :class:`BuildError` for FST on a machine without its libraries.
    """

    path: Path
    first: int = 0
    stop: int | None = None

    def __post_init__(self) -> None:
        if self.path.suffix not in (".vcd", ".fst", ACTIVITY_SUFFIX):
            raise SimulationError(f"waveform {str(self.path)!r} is neither .vcd nor .fst, nor activity, .saif")
        if self.first < 0 or (self.stop is not None and self.stop <= self.first):
            raise SimulationError(f"no cycle is in {self.first}..{self.stop}")
        if self.format is Waves.FST and wave_format() is not Waves.FST:
            hint = "apt-get install liblz4-dev zlib1g-dev, or name a .vcd file"
            raise BuildError("FST files need lz4 and zlib, which cannot be compiled against here", hint=hint)

    @property
    def format(self) -> Waves:
        return Waves(self.file.suffix[1:])

    @property
    def file(self) -> Path:
        """What the model writes."""
        return self.path.with_name(f"{self.path.name}.vcd") if self.counts else self.path

    @property
    def counts(self) -> bool:
        """Is activity wanted, and no waveform?"""
        return self.path.suffix == ACTIVITY_SUFFIX

    def finish(self) -> None:
        """Make the activity of the waveform, which has been written, if that is wanted."""
        if self.counts:
            write_saif(self.file, self.path)
            self.file.unlink()


@dataclass(frozen=True)
class CoreInWaves:
    """A core in a waveform. ``scope``: what the names of its signals begin with; ``programs``: the bytes of each that
    ran; ``ending``: of the list of its instructions."""

    config: CoreConfig
    programs: Sequence[npt.NDArray[np.uint8]]
    scope: str = f"top.{TOP}"
    ending: str = ".instructions.txt"


def core_of_system(number: int, config: CoreConfig, programs: Sequence[npt.NDArray[np.uint8]]) -> CoreInWaves:
    """A core of a system, as its waveform has it."""
    scope = f"top.{SYSTEM_TOP}.core_{number}.module"
    return CoreInWaves(config, programs, scope, f".instructions-{number}.txt")


def explain(request: WaveRequest, cores: Sequence[CoreInWaves]) -> Path:
    """Write what GTKWave needs to show names for numbers, beside the waveform: ``FILE.gtkw`` and lists.

    What number ``n`` of an instruction means differs from program to program; then all meanings stand beside each
    other.
    """
    classes, view = (request.path.with_suffix(ending) for ending in (".classes.txt", ".gtkw"))
    lines = [f"{kind.value:X} {name}" for name, kind in CycleClass.__members__.items()]
    write_atomically(classes, ("\n".join(lines) + "\n").encode())
    shown = [f'[dumpfile] "{request.path.resolve()}"', "@28", f"{cores[0].scope}.clk"]
    for number, core in enumerate(cores, 2):
        instructions = request.path.with_suffix(core.ending)
        write_atomically(instructions, ("\n".join(_instructions(core)) + "\n").encode())
        for engine in Engine:
            name = f"{core.scope}.trace_{ENGINE_NAMES[engine]}"
            shown += ["@2022", f"^1 {classes.resolve()}", f"{name}_activity[3:0]"]
            shown += ["@2022", f"^{number} {instructions.resolve()}", f"{name}_started_number[23:0]"]
            shown += ["@28", f"{name}_started_valid", f"{name}_retired_valid"]
    write_atomically(view, ("\n".join(shown) + "\n").encode())
    return view


def _instructions(core: CoreInWaves) -> list[str]:
    """A line for each number of an instruction."""
    texts = [[_as_text(core.config, word) for word in program_words(core.config, program)] for program in core.programs]
    lines = []
    for number in range(max(map(len, texts), default=0)):
        meant = dict.fromkeys(program[number] for program in texts if number < len(program))
        lines.append(f"{number:06X} {number}: {' | '.join(meant)}")
    return lines


def _as_text(config: CoreConfig, word: int) -> str:
    try:
        return format_instruction(decode(config, word))
    except InstructionError:
        return f"{word:#x}"
