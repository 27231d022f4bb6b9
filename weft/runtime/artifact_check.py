"""Holds every field of a model that came in a file against the others: names, types, ranges of memory, programs.

What a host program's kernels touch is proved where machine code is made of them (the target's ``host_code``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod

from ..compiler.graph.dtypes import numpy_dtype
from ..compiler.graph.ir import Call, Function, TensorType, TupleType
from ..compiler.graph.visit import topological_order
from ..compiler.model import (
    CompiledModel,
    CorePart,
    CoreStep,
    CutModel,
    HostProgram,
    HostStep,
    NumpyStep,
    Resident,
    TensorSlot,
    TensorSpec,
)
from ..hw.errors import InstructionError
from ..imports import IMPORTS
from ..sim.errors import SimulationError
from .errors import ArtifactError

WINDOW_SLACK = 4096
"""Bytes by which a window may be larger than what is in it."""

LARGEST_TENSOR = 1 << 34
"""Bytes of a tensor, and of an arena."""

LARGEST_WINDOW = 1 << 32
"""Bytes of a core's memory: simulators keep an account of each word of it."""

Types = dict[str, tuple[tuple[int, ...], str]]
"""Shape and element type of the values that steps hand each other."""


def check_model(model: CompiledModel) -> None:
    """:class:`ArtifactError` for the first field that does not fit the others."""
    _check_names("inputs", [tensor.name for tensor in model.inputs])
    _check_names("outputs", [tensor.name for tensor in model.outputs])
    check_sizes(model)
    if model.core is not None:
        _check_window(model.core, model.programs)
        _check_stages(model.programs)
        _check_turns(model)
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
    if isinstance(model, CutModel):
        _check_tail(model)


def _check_tail(model: CutModel) -> None:
    """That it takes what there is."""
    _check_names("results", model.tail.outputs)
    there = {tensor.name for tensor in (*model.inputs, *model.outputs)}
    for name in model.tail.inputs:
        if name not in there:
            raise ArtifactError(f"the tail takes {name!r}, which is no input and which nothing before it makes")


def check_sizes(model: CompiledModel) -> None:
    """:class:`ArtifactError` for what no artifact may ask a reader to allocate."""
    for tensor in (*model.inputs, *model.outputs):
        _check_size(f"tensor {tensor.name!r}", tensor.shape, tensor.dtype)
    if model.core is not None and model.core.window_bytes > LARGEST_WINDOW:
        raise ArtifactError(f"field 'window_bytes' is {model.core.window_bytes:,}, more than the {LARGEST_WINDOW:,} "
                            "allowed")  # fmt: skip
    for number, step in enumerate(model.steps):
        if isinstance(step, HostStep):
            _check_host_sizes(step.program, f"step {number}")


def _check_host_sizes(program: HostProgram, what: str) -> None:
    if program.arena_bytes > LARGEST_TENSOR:
        raise ArtifactError(f"{what} has an arena of {program.arena_bytes:,} bytes, more than {LARGEST_TENSOR:,}")
    for tensor in (*program.inputs, *program.outputs):
        _check_size(f"{what}, tensor {tensor.name!r}", tensor.shape, tensor.dtype)


def _check_names(field: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ArtifactError(f"field {field!r} has {name!r} twice")
        seen.add(name)


def _check_new(what: str, names: Sequence[str], values: Types) -> None:
    """A value has one place for good: its memory may be an input of what reads it and an output of what makes it."""
    _check_names(f"{what}, outputs", list(names))
    for name in names:
        if name in values:
            raise ArtifactError(f"{what} makes {name!r}, which is there already")


def _check_size(what: str, shape: tuple[int, ...], dtype: str) -> None:
    nbytes = prod(shape) * numpy_dtype(dtype).itemsize
    if prod(filter(None, shape)) > LARGEST_TENSOR or nbytes > LARGEST_TENSOR:
        raise ArtifactError(f"{what} has {nbytes:,} bytes, more than the {LARGEST_TENSOR:,} that are allowed")


def _check_value(values: Types, tensor: TensorSpec | TensorSlot, what: str) -> None:
    if tensor.name not in values:
        raise ArtifactError(f"{what}: no step before it makes {tensor.name!r}")
    shape, dtype = values[tensor.name]
    if (shape, dtype) != (tensor.shape, tensor.dtype):
        raise ArtifactError(f"{what} is {tensor.dtype}{list(tensor.shape)}, but its value is {dtype}{list(shape)}")


def _check_stages(programs: tuple[CoreStep, ...]) -> None:
    """Stages begin at 0, and go on one by one."""
    last = 0
    for number, step in enumerate(programs):
        if not last <= step.stage <= last + (number > 0):
            raise ArtifactError(f"program {number} is of stage {step.stage}, behind one of stage {last}")
        last = step.stage


def _check_turns(model: CompiledModel) -> None:
    """Of a model that is split, each turn is a program for each core, one behind the other, without a host between."""
    cores, turns = model.shared_by, 0
    before: HostStep | CoreStep | None = None
    for step in model.steps:
        if isinstance(step, CoreStep):
            place = (turns // cores, turns % cores) if cores > 1 else (0, 0)
            if (step.turn, step.core) != place or (step.core and not isinstance(before, CoreStep)):
                raise ArtifactError(f"program {turns} is of turn {step.turn} for core {step.core}, but should be of "
                                    f"turn {place[0]} for core {place[1]}, right behind the one before")  # fmt: skip
            turns += 1
        before = step
    if turns % max(cores, 1):
        raise ArtifactError(f"{turns} programs are no whole turns of {cores} cores")


def _check_window(core: CorePart, programs: tuple[CoreStep, ...]) -> None:
    """Everything is inside the window, nothing lies on a program or constant, and the window is not far too large."""
    ranges = [(f"slot {slot.name!r}", slot.offset, slot.nbytes) for slot in core.slots.values()]
    fixed = [(f"constant {each.name!r}", each.offset, each.data.size) for each in core.constants]
    fixed += [(f"program {number}", each.program_offset, each.program.size) for number, each in enumerate(programs)]
    for what, offset, size in (*ranges, *fixed):
        if offset + size > core.window_bytes:
            raise ArtifactError(f"{what} ends at byte {offset + size}, outside the window of {core.window_bytes} bytes")
    end = max((offset + size for _, offset, size in (*ranges, *fixed)), default=0)
    if core.window_bytes > end + WINDOW_SLACK:
        raise ArtifactError(f"field 'window_bytes' is {core.window_bytes}, but only {end} bytes are used")
    for (_, stop, what), (start, _, other) in pairwise(
        sorted((offset, offset + size, what) for what, offset, size in fixed if size)
    ):
        if start < stop:
            raise ArtifactError(f"{what} and {other} lie on each other")
    _check_slots(ranges, [each for each in fixed if each[2]])


def _check_slots(slots: Sequence[tuple[str, int, int]], fixed: Sequence[tuple[str, int, int]]) -> None:
    """Tensors may share bytes over time, but with nothing that stays."""
    ordered = sorted((offset, offset + size, what) for what, offset, size in fixed)
    starts = [start for start, _, _ in ordered]
    for what, offset, size in slots:
        place = bisect_left(starts, offset + size) - 1
        if size and place >= 0 and ordered[place][1] > offset:
            raise ArtifactError(f"{what} and {ordered[place][2]} lie on each other")


def _check_host_step(model: CompiledModel, step: HostStep, values: Types, what: str) -> None:
    program = step.program
    for field, names, tensors in (
        ("inputs", step.inputs, program.inputs), ("outputs", step.outputs, program.outputs)
    ):  # fmt: skip
        if len(names) != len(tensors):
            raise ArtifactError(f"{what} has {len(names)} {field}, but its program {len(tensors)}")
    for name, tensor in zip(step.inputs, program.inputs, strict=True):
        _check_value(values, TensorSpec(name, tensor.shape, tensor.dtype), f"{what}, input {name!r}")
    _check_new(what, step.outputs, values)
    for name, tensor in zip(step.outputs, program.outputs, strict=True):
        values[name] = (tensor.shape, tensor.dtype)
    own = model.layers[step.first_layer : step.first_layer + len(program.layers)]
    if own != program.layers:
        raise ArtifactError(f"{what}: its layers are not those of the model from {step.first_layer} on")
    if step.resident is not None:
        _check_resident(model, step, step.resident, values, what)
    _check_host_program(program, what)


def _check_resident(model: CompiledModel, step: HostStep, resident: Resident, values: Types, what: str) -> None:
    """A state's places are inside of the slot that the step makes, each once; its rows are made before."""
    slot = model.core.slots.get(step.outputs[0]) if model.core is not None and len(step.outputs) == 1 else None
    if slot is None:
        raise ArtifactError(f"{what} puts a state together, but its output is no slot of the core")
    others = [name for each in model.steps if isinstance(each, HostStep) for name in each.inputs]
    if slot.name in others or slot.name in [tensor.name for tensor in model.outputs]:
        raise ArtifactError(f"{what} puts a state together that others than the core read")
    if resident.state not in [tensor.name for tensor in model.inputs]:
        raise ArtifactError(f"{what}: state {resident.state!r} is no input of the model")
    for name in (resident.state, resident.rows):
        if name not in step.inputs:
            raise ArtifactError(f"{what}: {name!r} of its state is none of its inputs")
    (state, dtype), (rows, other) = values[resident.state], values[resident.rows]
    sizes = [size + rows[axis] * (axis == resident.axis) for axis, size in enumerate(state) if len(rows) == len(state)]
    fits = all(a == b or axis == resident.axis for axis, (a, b) in enumerate(zip(state, rows, strict=False)))
    if [len(table) for table in resident.places] != sizes or not fits or {dtype, other} != {"int8"}:
        raise ArtifactError(f"{what}: the places of state {resident.state!r} are not those of {dtype}{list(state)}")
    if resident.axis >= len(sizes) or not prod(sizes):
        raise ArtifactError(f"{what}: state {resident.state!r} has no rows along axis {resident.axis}")
    if sum(map(max, resident.places)) >= slot.nbytes:
        raise ArtifactError(f"{what}: state {resident.state!r} ends outside of its slot")


def _check_host_program(program: HostProgram, what: str) -> None:
    """What its proof (`check_program`, where machine code is made of it) does not look at, beside sizes: the account of
    its memory."""
    for number, each in enumerate(program.memory):
        at = f"{what}, memory {number}"
        if each.offset + each.nbytes > program.arena_bytes:
            raise ArtifactError(f"{at} ends at byte {each.offset + each.nbytes}, outside the arena")
        in_order = each.first <= each.last < max(1, len(program.steps))
        if not in_order or (each.reuses is not None and each.reuses >= number):
            raise ArtifactError(f"{at}: steps {each.first}..{each.last}, or the memory that it reuses, are not there")
    for number, step in enumerate(program.steps):
        if isinstance(step, NumpyStep):
            _check_function(step.function, f"{what}.{number}")


def _check_function(function: Function, what: str) -> None:
    """Every value on the way to its results is of a size that can be computed."""
    for node in topological_order(function.body):
        for kind in node.type.fields if isinstance(node.type, TupleType) else (node.type,):
            if isinstance(kind, TensorType):
                op = str(node.op) if isinstance(node, Call) and isinstance(node.op, str) else "value"
                _check_size(f"host function {what}, {op}", kind.shape, kind.dtype)


def _check_core_step(
    model: CompiledModel, step: CoreStep, slots: Mapping[str, TensorSlot], values: Types, in_window: set[str],
    what: str,
) -> None:  # fmt: skip
    with IMPORTS:
        from ..hw.programs import disassemble  # what is written, and what runs on processors alone, has no use for it
        from ..sim.work import check_work

    core = model.on_core
    if core.cores and not 0 <= step.stage < len(core.cores):
        raise ArtifactError(f"{what} is of stage {step.stage}, but there are cores for {len(core.cores)}")
    config = core.config_of(step)
    try:
        count = len(disassemble(config, step.program))
    except InstructionError as error:
        raise ArtifactError(f"{what}, program: {error}") from error
    try:
        check_work(config, step.program)
    except SimulationError as error:
        raise ArtifactError(f"{what}, program: {error}") from error
    for name in (*step.inputs, *step.outputs):
        if name not in slots:
            raise ArtifactError(f"{what} uses slot {name!r}, which the manifest does not have")
    for name in step.inputs:
        if name not in in_window:
            _check_value(values, slots[name], f"{what}, input {name!r}")
    in_window.update((*step.inputs, *step.outputs))
    _check_new(what, step.outputs, values)
    values.update({name: (slots[name].shape, slots[name].dtype) for name in step.outputs})
    for field, indices in (("layer_of", step.layer_of), ("tile_of", step.tile_of)):
        if indices.shape != (count,):
            raise ArtifactError(f"{what}: {field} has {indices.size} elements for {count} instructions")
    if count and not -1 <= int(step.layer_of.min()) <= int(step.layer_of.max()) < len(model.layers):
        raise ArtifactError(f"{what}: layer_of names a layer that the manifest does not have")
    if count and int(step.tile_of.min()) < 0:
        raise ArtifactError(f"{what}: tile_of has a negative number")
