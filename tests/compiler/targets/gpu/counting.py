"""Launches of small graphs in the interpreter of PTX, with what they moved."""

from __future__ import annotations

import weft
from weft.compiler.graph import Module
from weft.compiler.model import GpuCode, HostStep
from weft.compiler.targets.registry import find_target
from weft.runtime.gpu.predicted import CountedLaunch, counted_launches
from weft.sim.ptx.counts import Counts


def counted(module: Module) -> list[CountedLaunch]:
    """All launches of a module that is one step, as for `sm_80`."""
    model = weft.compile(module, target="cuda", strict=True)
    assert isinstance(model, weft.CompiledModel)
    (step,) = model.steps
    assert isinstance(step, HostStep)
    code = find_target("cuda").host_code(step.program, trusted=False)
    assert isinstance(code, GpuCode)
    return counted_launches(step.program, code)


def sectors(counts: Counts) -> tuple[int, int]:
    """Sectors of global memory that were moved, and the fewest."""
    traffic = counts.sectors.values()
    return sum(each.needed for each in traffic), sum(each.fewest for each in traffic)
