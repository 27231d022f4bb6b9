"""A stand-in for NVIDIA's driver: a library with its functions, whose kernels run in the interpreter of PTX.

It is as strict as the driver: a thread without a context is refused, so are streams of another context than the
thread's, handles that it has not made and memory that was not allocated; work of a stream is done when somebody waits
for it; after a fault every call fails. Numbers of errors, options and attributes and the types of parameters are those
of cuda.h (12.9), written here a second time so that a wrong one on either side is seen.
"""

from __future__ import annotations

import ctypes
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from weft.sim.ptx import DeviceMemory, Program, PtxError

OK, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED = 0, 1, 2, 3
NO_DEVICE, INVALID_DEVICE, INVALID_CONTEXT = 100, 101, 201
INVALID_PTX, INVALID_HANDLE, NOT_FOUND, ILLEGAL_ADDRESS = 218, 400, 500, 700
NAMES = {
    INVALID_VALUE: "CUDA_ERROR_INVALID_VALUE", OUT_OF_MEMORY: "CUDA_ERROR_OUT_OF_MEMORY",
    NOT_INITIALIZED: "CUDA_ERROR_NOT_INITIALIZED", NO_DEVICE: "CUDA_ERROR_NO_DEVICE",
    INVALID_DEVICE: "CUDA_ERROR_INVALID_DEVICE", INVALID_CONTEXT: "CUDA_ERROR_INVALID_CONTEXT",
    INVALID_PTX: "CUDA_ERROR_INVALID_PTX", INVALID_HANDLE: "CUDA_ERROR_INVALID_HANDLE",
    NOT_FOUND: "CUDA_ERROR_NOT_FOUND", ILLEGAL_ADDRESS: "CUDA_ERROR_ILLEGAL_ADDRESS",
}  # fmt: skip
DEVICE, PRIMARY_CONTEXT = 7, 0x1000
SOURCE = Path(__file__).with_name("cuda_standin.cpp")


class _RefusedError(Exception):
    """A call ends with a number."""


@dataclass
class _Stream:
    context: int
    waiting: list[Callable[[], None]] = field(default_factory=list)
    captured: list[Callable[[], None]] | None = None


def build(folder: Path) -> Path:
    """The library."""
    path = folder / "libcuda.so.1"
    subprocess.run(["g++", "-shared", "-fPIC", "-O1", "-o", path, SOURCE], check=True)
    return path


class StandIn:
    """What the functions of a built library do. ``devices``: how many GPUs there are; ``calls``: the names of all
    calls; ``room``: bytes that can be allocated."""

    def __init__(self, library: Path, *, devices: int = 1, capability: int = 80, room: int = 1 << 30,
                 block_threads: int = 1024, block_shared: int = 163 << 10) -> None:  # fmt: skip
        self.devices, self.capability, self.room, self.block_threads = devices, capability, room, block_threads
        self.block_shared = block_shared
        self.asked: dict[int, int] = {}
        self.calls: list[str] = []
        self.memory = DeviceMemory()
        self.sizes: dict[int, int] = {}
        self.things: dict[int, Any] = {}
        self._started = False
        self._fault = OK
        self._current = threading.local()
        self._lock = threading.RLock()
        self._texts = {number: ctypes.c_char_p(name.encode()) for number, name in NAMES.items()}
        self._library = ctypes.CDLL(str(library))
        self._kept = []
        for name, types in _TYPES.items():
            kind = ctypes.CFUNCTYPE(ctypes.c_int, *types)
            made = kind(self._guarded(name))
            self._kept.append(made)
            ctypes.c_void_p.in_dll(self._library, f"python_{name}").value = ctypes.cast(made, ctypes.c_void_p).value

    def close(self) -> None:
        """The library's functions fail from now on: what is given back later, at the process's end even, would call
        what is no longer there."""
        for name in _TYPES:
            ctypes.c_void_p.in_dll(self._library, f"python_{name}").value = None

    def _guarded(self, name: str) -> Callable[..., int]:
        function = getattr(self, name)

        def called(*arguments: Any) -> int:
            with self._lock:
                self.calls.append(name)
                if name.startswith("cuGetError"):
                    return int(function(*arguments) or OK)
                try:
                    if name != "cuInit" and not self._started:
                        raise _RefusedError(NOT_INITIALIZED)
                    if self._fault:
                        raise _RefusedError(self._fault)
                    if not name.startswith(("cuInit", "cuDevice", "cuCtx")) and not hasattr(self._current, "context"):
                        raise _RefusedError(INVALID_CONTEXT)
                    function(*arguments)
                except _RefusedError as error:
                    return int(error.args[0])
                return OK

        return called

    def _made(self, place: Any, thing: Any) -> None:
        number = 0x2000 + len(self.things)
        self.things[number] = thing
        place[0] = number

    def _of(self, number: int | None, kind: type[Any]) -> Any:
        thing = self.things.get(number or 0)
        if not isinstance(thing, kind):
            raise _RefusedError(INVALID_HANDLE)
        return thing

    def _gone(self, number: int | None, kind: type[Any]) -> None:
        self._of(number, kind)
        self.things[number or 0] = None

    def _checked(self, address: int, nbytes: int) -> None:
        if not any(start <= address and address + nbytes <= start + size for start, size in self.sizes.items()):
            raise _RefusedError(INVALID_VALUE)

    def _later(self, stream: int | None, work: Callable[[], None]) -> None:
        where = self._of(stream, _Stream)
        if where.context != self._current.context:
            raise _RefusedError(INVALID_CONTEXT)
        (where.waiting if where.captured is None else where.captured).append(work)

    def left(self) -> list[type[Any]]:
        """Kinds of what was made and not given back; the last modules, and functions, stay."""
        return [type(thing) for thing in self.things.values() if not isinstance(thing, Program) and thing is not None
                and not (isinstance(thing, tuple) and isinstance(thing[0], Program))]  # fmt: skip

    # Devices

    def cuInit(self, flags: int) -> None:  # noqa: N802 - the driver's names
        if flags:
            raise _RefusedError(INVALID_VALUE)
        self._started = True

    def cuGetErrorName(self, number: int, text: Any) -> int:  # noqa: N802
        if number not in self._texts:
            return INVALID_VALUE
        text[0] = self._texts[number]
        return OK

    def cuGetErrorString(self, number: int, text: Any) -> int:  # noqa: N802
        return self.cuGetErrorName(number, text)

    def cuDeviceGetCount(self, count: Any) -> None:  # noqa: N802
        count[0] = self.devices

    def cuDeviceGet(self, device: Any, ordinal: int) -> None:  # noqa: N802
        if not 0 <= ordinal < self.devices:
            raise _RefusedError(INVALID_DEVICE)
        device[0] = DEVICE + ordinal

    def cuDeviceGetName(self, name: Any, nbytes: int, device: int) -> None:  # noqa: N802
        text = f"Stand-in {device - DEVICE}".encode()[: nbytes - 1]
        ctypes.memmove(name, text + b"\0", len(text) + 1)

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: int) -> None:  # noqa: N802
        known = {1: self.block_threads, 75: self.capability // 10, 76: self.capability % 10, 97: self.block_shared}
        if attribute not in known or not DEVICE <= device < DEVICE + self.devices:
            raise _RefusedError(INVALID_VALUE)
        value[0] = known[attribute]

    def cuDeviceTotalMem_v2(self, nbytes: Any, device: int) -> None:  # noqa: N802
        nbytes[0] = self.room

    def cuDevicePrimaryCtxRetain(self, context: Any, device: int) -> None:  # noqa: N802
        context[0] = PRIMARY_CONTEXT + device

    def cuCtxSetCurrent(self, context: int | None) -> None:  # noqa: N802
        if not context or not DEVICE <= context - PRIMARY_CONTEXT < DEVICE + self.devices:
            raise _RefusedError(INVALID_CONTEXT)
        self._current.context = context

    # Streams, graphs, events

    def cuStreamCreate(self, stream: Any, flags: int) -> None:  # noqa: N802
        self._made(stream, _Stream(self._current.context))

    def cuStreamDestroy_v2(self, stream: int) -> None:  # noqa: N802
        self._gone(stream, _Stream)

    def cuStreamSynchronize(self, stream: int) -> None:  # noqa: N802
        known = self._of(stream, _Stream)
        if known.captured is not None:
            raise _RefusedError(INVALID_VALUE)
        waiting, known.waiting = known.waiting, []
        for work in waiting:
            work()

    def cuStreamBeginCapture_v2(self, stream: int, mode: int) -> None:  # noqa: N802
        self._of(stream, _Stream).captured = []

    def cuStreamEndCapture(self, stream: int, graph: Any) -> None:  # noqa: N802
        known = self._of(stream, _Stream)
        if known.captured is None:
            raise _RefusedError(INVALID_VALUE)
        captured, known.captured = known.captured, None
        self._made(graph, captured)

    def cuGraphInstantiateWithFlags(self, made: Any, graph: int, flags: int) -> None:  # noqa: N802
        self._made(made, tuple(self._of(graph, list)))

    def cuGraphLaunch(self, graph: int, stream: int) -> None:  # noqa: N802
        for work in self._of(graph, tuple):
            self._later(stream, work)

    def cuGraphDestroy(self, graph: int) -> None:  # noqa: N802
        self._gone(graph, list)

    def cuGraphExecDestroy(self, graph: int) -> None:  # noqa: N802
        self._gone(graph, tuple)

    def cuEventCreate(self, event: Any, flags: int) -> None:  # noqa: N802
        self._made(event, {"stream": 0, "time": 0.0})

    def cuEventRecord(self, event: int, stream: int) -> None:  # noqa: N802
        known = self._of(event, dict)
        known["stream"] = stream
        self._later(stream, lambda: known.update(time=time.perf_counter()))

    def cuEventSynchronize(self, event: int) -> None:  # noqa: N802
        self.cuStreamSynchronize(self._of(event, dict)["stream"])

    def cuEventElapsedTime(self, milliseconds: Any, first: int, last: int) -> None:  # noqa: N802
        milliseconds[0] = 1e3 * (self._of(last, dict)["time"] - self._of(first, dict)["time"])

    def cuEventDestroy_v2(self, event: int) -> None:  # noqa: N802
        self._gone(event, dict)

    # Memory

    def cuMemAlloc_v2(self, address: Any, nbytes: int) -> None:  # noqa: N802
        if not nbytes:
            raise _RefusedError(INVALID_VALUE)
        if sum(self.sizes.values()) + nbytes > self.room:
            raise _RefusedError(OUT_OF_MEMORY)
        address[0] = self.memory.allocate(nbytes)
        self.sizes[address[0]] = nbytes

    def cuMemFree_v2(self, address: int) -> None:  # noqa: N802
        if self.sizes.pop(address, None) is None:
            raise _RefusedError(INVALID_VALUE)
        self.memory.free(address)

    def cuMemcpyHtoDAsync_v2(self, to: int, source: int, nbytes: int, stream: int) -> None:  # noqa: N802
        self._checked(to, nbytes)

        def work() -> None:  # as of pinned memory, which is read when its turn comes
            self.memory.write(to, np.frombuffer(ctypes.string_at(source, nbytes), np.uint8))

        self._later(stream, work)

    def cuMemcpyDtoHAsync_v2(self, to: int, source: int, nbytes: int, stream: int) -> None:  # noqa: N802
        self._checked(source, nbytes)

        def work() -> None:
            data = np.empty(nbytes, np.uint8)
            self.memory.read(source, data)
            ctypes.memmove(to, data.ctypes.data, nbytes)

        self._later(stream, work)

    def cuMemcpyDtoDAsync_v2(self, to: int, source: int, nbytes: int, stream: int) -> None:  # noqa: N802
        self._checked(to, nbytes)
        self._checked(source, nbytes)

        def work() -> None:
            data = np.empty(nbytes, np.uint8)
            self.memory.read(source, data)
            self.memory.write(to, data)

        self._later(stream, work)

    # Kernels

    def cuModuleLoadDataEx(self, made: Any, image: int, count: int, options: Any, values: Any) -> None:  # noqa: N802
        given = {options[number]: values[number] for number in range(count)}
        try:
            self._made(made, Program(ctypes.string_at(image).decode(), self.memory))
        except PtxError as error:
            text = f"ptxas : {error}".encode()[: given[6] - 1]
            ctypes.memmove(given[5], text + b"\0", len(text) + 1)
            raise _RefusedError(INVALID_PTX) from error

    def cuModuleGetFunction(self, function: Any, module: int, name: bytes) -> None:  # noqa: N802
        program = self._of(module, Program)
        if name.decode() not in program.kernels:
            raise _RefusedError(NOT_FOUND)
        self._made(function, (program, name.decode()))

    def cuModuleUnload(self, module: int) -> None:  # noqa: N802
        self._gone(module, Program)

    def cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> None:  # noqa: N802
        program, name = self._of(function, tuple)
        if attribute != 8 or program.kernels[name].shared_bytes + value > self.block_shared:
            raise _RefusedError(INVALID_VALUE)
        self.asked[function] = value

    def cuLaunchKernel(self, function: int, *rest: Any) -> None:  # noqa: N802
        *sizes, shared, stream, parameters, extra = rest
        program, name = self._of(function, tuple)
        if program.kernels[name].shared_bytes + shared > max(48 << 10, self.asked.get(function, 0)):
            raise _RefusedError(INVALID_VALUE)
        if extra or not all(sizes) or sizes[3] * sizes[4] * sizes[5] > self.block_threads:
            raise _RefusedError(INVALID_VALUE)
        count = len(program.kernels[name].parameters)
        values = [ctypes.c_uint64.from_address(parameters[number]).value for number in range(count)]

        def work() -> None:
            try:
                program.launch(name, sizes[:3], sizes[3:], values, dynamic_shared=shared, counted=False)
            except PtxError as error:
                self._fault = ILLEGAL_ADDRESS
                raise _RefusedError(ILLEGAL_ADDRESS) from error

        self._later(stream, work)


_int, _uint, _address, _size = ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_size_t
_handle, _handles = ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)
_ints, _texts = ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_char_p)
_TYPES: dict[str, tuple[Any, ...]] = {
    "cuInit": (_uint,), "cuGetErrorName": (_int, _texts), "cuGetErrorString": (_int, _texts),
    "cuDeviceGetCount": (_ints,), "cuDeviceGet": (_ints, _int), "cuDeviceGetName": (_handle, _int, _int),
    "cuDeviceGetAttribute": (_ints, _int, _int), "cuDeviceTotalMem_v2": (ctypes.POINTER(_size), _int),
    "cuDevicePrimaryCtxRetain": (_handles, _int), "cuCtxSetCurrent": (_handle,),
    "cuStreamCreate": (_handles, _uint), "cuStreamDestroy_v2": (_handle,), "cuStreamSynchronize": (_handle,),
    "cuStreamBeginCapture_v2": (_handle, _int), "cuStreamEndCapture": (_handle, _handles),
    "cuGraphInstantiateWithFlags": (_handles, _handle, ctypes.c_ulonglong), "cuGraphLaunch": (_handle, _handle),
    "cuGraphDestroy": (_handle,), "cuGraphExecDestroy": (_handle,),
    "cuMemAlloc_v2": (ctypes.POINTER(_address), _size), "cuMemFree_v2": (_address,),
    "cuMemcpyHtoDAsync_v2": (_address, _handle, _size, _handle),
    "cuMemcpyDtoHAsync_v2": (_handle, _address, _size, _handle),
    "cuMemcpyDtoDAsync_v2": (_address, _address, _size, _handle),
    "cuModuleLoadDataEx": (_handles, _handle, _uint, _ints, _handles),
    "cuModuleGetFunction": (_handles, _handle, ctypes.c_char_p),
    "cuModuleUnload": (_handle,),
    "cuFuncSetAttribute": (_handle, _int, _int),
    "cuLaunchKernel": (_handle, *[_uint] * 7, _handle, _handles, _handles),
    "cuEventCreate": (_handles, _uint), "cuEventRecord": (_handle, _handle), "cuEventSynchronize": (_handle,),
    "cuEventElapsedTime": (ctypes.POINTER(ctypes.c_float), _handle, _handle), "cuEventDestroy_v2": (_handle,),
}  # fmt: skip
