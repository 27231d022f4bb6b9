"""An interpreter of PTX: NVIDIA's kernels run here, are checked and are counted, without a GPU."""

from __future__ import annotations

from .counts import Counts, Traffic
from .errors import KernelFaultError, PtxError, PtxSyntaxError
from .machine import Program, launch
from .memory import DeviceMemory
from .parser import Instruction, Kernel, parse

__all__ = [
    "Counts",
    "DeviceMemory",
    "Instruction",
    "Kernel",
    "KernelFaultError",
    "Program",
    "PtxError",
    "PtxSyntaxError",
    "Traffic",
    "launch",
    "parse",
]  # fmt: skip
