"""The processors of PCs and boards as a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...graph.ir import Attrs, Function, Module, Tuple
from ...model import CompiledModel, HostProgram, HostStep, TensorSpec
from ...passes import cse, dce, fold_batch_norm, fold_constants, integer_passes, simplify
from ...passes.manager import Pass, PassManager
from ..errors import CompileError
from ..target import HostRunner, Job, option
from ..loops.link import link_host
from ..loops.passes import loop_passes

MOST_THREADS = 256


@dataclass(frozen=True)
class CpuOptions:
    """What only a CPU's compilation asks for."""

    threads: int = option(1, "Threads that share the work of each kernel.")
    processor: str = option("host", "The processor: host (this machine's), armv7a or aarch64.")

    def __post_init__(self) -> None:
        if not 1 <= self.threads <= MOST_THREADS:
            raise CompileError(f"threads is {self.threads}, but must be 1..{MOST_THREADS}")


def float_passes() -> list[Pass]:
    """For a model without quantised tensors."""
    return [fold_constants, simplify, fold_batch_norm, fold_constants, simplify, cse, dce]
