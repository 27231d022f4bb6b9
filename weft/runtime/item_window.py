"""An item (a picture) of a model on a system of cores: its inputs, and what programs read and leave in its window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..compiler.graph.dtypes import numpy_dtype
from ..compiler.model import CompiledModel, CorePart, CoreStep
from ..sim.system_run import CoreProgram
from .inputs import check_kind, named_inputs
from .system_device import Window

Array = npt.NDArray[Any]
Inputs = Mapping[str, Array] | Array


def checked_item(model: CompiledModel, item: Inputs) -> dict[str, Array]:
    """The inputs by name; :class:`InputError` for those that do not fit."""
    named = named_inputs(item, [tensor.name for tensor in model.inputs])
    for tensor in model.inputs:
        value = named[tensor.name]
        check_kind(tensor.name, value.shape, value.dtype, tensor.shape, numpy_dtype(tensor.dtype))
        named[tensor.name] = np.ascontiguousarray(value)
    return named


def write_model(model: CompiledModel, window: Window) -> None:
    """Constants and programs."""
    for constant in model.on_core.constants:
        window.write(constant.offset, constant.data)
    for step in model.programs:
        window.write(step.program_offset, step.program)


def write_inputs(core: CorePart, step: CoreStep, values: Mapping[str, Array], window: Window) -> None:
    """What a program takes of the host's ``values``."""
    for name in step.inputs:
        if name in values:
            window.write(core.slots[name].offset, values[name])


def core_program(core: CorePart, step: CoreStep, start: int = 0) -> CoreProgram:
    """A program of a model whose window begins at byte ``start`` of the memory."""
    count = step.program.size // core.config_of(step).instruction_bytes
    return CoreProgram(offset=step.program_offset, count=count, window_start=start, window_bytes=core.window_bytes)


def read_outputs(
    core: CorePart, step: CoreStep, wanted: frozenset[str], values: dict[str, Array], window: Window
) -> None:
    """What the host wants of a program's results, into ``values``."""
    for name in step.outputs:
        if name in wanted:
            slot = core.slots[name]
            values[name] = window.read(slot.offset, slot.nbytes).view(slot.dtype).reshape(slot.shape)
