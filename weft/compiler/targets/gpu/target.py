"""GPUs, and whatever else has a driver for OpenCL, as a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....imports import IMPORTS
from ...model import CompiledModel, GpuCode, HostProgram
from ..errors import CompileError
from ..target import INTEGERS, PLAIN_JOB, Job, option, scope_of
from .devices import DEVICES, NVIDIA, GpuDescription, named_device, nvidia_device

if TYPE_CHECKING:
    from ...graph.ir import Module
    from ...passes.manager import Pass


@dataclass(frozen=True)
class OpenClOptions:
    """What only compilation for a GPU asks for."""

    gpu: str = option("generic", f"The kind of device that schedules are made for: {', '.join(DEVICES)}.")
    integers: str = INTEGERS

    def __post_init__(self) -> None:
        named_device(self.gpu)
        scope_of(self.integers)


class OpenCl:
    """Any device with OpenCL 1.2, by kernels in OpenCL C that its driver compiles (``docs/gpu.md``)."""

    name = "opencl"
    summary = "GPUs, and other devices with a driver for OpenCL"
    options = OpenClOptions
    require_quantised = False
    takes_open_sizes = True

    def passes(self, options: OpenClOptions, *, quantised: bool, job: Job = PLAIN_JOB) -> Sequence[Pass]:
        return _passes(options.integers, quantised)

    def link(self, module: Module, options: OpenClOptions, job: Job) -> CompiledModel:
        with IMPORTS:
            from ..loops.model import link_model
            from .kernels import loop_target

        return link_model(module, self.name, loop_target(named_device(options.gpu)), 1, job)

    def host_code(self, program: HostProgram, *, trusted: bool, processor: str = "host") -> GpuCode:
        if processor != "host":
            raise CompileError(f"target 'opencl' has no code for the processor {processor!r} of a board")
        with IMPORTS:
            from .build import build_opencl, check_gpu_program

        if not trusted:
            check_gpu_program(program)
        return build_opencl(program)


@dataclass(frozen=True)
class CudaOptions:
    """What only compilation for a GPU of NVIDIA asks for."""

    gpu: str = option("sm_80", f"The GPU's architecture, or an older one: {', '.join(NVIDIA)}.")
    tf32: bool = option(False, "Round operands of float32 products to TF32 (10 bits of fraction), for tensor cores.")
    integers: str = INTEGERS

    def __post_init__(self) -> None:
        scope_of(self.integers)
        rounded = any(shape.is_rounded for shape in self.device.mma)
        if self.tf32 and not rounded:
            raise CompileError(f"tensor cores of {self.gpu!r} have no TF32", at="option 'tf32'",
                               hint="leave it out, or compile for sm_80 or later")  # fmt: skip

    @property
    def device(self) -> GpuDescription:
        return nvidia_device(self.gpu)


class Cuda:
    """NVIDIA's GPUs, by kernels in PTX, which their driver takes (``docs/gpu.md``)."""

    name = "cuda"
    summary = "NVIDIA's GPUs, without a toolkit"
    options = CudaOptions
    require_quantised = False
    takes_open_sizes = True
    tools: ClassVar[Mapping[str, str]] = {"profile": "weft.cli.profile_gpu:profile_on_gpu"}

    def passes(self, options: CudaOptions, *, quantised: bool, job: Job = PLAIN_JOB) -> Sequence[Pass]:
        return _passes(options.integers, quantised)

    def link(self, module: Module, options: CudaOptions, job: Job) -> CompiledModel:
        with IMPORTS:
            from ..loops.model import link_model
            from .kernels import loop_target

        return link_model(module, self.name, loop_target(options.device, tf32=options.tf32), 1, job)

    def host_code(self, program: HostProgram, *, trusted: bool, processor: str = "host") -> GpuCode:
        if processor != "host":
            raise CompileError(f"target 'cuda' has no code for the processor {processor!r} of a board")
        with IMPORTS:
            from .build import build_ptx, check_gpu_program

        if not trusted:
            check_gpu_program(program)
        return build_ptx(program)


def _passes(integers: str, quantised: bool) -> list[Pass]:
    with IMPORTS:
        from ..loops.prepare import host_passes

    return host_passes(quantised=quantised, scope=scope_of(integers), weight_only=True)
