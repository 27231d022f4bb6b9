"""Holds every field of a model that came in a file against the others: names, types, ranges of memory, programs.

What a host program's kernels touch is proved where machine code is made of them (the target's ``host_code``).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from ..compiler.model import CompiledModel, CorePart, CoreStep, HostStep, TensorSlot, TensorSpec
from ..hw.errors import InstructionError
from ..hw.isa import disassemble
from .errors import ArtifactError

WINDOW_SLACK = 4096
"""Bytes by which a window may be larger than what is in it."""

Types = dict[str, tuple[tuple[int, ...], str]]
"""Shape and element type of the values that steps hand each other."""


def check_model(model: CompiledModel) -> None:
    """:class:`ArtifactError` for the first field that does not fit the others."""
    _check_names("inputs", [tensor.name for tensor in model.inputs])
    _check_names("outputs", [tensor.name for tensor in model.outputs])
    if model.core is not None:
        _check_window(model.core, model.programs)
    values: Types = {tensor.name: (tensor.shape, tensor.dtype) for tensor in model.inputs}
    in_window: set[str] = set()
    for number, step in enumerate(model.steps):
        what = f"step {number}"
        if isinstance(step, HostStep):
            _check_host_step(model, step, values, what)
        elif model.core is None:
            raise ArtifactError(f"{what} is a program, but the manifest describes no core")
        else:
            _check_core_step(model, step, model.core.slots, values, in_window, what)
    for tensor in model.outputs:
        _check_value(values, tensor, f"output {tensor.name!r}")


def _check_names(field: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ArtifactError(f"field {field!r} has {name!r} twice")


def _check_value(values: Types, tensor: TensorSpec | TensorSlot, what: str) -> None:
    if tensor.name not in values:
        raise ArtifactError(f"{what}: no step before it makes {tensor.name!r}")
    shape, dtype = values[tensor.name]
    if (shape, dtype) != (tensor.shape, tensor.dtype):
        raise ArtifactError(f"{what} is {tensor.dtype}{list(tensor.shape)}, but its value is {dtype}{list(shape)}")


def _check_window(core: CorePart, programs: tuple[CoreStep, ...]) -> None:
    """Everything is inside the window, nothing lies on a program or constant, and the window is not far too large."""
    ranges = [(f"slot {slot.name!r}", slot.offset, slot.nbytes) for slot in core.slots.values()]
    fixed = [(f"constant {each.name!r}", each.offset, each.data.size) for each in core.constants]
    fixed += [(f"program {number}", each.program_offset, each.program.size) for number, each in enumerate(programs)]
    for what, offset, size in (*ranges, *fixed):
        if offset + size > core.window_bytes:
            raise ArtifactError(
                f"{what} ends at byte {offset + size}, outside the window of {core.window_bytes} bytes"
            )
    end = max((offset + size for _, offset, size in (*ranges, *fixed)), default=0)
    if core.window_bytes > end + WINDOW_SLACK:
        raise ArtifactError(f"field 'window_bytes' is {core.window_bytes}, but only {end} bytes are used")
    for (_, stop, what), (start, _, other) in pairwise(
        sorted((offset, offset + size, what) for what, offset, size in fixed if size)
    ):
        if start < stop:
            raise ArtifactError(f"{what} and {other} lie on each other")


def _check_host_step(model: CompiledModel, step: HostStep, values: Types, what: str) -> None:
    program = step.program
    for field, names, tensors in (
        ("inputs", step.inputs, program.inputs), ("outputs", step.outputs, program.outputs)
    ):  # fmt: skip
        if len(names) != len(tensors):
            raise ArtifactError(f"{what} has {len(names)} {field}, but its program {len(tensors)}")
    for name, tensor in zip(step.inputs, program.inputs, strict=True):
        _check_value(values, TensorSpec(name, tensor.shape, tensor.dtype), f"{what}, input {name!r}")
    for name, tensor in zip(step.outputs, program.outputs, strict=True):
        values[name] = (tensor.shape, tensor.dtype)
    own = model.layers[step.first_layer : step.first_layer + len(program.layers)]
    if own != program.layers:
        raise ArtifactError(f"{what}: its layers are not those of the model from {step.first_layer} on")


def _check_core_step(
    model: CompiledModel, step: CoreStep, slots: Mapping[str, TensorSlot], values: Types, in_window: set[str],
    what: str,
) -> None:  # fmt: skip
    try:
        count = len(disassemble(model.config, step.program))
    except InstructionError as error:
        raise ArtifactError(f"{what}, program: {error}") from error
    for name in (*step.inputs, *step.outputs):
        if name not in slots:
            raise ArtifactError(f"{what} uses slot {name!r}, which the manifest does not have")
    for name in step.inputs:
        if name not in in_window:
            _check_value(values, slots[name], f"{what}, input {name!r}")
    in_window.update((*step.inputs, *step.outputs))
    values.update({name: (slots[name].shape, slots[name].dtype) for name in step.outputs})
    for field, indices in (("layer_of", step.layer_of), ("tile_of", step.tile_of)):
        if indices.shape != (count,):
            raise ArtifactError(f"{what}: {field} has {indices.size} elements for {count} instructions")
    if count and not -1 <= int(step.layer_of.min()) <= int(step.layer_of.max()) < len(model.layers):
        raise ArtifactError(f"{what}: layer_of names a layer that the manifest does not have")
