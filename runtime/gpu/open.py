"""Which device runs code for a GPU."""

from __future__ import annotations

import os

from ...compiler.model import GpuCode
from ...shown import one_line
from ..errors import DeviceError
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
    if wanted == EMULATED:
        return EmulatedGpu()
    raise DeviceError(
        f"PTX runs on the emulated device alone: weft has no use of NVIDIA's driver yet (asked for: "
        f"{one_line(wanted) or 'any device'!r})", hint=f"choose device {EMULATED!r}, or set {CUDA_VARIABLE}={EMULATED}",
    )  # fmt: skip
