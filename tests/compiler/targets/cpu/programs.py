"""What a model for a CPU consists of."""

from __future__ import annotations

import weft
from weft.compiler.graph import Module
from weft.compiler.model import CompiledModel, HostProgram, HostStep
from weft.compiler.targets.cpu.target import Cpu


def program_of(model: CompiledModel) -> HostProgram:
    """The one program of a model for a CPU."""
    (step,) = model.steps
    assert isinstance(step, HostStep)
    return step.program


def compiled(model: object, **options: object) -> CompiledModel:
    """A model without open sizes, compiled for the CPU."""
    result = weft.compile(model, target="cpu", **options)  # type: ignore[arg-type]
    assert isinstance(result, CompiledModel)
    return result


def integers_of(module: Module) -> Module:
    """A quantised module as it was read, after the passes of the CPU: what the integers of a run must be."""
    for item in Cpu().passes(Cpu.options(), quantised=True):
        module = item.run(module)
    return module
