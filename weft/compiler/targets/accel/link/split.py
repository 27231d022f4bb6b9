"""Layers that several cores compute together: how each is cut, and which follow each other without a wait.

All cores have one window. A layer is cut along the rows of its picture, along its channel groups, or along both; what
its result is cut into lies where the whole one would. A turn is a run of layers that the cores go through without
waiting for each other: none of them reads what another one writes in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from .....hw.config import CoreConfig
from .....hw.dram_rate import DramRate
from ....graph.ir import Call
from ...errors import CompileError
from ...target import Job
from ..operators.share import WHOLE, Share
from ..schedule.tiling import Problem
from .alone import Program
from .branches import Cost
from .slices import KernelSlice

Slices = Mapping[Call, Sequence[KernelSlice]]
Measure = Callable[[Sequence[Call], Sequence[Slices]], int]
"""Cycles of calls as one program on each core, of which each has these slices; of one core as if it were alone."""


def cuts_of(parts: Sequence[KernelSlice], config: CoreConfig, cores: int) -> list[Share]:
    """The ways to cut a layer for so many cores; the last is not to."""
    pairs = [(cores // groups, groups) for groups in range(1, cores + 1) if cores % groups == 0]
    return [*(cut for cut in (Share(*pair) for pair in pairs) if _can_be(parts, config, cut)), WHOLE]


def _can_be(parts: Sequence[KernelSlice], config: CoreConfig, cut: Share) -> bool:
    """Whether each axis that is cut has several parts, in each kernel of a layer. A chain has its channels cut only
    where its last layer reads no others than it makes, so that not all of the layers before it is needed for each."""
    if any(part.move is not None for part in parts):
        return False
    if cut.groups > 1 and any(part.kernel.producers and part.kernel.section.input_groups for part in parts):
        return False
    axes = {axis for axis, _, _ in cut.extents}
    problems = [Problem(config, replace(part.kernel, share=cut), 1) for part in parts]
    return all(axes == {axis for axis, _, _ in problem.cuts} for problem in problems)


def cores_measured(cut: Share, cores: int, ports: Sequence[int]) -> Sequence[int]:
    """Whose programs tell how long a layer takes that is cut so: those of all cores, where they share ports and wait
    for each other there; else that of a core in the middle of the picture, which takes as long as any. ``ports``: of
    each core; none where each has its own."""
    return range(cores) if ports else [cut.groups * min(1, cut.rows - 1)]


def slices_of_core(parts: Sequence[KernelSlice], cut: Share, core: int) -> list[KernelSlice]:
    """What a core computes of a layer that is cut so."""
    own = cut.of_core(core)
    if own == WHOLE:
        return list(parts)
    return [_shared(part, own) for part in parts]


def _shared(part: KernelSlice, own: Share) -> KernelSlice:
    """Settings that were measured, or chosen, are for the whole; slices in turn have channel groups of their own."""
    turns = part.turns if own.groups == 1 else ()
    return replace(part, kernel=part.kernel.shared(own), turns=tuple(_shared(turn, own) for turn in turns),
                   tuned=None, chosen=None)  # fmt: skip


def cycles_of(programs: Sequence[Program], config: CoreConfig, ports: Sequence[int], rate: DramRate, job: Job) -> int:
    """Until the last program has ended, of one core or of all that share these ports. CompileError where the job
    measures none."""
    if len(programs) == 1 and job.measure is not None:
        return job.measure(config, rate, *programs[0])
    cores = [config] * len(programs)
    return max(cycles_of_each(dict(enumerate(programs)), cores, ports, rate, job).values())


def cycles_of_each(
    programs: Mapping[int, Program], cores: Sequence[CoreConfig], ports: Sequence[int], rate: DramRate, job: Job
) -> dict[int, int]:
    """Of the programs of some of these cores, which have these ports and begin together. CompileError where the job
    measures none."""
    if job.together is None:
        raise CompileError("what cores share is cut by measured cycles, but nothing measures them",
                           hint="compile with weft.compile")  # fmt: skip
    used = sorted({ports[core] for core in programs}) if ports else []
    own = [used.index(ports[core]) for core in programs] if ports else range(len(programs))
    running = [cores[core] for core in programs]
    return dict(zip(programs, job.together(running, own, rate, list(programs.values())), strict=True))


def cycles_of_stages(
    stages: Sequence[Sequence[Program]], cores: Sequence[CoreConfig], ports: Sequence[int], rate: DramRate, job: Job
) -> list[int]:
    """Of the programs of each stage on its core, one after the other. In a round those of all stages run at once, the
    second ones once all first ones have ended."""
    if not ports:
        return [
            sum(cycles_of([program], core, (), rate, job) for program in own)
            for core, own in zip(cores, stages, strict=True)
        ]
    cycles = [0] * len(stages)
    for turn in range(max(map(len, stages))):
        running = {core: own[turn] for core, own in enumerate(stages) if turn < len(own)}
        for core, taken in cycles_of_each(running, cores, ports, rate, job).items():
            cycles[core] += taken
    return cycles


def fastest_cut(
    node: Call, parts: Sequence[KernelSlice], config: CoreConfig, cores: int, ports: Sequence[int], measure: Measure
) -> tuple[Share, Cost]:
    """The cut by which a layer takes the fewest cycles, as `cores_measured` has it; those, and those of the whole."""
    best, least, whole = WHOLE, 0, 0
    for cut in reversed(cuts_of(parts, config, cores)):
        measured = cores_measured(cut, cores, ports)
        try:
            cycles = measure([node], [{node: slices_of_core(parts, cut, core)} for core in measured])
        except CompileError:
            if cut is WHOLE:
                raise
            continue  # a part finds no room as the whole does
        if cut is WHOLE or cycles < least:
            best, least = cut, cycles
        if cut is WHOLE:
            whole = cycles
    return best, Cost(whole, least)


def may_follow(node: Call, turn: Sequence[Call], cuts: Mapping[Call, Share], slices: Slices) -> bool:
    """Whether it is worth a trial to let a layer run in the turn of those before it: one core has it and them; or cut
    as they are, along rows, it reads nothing of them, or pixel by pixel."""
    if all(cuts[each] == WHOLE for each in (*turn, node)):
        return True
    if any(cuts[before].parts != cuts[node].parts for before in turn) or cuts[node].groups > 1:
        return False
    apart = not any(arg in turn for arg in node.args)
    windows = [section.window for part in slices[node] for section in part.kernel.sections]
    return apart or all(window is None or window.is_pixel for window in windows)
