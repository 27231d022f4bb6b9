"""From a kernel to instructions: the cheapest tiling that finds room, its schedule, its stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from ....hw.config import CoreConfig
from ....hw.errors import ConfigError
from ...tensor.errors import TensorError
from ...tensor.ir import PrimFunc
from ...tensor.schedule import Schedule
from ..compute_rules import Kernel
from ..errors import CompileError, ScratchpadFullError
from .emit import DramBuffer, Emitter
from .schedule import schedule_kernel
from .tiling import Problem, Tiling, fill, tilings

ATTEMPTS = ((1.0, 6), (0.75, 6), (0.5, 6))
"""Largest share of a scratchpad that a tiling may use, and how many such tilings are tried: the less it uses, the
surer it finds its space in one piece."""

Dump = Callable[[str, str], None]
"""Takes the name of a stage of compilation and its text."""


@dataclass(frozen=True)
class Generated:
    """How a kernel was compiled."""

    tiling: Tiling
    schedule: Schedule

    @property
    def function(self) -> PrimFunc:
        return self.schedule.func


def generate(
    emitter: Emitter, kernel: Kernel, dram: Mapping[str, DramBuffer], *, threads: int, layer: int = 0,
    dump: Dump | None = None,
) -> Generated:  # fmt: skip
    """Append the kernel's instructions to the emitter's stream.

    Raises CompileError, naming the function, if no tiling fits the scratchpads.
    """
    problem = Problem(emitter.config, kernel, threads)
    refusal: ScratchpadFullError | None = None
    for tiling in _attempts(problem):
        try:
            schedule = schedule_kernel(kernel, emitter.config, tiling)
            emitter.emit(schedule.func, dram, layer)
        except ScratchpadFullError as error:
            refusal = error
            continue
        except TensorError as error:
            raise CompileError(f"its default schedule fails: {error}", at=f"function {kernel.name!r}") from error
        if dump is not None:
            dump(f"{kernel.name}.loops", str(schedule))
        return Generated(tiling, schedule)
    if threads > 1:  # a single thread has the scratchpads for itself
        return generate(emitter, kernel, dram, threads=1, layer=layer, dump=dump)
    if refusal is not None:
        raise refusal
    raise CompileError(
        f"not even the smallest tile of output {kernel.output.shape} fits the scratchpads of {emitter.config.name!r}",
        at=f"function {kernel.name!r}",
        hint="use a configuration with deeper scratchpads",
    )


def generate_in_turn(
    emitter: Emitter, parts: Sequence[tuple[Kernel, Mapping[str, DramBuffer]]], *, layer: int = 0,
    dump: Dump | None = None,
) -> list[Generated] | None:  # fmt: skip
    """Append kernels that take turns in the stream, one tile each; None if no tilings of theirs fit side by side.

    Each has its share of ``acc`` and ``out`` and one virtual thread: the others are what it overlaps with.
    """
    try:
        share = _share_of_scratchpads(emitter.config, len(parts))
    except ConfigError:  # too small to be divided
        return None
    for tilings_of_parts in zip(*(_attempts(Problem(share, kernel, 1)) for kernel, _ in parts), strict=False):
        schedules = [
            schedule_kernel(kernel, emitter.config, tiling)
            for (kernel, _), tiling in zip(parts, tilings_of_parts, strict=True)
        ]
        functions = [(schedule.func, dram) for schedule, (_, dram) in zip(schedules, parts, strict=True)]
        try:
            emitter.emit_in_turn(functions, layer)
        except ScratchpadFullError:
            continue
        for schedule, (kernel, _) in zip(schedules, parts, strict=True):
            if dump is not None:
                dump(f"{kernel.name}.loops", str(schedule))
        return [Generated(*pair) for pair in zip(tilings_of_parts, schedules, strict=True)]
    return None


def _share_of_scratchpads(config: CoreConfig, parts: int) -> CoreConfig:
    """The core as a kernel sees it that shares what vector work needs with others."""
    places = 1 << (parts - 1).bit_length()
    return replace(config, acc_depth=config.acc_depth // places, out_depth=config.out_depth // places)


def _attempts(problem: Problem) -> Iterator[Tiling]:
    found = tilings(problem)
    tried: set[Tiling] = set()
    for share, count in ATTEMPTS:
        roomy = (tiling for tiling in found if tiling not in tried and fill(problem, tiling) <= share)
        for tiling in islice(roomy, count):
            tried.add(tiling)
            yield tiling
