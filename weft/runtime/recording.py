"""Recordings: every program that ran on a core, with its window before and after, and what the core said of it.

`RecordingDevice` makes one of any device; `save_recording` and `load_recording` keep it in a file; :mod:`.replay` runs
it on another device. The file is a sealed zip (:mod:`.sealed`) and is read as an artifact is: every field is checked
before a device sees anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from ..compiler.model import CompiledModel
from ..errors import WeftError
from ..files import write_atomically
from ..hw.config import ISA_VERSION, PROGRAM_ALIGNMENT, CoreConfig
from ..hw.cycle_class import CycleClass
from ..hw.dram_rate import DramRate
from ..hw.errors import ConfigError
from ..hw.isa import ENGINE_NAMES, Engine, Fault
from ..sim.errors import SimulationError
from ..sim.result import FaultRecord, RunResult
from ..sim.work import check_work
from .artifact import from_bytes, to_bytes
from .artifact_check import LARGEST_WINDOW
from .artifact_records import Count, Index, Name, Offset, Record
from .device import Bytes, Device
from .errors import ArtifactError, DeviceError
from .sealed import manifest_of, member, seal, unseal

FORMAT = 1
MOST_LAUNCHES = 1 << 12
MANIFEST, MODEL = "recording.json", "model.weft"


@dataclass(frozen=True, eq=False)
class Launch:
    """One program: ``count`` instructions at byte ``offset`` of the window ``before``.

    ``after`` and ``result`` (without a trace) are None if the device gave none; ``error`` says why. After a fault the
    window holds whatever the engines had done by then.
    """

    offset: int
    count: int
    before: Bytes
    after: Bytes | None
    result: RunResult | None
    error: str = ""


@dataclass(frozen=True, eq=False)
class Recording:
    """Launches on one device, in order. ``model``: where they come from, if it is known, for the names of tensors."""

    config: CoreConfig
    device: str
    launches: tuple[Launch, ...]
    model: CompiledModel | None = None
    clock_mhz: float | None = None

    def __repr__(self) -> str:
        of = "" if self.model is None else f" of {self.model.name!r}"
        return f"<Recording{of} on device {self.device!r}, core {self.config.name!r}, {len(self.launches)} launches>"


class RecordingDevice(Device):
    """Another device, of which every launch is kept in memory: two windows each."""

    name: ClassVar[str] = "recording"

    def __init__(self, device: Device) -> None:
        super().__init__(device.config, progress=device.progress)
        self.name = device.name  # type: ignore[misc]  # what reports show
        self.device = device
        self.launches: list[Launch] = []
        self._window: Bytes = np.zeros(0, np.uint8)

    @property
    def has_time(self) -> bool:
        return self.device.has_time

    @property
    def has_trace(self) -> bool:
        return self.device.has_trace

    @property
    def dram(self) -> DramRate | None:
        return self.device.dram

    def allocate(self, window_bytes: int) -> None:
        self.device.allocate(window_bytes)
        self._window = np.zeros(window_bytes, np.uint8)

    def write(self, offset: int, data: npt.NDArray[np.generic]) -> None:
        self.device.write(offset, data)
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self._window[offset : offset + raw.size] = raw

    def read(self, offset: int, size: int) -> Bytes:
        return self.device.read(offset, size)

    def execute(self, offset: int, count: int, trace: bool) -> RunResult:
        before = self._window.copy()
        try:
            result = self.device.execute(offset, count, trace)
            after = self.device.read(0, before.size)
        except WeftError as error:
            self.launches.append(Launch(offset, count, before, None, None, str(error)))
            raise
        self._window = after.copy()
        self.launches.append(Launch(offset, count, before, after, result))
        return result

    def recording(self, model: CompiledModel | None = None) -> Recording:
        """What was recorded so far; ``model``: what ran, for the names of its tensors."""
        clock = getattr(self.device, "clock_mhz", None)
        return Recording(self.config, self.device.name, tuple(self.launches), model, clock)


# The file

Figures = Annotated[tuple[tuple[Index, Index, Count], ...], Field(max_length=1 << 10)]


class ResultRecord(Record):
    """``fault``: cause, engine, instruction; ``counters``: engine, class, cycles."""

    cycles: Count | None
    fault: tuple[Index, Index, Count] | None
    bytes_read: Count
    bytes_written: Count
    counters: Figures


class LaunchRecord(Record):
    """``before`` and ``after`` are members: the window's bytes, xor those of the window before that."""

    offset: Offset
    count: Annotated[int, Field(ge=0, lt=1 << 31)]
    before: Name
    after: Name | None
    result: ResultRecord | None
    error: Annotated[str, Field(max_length=1 << 14)]


class Manifest(Record):
    format: int
    isa_version: int
    config: dict[str, int | str]
    config_hash: str
    device: Name
    clock_mhz: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] | None
    window_bytes: tuple[Offset, ...]
    launches: Annotated[tuple[LaunchRecord, ...], Field(max_length=MOST_LAUNCHES)]
    has_model: bool


def save_recording(recording: Recording, path: str | Path) -> None:
    """Write a recording to one file, which is replaced at once or not at all."""
    write_atomically(Path(path), recording_bytes(recording))


def recording_bytes(recording: Recording) -> bytes:
    """The bytes of a recording's file; :class:`DeviceError` if it has too many launches."""
    if len(recording.launches) > MOST_LAUNCHES:
        raise DeviceError(f"{len(recording.launches)} launches, more than the {MOST_LAUNCHES} that a file holds")
    members: dict[str, bytes] = {}
    last: Bytes = np.zeros(0, np.uint8)

    def put(name: str, window: Bytes) -> str:
        nonlocal last
        members[name] = _xor(window, last).tobytes()
        last = window
        return name

    launches = tuple(
        LaunchRecord(
            offset=each.offset,
            count=each.count,
            before=put(f"windows/{number}.before.bin", each.before),
            after=None if each.after is None else put(f"windows/{number}.after.bin", each.after),
            result=None if each.result is None else _result_record(each.result),
            error=each.error[: 1 << 14],
        )
        for number, each in enumerate(recording.launches)
    )
    config = recording.config
    manifest = Manifest(
        format=FORMAT,
        isa_version=ISA_VERSION,
        config={name: getattr(config, name) for name in sorted(config.__dataclass_fields__)},
        config_hash=f"{config.hash64:016x}",
        device=recording.device,
        clock_mhz=recording.clock_mhz,
        window_bytes=tuple(each.before.size for each in recording.launches),
        launches=launches,
        has_model=recording.model is not None,
    )
    if recording.model is not None:
        members[MODEL] = to_bytes(recording.model)
    return seal({MANIFEST: manifest.model_dump_json(indent=1).encode(), **members})


def _xor(window: Bytes, last: Bytes) -> Bytes:
    """Where windows are alike they become zeros, which take no room in a zip."""
    return window ^ last if window.size == last.size else window


def _result_record(result: RunResult) -> ResultRecord:
    fault = result.fault
    return ResultRecord(
        cycles=result.cycles,
        fault=None if fault is None else (int(fault.cause), int(fault.engine), fault.number),
        bytes_read=result.bytes_read,
        bytes_written=result.bytes_written,
        counters=tuple(
            (int(engine), int(kind.value), cycles)
            for engine, kinds in result.counters.items()
            for kind, cycles in kinds.items()
        ),
    )


def load_recording(path: str | Path) -> Recording:
    """Read and check a recording; :class:`ArtifactError` names the file and the member or field at fault."""
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror}") from error
    try:
        return recording_from(raw)
    except ArtifactError as error:
        raise ArtifactError(f"{path}: {error.message}", hint=error.hint) from error


def recording_from(raw: bytes) -> Recording:
    """The recording in the bytes of a file, checked."""
    members = unseal(raw, "recording", "make one with 'weft run --record'", "record it again")
    if MANIFEST not in members and "manifest.json" in members:
        raise ArtifactError("this is an artifact, not a recording", hint="make one with 'weft run --record'")
    manifest = manifest_of(members, MANIFEST, Manifest, FORMAT, "record it again")
    if manifest.isa_version != ISA_VERSION:
        raise ArtifactError(
            f"field 'isa_version' is {manifest.isa_version}, but this weft has {ISA_VERSION}", hint="record it again"
        )
    config = _config(manifest)
    if len(manifest.window_bytes) != len(manifest.launches):
        raise ArtifactError("field 'window_bytes' does not have one number for each launch")
    names = [name for each in manifest.launches for name in (each.before, each.after) if name is not None]
    if len(set(names)) != len(names):
        raise ArtifactError("two windows are one member")
    launches: list[Launch] = []
    last: Bytes = np.zeros(0, np.uint8)
    for number, (record, size) in enumerate(zip(manifest.launches, manifest.window_bytes, strict=True)):
        what = f"launch {number}"
        before = last = _window(members, record.before, size, last, what)
        after = None
        if record.after is not None:
            after = last = _window(members, record.after, size, last, what)
        if (after is None) != (record.result is None):
            raise ArtifactError(f"{what} has a window without a result, or a result without a window")
        _check_program(config, record, before, what)
        result = None if record.result is None else _result(record.result, what)
        launches.append(Launch(record.offset, record.count, before, after, result, record.error))
    model = None
    if manifest.has_model:
        try:
            model = from_bytes(member(members, MODEL), config)
        except ArtifactError as error:
            raise ArtifactError(f"member {MODEL!r}: {error.message}", hint=error.hint) from error
    return Recording(config, manifest.device, tuple(launches), model, manifest.clock_mhz)


def _config(manifest: Manifest) -> CoreConfig:
    try:
        config = CoreConfig(**manifest.config)  # type: ignore[arg-type]
    except (ConfigError, TypeError) as error:
        raise ArtifactError(f"field 'config': {error}") from error
    if f"{config.hash64:016x}" != manifest.config_hash:
        raise ArtifactError("field 'config_hash' does not belong to the configuration in field 'config'")
    return config


def _window(members: dict[str, bytes], name: str, size: int, last: Bytes, what: str) -> Bytes:
    data = member(members, name)
    if len(data) != size or size > LARGEST_WINDOW:
        raise ArtifactError(f"{what}: member {name!r} has {len(data)} bytes, but the window {size}")
    return _xor(np.frombuffer(data, np.uint8), last)


def _check_program(config: CoreConfig, record: LaunchRecord, before: Bytes, what: str) -> None:
    """The program is in the window, and asks for no more work than a simulator does in a moment."""
    end = record.offset + record.count * config.instruction_bytes
    if end > before.size or record.offset % PROGRAM_ALIGNMENT:
        raise ArtifactError(f"{what}: {record.count} instructions at byte {record.offset} are no program in the window")
    if record.count:
        try:
            check_work(config, before[record.offset : end])
        except SimulationError as error:
            raise ArtifactError(f"{what}, program: {error.message}", hint=error.hint) from error


def _result(record: ResultRecord, what: str) -> RunResult:
    counters: dict[Engine, dict[CycleClass, int]] = {engine: {} for engine in Engine}
    classes = {int(kind.value): kind for kind in CycleClass.__members__.values()}
    fault = None
    try:
        for engine, kind, cycles in record.counters:
            counters[Engine(engine)][classes[kind]] = cycles
        if record.fault is not None:
            cause, engine, number = record.fault
            fault = FaultRecord(Fault(cause), range(len(ENGINE_NAMES))[engine], number)
    except (ValueError, KeyError, IndexError) as error:
        raise ArtifactError(f"{what}: its result names what does not exist: {error}") from error
    return RunResult(record.cycles, fault, record.bytes_read, record.bytes_written, counters)
