"""What other hardware would change: the timing model's cycles for the core as it is, and for others beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..compiler.model import CompiledModel, CoreStep
from ..hw.config import CoreConfig
from ..hw.errors import ConfigError
from ..hw.memories import SCRATCHPADS, Memory
from ..sim.dram import DramModel
from ..sim.timing import predict
from .module import StepRun
from .profile_cycles import ProgramCycles

Recompile = Callable[[CoreConfig], CompiledModel]
"""Compiles the profiled model for another core."""


@dataclass(frozen=True)
class Variant:
    """Other hardware. ``same_program``: the program stays; otherwise the model is compiled anew for ``config``."""

    name: str
    config: CoreConfig
    dram: DramModel
    same_program: bool


@dataclass(frozen=True)
class Outcome:
    """Cycles of a variant, whole and by layer name; ``cycles`` is ``None`` where there is no figure: ``why``."""

    name: str
    cycles: int | None
    layers: Mapping[str, int] = field(default_factory=dict)
    why: str = ""


def variants(config: CoreConfig, dram: DramModel) -> tuple[list[Variant], list[Outcome]]:
    """The hardware that is asked about, and what of it no :class:`CoreConfig` can describe.

    Twice the bandwidth: bus and port. No latency: one cycle, without banks. Twice the scratchpads: every depth. Twice
    the lanes: twice the output channels of array and vector engine, the scratchpads' bytes unchanged.
    """
    faster = replace(dram, bytes_per_cycle=2 * dram.bytes_per_cycle)
    asked: list[tuple[str, dict[str, Any], DramModel, bool]] = [
        ("2x bandwidth", {"bus_bits": 2 * config.bus_bits}, faster, True),
        ("no DRAM latency", {}, replace(dram, latency=1, banks=None), True),
        (
            "2x scratchpads",
            {f"{memory}_depth": 2 * config.depth(memory) for memory in SCRATCHPADS},
            dram,
            False,
        ),
        (
            "2x lanes",
            {
                "block_out": 2 * config.block_out,
                "depthwise": 0,  # needs a square array
                **{f"{memory}_depth": config.depth(memory) // 2 for memory in SCRATCHPADS if memory is not Memory.INP},
            },
            dram,
            False,
        ),
    ]
    possible, impossible = [], []
    for name, changes, memory, same_program in asked:
        try:
            core = replace(config, name=f"{config.name}, {name}", **changes) if changes else config
        except ConfigError as error:
            impossible.append(Outcome(name, None, why=str(error)))
        else:
            possible.append(Variant(name, core, memory, same_program))
    return possible, impossible


def what_if(model: CompiledModel, dram: DramModel, recompile: Recompile | None) -> list[Outcome]:
    """Cycles as predicted for the core as it is (first) and for :func:`variants` of it.

    Without ``recompile`` (an artifact does not hold the graph) those that need another program have no figure.
    """
    possible, impossible = variants(model.config, dram)
    outcomes = [_outcome("as it is", model, model.config, dram)]
    for variant in possible:
        if variant.same_program:
            outcomes.append(_outcome(variant.name, model, variant.config, variant.dram))
        elif recompile is None:
            why = "needs another program: profile the model's ONNX file instead of the artifact"
            outcomes.append(Outcome(variant.name, None, why=why))
        else:
            outcomes.append(_outcome(variant.name, recompile(variant.config), variant.config, variant.dram))
    return outcomes + impossible


def _outcome(name: str, model: CompiledModel, config: CoreConfig, dram: DramModel) -> Outcome:
    runs = predict_runs(model, dram, config)
    layers: dict[str, int] = {}
    for run in runs:
        for span in ProgramCycles(run, config.queue_depth).spans:
            layers[model.layers[span.layer].name] = span.end - span.start
    return Outcome(name, sum(run.result.cycles or 0 for run in runs), layers)


def predicted_cycles(model: CompiledModel, dram: DramModel) -> int:
    """The timing model's cycles of the model's programs, one after the other."""
    runs = (predict(model.config, step.program, dram, offset=step.program_offset) for step in model.programs)
    return sum(run.cycles or 0 for run in runs)


def predict_runs(model: CompiledModel, dram: DramModel, config: CoreConfig | None = None) -> Sequence[StepRun]:
    """The timing model's view of the model's programs, traced.

    ``config``: another core that runs the same programs (only the width of its bus may differ).
    """
    return [
        StepRun(step, predict(config or model.on_core.config_of(step), step.program, dram,
                              offset=step.program_offset, trace=True))
        for step in model.steps if isinstance(step, CoreStep)
    ]  # fmt: skip
