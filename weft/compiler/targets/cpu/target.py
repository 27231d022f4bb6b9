"""Processors of computers and boards as a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from ....imports import IMPORTS
from ...model import CompiledModel, HostCode, HostProgram
from ..errors import CompileError
from ..target import INTEGERS, PLAIN_JOB, Job, option, scope_of
from .processor import PROCESSORS, check_named, named_target

if TYPE_CHECKING:  # loading a model takes no compiler
    from ...graph.ir import Module
    from ...passes.manager import Pass

MOST_THREADS = 256

MOVED_BYTES = 128 << 10
"""Of a tensor between two programs of another target, up to which moving it is no kernel of its own."""


ACTIVATIONS = ("exact", "int8")


@dataclass(frozen=True)
class CpuOptions:
    """What only a CPU's compilation asks for."""

    threads: int = option(1, "Threads that share the work of each kernel.")
    tuned: str = option("", "Database of `weft tune`, whose schedules come first. Empty: none.")
    processor: str = option("host", f"The processor: host (this machine's), {', '.join(PROCESSORS)}.")
    integers: str = INTEGERS
    activations: str = option(
        "exact", "What meets weights of 4 bits: exact, or int8: rounded to 8 bits, a scale for each block, and faster."
    )

    def __post_init__(self) -> None:
        if self.activations not in ACTIVATIONS:
            raise CompileError(f"unknown: {self.activations!r}", at="option 'activations'",
                               hint=f"known: {', '.join(ACTIVATIONS)}")  # fmt: skip
        check_threads(self.threads)
        check_named(self.processor)
        scope_of(self.integers)


def check_threads(threads: int) -> None:
    """CompileError for more, or fewer, than a program can have."""
    if not 1 <= threads <= MOST_THREADS:
        raise CompileError(f"threads is {threads}, but must be 1..{MOST_THREADS}")


class Cpu:
    """A processor, by machine code of LLVM (``docs/cpu.md``)."""

    name = "cpu"
    summary = "this machine's processor, or that of a board"
    options = CpuOptions
    require_quantised = False
    takes_open_sizes = True
    tools: ClassVar[Mapping[str, str]] = {
        "tune": "weft.cli.tune_cpu:tune",
        "profile": "weft.cli.profile_cpu:profile_on_cpu",
    }

    def passes(self, options: CpuOptions, *, quantised: bool, job: Job = PLAIN_JOB) -> Sequence[Pass]:
        with IMPORTS:
            from ..loops.prepare import host_passes

        processor = named_target(options.processor)
        rounded = processor.float_lanes if options.activations == "int8" else 0
        scope = scope_of(options.integers)
        return host_passes(quantised=quantised, scope=scope, dot_products=processor.dot_product, volumes=True,
                           weight_only=True, rounded=rounded)  # fmt: skip

    def link(self, module: Module, options: CpuOptions, job: Job) -> CompiledModel:
        with IMPORTS:
            from ..loops.model import link_model
            from .kernels import loop_target
            from .tuned import tuned_schedules

        processor = named_target(options.processor)
        target = loop_target(processor)
        if not options.tuned:
            return link_model(module, self.name, target, options.threads, job)
        revise = tuned_schedules(options.tuned, processor, options.threads)
        model = link_model(module, self.name, replace(target, revise=revise), options.threads, job)
        tuned = sum(bool(layer.schedule) for layer in model.layers)
        return replace(model, statistics={**model.statistics, "tuned_kernels": tuned})

    def link_functions(self, module: Module, options: CpuOptions, job: Job) -> HostProgram:
        """The program of a module whose functions another target leaves to the host, in as few kernels as it can."""
        with IMPORTS:
            from ..loops.model import link_program
            from .kernels import loop_target

        target = loop_target(named_target(options.processor))
        limits = replace(target.fusion, moved_bytes=MOVED_BYTES)
        return link_program(module, replace(target, fusion=limits), options.threads, job)

    def host_code(self, program: HostProgram, *, trusted: bool, processor: str = "host") -> HostCode:
        with IMPORTS:
            from .build import build_program, check_host_program

        if not trusted:
            check_host_program(program)
        return build_program(program, named_target(processor))
