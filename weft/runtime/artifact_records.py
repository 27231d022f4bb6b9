"""What stands in an artifact's manifest: a record for each type of `compiler.model`, with the limits of every field."""

from __future__ import annotations

from typing import Annotated, Any, Literal, dataclass_transform

from pydantic import BaseModel, ConfigDict, Field
from pydantic.dataclasses import dataclass

from ..compiler.graph.scan import MOST_STEPS
from ..compiler.model import LayerDevice

Offset = Annotated[int, Field(ge=0, lt=1 << 40)]
Size = Annotated[int, Field(ge=0, lt=1 << 31)]
Index = Annotated[int, Field(ge=0, lt=1 << 24)]
Count = Annotated[int, Field(ge=0, lt=1 << 62)]
Name = Annotated[str, Field(max_length=1 << 10)]
Figure = Annotated[int, Field(ge=0, lt=1 << 62)] | Annotated[float, Field(allow_inf_nan=False)]
"""What a statistic is."""

DType = Annotated[str, Field(max_length=32)]
Shape = Annotated[tuple[Size, ...], Field(max_length=64)]


class Record(BaseModel):
    """Nothing but the named fields, each of its type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, defer_build=True)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def _part(kind: type[Any]) -> type[Any]:
    """What a record has many of: as strict, and a quarter of the memory, which Python hardly gives back."""
    return dataclass(kind, config=ConfigDict(extra="forbid", defer_build=True), frozen=True, slots=True, kw_only=True)


@_part
class TensorRecord:
    name: str
    shape: Shape
    dtype: DType


@_part
class PlaceRecord:
    kind: Literal["arena", "constant", "input", "output", "strings"]
    number: Index
    offset: Offset
    shape: Shape
    dtype: DType
    stride: Annotated[int, Field(gt=-(1 << 40), lt=1 << 40)] = 0
    period: Index = 0


@_part
class KernelRecord:
    symbol: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
    member: str
    windows: dict[str, tuple[Offset, ...]]
    nbytes: tuple[Offset, ...]
    workspace_bytes: Offset
    parts: Index


@_part
class LaunchRecord:
    kind: Literal["launch"] = "launch"
    symbol: str
    arguments: tuple[PlaceRecord, ...]
    workspace: Offset | None
    layer: Index


@_part
class ArrayRecord:
    member: str
    shape: Shape
    dtype: DType


@_part
class NumpyRecord:
    kind: Literal["numpy"] = "numpy"
    member: str
    constants: dict[str, ArrayRecord]
    inputs: tuple[PlaceRecord, ...]
    outputs: tuple[PlaceRecord, ...]
    layer: Index


@_part
class CopyRecord:
    kind: Literal["copy"] = "copy"
    source: PlaceRecord
    target: PlaceRecord


@_part
class CheckRecord:
    kind: Literal["check"] = "check"
    indices: PlaceRecord
    sizes: tuple[Size, ...]
    node: str


@_part
class LoopRecord:
    first: Index
    last: Index
    count: Annotated[int, Field(ge=1, le=MOST_STEPS)]


@_part
class ArenaRecord:
    name: str
    offset: Offset
    nbytes: Offset
    first: Index
    last: Index
    reuses: Index | None


@_part
class LayerRecord:
    name: str
    nodes: tuple[str, ...]
    kind: str
    device: LayerDevice
    output: str
    shape: Shape
    macs: Count
    reason: str
    operators: tuple[str, ...]
    bytes_loaded: Count
    bytes_stored: Count
    boundaries: tuple[str, ...]
    saved_bytes: Count
    schedule: str
    form: str = ""


HostStepRecord = Annotated[LaunchRecord | NumpyRecord | CopyRecord | CheckRecord, Field(discriminator="kind")]


@_part
class ResidentRecord:
    state: Name
    rows: Name
    axis: Index
    places: Annotated[tuple[tuple[Offset, ...], ...], Field(max_length=64)]


@_part
class HostRecord:
    kind: Literal["host"] = "host"
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    first_layer: Index
    program_inputs: tuple[TensorRecord, ...]
    program_outputs: tuple[TensorRecord, ...]
    kernels: tuple[KernelRecord, ...]
    steps: tuple[HostStepRecord, ...]
    layers: tuple[LayerRecord, ...]
    constants: str
    arena_bytes: Offset
    memory: tuple[ArenaRecord, ...]
    threads: Annotated[int, Field(ge=1, le=256)]
    processor: str
    loops: tuple[LoopRecord, ...] = ()
    resident: ResidentRecord | None = None


@_part
class CoreStepRecord:
    kind: Literal["core"] = "core"
    member: str
    program_offset: Offset
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    layer_of: str
    tile_of: str
    stage: Index = 0
    turn: Index = 0
    core: Index = 0


@_part
class SlotRecord(TensorRecord):
    offset: Offset


@_part
class SegmentRecord:
    name: str
    offset: Offset
    member: str


@_part
class CoreRecord:
    isa_version: int
    config: dict[str, int | str]
    config_hash: str
    cores: tuple[dict[str, int | str], ...] = ()
    window_bytes: Annotated[int, Field(gt=0, lt=1 << 40)]
    slots: tuple[SlotRecord, ...]
    constants: tuple[SegmentRecord, ...]


@_part
class WitnessRecord:
    member: str
    constants: dict[str, ArrayRecord]
    names: tuple[Name, ...]
    integers: Name


@_part
class TailRecord:
    member: str
    inputs: tuple[Name, ...]
    outputs: tuple[Name, ...]
    operators: Annotated[tuple[tuple[Name, Name], ...], Field(min_length=1)]
    reason: Name


class Manifest(Record):
    format: int
    name: str
    target: str
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    core: CoreRecord | None
    steps: tuple[Annotated[CoreStepRecord | HostRecord, Field(discriminator="kind")], ...]
    layers: tuple[LayerRecord, ...]
    witness: WitnessRecord | None = None
    tail: TailRecord | None = None
    statistics: Annotated[dict[Name, Figure], Field(max_length=256)]
