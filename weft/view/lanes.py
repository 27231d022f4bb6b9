"""What the cores of a system do with a model that they share: a lane for each, and the model as one of them has it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..compiler.model import CompiledModel, CoreStep
from ..hw.system_config import SystemConfig
from ..runtime.profile_shared import SharedProfile, Work, profile_shared
from ..sim.dram import DramModel


def is_shared(model: CompiledModel) -> bool:
    """Whether cores share a model: in stages, or layer by layer."""
    return model.shared_by > 1 or model.stages > 1


def usual_system(model: CompiledModel) -> SystemConfig:
    """The cores that a model is compiled for, each with a port of its own."""
    core, count = model.on_core, max(model.stages, model.shared_by)
    cores = core.cores or (core.config,) * count
    return SystemConfig(name=f"{count} cores", cores=cores, ports=tuple(range(count)))


def lanes(model: CompiledModel, system: SystemConfig, dram: DramModel) -> tuple[dict[str, Any], int]:
    """The lanes, fit for JSON, and the core that has the most to do. DeviceError for a system that cannot run it."""
    measured = profile_shared(model, system, dram)
    record = {
        "system": system.name,
        "items": measured.items,
        "cycles": measured.cycles,
        "split": model.shared_by > 1,
        "cores": [_lane(measured, core) for core in range(len(system.cores))],
    }
    return record, max(range(len(system.cores)), key=measured.busy)


def _lane(measured: SharedProfile, core: int) -> dict[str, Any]:
    return {
        "name": measured.config.cores[core].name,
        "port": measured.config.ports[core],
        "busy": measured.busy(core),
        "waits": sorted(measured.waits[core].items()),
        "work": [_work(each) for each in measured.work[core]],
    }


def _work(each: Work) -> dict[str, Any]:
    """A run of a program: its layers are numbers of the model's."""
    layers = np.unique(each.step.layer_of[each.step.layer_of >= 0]).tolist()
    return {"start": each.start, "stop": each.stop, "item": each.item, "turn": each.turn, "layers": layers}


def as_one_core_has_it(model: CompiledModel, core: int) -> CompiledModel:
    """A model that is split, with the programs of one core alone. An even part of each layer's products stands for the
    core's: how many those are is not known."""
    steps = tuple(
        replace(step, core=0) if isinstance(step, CoreStep) else step
        for step in model.steps if not isinstance(step, CoreStep) or step.core == core
    )  # fmt: skip
    layers = tuple(replace(layer, macs=-(-layer.macs // model.shared_by)) for layer in model.layers)
    return replace(model, steps=steps, layers=layers)
