"""A memory that the user names: schedules for it, or those for the usual memory, whichever are faster there.

Which schedules are the best is estimated; but it must never cost to name a memory. So the model is compiled both ways,
and cycles decide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ....hw.config import CoreConfig
from ....hw.dram_rate import DramRate
from ...model import CompiledModel
from ..target import Dump, Job, Measure

Compile = Callable[[DramRate, Dump | None], CompiledModel]
"""By schedules for a memory; takes what it dumps."""


def faster_in(core: CoreConfig, rate: DramRate, job: Job, compiled_for: Compile) -> CompiledModel:
    """The faster of two compilations where memory is as ``rate`` says: for it, and for the usual memory. The latter is
    not taken if it leaves more to the host."""
    if job.measure is None or is_usual(core, rate):
        return compiled_for(rate, job.dump)
    own, texts = _dumped(compiled_for, rate, job)
    other, other_texts = _dumped(compiled_for, DramRate.of(core), job)
    if _host_steps(other) <= _host_steps(own) and _cycles(other, rate, job.measure) < _cycles(own, rate, job.measure):
        told = {"dram_latency": rate.latency, "dram_bytes_per_cycle": rate.bytes_per_cycle}
        own, texts = replace(other, statistics={**other.statistics, **told}), other_texts
    for name, text in texts:
        if job.dump is not None:
            job.dump(name, text)
    return own


def is_usual(core: CoreConfig, rate: DramRate) -> bool:
    """Whether memory is as schedules have it that are made for none by name."""
    usual = DramRate.of(core)
    return rate.latency == usual.latency and rate.for_bus(core) == usual.for_bus(core)


def _dumped(compiled_for: Compile, rate: DramRate, job: Job) -> tuple[CompiledModel, list[tuple[str, str]]]:
    texts: list[tuple[str, str]] = []
    dump = None if job.dump is None else lambda name, text: texts.append((name, text))
    return compiled_for(rate, dump), texts


def _host_steps(model: CompiledModel) -> int:
    return len(model.steps) - len(model.programs)


def _cycles(model: CompiledModel, rate: DramRate, measure: Measure) -> int:
    """Of the stage that takes longest."""
    cycles = [0] * model.stages
    for step in model.programs:
        cycles[step.stage] += measure(model.config, rate, step.program, step.program_offset)
    return max(cycles, default=0)
