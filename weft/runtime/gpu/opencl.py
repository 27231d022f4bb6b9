"""Devices with a driver for OpenCL, through pyopencl.

Programs are compiled by the driver and kept by their text as long as the process lives; what it makes of them, drivers
keep on disk themselves. Contexts are shared by all users of a device, queues are not.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...compiler.model import GpuCode, GridCall
from ...shown import one_line
from ..errors import DeviceError
from .gpu import Array, Launch, Memory, Program
from .programs import SharedPrograms

DEVICE_VARIABLE = "WEFT_OPENCL_DEVICE"
"""Environment variable with the number of the device that is used where none is asked for."""

OPTIONS_VARIABLE = "WEFT_OPENCL_OPTIONS"
"""Environment variable with further options for the driver's compiler; with -cl-opt-disable it is done sooner."""

POCL = "Portable Computing Language"
"""The platform that runs on a CPU. Its optimiser (3.1) ends the process over some barriers in loops: it is left out."""

INSTALL = "pip install 'weft[opencl]'"
DRIVER = "install the driver of the GPU's vendor; for this machine's processor: apt-get install pocl-opencl-icd"


def _pyopencl() -> Any:
    """The package; DeviceError that says how to get it."""
    try:
        import pyopencl
    except ImportError as error:
        missing = "pyopencl" if isinstance(error, ModuleNotFoundError) else f"a part of pyopencl ({error})"
        raise DeviceError(f"OpenCL needs the package {missing}", hint=INSTALL) from error
    return pyopencl


def opencl_devices() -> list[Any]:
    """All devices of all drivers, in the order of their numbers, as pyopencl gives them. DeviceError says what is
    missing."""
    _refuse_after_fork()
    cl = _pyopencl()
    try:
        platforms = cl.get_platforms()
    except cl.Error:  # the loader says so where it knows no driver
        platforms = []
    devices: list[Any] = []
    for platform in platforms:
        try:
            devices += platform.get_devices()
        except cl.Error:  # a driver without its hardware
            continue
    if not devices:
        raise DeviceError("there is no device with a driver for OpenCL", hint=DRIVER)
    return devices


def describe(device: Any) -> str:
    """A device in a line."""
    mega = device.global_mem_size >> 20
    return f"{device.name.strip()} ({device.platform.name.strip()}, {device.max_compute_units} units, {mega:,} MiB)"


def find_device(number: str | None) -> Any:
    """The device of this number; else of that in the environment; else the first GPU, or the first device there is."""
    wanted = number if number is not None else os.environ.get(DEVICE_VARIABLE, "")
    devices = opencl_devices()
    if not wanted:
        cl = _pyopencl()
        return next((each for each in devices if each.type & cl.device_type.GPU), devices[0])
    if not wanted.isdecimal() or int(wanted) >= len(devices):
        known = "; ".join(f"{place}: {describe(each)}" for place, each in enumerate(devices))
        raise DeviceError(f"there is no OpenCL device {one_line(wanted)!r}", hint=f"the devices: {known}")
    return devices[int(wanted)]


def open_opencl(number: str | None = None) -> OpenClGpu:
    """A device by its number, or the one to use where none is asked for. DeviceError where there is none."""
    return OpenClGpu(find_device(number))


class _Context:
    """What all users of a device share: its context, and programs by their text."""

    def __init__(self, device: Any) -> None:
        self.cl = _pyopencl()
        self.process = os.getpid()
        self.device = device
        self.context = self.cl.Context([device])
        self._programs: SharedPrograms[tuple[str, tuple[str, ...]], Any] = SharedPrograms(self._built)
        config = device.single_fp_config
        exact = config & self.cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
        self._options = ["-cl-fp32-correctly-rounded-divide-sqrt"] if exact else []
        if device.platform.name.strip() == POCL:
            self._options.append("-cl-opt-disable")

    def program(self, text: str) -> Any:
        options = (*self._options, *os.environ.get(OPTIONS_VARIABLE, "").split())
        return self._programs.get((text, options))

    def _built(self, source: tuple[str, tuple[str, ...]]) -> Any:
        text, options = source
        try:
            return self.cl.Program(self.context, text).build(options=list(options), cache_dir=False)
        except self.cl.Error as error:
            raise DeviceError(f"the driver of {describe(self.device)} refuses the kernels: {_first_lines(error)}",
                              hint="is the driver of this device current?") from error  # fmt: skip


_contexts: dict[int, _Context] = {}
_contexts_lock = threading.Lock()


def _context_of(device: Any) -> _Context:
    with _contexts_lock:
        if device.int_ptr not in _contexts:
            _contexts[device.int_ptr] = _Context(device)
        return _contexts[device.int_ptr]


def _refuse_after_fork() -> None:
    """DeviceError in a process that was forked from one that had a device open: its driver's threads are not there, and
    whoever calls it may wait for ever."""
    if any(each.process != os.getpid() for each in list(_contexts.values())):
        raise DeviceError("this process was forked from one that used OpenCL, which no driver outlives",
                          hint="start processes by 'spawn', or fork before the first model is loaded")  # fmt: skip


class OpenClGpu:
    """One user's queue to a device; see `Gpu`."""

    def __init__(self, device: Any) -> None:
        self._cl = _pyopencl()
        self.name = describe(device)
        self._device = device
        with self._errors("it cannot be opened"):
            self._context = _context_of(device)
            profiling = self._cl.command_queue_properties.PROFILING_ENABLE
            self._queue = self._cl.CommandQueue(self._context.context, device, properties=profiling)

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except self._cl.Error as error:
            raise DeviceError(f"{what} on {self.name}: {_first_lines(error)}") from error

    def allocate(self, nbytes: int) -> Memory:
        with self._errors(f"{nbytes:,} bytes cannot be allocated"):
            flags = self._cl.mem_flags.READ_WRITE
            return Memory(self._cl.Buffer(self._context.context, flags, max(1, nbytes)))

    def write(self, memory: Memory, offset: int, data: Array) -> None:
        with self._errors("writing fails"):
            self._cl.enqueue_copy(self._queue, memory, _bytes_of(data), dst_offset=offset, is_blocking=True)

    def read(self, memory: Memory, offset: int, data: Array) -> None:
        with self._errors("reading fails"):
            self._cl.enqueue_copy(self._queue, _bytes_of(data), memory, src_offset=offset, is_blocking=True)

    def copy(self, source: Memory, source_offset: int, target: Memory, target_offset: int, nbytes: int) -> None:
        with self._errors("copying fails"):
            self._cl.enqueue_copy(self._queue, target, source, src_offset=source_offset, dst_offset=target_offset,
                                  byte_count=nbytes)  # fmt: skip

    def load(self, code: GpuCode) -> Program:
        if code.language != "opencl":
            raise DeviceError(f"the model is compiled to {code.language}, but the device takes OpenCL C")
        return Program(self._context.program(code.text) if code.calls else None)

    def prepare(self, program: Program, call: GridCall, arguments: Sequence[tuple[Memory, int]]) -> Launch:
        if call.threads > self._device.max_work_group_size:
            raise DeviceError(f"a group has {call.threads} threads, but {self.name} takes "
                              f"{self._device.max_work_group_size} at most")  # fmt: skip
        with self._errors("preparing fails"):
            kernel = self._cl.Kernel(program, call.function)
            kernel.set_args(*(value for memory, offset in arguments for value in (memory, np.int64(offset))))
        x, y, z = call.groups
        return Launch((kernel, (x * call.threads, y, z), (call.threads, 1, 1)))

    def joined(self, launches: Sequence[Launch]) -> None:
        """Each is launched by itself."""

    def launch(self, launch: Launch) -> None:
        with self._errors("launching fails"):
            self._enqueued(launch)

    def timed(self, launch: Launch) -> float:
        with self._errors("launching fails"):
            event = self._enqueued(launch)
            event.wait()
            return float(event.profile.end - event.profile.start) * 1e-9

    def _enqueued(self, launch: Any) -> Any:
        return self._cl.enqueue_nd_range_kernel(self._queue, *launch)

    def synchronise(self) -> None:
        with self._errors("a kernel fails"):
            self._queue.finish()


def _bytes_of(array: Array) -> Array:
    """A contiguous array as bytes: drivers know no bfloat16."""
    return array.reshape(-1).view(np.uint8)


def _first_lines(error: Exception) -> str:
    """What a driver says, without the program that it was given."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return one_line("\n".join(lines[:6]))
