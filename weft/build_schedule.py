"""Run a function that was scheduled by hand: in the interpreter, on this machine's processor, or on a core."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .compiler.model import HostProgram, LaunchStep, Layer, Place, TensorSpec
from .compiler.targets.accel.link.function_program import function_program
from .compiler.targets.accel.schedule.check_factors import Limited
from .compiler.targets.cpu.build import build_program
from .compiler.targets.errors import CompileError
from .compiler.targets.loops.kernel_code import KERNEL, kernel_code
from .compiler.tensor import NUMPY_TYPES, SCHEDULED, PrimFunc, Schedule, check_legal, interpret, require_bounds
from .compiler.tensor.visitor import stores_of
from .hw.config import CoreConfig, named_config
from .hw.isa import Instruction
from .hw.programs import disassemble
from .runtime.device import Device, device_names, open_device
from .runtime.errors import InputError
from .runtime.host import HostExecutor
from .sim.result import RunResult

Array = npt.NDArray[Any]


class BuiltFunction(ABC):
    """A function that is ready to run, as often as wanted, one run at a time."""

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self._written = {buffer.name for buffer, _ in stores_of(func.body)}

    def __repr__(self) -> str:
        params = ", ".join(f"{param.name}: {param.dtype}{list(param.shape)}" for param in self.func.params)
        return f"<{type(self).__name__} {self.func.name!r}({params})>"

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

    The function must be proved to stay inside its buffers (BoundsError names the access), and the target must have code
    for it (CompileError names the stage, loop or buffer). A core multiplies by 25 bits and requantises with a shift
    of 1 to 63: FactorError names an operand that may be something else, and :meth:`BuiltFunction.run` refuses a
    parameter's element that is.
    """
    func = schedule.func if isinstance(schedule, Schedule) else schedule
    if not isinstance(func, PrimFunc):
        raise CompileError(f"the schedule is {schedule!r:.80}, but must be a Schedule or a PrimFunc",
                           hint="tensor.create_schedule(output) makes one")  # fmt: skip
    name = target.name if isinstance(target, Device) else target
    if name not in ("interpreter", "cpu") and not isinstance(target, Device) and name not in device_names():
        raise CompileError(f"there is no target {name!r}", hint=f"choose interpreter, cpu, {', '.join(device_names())}")
    if config is not None and (isinstance(target, Device) or name not in device_names()):
        raise CompileError(f"target {name!r} takes no config", hint="leave it out")
    if threads is not None and name != "cpu":
        raise CompileError(f"target {name!r} takes no threads", hint="leave them out")
    check_legal(func, SCHEDULED)
    if name == "interpreter":
        return InterpretedFunction(func)
    require_bounds(func)
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
        program = _host_program(func, self._written, threads)
        self._executor = HostExecutor(program, build_program(program))

    def _run(self, memory: dict[str, Array]) -> None:
        read = [array for name, array in memory.items() if name not in self._written]
        self._executor.run(read, [array for name, array in memory.items() if name in self._written])


def _host_program(func: PrimFunc, written: set[str], threads: int) -> HostProgram:
    """A program that runs one kernel."""
    code = kernel_code(replace(func, name=KERNEL), {}, threads)
    tensors: dict[Literal["input", "output"], list[TensorSpec]] = {"input": [], "output": []}
    places: list[Place] = []
    for param in func.params:
        kind: Literal["input", "output"] = "output" if param.name in written else "input"
        places.append(Place(kind, len(tensors[kind]), 0, param.shape, param.dtype))
        tensors[kind].append(TensorSpec(param.name, param.shape, param.dtype))
    layer = Layer(func.name, (), "schedule", "cpu", "", (), 0)
    return HostProgram(
        inputs=tuple(tensors["input"]),
        outputs=tuple(tensors["output"]),
        kernels=(code,),
        steps=(LaunchStep(code.symbol, tuple(places), 0 if code.workspace_bytes else None, 0),),
        layers=(layer,),
        constants=np.zeros(0, np.uint8),
        arena_bytes=code.workspace_bytes,
        memory=(),
        threads=threads,
        processor="any",
    )


class CoreFunction(BuiltFunction):
    """A program on a device. ``result``: what the last run reported; None before the first."""

    def __init__(self, func: PrimFunc, device: Device) -> None:
        super().__init__(func)
        self.device = device
        self.result: RunResult | None = None
        self._program = function_program(func, device.config)
        device.allocate(self._program.window_bytes)

    @property
    def instructions(self) -> list[Instruction]:
        """The program."""
        return disassemble(self.device.config, self._program.program)

    @property
    def cycles(self) -> int | None:
        """Cycles of the last run; None where the device does not model time."""
        return None if self.result is None else self.result.cycles

    def _check_limit(self, limited: Limited, array: Array) -> None:
        """InputError for the first element that is an operand of the core, and that it would not take whole."""
        limit = limited.limit
        bad = limited.mask.reshape(array.shape) & ((array < limit.least) | (array > limit.most))
        if bad.any():
            index = tuple(int(place) for place in np.unravel_index(int(np.argmax(bad)), bad.shape))
            raise InputError(
                f"buffer {limited.param!r} of {self.func.name!r} holds {array[index]} at {list(index)}, where it is a "
                f"{limit.operand}, but {limit}",
                hint="keep the data in this range, or clamp them in the function",
            )

    def _run(self, memory: dict[str, Array]) -> None:
        program = self._program
        for limited in program.limited:
            self._check_limit(limited, memory[limited.param])
        self.device.write(program.program_offset, program.program)
        for name, array in memory.items():
            self.device.write(program.places[name], array)
        self.result = self.device.launch(program.program_offset, len(self.instructions))
        for name in program.written:
            array = memory[name]
            memory[name] = self.device.read(program.places[name], array.nbytes).view(array.dtype).reshape(array.shape)
