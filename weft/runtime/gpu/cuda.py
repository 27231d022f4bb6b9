"""GPUs of NVIDIA's, through their driver: PTX is compiled by it, and kept by its text as long as the process lives.

The driver keeps what it compiled on disk itself. All users of a device share its primary context, as other libraries in
the process do; each has a stream.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_float, c_int, c_uint64, c_void_p
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...compiler.model import GpuCode, GridCall
from ...shown import one_line
from ..errors import DeviceError
from . import cuda_driver
from .cuda_driver import Driver, converted
from .gpu import Array, Launch, Memory, Program, own
from .programs import SharedPrograms

NAME_BYTES = 256
SYNCHRONOUS = "CUDA_LAUNCH_BLOCKING=1 makes the driver report it at its kernel"

_TARGET = re.compile(r"^\.target\s+sm_(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class CudaDevice:
    """A GPU: its number, what it is, and the ``capability`` that PTX is made for, 80 for 8.0. ``block_shared``: bytes
    that a block may share, if it asks for them."""

    number: int
    name: str
    capability: int
    mebibytes: int
    block_threads: int
    block_shared: int

    def __str__(self) -> str:
        return f"{self.name} (sm_{self.capability}, {self.mebibytes:,} MiB)"


def cuda_devices() -> list[CudaDevice]:
    """All GPUs of NVIDIA's, in the order of their numbers. DeviceError says what is missing."""
    _refuse_after_fork()
    driver = cuda_driver.driver()
    count = driver.number("cuDeviceGetCount")
    if not count:
        raise DeviceError("there is no GPU of NVIDIA's", hint=cuda_driver.MISSING)
    return [_described(driver, number) for number in range(count)]


def _described(driver: Driver, number: int) -> CudaDevice:
    name = ctypes.create_string_buffer(NAME_BYTES)
    device = driver.number("cuDeviceGet", number)
    driver.call("cuDeviceGetName", name, NAME_BYTES, device)

    def attribute(which: int) -> int:
        return driver.number("cuDeviceGetAttribute", which, device)

    capability = 10 * attribute(cuda_driver.CAPABILITY_MAJOR) + attribute(cuda_driver.CAPABILITY_MINOR)
    return CudaDevice(number, name.value.decode(errors="replace"), capability,
                      driver.number("cuDeviceTotalMem_v2", device) >> 20,
                      attribute(cuda_driver.THREADS_PER_BLOCK), attribute(cuda_driver.SHARED_ASKED))  # fmt: skip


def open_cuda(number: str = "") -> CudaGpu:
    """A GPU by its number; the first where none is asked for. DeviceError where there is none."""
    devices = cuda_devices()
    if not number:
        return CudaGpu(devices[0])
    if not number.isdecimal() or int(number) >= len(devices):
        known = "; ".join(f"{each.number}: {each}" for each in devices)
        raise DeviceError(f"there is no GPU {one_line(number)!r}", hint=f"the GPUs: {known}")
    return CudaGpu(devices[int(number)])


class _Context:
    """What all users of a GPU share: its primary context, and modules by their text."""

    def __init__(self, device: CudaDevice) -> None:
        self.process = os.getpid()
        self.device = device
        self.driver = cuda_driver.driver()
        self._context = self.driver.handle("cuDevicePrimaryCtxRetain", self.driver.number("cuDeviceGet", device.number),
                                           what=f"{device} cannot be opened")  # fmt: skip
        self._modules: SharedPrograms[str, _Module] = SharedPrograms(self._compiled)
        self._make_current = self.driver.bare("cuCtxSetCurrent")
        self._current = converted("cuCtxSetCurrent", self._context.value)

    def call(self, name: str, *arguments: Any, what: str = "") -> None:
        """Call the driver for this GPU, from any thread."""
        self.driver.call("cuCtxSetCurrent", self._context)
        self.driver.call(name, *arguments, what=what)

    def handle(self, name: str, *arguments: Any, what: str = "") -> c_void_p:
        """What the driver makes."""
        self.driver.call("cuCtxSetCurrent", self._context)
        return self.driver.handle(name, *arguments, what=what)

    def start(self, work: _Work, arguments: tuple[Any, ...]) -> None:
        """As `call`, in the fewest steps: a small kernel takes no longer than the host does to launch it."""
        # Each time: a thread has a current context of its own, which other libraries in the process change.
        if status := self._make_current(*self._current):
            raise self.driver.error(status, "cuCtxSetCurrent")
        if status := work.function(*arguments):
            raise self.driver.error(status, work.what)

    def module(self, text: str) -> _Module:
        return self._modules.get(text)

    def _compiled(self, text: str) -> _Module:
        target = _TARGET.search(text)
        if target and int(target[1]) > self.device.capability:
            raise DeviceError(f"the model is compiled for sm_{target[1]}, but this is {self.device}",
                              hint=f"compile it with --gpu sm_{self.device.capability}, or an older one")  # fmt: skip
        log = ctypes.create_string_buffer(cuda_driver.LOG_BYTES)
        options = (c_int * 2)(cuda_driver.ERROR_LOG, cuda_driver.ERROR_LOG_BYTES)
        values = (c_void_p * 2)(ctypes.cast(log, c_void_p), cuda_driver.LOG_BYTES)
        try:
            return _Module(self, self.handle("cuModuleLoadDataEx", text.encode(), 2, options, values,
                                             what=f"the driver of {self.device} refuses the kernels"))  # fmt: skip
        except DeviceError as error:
            said = log.value.decode(errors="replace").strip()
            raise DeviceError("; ".join(filter(None, (error.message, one_line(said)))), hint=error.hint) from error


_contexts: dict[int, _Context] = {}
_contexts_lock = threading.Lock()


def _context_of(device: CudaDevice) -> _Context:
    with _contexts_lock:
        if device.number not in _contexts:
            _contexts[device.number] = _Context(device)
        return _contexts[device.number]


def _refuse_after_fork() -> None:
    if any(each.process != os.getpid() for each in list(_contexts.values())):
        raise DeviceError("this process was forked from one that used a GPU, which its driver does not outlive",
                          hint="start processes by 'spawn', or fork before the first model is loaded")  # fmt: skip


class _Bytes:
    """Memory of the GPU, which is given back with this object."""

    def __init__(self, context: _Context, nbytes: int) -> None:
        address = cuda_driver.Address()
        context.call("cuMemAlloc_v2", byref(address), max(1, nbytes), what=f"{nbytes:,} bytes cannot be allocated")
        self.address = int(address.value)
        weakref.finalize(self, _quietly, context, "cuMemFree_v2", self.address)


class _Borrowed(_Bytes):
    """Memory of somebody else's, who keeps it."""

    def __init__(self, address: int) -> None:
        self.address = address


def _quietly(context: _Context, name: str, handle: Any) -> None:
    """Give something back; a driver that has failed before has said so."""
    if context.process == os.getpid():
        try:
            context.call(name, handle)
        except DeviceError:
            return


class _Module:
    """Code that the driver has taken, which is given back with this object."""

    def __init__(self, context: _Context, handle: c_void_p) -> None:
        self.handle = handle
        weakref.finalize(self, _quietly, context, "cuModuleUnload", handle)


class _Work:
    """What one call of the driver's starts in a stream, with all that the call needs made beforehand.

    ``function``, ``arguments``: the call, in the stream of the user who made this, ``stream``; ``what``: what fails
    where it does.
    """

    def __init__(self, context: _Context, name: str, what: str, stream: c_void_p, before: tuple[int | None, ...],
                 after: tuple[int | None, ...] = ()) -> None:  # fmt: skip
        self.function, self.what, self.stream = context.driver.bare(name), what, stream
        self._name, self._before, self._after = name, before, after
        self.arguments = self.arguments_in(stream)

    def arguments_in(self, stream: c_void_p) -> tuple[Any, ...]:
        """For another user's stream."""
        return converted(self._name, *self._before, stream.value, *self._after)


class _Kernel(_Work):
    """A function of a module with its arguments, in the form in which the driver takes them."""

    def __init__(self, context: _Context, stream: c_void_p, module: _Module, function: c_void_p, call: GridCall,
                 arguments: Sequence[tuple[Memory, int]]) -> None:  # fmt: skip
        self._kept = (module, *(memory for memory, _ in arguments))
        self._addresses = (c_uint64 * len(arguments))(*(_address(memory) + offset for memory, offset in arguments))
        first = ctypes.addressof(self._addresses)
        self._pointers = (c_void_p * len(arguments))(*(first + 8 * number for number in range(len(arguments))))
        super().__init__(context, "cuLaunchKernel", f"launching {call.function} fails", stream,
                         (function.value, *call.groups, call.threads, 1, 1, call.shared),
                         (ctypes.addressof(self._pointers), None))  # fmt: skip


class _Graph(_Work):
    """Launches that the driver takes as one."""

    def __init__(self, context: _Context, stream: c_void_p, handle: c_void_p, kernels: Sequence[_Kernel]) -> None:
        super().__init__(context, "cuGraphLaunch", "launching fails", stream, (handle.value,))
        self._kept = tuple(kernels)
        weakref.finalize(self, _quietly, context, "cuGraphExecDestroy", handle)


class CudaGpu:
    """One user's stream on a GPU; see `Gpu`.

    A kernel that fails does so after its launch: the error comes with the next call that waits, and the context of the
    whole process is of no use from then on, as the driver has it.
    """

    def __init__(self, device: CudaDevice) -> None:
        self.device, self.name = device, str(device)
        self._context = _context_of(device)
        self._stream = self._context.handle("cuStreamCreate", cuda_driver.NON_BLOCKING_STREAM)
        weakref.finalize(self, _quietly, self._context, "cuStreamDestroy_v2", self._stream)

    def allocate(self, nbytes: int) -> Memory:
        return Memory(_Bytes(self._context, nbytes))

    @property
    def stream(self) -> int:
        """The driver's handle of the stream, for libraries that have to make it wait for their own."""
        return int(self._stream.value or 0)

    def address_of(self, memory: Memory) -> int:
        """Where memory begins on the GPU."""
        return _address(memory)

    def borrowed(self, address: int) -> Memory:
        """Memory of another library's, from an address on, as long as that keeps it."""
        return Memory(_Borrowed(address))

    def write(self, memory: Memory, offset: int, data: Array) -> None:
        self._context.call("cuMemcpyHtoDAsync_v2", _address(memory) + offset, data.ctypes.data, data.nbytes,
                           self._stream, what="writing fails")  # fmt: skip
        self.synchronise()

    def read(self, memory: Memory, offset: int, data: Array) -> None:
        self._context.call("cuMemcpyDtoHAsync_v2", data.ctypes.data, _address(memory) + offset, data.nbytes,
                           self._stream, what="reading fails")  # fmt: skip
        self.synchronise()

    def copy(self, source: Memory, source_offset: int, target: Memory, target_offset: int, nbytes: int) -> None:
        self._context.call("cuMemcpyDtoDAsync_v2", _address(target) + target_offset, _address(source) + source_offset,
                           nbytes, self._stream, what="copying fails")  # fmt: skip

    def load(self, code: GpuCode) -> Program:
        if code.language != "ptx":
            raise DeviceError(f"the model is compiled to {code.language}, but the driver takes PTX")
        return Program(self._context.module(code.text) if code.calls else None)

    def prepare(self, program: Program, call: GridCall, arguments: Sequence[tuple[Memory, int]]) -> Launch:
        if call.threads > self.device.block_threads:
            raise DeviceError(f"a block has {call.threads} threads, but {self.name} takes "
                              f"{self.device.block_threads} at most")  # fmt: skip
        if call.shared > self.device.block_shared:
            raise DeviceError(f"a block shares {call.shared:,} bytes, but {self.name} has {self.device.block_shared:,} "
                              "for one", hint=f"compile it with --gpu sm_{self.device.capability}, or an older "
                              "one")  # fmt: skip
        module = _of(program, _Module)
        function = self._context.handle("cuModuleGetFunction", module.handle, call.function.encode())
        if call.shared:
            self._context.call("cuFuncSetAttribute", function, cuda_driver.OPEN_SHARED_BYTES, call.shared,
                               what=f"{call.function} cannot have {call.shared:,} shared bytes")  # fmt: skip
        return Launch(_Kernel(self._context, self._stream, module, function, call, arguments))

    def joined(self, launches: Sequence[Launch]) -> Launch:
        """As one graph of the driver's, which a single call starts."""
        kernels, graph = [_of(each, _Kernel) for each in launches], c_void_p()
        self._context.call("cuStreamBeginCapture_v2", self._stream, cuda_driver.THREAD_CAPTURE)
        try:
            for kernel in kernels:
                self.launch(Launch(kernel))
        finally:
            self._context.call("cuStreamEndCapture", self._stream, byref(graph))
        try:
            made = self._context.handle("cuGraphInstantiateWithFlags", graph, 0)
            return Launch(_Graph(self._context, self._stream, made, kernels))
        finally:
            self._context.call("cuGraphDestroy", graph)

    def launch(self, launch: Launch) -> None:
        work = launch if isinstance(launch, _Work) else _of(launch, _Work)
        self._context.start(work, work.arguments if work.stream is self._stream else work.arguments_in(self._stream))

    def timed(self, launch: Launch) -> float:
        with self._event() as first, self._event() as last:
            self._context.call("cuEventRecord", first, self._stream)
            self.launch(launch)
            self._context.call("cuEventRecord", last, self._stream)
            self._context.call("cuEventSynchronize", last, what="a kernel fails")
            milliseconds = c_float()
            self._context.call("cuEventElapsedTime", byref(milliseconds), first, last)
        return float(milliseconds.value) * 1e-3

    @contextmanager
    def _event(self) -> Iterator[c_void_p]:
        event = self._context.handle("cuEventCreate", 0)
        try:
            yield event
        finally:
            _quietly(self._context, "cuEventDestroy_v2", event)

    def synchronise(self) -> None:
        try:
            self._context.call("cuStreamSynchronize", self._stream, what="a kernel fails")
        except DeviceError as error:
            raise DeviceError(error.message, hint="; ".join(filter(None, (error.hint, SYNCHRONOUS)))) from error


def _address(memory: Memory) -> int:
    return _of(memory, _Bytes).address


_of = partial(own, whose="NVIDIA's driver")
