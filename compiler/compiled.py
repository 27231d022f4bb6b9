"""What the compiler hands over: programs for the core, host steps, the memory plan and where everything comes from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..hw.config import CoreConfig
from .graph.ir import Function


@dataclass(frozen=True)
class TensorSlot:
    """A tensor in the DMA window: ``offset`` in bytes from the window's base, packed ``shape``."""

    name: str
    offset: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class ConstantSegment:
    """Bytes that are written into the window once, when the model is loaded: packed weights, parameters."""

    name: str
    offset: int
    data: npt.NDArray[np.uint8] = field(repr=False)


@dataclass(frozen=True)
class AccelStep:
    """One program on the core. Inputs and outputs are names of tensor slots.

    ``layer_of`` and ``tile_of`` give, for each instruction, the index of its layer and the running number of its tile
    there, so that a cycle can be traced back to the node that caused it.
    """

    program: npt.NDArray[np.uint8] = field(repr=False)
    program_offset: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    layer_of: npt.NDArray[np.int32] = field(repr=False)
    tile_of: npt.NDArray[np.int32] = field(repr=False)


@dataclass(frozen=True)
class HostStep:
    """A graph function that NumPy runs. Inputs and outputs name model inputs, slots or other host values."""

    function: Function
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Layer:
    """One fused function on the core, or one host function, for tables and traces."""

    name: str
    nodes: tuple[str, ...]  # the user's nodes that it does the work of
    kind: str  # "conv2d", "depthwise_conv2d", "max_pool", "sum_pool", "elementwise", "host"
    placement: str  # "accel" or "host"
    reason: str  # why it is on the host; empty on the core
    output: str  # name of the value that it produces
    shape: tuple[int, ...]  # logical shape of the output
    macs: int  # useful multiply-accumulates of the model, no padding counted
    bytes_loaded: int
    bytes_stored: int
    schedule: str = ""  # readable trace of the schedule


@dataclass(frozen=True)
class CompiledModel:
    """A model compiled for one configuration; ``runtime`` stores it as an artifact and runs it."""

    name: str
    config: CoreConfig
    window_bytes: int
    slots: dict[str, TensorSlot]
    constants: tuple[ConstantSegment, ...]
    steps: tuple[AccelStep | HostStep, ...]
    layers: tuple[Layer, ...]
    inputs: tuple[TensorSlot, ...]  # logical (user's) inputs; offset is unused
    outputs: tuple[TensorSlot, ...]  # logical outputs; offset is unused
    statistics: dict[str, Any] = field(default_factory=dict)  # instructions, program bytes, compile seconds
