"""Which device runs code for a GPU."""

from __future__ import annotations

import os

from ...compiler.model import GpuCode
from ..errors import DeviceError
from .cuda import open_cuda
from .emulated import EmulatedGpu
from .gpu import Gpu
from .opencl import open_opencl

EMULATED = "emulated"
"""The name of the device that runs PTX without a GPU."""

CUDA_VARIABLE = "WEFT_CUDA_DEVICE"
"""Environment variable with the device for PTX where none is asked for."""


def is_gpu(device: str) -> bool:
    """Whether a name is of a GPU: its number, or the emulated one."""
    return device.isdecimal() or device == EMULATED


def open_gpu(code: GpuCode, device: str | None) -> Gpu:
    """A device for this code, by its number or as ``"emulated"``. DeviceError where there is none."""
    if code.language == "opencl":
        if device == EMULATED:
            raise DeviceError("no device for OpenCL is emulated", hint="compile the model with target 'cuda'")
        return open_opencl(device)
    wanted = device if device is not None else os.environ.get(CUDA_VARIABLE, "")
    return EmulatedGpu() if wanted == EMULATED else open_cuda(wanted)
