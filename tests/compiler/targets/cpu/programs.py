"""What a model for a CPU consists of."""

from __future__ import annotations

import weft
from weft.compiler.graph import GraphError, Module
from weft.compiler.model import CompiledModel, HostProgram, HostStep
from weft.compiler.passes import check_stage
from weft.compiler.targets.cpu.processor import executable_here, host_target
from weft.compiler.targets.cpu.target import Cpu
from weft.compiler.targets.loops.prepare import prepare

WITHOUT_DOT_PRODUCTS = [name for name in ("x86-64-v2", "x86-64-v3", "x86-64-v4") if name in executable_here()]
"""Levels of x86 that this machine executes whose bytes become words."""


def program_of(model: CompiledModel) -> HostProgram:
    """The one program of a model for a CPU."""
    (step,) = model.steps
    assert isinstance(step, HostStep)
    return step.program


def compiled(model: object, **options: object) -> CompiledModel:
    """A model without open sizes, compiled for the CPU. A module that was not read from a file may hold any operators:
    of the passes it gets those that the CPU needs."""
    if isinstance(model, Module) and not is_source(model):
        model = prepare(model, dot_products=host_target().dot_product, weight_only=True)
    result = weft.compile(model, target="cpu", **options)  # type: ignore[arg-type]
    assert isinstance(result, CompiledModel)
    return result


def is_source(module: Module) -> bool:
    """Whether a module could have been read from a file."""
    try:
        check_stage(module, "source")
    except GraphError:
        return False
    return True


def integers_of(module: Module) -> Module:
    """A quantised module as it was read, after the passes of the CPU: what the integers of a run must be."""
    for item in Cpu().passes(Cpu.options(), quantised=True):
        module = item(module)
    return module
