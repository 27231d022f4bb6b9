"""NVIDIA's driver as a library of C functions: which of them are used, and what their errors mean.

Names, types and numbers are those of the driver API's documentation
(https://docs.nvidia.com/cuda/cuda-driver-api). No toolkit is needed: a machine with the GPU's driver has the library.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import cache
from typing import Any

from ...shown import one_line
from ..errors import DeviceError

DRIVER_VARIABLE = "WEFT_CUDA_DRIVER"
"""Environment variable with the path of the driver's library, where the system does not find it by its name."""

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
MISSING = "install NVIDIA's driver, or choose device 'emulated', which needs no GPU"

Address = c_uint64
_handle = POINTER(c_void_p)
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDeviceTotalMem_v2": (POINTER(c_size_t), c_int),
    "cuDevicePrimaryCtxRetain": (_handle, c_int),
    "cuCtxSetCurrent": (c_void_p,),
    "cuStreamCreate": (_handle, c_uint),
    "cuStreamDestroy_v2": (c_void_p,),
    "cuStreamSynchronize": (c_void_p,),
    "cuStreamBeginCapture_v2": (c_void_p, c_int),
    "cuStreamEndCapture": (c_void_p, _handle),
    "cuGraphInstantiateWithFlags": (_handle, c_void_p, c_uint64),
    "cuGraphLaunch": (c_void_p, c_void_p),
    "cuGraphDestroy": (c_void_p,),
    "cuGraphExecDestroy": (c_void_p,),
    "cuMemAlloc_v2": (POINTER(Address), c_size_t),
    "cuMemFree_v2": (Address,),
    "cuMemcpyHtoDAsync_v2": (Address, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, Address, c_size_t, c_void_p),
    "cuMemcpyDtoDAsync_v2": (Address, Address, c_size_t, c_void_p),
    "cuModuleLoadDataEx": (_handle, c_char_p, c_uint, POINTER(c_int), _handle),
    "cuModuleGetFunction": (_handle, c_void_p, c_char_p),
    "cuModuleUnload": (c_void_p,),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, _handle, _handle),
    "cuEventCreate": (_handle, c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventSynchronize": (c_void_p,),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cuEventDestroy_v2": (c_void_p,),
}
"""What is called, with the types of its parameters; each gives a number, 0 where it went well."""

NON_BLOCKING_STREAM, THREAD_CAPTURE = 1, 1
ERROR_LOG, ERROR_LOG_BYTES = 5, 6  # options of the compiler of PTX
THREADS_PER_BLOCK, CAPABILITY_MAJOR, CAPABILITY_MINOR, SHARED_ASKED = 1, 75, 76, 97  # attributes of devices
OPEN_SHARED_BYTES = 8  # attribute of functions
LOG_BYTES = 8192

Bare = Callable[..., int]

_HINTS = {
    "CUDA_ERROR_NO_DEVICE": MISSING,
    "CUDA_ERROR_OUT_OF_MEMORY": "other programs on the GPU may hold its memory: nvidia-smi shows them",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "the driver is older than the model's PTX: install a newer one",
    "CUDA_ERROR_ILLEGAL_ADDRESS": "please report this: kernels are proved to stay within their tensors",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "the library and the kernel module are of different drivers: restart",
}


class Driver:
    """The library, opened and started. `DeviceError` where it is not there or does not start."""

    def __init__(self, path: str) -> None:
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise DeviceError(f"NVIDIA's driver cannot be used: {one_line(str(error))}", hint=MISSING) from error
        for name, types in _FUNCTIONS.items():
            function = getattr(self._library, name, None)
            if function is None:
                raise DeviceError(f"NVIDIA's driver has no {name}", at=path, hint="it is too old: install a newer one")
            function.argtypes, function.restype = types, c_int
        # Other objects of the same functions, without types, by which ctypes would convert each argument of each call.
        self._bare: dict[str, Bare] = {name: self._library[name] for name in _FUNCTIONS}
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any, what: str = "") -> None:
        """Call a function; `DeviceError` with the error's name, its meaning, and ``what`` was tried."""
        status = getattr(self._library, name)(*arguments)
        if status:
            raise self.error(status, what or name)

    def error(self, status: int, what: str) -> DeviceError:
        """What a function has said by a number that is not 0."""
        code, meaning = self._text("cuGetErrorName", status), self._text("cuGetErrorString", status)
        return DeviceError(f"{what}: {meaning} ({code})", hint=_HINTS.get(code, ""))

    def bare(self, name: str) -> Bare:
        """A function for what is called often: it takes what `converted` gives, and gives the driver's number, 0 where
        it went well."""
        return self._bare[name]

    def handle(self, name: str, *arguments: Any, what: str = "") -> c_void_p:
        """What a function makes, the place for which is its first parameter."""
        made = c_void_p()
        self.call(name, ctypes.byref(made), *arguments, what=what)
        return made

    def number(self, name: str, *arguments: Any) -> int:
        """A number that a function gives, the place for which is its first parameter."""
        found = (c_size_t if name == "cuDeviceTotalMem_v2" else c_int)()
        self.call(name, ctypes.byref(found), *arguments)
        return int(found.value)

    def _text(self, name: str, status: int) -> str:
        text = c_char_p()
        known = getattr(self._library, name)(status, ctypes.byref(text)) == 0
        return (text.value or b"").decode(errors="replace") if known else f"error {status}"


def converted(name: str, *arguments: int | None) -> tuple[Any, ...]:
    """All arguments of a function, for any number of calls; handles and addresses are numbers here. Who has them keeps
    what they point to."""
    kinds = (c_void_p if kind is _handle else kind for kind in _FUNCTIONS[name])
    return tuple(kind.from_param(argument) for kind, argument in zip(kinds, arguments, strict=True))


@cache
def _opened(path: str) -> Driver:
    return Driver(path)


def driver() -> Driver:
    """The driver, opened once."""
    return _opened(os.environ.get(DRIVER_VARIABLE) or LIBRARY)
