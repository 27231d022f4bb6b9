"""What the compiler hands over for a CPU: object files, constants, a memory plan, and the steps of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .graph.dtypes import numpy_dtype
from .graph.ir import Function

TEAM_BYTES = 512
"""Memory that the threads of a model share; all 0 at first."""


@dataclass(frozen=True)
class CpuTensor:
    """An input or output of the model, as the user sees it."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Place:
    """Where a plain tensor is during a run. ``where`` is the bytes in the arena or the constants, or the number of the
    model's input or output."""

    kind: Literal["arena", "constant", "input", "output"]
    where: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * numpy_dtype(self.dtype).itemsize


@dataclass(frozen=True)
class CompiledStep:
    """One call into compiled code, which runs kernels one after another on all threads."""

    symbol: str
    counter_bytes: int


@dataclass(frozen=True)
class NumpyStep:
    """An operator that NumPy runs, through its meaning in the graph."""

    function: Function
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    reason: str


@dataclass(frozen=True)
class CopyStep:
    """A tensor that is needed in a second place."""

    source: Place
    target: Place


@dataclass(frozen=True)
class ArenaTensor:
    """A tensor, or workspace of a kernel, in the arena: its bytes are its own from step ``first`` to step ``last``.

    ``over``: the number in ``CpuModel.memory`` of a tensor that dies when this one is made, in whose place it is
    written, element over element; None if it has a place of its own.
    """

    name: str
    offset: int
    nbytes: int
    first: int
    last: int
    over: int | None


@dataclass(frozen=True)
class CheckStep:
    """Indices that machine code is about to trust: each must be in ``-size..size-1``. There is one size for all, or one
    for each number along the last axis. ``node`` is the user's."""

    indices: Place
    sizes: tuple[int, ...]
    node: str


@dataclass(frozen=True)
class CpuLayer:
    """One kernel or NumPy step, for tables: which of the user's nodes it does the work of, and how."""

    name: str
    nodes: tuple[str, ...]
    kind: str  # "convolution", "blocked", "plain", "convert", "numpy"
    operators: tuple[str, ...]
    shape: tuple[int, ...]  # of the result
    macs: int
    reason: str = ""  # why NumPy runs it; empty where it is compiled
    boundaries: tuple[str, ...] = ()  # operands that were not fused, and why
    saved_bytes: int = 0  # memory traffic that there would be if its operators were not fused

    @property
    def placement(self) -> str:
        return "numpy" if self.reason else "cpu"


@dataclass(frozen=True)
class CpuModel:
    """A model compiled for one processor and a number of threads; ``runtime.cpu`` runs it."""

    name: str
    processor: str  # triple, name and features that the code is for
    threads: int
    objects: tuple[bytes, ...] = field(repr=False)
    constants: npt.NDArray[np.uint8] = field(repr=False)
    arena_bytes: int
    inputs: tuple[CpuTensor, ...]
    outputs: tuple[CpuTensor, ...]
    steps: tuple[CompiledStep | NumpyStep | CopyStep | CheckStep, ...]
    layers: tuple[CpuLayer, ...]
    pool: bytes = field(repr=False)  # object file of the thread pool
    memory: tuple[ArenaTensor, ...] = field(default=(), repr=False)
    statistics: dict[str, Any] = field(default_factory=dict)
