"""A memory that the user names, or ports that cores share: programs for it, or the usual ones, whichever are faster
there.

Which schedules are the best is estimated, and layers are cut one by one; but it must never cost to name a memory or
ports. So the model is compiled both ways, and cycles decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ....hw.config import CoreConfig
from ....hw.dram_rate import DramRate
from ...model import CompiledModel
from ..target import Dump, Job
from .link.alone import Program
from .link.split import cycles_of, cycles_of_stages

Ports = Sequence[int]
"""Of memory, that of each core; none where each has its own."""

Compile = Callable[[DramRate, Ports, Dump | None], CompiledModel]
"""For a memory behind such ports; takes what it dumps."""


def faster_in(core: CoreConfig, rate: DramRate, ports: Ports, job: Job, compiled_for: Compile) -> CompiledModel:
    """The fastest of several compilations where memory is as ``rate`` and ``ports`` say: for it, for the usual memory,
    and for a port a core. The latter are not taken if they leave more to the host."""
    others: list[tuple[DramRate, Ports]] = [(rate, ())] if ports else []
    if not is_usual(core, rate):
        others.append((DramRate.of(core), ports))
    if job.measure is None or not others:
        return compiled_for(rate, ports, job.dump)
    own, texts = _dumped(compiled_for, rate, ports, job)
    least = _cycles(own, rate, ports, job)
    for other_rate, other_ports in others:
        other, other_texts = _dumped(compiled_for, other_rate, other_ports, job)
        if _host_steps(other) <= _host_steps(own) and (cycles := _cycles(other, rate, ports, job)) < least:
            told = {"dram_latency": rate.latency, "dram_bytes_per_cycle": rate.bytes_per_cycle}
            own, texts = replace(other, statistics={**other.statistics, **told}), other_texts
            least = cycles
    for name, text in texts:
        if job.dump is not None:
            job.dump(name, text)
    return own


def is_usual(core: CoreConfig, rate: DramRate) -> bool:
    """Whether memory is as schedules have it that are made for none by name."""
    usual = DramRate.of(core)
    return rate.latency == usual.latency and rate.for_bus(core) == usual.for_bus(core)


def _dumped(
    compiled_for: Compile, rate: DramRate, ports: Ports, job: Job
) -> tuple[CompiledModel, list[tuple[str, str]]]:
    texts: list[tuple[str, str]] = []
    dump = None if job.dump is None else lambda name, text: texts.append((name, text))
    return compiled_for(rate, ports, dump), texts


def _host_steps(model: CompiledModel) -> int:
    return len(model.steps) - len(model.programs)


def _cycles(model: CompiledModel, rate: DramRate, ports: Ports, job: Job) -> int:
    """Of the stage that takes longest, or of all turns of cores that share layers."""
    if model.stages == 1:
        turns: dict[int, list[Program]] = {}
        for step in model.programs:
            turns.setdefault(step.turn if ports else len(turns), []).append((step.program, step.program_offset))
        return sum(cycles_of(turn, model.config, ports, rate, job) for turn in turns.values())
    stages: list[list[Program]] = [[] for _ in range(model.stages)]
    for step in model.programs:
        stages[step.stage].append((step.program, step.program_offset))
    return max(cycles_of_stages(stages, [model.config] * model.stages, ports, rate, job))
