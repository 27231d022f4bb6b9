"""Run a function that was scheduled by hand: in the interpreter, on this machine's processor, or on a core."""

from __future__ import annotations

import ctypes
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import llvmlite.binding as llvm
import llvmlite.ir as ll
import numpy as np
import numpy.typing as npt

from .compiler.targets.accel.function_program import function_program
from .compiler.targets.cpu.llvm.emit import emit_kernel
from .compiler.targets.cpu.llvm.object_code import machine, object_code
from .compiler.targets.cpu.llvm.threads import PART_BYTES, pool_text
from .compiler.targets.cpu.processor import host_target
from .compiler.targets.errors import CompileError
from .compiler.tensor import NUMPY_TYPES, SCHEDULED, PrimFunc, Schedule, check_bounds, check_legal, interpret
from .compiler.tensor.visitor import stores_of
from .hw.config import CoreConfig, named_config
from .hw.isa import Instruction, disassemble
from .runtime.device import Device, device_names, open_device
from .runtime.errors import InputError
from .runtime.host import MATH_LIBRARY
from .sim.result import RunResult

Array = npt.NDArray[Any]

CACHE_LINE = 64


class BuiltFunction(ABC):
    """A function that is ready to run, as often as wanted, one run at a time."""

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self._written = {buffer.name for buffer, _ in stores_of(func.body)}

    def run(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Run the function; what it writes, by the names of its buffers.

        ``arrays`` holds every parameter that the function only reads. One that it writes starts as it is given there,
        else as zeros; the arrays themselves are not changed. :class:`InputError` names a buffer that does not fit.
        """
        names = [param.name for param in self.func.params]
        for name in arrays:
            if name not in names:
                raise InputError(f"{self.func.name!r} has no buffer {name!r}", hint=f"its buffers: {', '.join(names)}")
        memory: dict[str, Array] = {}
        for param in self.func.params:
            kind = np.dtype(NUMPY_TYPES[param.dtype])
            if param.name not in arrays:
                if param.name not in self._written:
                    raise InputError(f"buffer {param.name!r} of {self.func.name!r} has no array",
                                     hint=f"give {param.dtype}{list(param.shape)}")  # fmt: skip
                memory[param.name] = np.zeros(param.shape, kind)
                continue
            array = np.asarray(arrays[param.name])
            if array.shape != param.shape or array.dtype != kind:
                raise InputError(
                    f"buffer {param.name!r} of {self.func.name!r} must be {param.dtype}{list(param.shape)}, "
                    f"not {array.dtype.name}{list(array.shape)}"
                )
            copied = param.name in self._written
            memory[param.name] = np.array(array, kind, order="C") if copied else np.ascontiguousarray(array, kind)
        self._run(memory)
        return {name: memory[name] for name in names if name in self._written}

    @abstractmethod
    def _run(self, memory: dict[str, Array]) -> None:
        """Change the arrays of ``memory``, which holds all parameters in their order, to what they are afterwards."""


def build(
    schedule: Schedule | PrimFunc,
    target: str | Device = "cpu",
    *,
    config: CoreConfig | str | None = None,
    threads: int | None = None,
) -> BuiltFunction:
    """Make a scheduled function ready to run.

    target
        ``"interpreter"`` (NumPy, checks every access), ``"cpu"`` (machine code for this processor), the name of a
        device (``"fsim"``, ``"rtl"``), or a :class:`Device`. For a device every stage must be tensorized.
    config
        The core, or its name; by default ``"pynq"``. Only for the name of a device.
    threads
        How many share the ``parallel`` loops; by default 1. Only for ``"cpu"``.

    The function must be proved to stay inside its buffers (IRError names the access), and the target must have code for
    it (CompileError names the stage, loop or buffer).
    """
    func = schedule.func if isinstance(schedule, Schedule) else schedule
    name = target.name if isinstance(target, Device) else target
    devices = device_names()
    if name not in ("interpreter", "cpu", *devices) and not isinstance(target, Device):
        raise CompileError(f"there is no target {name!r}", hint=f"choose interpreter, cpu, {', '.join(devices)}")
    if config is not None and (isinstance(target, Device) or name not in devices):
        raise CompileError(f"target {name!r} takes no config", hint="leave it out")
    if threads is not None and name != "cpu":
        raise CompileError(f"target {name!r} takes no threads", hint="leave them out")
    check_legal(func, SCHEDULED)
    if name == "interpreter":
        return InterpretedFunction(func)
    # Schedules keep the meaning: what the function was before them is easier to prove.
    check_bounds(schedule.original if isinstance(schedule, Schedule) else func)
    if isinstance(target, Device):
        return CoreFunction(func, target)
    if name == "cpu":
        return CpuFunction(func, 1 if threads is None else threads)
    core = config if isinstance(config, CoreConfig) else named_config(config or "pynq")
    return CoreFunction(func, open_device(name, core))


class InterpretedFunction(BuiltFunction):
    """In NumPy, by the meaning of the loop IR."""

    def _run(self, memory: dict[str, Array]) -> None:
        memory.update(interpret(self.func, memory))


class CpuFunction(BuiltFunction):
    """Machine code for this machine's processor."""

    def __init__(self, func: PrimFunc, threads: int) -> None:
        super().__init__(func)
        if threads < 1:
            raise CompileError(f"threads is {threads}, but must be at least 1")
        self._threads = threads
        target = host_target()
        module = ll.Module(func.name)
        workspace = emit_kernel(module, func, target, threads)
        llvm.load_library_permanently(MATH_LIBRARY)
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine(target))
        for text in (pool_text(target.triple), str(module)):
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(object_code(text, target)))
        self._engine.finalize_object()
        kinds = [ctypes.c_void_p] * (len(func.params) + 1) + [ctypes.c_int64, ctypes.c_void_p]
        self._code = ctypes.CFUNCTYPE(None, *kinds)(self._engine.get_function_address(func.name))
        self._space = np.zeros(workspace.total(threads) + CACHE_LINE, np.uint8)
        self._counters = np.zeros((workspace.parts + 1) * PART_BYTES, np.uint8)

    def _run(self, memory: dict[str, Array]) -> None:
        self._counters[:] = 0
        start = self._space.ctypes.data + -self._space.ctypes.data % CACHE_LINE
        pointers = [array.ctypes.data for array in memory.values()]

        def work(number: int) -> None:
            self._code(*pointers, start, number, self._counters.ctypes.data)

        workers = [threading.Thread(target=work, args=(number,)) for number in range(1, self._threads)]
        for worker in workers:
            worker.start()
        work(0)
        for worker in workers:
            worker.join()


class CoreFunction(BuiltFunction):
    """A program on a device. ``result``: what the last run reported; None before the first."""

    def __init__(self, func: PrimFunc, device: Device) -> None:
        super().__init__(func)
        self.device = device
        self.result: RunResult | None = None
        self._made = function_program(func, device.config)
        device.allocate(self._made.window_bytes)

    @property
    def instructions(self) -> list[Instruction]:
        """The program."""
        return disassemble(self.device.config, self._made.program)

    @property
    def cycles(self) -> int | None:
        """Cycles of the last run; None where the device does not model time."""
        return None if self.result is None else self.result.cycles

    def _run(self, memory: dict[str, Array]) -> None:
        made = self._made
        self.device.write(made.program_offset, made.program)
        for name, array in memory.items():
            self.device.write(made.places[name], array)
        self.result = self.device.launch(made.program_offset, len(self.instructions))
        for name in made.written:
            array = memory[name]
            memory[name] = self.device.read(made.places[name], array.nbytes).view(array.dtype).reshape(array.shape)
