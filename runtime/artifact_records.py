"""What stands in an artifact's manifest: a record for each type of `compiler.model`, with the limits of every field."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

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

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class TensorRecord(Record):
    name: str
    shape: Shape
    dtype: DType


class PlaceRecord(Record):
    kind: Literal["arena", "constant", "input", "output", "strings"]
    number: Index
    offset: Offset
    shape: Shape
    dtype: DType
    stride: Annotated[int, Field(gt=-(1 << 40), lt=1 << 40)] = 0
    period: Index = 0


class KernelRecord(Record):
    symbol: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
    member: str
    windows: dict[str, tuple[Offset, ...]]
    nbytes: tuple[Offset, ...]
    workspace_bytes: Offset
    parts: Index


class LaunchRecord(Record):
    kind: Literal["launch"] = "launch"
    symbol: str
    arguments: tuple[PlaceRecord, ...]
    workspace: Offset | None
    layer: Index


class ArrayRecord(Record):
    member: str
    shape: Shape
    dtype: DType


class NumpyRecord(Record):
    kind: Literal["numpy"] = "numpy"
    member: str
    constants: dict[str, ArrayRecord]
    inputs: tuple[PlaceRecord, ...]
    outputs: tuple[PlaceRecord, ...]
    layer: Index


class CopyRecord(Record):
    kind: Literal["copy"] = "copy"
    source: PlaceRecord
    target: PlaceRecord


class CheckRecord(Record):
    kind: Literal["check"] = "check"
    indices: PlaceRecord
    sizes: tuple[Size, ...]
    node: str


class LoopRecord(Record):
    first: Index
    last: Index
    count: Annotated[int, Field(ge=1, le=MOST_STEPS)]


class ArenaRecord(Record):
    name: str
    offset: Offset
    nbytes: Offset
    first: Index
    last: Index
    reuses: Index | None


class LayerRecord(Record):
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


HostStepRecord = Annotated[LaunchRecord | NumpyRecord | CopyRecord | CheckRecord, Field(discriminator="kind")]


class HostRecord(Record):
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


class CoreStepRecord(Record):
    kind: Literal["core"] = "core"
    member: str
    program_offset: Offset
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    layer_of: str
    tile_of: str


class SlotRecord(TensorRecord):
    offset: Offset


class SegmentRecord(Record):
    name: str
    offset: Offset
    member: str


class CoreRecord(Record):
    isa_version: int
    config: dict[str, int | str]
    config_hash: str
    window_bytes: Annotated[int, Field(gt=0, lt=1 << 40)]
    slots: tuple[SlotRecord, ...]
    constants: tuple[SegmentRecord, ...]


class Manifest(Record):
    format: int
    name: str
    target: str
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    core: CoreRecord | None
    steps: tuple[Annotated[CoreStepRecord | HostRecord, Field(discriminator="kind")], ...]
    layers: tuple[LayerRecord, ...]
    statistics: Annotated[dict[Name, Figure], Field(max_length=256)]
