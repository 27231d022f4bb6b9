"""Which device runs code for a GPU."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...compiler.model import GpuCode
from ...imports import IMPORTS
from ..errors import DeviceError

if TYPE_CHECKING:
    from .gpu import Gpu

EMULATED = "emulated"
"""The name of the device that runs PTX without a GPU."""

CUDA_VARIABLE = "WEFT_CUDA_DEVICE"
"""Environment variable with the device for PTX where none is asked for."""


def is_gpu(device: str) -> bool:
    """Whether a name is of a GPU: its number, or the emulated one."""
    return device.isdecimal() or device == EMULATED


def open_gpu(code: GpuCode, device: str | None) -> Gpu:
    """A device for this code, by its number or as ``"emulated"``. DeviceError where there is none."""
    return _opened(code.language, device)


LANGUAGES = {"opencl": "opencl", "cuda": "ptx"}
"""What the targets for GPUs write, by their names."""


def check_gpu(target: str, device: str | None) -> None:
    """DeviceError where this machine has no such device for code of a target; targets for others need none."""
    if target in LANGUAGES:
        _opened(LANGUAGES[target], device)


def _opened(language: str, device: str | None) -> Gpu:
    with IMPORTS:  # none of them is imported where another is asked for
        if language == "opencl":
            from .opencl import open_opencl
        else:
            from .cuda import open_cuda
            from .emulated import EmulatedGpu
    if language == "opencl":
        if device == EMULATED:
            raise DeviceError("no device for OpenCL is emulated", hint="compile the model with target 'cuda'")
        return open_opencl(device)
    wanted = device if device is not None else os.environ.get(CUDA_VARIABLE, "")
    return EmulatedGpu() if wanted == EMULATED else open_cuda(wanted)
