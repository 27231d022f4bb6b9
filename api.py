"""One call to compile and one to load, whatever the target."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, overload

from .compiler.compile import compile_model
from .compiler.compile_cpu import compile_for_any_size
from .compiler.compiled import CompiledModel
from .compiler.compiled_cpu import CpuModel
from .compiler.compiled_symbolic import SymbolicCpuModel
from .compiler.targets.errors import CompileError
from .hw.config import CoreConfig
from .runtime.cpu import CpuModule
from .runtime.cpu_symbolic import SIZES_KEPT, SymbolicCpuModule
from .runtime.device import Device
from .runtime.module import LoadedModule
from .runtime.module import load as load_on_device

TARGETS = ("accel", "cpu")


@overload
def compile(
    model: Any, config: CoreConfig | str = "pynq", *, target: Literal["accel"] = "accel", **options: Any
) -> CompiledModel: ...


@overload
def compile(model: Any, *, target: Literal["cpu"], **options: Any) -> CpuModel | SymbolicCpuModel: ...


def compile(
    model: Any, config: CoreConfig | str = "pynq", *, target: str = "accel", **options: Any
) -> CompiledModel | CpuModel | SymbolicCpuModel:
    """Compile a model for the accelerator, or for a CPU.

    ``options`` are those of ``compiler.compile.compile_model`` and ``compiler.compile_cpu.compile_for_cpu``. Sizes that
    the model leaves open must be fixed (``shapes=``) for the accelerator; on a CPU it then runs for any size.
    """
    if target == "cpu":
        return compile_for_any_size(model, **options)
    if target != "accel":
        raise CompileError(f"there is no target {target!r}", hint=f"choose {' or '.join(TARGETS)}")
    return compile_model(model, config, **options)


@overload
def load(model: CpuModel) -> CpuModule: ...


@overload
def load(model: SymbolicCpuModel, *, kept: int = SIZES_KEPT) -> SymbolicCpuModule: ...


@overload
def load(model: CompiledModel | str | Path, device: str | Device = "fsim", **options: Any) -> LoadedModule: ...


def load(
    model: CompiledModel | CpuModel | SymbolicCpuModel | str | Path, device: str | Device = "fsim", **options: Any
) -> LoadedModule | CpuModule | SymbolicCpuModule:
    """Put a compiled model, or the artifact in a file, onto a device; one for the CPU is loaded into this process.

    A model with open sizes keeps what it compiled for the last ``kept`` of them.
    """
    if isinstance(model, CpuModel):
        return CpuModule(model)
    if isinstance(model, SymbolicCpuModel):
        return SymbolicCpuModule(model, **options)
    return load_on_device(model, device, **options)
