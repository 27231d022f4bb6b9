"""The artifact: one zip file with everything that a device needs to run a model.

Members: ``manifest.json`` (versions, configuration and its hash, memory plan, layers), one ``.bin`` for each program
and constant, one graph text with its ``.npy`` constants for each host function. The zip's comment holds the SHA-256 of
all bytes before it, so that a flipped bit anywhere is seen before anything is used. Nothing is ever unpacked to
disk or unpickled; sizes, offsets and names are checked against the manifest, and programs are decoded, before a
device sees them.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..compiler.compiled import AccelStep, CompiledModel, ConstantSegment, HostStep, Layer, TensorSlot
from ..compiler.graph.ir import Function, GraphError, Module
from ..compiler.graph.text import constant_table, parse, to_text
from ..hw.config import ISA_VERSION, CoreConfig
from ..hw.errors import ConfigError, InstructionError
from ..hw.isa import disassemble
from .errors import ArtifactError

FORMAT = 1
LARGEST_BYTES = 1 << 31
"""More than this, unpacked, is refused: no model for such a core comes near it."""

_COMMENT = b"weft sha256 "

Offset = Annotated[int, Field(ge=0, lt=1 << 40)]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Slot(_Record):
    name: str
    offset: Offset
    shape: tuple[Annotated[int, Field(ge=0, lt=1 << 31)], ...]
    dtype: Literal["bool", "int8", "uint8", "int16", "int32", "int64", "float32", "float64"]


class _Constant(_Record):
    name: str
    offset: Offset
    member: str


class _Accel(_Record):
    kind: Literal["accel"] = "accel"
    member: str
    program_offset: Offset
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    layer_of: str
    tile_of: str


class _Host(_Record):
    kind: Literal["host"] = "host"
    member: str
    constants: dict[str, str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    reason: str


class _Layer(_Record):
    name: str
    nodes: tuple[str, ...]
    kind: str
    placement: str
    reason: str
    output: str
    shape: tuple[int, ...]
    macs: int
    bytes_loaded: int
    bytes_stored: int
    schedule: str


class _Manifest(_Record):
    format: int
    isa_version: int
    name: str
    config: dict[str, int | str]
    config_hash: str
    window_bytes: Annotated[int, Field(gt=0, lt=1 << 40)]
    slots: tuple[_Slot, ...]
    constants: tuple[_Constant, ...]
    steps: tuple[Annotated[_Accel | _Host, Field(discriminator="kind")], ...]
    layers: tuple[_Layer, ...]
    inputs: tuple[_Slot, ...]
    outputs: tuple[_Slot, ...]
    statistics: dict[str, Any]


def save(model: CompiledModel, path: str | Path) -> None:
    """Write ``model`` to one file. The same model gives the same bytes."""
    members: dict[str, bytes] = {}

    def add(name: str, data: bytes) -> str:
        members[name] = data
        return name

    constants = tuple(
        _Constant(name=item.name, offset=item.offset, member=add(f"constants/{number}.bin", item.data.tobytes()))
        for number, item in enumerate(model.constants)
    )
    steps = tuple(_step_record(number, step, add) for number, step in enumerate(model.steps))
    manifest = _Manifest(
        format=FORMAT,
        isa_version=ISA_VERSION,
        name=model.name,
        config={name: getattr(model.config, name) for name in sorted(model.config.__dataclass_fields__)},
        config_hash=f"{model.config.hash64:016x}",
        window_bytes=model.window_bytes,
        slots=tuple(_slot_record(slot) for slot in model.slots.values()),
        constants=constants,
        steps=steps,
        layers=tuple(_Layer(**{name: getattr(layer, name) for name in _Layer.model_fields}) for layer in model.layers),
        inputs=tuple(_slot_record(slot) for slot in model.inputs),
        outputs=tuple(_slot_record(slot) for slot in model.outputs),
        statistics=model.statistics,
    )
    members = {"manifest.json": manifest.model_dump_json(indent=1).encode(), **members}
    Path(path).write_bytes(_zip(members))


def load(path: str | Path, config: CoreConfig | None = None) -> CompiledModel:
    """Read and check an artifact.

    ``config``: the core it is going to run on. :class:`ArtifactError` names the file and the member or field at fault.
    """
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror}") from error
    try:
        return _read(raw, config)
    except ArtifactError as error:
        raise ArtifactError(f"{path}: {error.message}", hint=error.hint) from error


def _slot_record(slot: TensorSlot) -> _Slot:
    return _Slot.model_validate({"name": slot.name, "offset": slot.offset, "shape": slot.shape, "dtype": slot.dtype})


def _step_record(number: int, step: AccelStep | HostStep, add: Any) -> _Accel | _Host:
    if isinstance(step, AccelStep):
        return _Accel(
            member=add(f"programs/{number}.bin", step.program.tobytes()),
            program_offset=step.program_offset,
            inputs=step.inputs,
            outputs=step.outputs,
            layer_of=add(f"programs/{number}.layers.npy", _npy(step.layer_of)),
            tile_of=add(f"programs/{number}.tiles.npy", _npy(step.tile_of)),
        )
    module = Module(step.function)
    return _Host(
        member=add(f"host/{number}.graph", to_text(module).encode()),
        constants={
            name: add(f"host/{number}.{index}.npy", _npy(value))
            for index, (name, value) in enumerate(constant_table(module).items())
        },
        inputs=step.inputs,
        outputs=step.outputs,
        reason=step.reason,
    )


def _npy(value: npt.NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, value, allow_pickle=False)
    return buffer.getvalue()


def _zip(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
        archive.comment = _COMMENT + b"0" * 64
    raw = buffer.getvalue()
    return raw[:-64] + hashlib.sha256(raw[:-64]).hexdigest().encode()


def _read(raw: bytes, config: CoreConfig | None) -> CompiledModel:
    if not raw.startswith(b"PK\x03\x04"):
        raise ArtifactError("this is not a weft artifact", hint="make one with 'weft compile'")
    if raw[-64 - len(_COMMENT) : -64] != _COMMENT or hashlib.sha256(raw[:-64]).hexdigest().encode() != raw[-64:]:
        raise ArtifactError(
            "the checksum of the file is wrong: it is damaged or cut off", hint="compile the model again"
        )
    members = _unzip(raw)
    if "manifest.json" not in members:
        raise ArtifactError("manifest.json is missing")
    try:
        manifest = _Manifest.model_validate_json(members["manifest.json"])
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ArtifactError(f"manifest.json, field {place!r}: {first['msg']}") from error
    return _build(manifest, members, config)


def _unzip(raw: bytes) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            infos = archive.infolist()
            if (total := sum(info.file_size for info in infos)) > LARGEST_BYTES:
                raise ArtifactError(f"it unpacks to {total} bytes, more than the {LARGEST_BYTES} that are allowed")
            if len({info.filename for info in infos}) != len(infos):
                raise ArtifactError("two members have the same name")
            return {info.filename: archive.read(info) for info in infos}
    except (zipfile.BadZipFile, ValueError, RuntimeError, NotImplementedError, EOFError) as error:
        raise ArtifactError(f"it cannot be unpacked: {error}") from error


def _build(manifest: _Manifest, members: dict[str, bytes], config: CoreConfig | None) -> CompiledModel:
    if manifest.format != FORMAT:
        raise ArtifactError(f"field 'format' is {manifest.format}, but this weft reads {FORMAT}", hint="compile again")
    if manifest.isa_version != ISA_VERSION:
        raise ArtifactError(
            f"field 'isa_version' is {manifest.isa_version}, but this weft has {ISA_VERSION}", hint="compile again"
        )
    try:
        own = CoreConfig(**manifest.config)  # type: ignore[arg-type]
    except (ConfigError, TypeError) as error:
        raise ArtifactError(f"field 'config': {error}") from error
    if f"{own.hash64:016x}" != manifest.config_hash:
        raise ArtifactError("field 'config_hash' does not belong to the configuration in field 'config'")
    if config is not None and config.hash64 != own.hash64:
        raise ArtifactError(
            f"field 'config_hash': the artifact is for {own.name!r} ({own.hash64:016x}), "
            f"but the core is {config.name!r} ({config.hash64:016x})",
            hint=f"compile with --config {config.name}",
        )
    slots = {slot.name: _slot(slot) for slot in manifest.slots}
    for slot in slots.values():
        _check_range(manifest, f"slot {slot.name!r}", slot.offset, slot.nbytes)
    constants = []
    for item in manifest.constants:
        data = np.frombuffer(_member(members, item.member), np.uint8)
        _check_range(manifest, f"constant {item.name!r}", item.offset, data.size)
        constants.append(ConstantSegment(item.name, item.offset, data))
    steps = tuple(
        _accel_step(manifest, step, members, own, slots) if isinstance(step, _Accel) else _host_step(step, members)
        for step in manifest.steps
    )
    return CompiledModel(
        name=manifest.name,
        config=own,
        window_bytes=manifest.window_bytes,
        slots=slots,
        constants=tuple(constants),
        steps=steps,
        layers=tuple(Layer(**layer.model_dump()) for layer in manifest.layers),
        inputs=tuple(_slot(slot) for slot in manifest.inputs),
        outputs=tuple(_slot(slot) for slot in manifest.outputs),
        statistics=manifest.statistics,
    )


def _slot(record: _Slot) -> TensorSlot:
    return TensorSlot(record.name, record.offset, record.shape, record.dtype)


def _member(members: dict[str, bytes], name: str) -> bytes:
    if name not in members:
        raise ArtifactError(f"member {name!r} is missing")
    return members[name]


def _check_range(manifest: _Manifest, what: str, offset: int, size: int) -> None:
    if offset + size > manifest.window_bytes:
        raise ArtifactError(f"{what} ends at byte {offset + size}, outside the window of {manifest.window_bytes} bytes")


def _accel_step(
    manifest: _Manifest, step: _Accel, members: dict[str, bytes], config: CoreConfig, slots: dict[str, TensorSlot]
) -> AccelStep:
    program = np.frombuffer(_member(members, step.member), np.uint8)
    _check_range(manifest, f"program {step.member!r}", step.program_offset, program.size)
    try:
        count = len(disassemble(config, program))
    except InstructionError as error:
        raise ArtifactError(f"program {step.member!r}: {error}") from error
    for name in (*step.inputs, *step.outputs):
        if name not in slots:
            raise ArtifactError(f"program {step.member!r} uses slot {name!r}, which the manifest does not have")
    indices = []
    for name in (step.layer_of, step.tile_of):
        values = _array(members, name)
        if values.dtype != np.int32 or values.shape != (count,):
            raise ArtifactError(f"member {name!r} must be {count} int32, not {values.dtype}{list(values.shape)}")
        indices.append(values)
    layer_of, tile_of = indices
    if count and not -1 <= int(layer_of.min()) <= int(layer_of.max()) < len(manifest.layers):
        raise ArtifactError(f"member {step.layer_of!r} names a layer that the manifest does not have")
    return AccelStep(program, step.program_offset, step.inputs, step.outputs, layer_of, tile_of)


def _host_step(step: _Host, members: dict[str, bytes]) -> HostStep:
    constants = {name: _array(members, member) for name, member in step.constants.items()}
    return HostStep(_function(members, step.member, constants), step.inputs, step.outputs, step.reason)


def _function(members: dict[str, bytes], name: str, constants: dict[str, npt.NDArray[Any]]) -> Function:
    try:
        return parse(_member(members, name).decode(), constants).main
    except (GraphError, UnicodeDecodeError) as error:
        raise ArtifactError(f"host function {name!r}: {error}") from error


def _array(members: dict[str, bytes], name: str) -> npt.NDArray[Any]:
    try:
        value: npt.NDArray[Any] = np.load(io.BytesIO(_member(members, name)), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ArtifactError(f"member {name!r} is not an array: {error}") from error
    return value
