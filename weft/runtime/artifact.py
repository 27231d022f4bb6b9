"""The artifact: one zip file with everything that is needed to run a model.

Members: ``manifest.json`` (versions, the core's configuration and its hash, memory plans, steps, layers), one ``.bin``
for each program, constant and index of a program, one ``.loops`` text for each kernel of the host, one graph text for
each operator that NumPy runs, and one of what the programs compute, for proofs. There is no machine code in it: that is
made of the kernels' loop IR where the model is loaded. The zip's comment holds the SHA-256 of all bytes before it, so
that a flipped bit anywhere is seen before anything is used. Nothing is ever unpacked to disk or unpickled;
`artifact_check` holds every field against the others before a device sees anything.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..compiler.graph.dtypes import DTYPES, dtype_name
from ..compiler.graph.ir import Function, GraphError, Module
from ..compiler.graph.strings import StringsError, content, from_content
from ..compiler.graph.tail import Tail
from ..compiler.graph.text import constant_table, parse, to_text
from ..compiler.model import (
    ArenaTensor,
    CheckStep,
    CompiledModel,
    ConstantSegment,
    CopyStep,
    CorePart,
    CoreStep,
    CutModel,
    HostProgram,
    HostStep,
    KernelCode,
    LaunchStep,
    Layer,
    Loop,
    NumpyStep,
    OpenModel,
    Place,
    Resident,
    TensorSlot,
    TensorSpec,
    Witness,
)
from ..files import write_atomically
from ..hw.config import ISA_VERSION, CoreConfig
from ..hw.errors import ConfigError
from . import artifact_records as records
from .artifact_check import check_model, check_sizes
from .errors import ArtifactError
from .sealed import manifest_of, member, seal, unseal

FORMAT = 5


def save(model: CompiledModel | OpenModel, path: str | Path) -> None:
    """Write ``model`` to one file, which is replaced at once or not at all. The same model gives the same bytes.

    :class:`ArtifactError` for a model with open sizes, and for one that is too large to be loaded from a file.
    """
    if not isinstance(model, (CompiledModel, OpenModel)):
        raise ArtifactError(f"what is to be saved is {model!r:.80}, but must be a compiled model",
                            hint="weft.compile makes one")  # fmt: skip
    if not isinstance(path, (str, PathLike)):
        raise ArtifactError(f"the path is {path!r:.80}, but must be a text or a Path")
    write_atomically(Path(path), to_bytes(model))


def load(path: str | Path, config: CoreConfig | None = None) -> CompiledModel:
    """Read and check an artifact.

    ``config``: the core it is going to run on. :class:`ArtifactError` names the file and the member or field at fault.
    """
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror}") from error
    try:
        return from_bytes(raw, config)
    except ArtifactError as error:
        raise ArtifactError(f"{path}: {error.message}", hint=error.hint) from error


# Writing


class _Members(dict[str, bytes]):
    def put(self, name: str, data: bytes) -> str:
        """Add a member; gives its name."""
        self[name] = data
        return name


def to_bytes(model: CompiledModel | OpenModel) -> bytes:
    """The bytes of a model's artifact."""
    if isinstance(model, OpenModel):
        raise ArtifactError(f"an artifact is one compiled model, but {model.openness}",
                            hint=model.way_out("with shapes=, or save model.at(sizes)"))  # fmt: skip
    check_sizes(model)
    members = _Members()
    steps = tuple(
        _host_record(number, step, members) if isinstance(step, HostStep) else _core_step(number, step, members)
        for number, step in enumerate(model.steps)
    )
    manifest = records.Manifest(
        format=FORMAT,
        name=model.name,
        target=model.target,
        inputs=tuple(_tensor(tensor) for tensor in model.inputs),
        outputs=tuple(_tensor(tensor) for tensor in model.outputs),
        core=None if model.core is None else _core_record(model.core, members),
        steps=steps,
        layers=tuple(_layer(layer) for layer in model.layers),
        witness=None if model.witness is None else _witness_record(model.witness, members),
        tail=_tail_record(model.tail, members) if isinstance(model, CutModel) else None,
        statistics={name: value for name, value in model.statistics.items() if not name.endswith("seconds")},
    )
    return seal({"manifest.json": manifest.model_dump_json(indent=1).encode(), **members})


def _tensor(tensor: TensorSpec | TensorSlot) -> records.TensorRecord:
    return records.TensorRecord(name=tensor.name, shape=tensor.shape, dtype=tensor.dtype)


def _fields(each: Any) -> dict[str, Any]:
    """The fields of a dataclass by name, shared, not copied."""
    return {name: getattr(each, name) for name in each.__dataclass_fields__}


def _layer(layer: Layer) -> records.LayerRecord:
    return records.LayerRecord(**_fields(layer))


def _place(place: Place) -> records.PlaceRecord:
    return records.PlaceRecord(**_fields(place))


def _core_record(core: CorePart, members: _Members) -> records.CoreRecord:
    return records.CoreRecord(
        isa_version=ISA_VERSION,
        config=_config_record(core.config),
        cores=tuple(map(_config_record, core.cores)),
        config_hash=f"{core.config.hash64:016x}",
        window_bytes=core.window_bytes,
        slots=tuple(records.SlotRecord(**_fields(slot)) for slot in core.slots.values()),
        constants=tuple(
            records.SegmentRecord(
                name=each.name, offset=each.offset, member=members.put(f"constants/{number}.bin", each.data.tobytes())
            )
            for number, each in enumerate(core.constants)
        ),
    )


def _config_record(config: CoreConfig) -> dict[str, int | str]:
    return {name: getattr(config, name) for name in sorted(config.__dataclass_fields__)}


def _core_step(number: int, step: CoreStep, members: _Members) -> records.CoreStepRecord:
    return records.CoreStepRecord(
        member=members.put(f"programs/{number}.bin", step.program.tobytes()),
        program_offset=step.program_offset,
        inputs=step.inputs,
        outputs=step.outputs,
        layer_of=members.put(f"programs/{number}.layers.bin", step.layer_of.astype("<i4").tobytes()),
        tile_of=members.put(f"programs/{number}.tiles.bin", step.tile_of.astype("<i4").tobytes()),
        stage=step.stage,
        turn=step.turn,
        core=step.core,
    )


def _host_record(number: int, step: HostStep, members: _Members) -> records.HostRecord:
    program = step.program
    return records.HostRecord(
        inputs=step.inputs,
        outputs=step.outputs,
        first_layer=step.first_layer,
        program_inputs=tuple(_tensor(tensor) for tensor in program.inputs),
        program_outputs=tuple(_tensor(tensor) for tensor in program.outputs),
        kernels=tuple(
            records.KernelRecord(
                symbol=kernel.symbol,
                member=members.put(f"kernels/{kernel.symbol}.loops", kernel.text.encode()),
                windows=dict(kernel.windows),
                nbytes=kernel.nbytes,
                workspace_bytes=kernel.workspace_bytes,
                parts=kernel.parts,
            )
            for kernel in program.kernels
        ),
        steps=tuple(_host_step(f"host/{number}.{place}", each, members) for place, each in enumerate(program.steps)),
        layers=tuple(_layer(layer) for layer in program.layers),
        constants=members.put(f"host/{number}.constants.bin", program.constants.tobytes()),
        arena_bytes=program.arena_bytes,
        memory=tuple(records.ArenaRecord(**_fields(each)) for each in program.memory),
        threads=program.threads,
        processor=program.processor,
        loops=tuple(records.LoopRecord(**_fields(each)) for each in program.loops),
        resident=None if step.resident is None else records.ResidentRecord(**_fields(step.resident)),
    )


def _host_step(
    name: str, step: LaunchStep | NumpyStep | CopyStep | CheckStep, members: _Members
) -> records.HostStepRecord:
    match step:
        case LaunchStep():
            places = tuple(_place(place) for place in step.arguments)
            return records.LaunchRecord(
                symbol=step.symbol, arguments=places, workspace=step.workspace, layer=step.layer
            )
        case CopyStep():
            return records.CopyRecord(source=_place(step.source), target=_place(step.target))
        case CheckStep():
            return records.CheckRecord(indices=_place(step.indices), sizes=step.sizes, node=step.node)
        case NumpyStep():
            module = Module(step.function)
            return records.NumpyRecord(
                member=members.put(f"{name}.graph", to_text(module).encode()),
                constants={
                    constant: records.ArrayRecord(
                        member=members.put(f"{name}.{index}.bin", content(value)),
                        shape=value.shape,
                        dtype=dtype_name(value.dtype),
                    )
                    for index, (constant, value) in enumerate(constant_table(module).items())
                },
                inputs=tuple(_place(place) for place in step.inputs),
                outputs=tuple(_place(place) for place in step.outputs),
                layer=step.layer,
            )


def _witness_record(witness: Witness, members: _Members) -> records.WitnessRecord:
    """Constants that lie in the window, as most do, are not written twice."""
    there = {data: name for name, data in members.items() if name.startswith("constants/")}

    def array(number: int, value: npt.NDArray[Any]) -> records.ArrayRecord:
        data = content(value)
        name = there.get(data) or members.put(f"witness/{number}.bin", data)
        return records.ArrayRecord(member=name, shape=value.shape, dtype=dtype_name(value.dtype))

    return records.WitnessRecord(
        member=members.put("witness.graph", witness.text.encode()),
        constants={name: array(number, value) for number, (name, value) in enumerate(witness.constants.items())},
        names=witness.names,
        integers=witness.integers,
    )


def _tail_record(tail: Tail, members: _Members) -> records.TailRecord:
    return records.TailRecord(
        member=members.put("tail", tail.model),
        inputs=tail.inputs,
        outputs=tail.outputs,
        operators=tail.operators,
        reason=tail.reason,
    )


# Reading


def from_bytes(raw: bytes, config: CoreConfig | None = None) -> CompiledModel:
    """The model in the bytes of an artifact, checked. :class:`ArtifactError` names the member or field at fault."""
    members = unseal(raw, "artifact", "make one with 'weft compile'", "compile the model again")
    manifest = manifest_of(members, "manifest.json", records.Manifest, FORMAT, "compile again")
    model = _model(manifest, members, config)
    check_model(model)
    return model


def _model(manifest: records.Manifest, members: dict[str, bytes], config: CoreConfig | None) -> CompiledModel:
    model = CompiledModel(
        name=manifest.name,
        target=manifest.target,
        inputs=tuple(_spec(tensor) for tensor in manifest.inputs),
        outputs=tuple(_spec(tensor) for tensor in manifest.outputs),
        steps=tuple(
            _read_host(step, members) if isinstance(step, records.HostRecord) else _read_core_step(step, members)
            for step in manifest.steps
        ),
        layers=tuple(_read_layer(layer) for layer in manifest.layers),
        core=None if manifest.core is None else _read_core(manifest.core, members, config),
        witness=None if manifest.witness is None else _read_witness(manifest.witness, members),
        statistics=manifest.statistics,
        from_file=True,
    )
    return model if manifest.tail is None else CutModel.of(model, _read_tail(manifest.tail, members))


def _spec(tensor: records.TensorRecord) -> TensorSpec:
    return TensorSpec(tensor.name, tensor.shape, _dtype(tensor.dtype, f"tensor {tensor.name!r}"))


def _dtype(name: str, what: str) -> str:
    if name not in DTYPES:
        raise ArtifactError(f"{what} has the element type {name!r}, which there is not")
    return name


def _read_layer(layer: records.LayerRecord) -> Layer:
    return Layer(**_fields(layer))


def _read_place(place: records.PlaceRecord) -> Place:
    _dtype(place.dtype, f"a place in the {place.kind}")
    return Place(**_fields(place))


def _text(members: dict[str, bytes], name: str) -> str:
    try:
        return member(members, name).decode()
    except UnicodeDecodeError as error:
        raise ArtifactError(f"member {name!r} is no text: {error}") from error


def _read_config(values: dict[str, int | str], what: str) -> CoreConfig:
    try:
        return CoreConfig(**values)  # type: ignore[arg-type]
    except (ConfigError, TypeError) as error:
        raise ArtifactError(f"{what}: {error}") from error


def _read_core(core: records.CoreRecord, members: dict[str, bytes], config: CoreConfig | None) -> CorePart:
    if core.isa_version != ISA_VERSION:
        raise ArtifactError(
            f"field 'isa_version' is {core.isa_version}, but this weft has {ISA_VERSION}", hint="compile again"
        )
    own = _read_config(core.config, "field 'config'")
    if f"{own.hash64:016x}" != core.config_hash:
        raise ArtifactError("field 'config_hash' does not belong to the configuration in field 'config'")
    if config is not None and config.hash64 != own.hash64:
        raise ArtifactError(
            f"field 'config_hash': the artifact is for {own.name!r} ({own.hash64:016x}), "
            f"but the core is {config.name!r} ({config.hash64:016x})",
            hint=f"compile with --config {config.name}",
        )
    slots = {
        slot.name: TensorSlot(slot.name, slot.offset, slot.shape, _dtype(slot.dtype, f"slot {slot.name!r}"))
        for slot in core.slots
    }
    if len(slots) != len(core.slots):
        raise ArtifactError("field 'slots': two slots have the same name")
    constants = tuple(
        ConstantSegment(each.name, each.offset, np.frombuffer(member(members, each.member), np.uint8))
        for each in core.constants
    )
    cores = tuple(_read_config(each, f"field 'cores', core {number}") for number, each in enumerate(core.cores))
    return CorePart(own, core.window_bytes, slots, constants, cores)


def _read_core_step(step: records.CoreStepRecord, members: dict[str, bytes]) -> CoreStep:
    return CoreStep(
        program=np.frombuffer(member(members, step.member), np.uint8),
        program_offset=step.program_offset,
        inputs=step.inputs,
        outputs=step.outputs,
        layer_of=_array(members, step.layer_of, (-1,), "int32"),
        tile_of=_array(members, step.tile_of, (-1,), "int32"),
        stage=step.stage,
        turn=step.turn,
        core=step.core,
    )


def _read_host(step: records.HostRecord, members: dict[str, bytes]) -> HostStep:
    program = HostProgram(
        inputs=tuple(_spec(tensor) for tensor in step.program_inputs),
        outputs=tuple(_spec(tensor) for tensor in step.program_outputs),
        kernels=tuple(
            KernelCode(
                kernel.symbol, _text(members, kernel.member), kernel.windows, kernel.nbytes, kernel.workspace_bytes,
                kernel.parts,
            )
            for kernel in step.kernels
        ),
        steps=tuple(_read_host_step(each, members) for each in step.steps),
        layers=tuple(_read_layer(layer) for layer in step.layers),
        constants=np.frombuffer(member(members, step.constants), np.uint8),
        arena_bytes=step.arena_bytes,
        memory=tuple(ArenaTensor(**_fields(each)) for each in step.memory),
        threads=step.threads,
        processor=step.processor,
        loops=tuple(Loop(**_fields(each)) for each in step.loops),
    )  # fmt: skip
    resident = None if step.resident is None else Resident(**_fields(step.resident))
    return HostStep(program, step.inputs, step.outputs, step.first_layer, resident)


def _read_host_step(
    step: records.HostStepRecord, members: dict[str, bytes]
) -> LaunchStep | NumpyStep | CopyStep | CheckStep:
    match step:
        case records.LaunchRecord():
            places = tuple(_read_place(place) for place in step.arguments)
            return LaunchStep(step.symbol, places, step.workspace, step.layer)
        case records.CopyRecord():
            return CopyStep(_read_place(step.source), _read_place(step.target))
        case records.CheckRecord():
            return CheckStep(_read_place(step.indices), step.sizes, step.node)
        case records.NumpyRecord():
            constants = {
                name: _array(members, each.member, each.shape, each.dtype) for name, each in step.constants.items()
            }
            function = _function(members, step.member, constants)
            inputs, outputs = (tuple(map(_read_place, places)) for places in (step.inputs, step.outputs))
            return NumpyStep(function, inputs, outputs, step.layer)


def _read_witness(witness: records.WitnessRecord, members: dict[str, bytes]) -> Witness:
    """Its text is parsed by whoever wants a proof."""
    constants = {name: _array(members, each.member, each.shape, each.dtype) for name, each in witness.constants.items()}
    return Witness(_text(members, witness.member), constants, witness.names, witness.integers)


def _read_tail(tail: records.TailRecord, members: dict[str, bytes]) -> Tail:
    """It is read as a model by whoever runs it."""
    return Tail(member(members, tail.member), tail.inputs, tail.outputs, tail.operators, tail.reason)


def _function(members: dict[str, bytes], name: str, constants: dict[str, npt.NDArray[Any]]) -> Function:
    try:
        return parse(_text(members, name), constants).main
    except (GraphError, RecursionError) as error:
        raise ArtifactError(f"host function {name!r}: {error}") from error


def _array(members: dict[str, bytes], name: str, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
    """An array of a member's bytes; the shape (-1,) takes them all, of numbers."""
    data = member(members, name)
    try:
        return from_content(data, _dtype(dtype, f"member {name!r}"), shape)
    except (ValueError, StringsError) as error:
        raise ArtifactError(f"member {name!r} has {len(data)} bytes, which are not {dtype}{list(shape)}") from error
