"""What the compiler hands over for a CPU: a host program under a name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .model import ArenaTensor, CheckStep, CopyStep, HostCode, HostProgram, LaunchStep, Layer, NumpyStep, TensorSpec


@dataclass(frozen=True)
class CpuModel:
    """A model compiled for a CPU and a number of threads. ``code`` makes its machine code."""

    name: str
    processor: str
    program: HostProgram
    code: Callable[[], HostCode] = field(repr=False, compare=False)
    statistics: dict[str, Any] = field(default_factory=dict)

    @property
    def threads(self) -> int:
        return self.program.threads

    @property
    def arena_bytes(self) -> int:
        return self.program.arena_bytes

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self.program.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return self.program.outputs

    @property
    def steps(self) -> tuple[LaunchStep | NumpyStep | CopyStep | CheckStep, ...]:
        return self.program.steps

    @property
    def layers(self) -> tuple[Layer, ...]:
        return self.program.layers

    @property
    def memory(self) -> tuple[ArenaTensor, ...]:
        return self.program.memory
