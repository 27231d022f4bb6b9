"""Running a host program: kernels in machine code on a team of threads, NumPy for the rest."""

from __future__ import annotations

import ctypes
import os
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt

from ..compiler.graph.dtypes import STRING, numpy_dtype
from ..compiler.model import CheckStep, CopyStep, HostCode, HostProgram, LaunchStep, NumpyStep, Place
from .errors import InputError
from .host_steps import HostStrings, check_arrays, check_indices, results_of
from .machine_code import MachineCode
from .run_lock import RunLock

Array = npt.NDArray[Any]
ALIGNMENT = 64
TURN = 5
"""The entry of a step's argument that is the round of a loop (`compiler.targets.cpu.llvm.step_function`)."""


class HostExecutor:
    """A host program in memory, ready to run as often as wanted, from any thread and in forked processes.

    One run at a time, others wait; runs of several executors overlap.
    """

    def __init__(self, program: HostProgram, code: HostCode) -> None:
        """``code`` must be of this program. Raises `InputError` unless this machine's processor can run it."""
        _check_processor(code)
        self.program, self._single_calls, self._team_bytes = program, code.single_calls, code.team_bytes
        team = ("weft_run",) if program.threads == 1 else ("weft_run", "weft_work", "weft_stop")
        self._machine_code = MachineCode(code.objects, [*team, *(call.symbol for call in code.calls)])
        self._arena = _aligned(program.arena_bytes)
        self._constants = _aligned(program.constants.size)
        self._constants[:] = program.constants
        self._string_inputs = {number for number, each in enumerate(program.inputs) if each.dtype == STRING}
        self._string_outputs = {number for number, each in enumerate(program.outputs) if each.dtype == STRING}
        self._inputs = (ctypes.c_void_p * max(1, len(program.inputs)))()
        self._outputs = (ctypes.c_void_p * max(1, len(program.outputs)))()
        self._team = _Team(self._machine_code, program.threads, self._team_bytes)
        self._counters = _aligned(max((call.counter_bytes for call in code.calls), default=0))
        memories = (self._constants, self._arena, self._counters)
        addresses = [ctypes.addressof(self._inputs), ctypes.addressof(self._outputs),
                     *(memory.ctypes.data for memory in memories), 0]  # fmt: skip
        self._table = (ctypes.c_void_p * len(addresses))(*addresses)
        self._table_address = ctypes.addressof(self._table)
        starts = {call.first: self._machine_code.address(call.symbol) for call in code.calls}
        self._steps: list[int | NumpyStep | CopyStep | CheckStep] = []
        for number, step in enumerate(program.steps):
            if not isinstance(step, LaunchStep):
                self._steps.append(step)
            elif number in starts:
                self._steps.append(starts[number])
        self._single: dict[int, int] = {}  # functions that run one launch, by the number of the step
        self._strings = HostStrings()
        self._lock = RunLock()

    @property
    def arena_bytes(self) -> int:
        """Memory that is allocated for tensors between kernels."""
        return self._arena.nbytes

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run the program once. Inputs and outputs are contiguous arrays of the program's shapes and types, in its
        order; no output may share memory with an input.

        Raises `InputError` for an array that does not fit, and for an index that is outside of its axis.
        """
        check_arrays(self.program, inputs, outputs)
        with self._lock:
            self.execute(inputs, outputs)

    def run_timed(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> tuple[float, ...]:
        """As `run`; gives the seconds of each of the program's layers. Copies and checks of indices are in none."""
        check_arrays(self.program, inputs, outputs)
        with self._lock:
            return self.execute_timed(inputs, outputs)

    def execute(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """As `run`, for a caller that has checked the arrays and lets in one run at a time."""
        self._prepare(inputs, outputs)
        for step in self._steps:
            if isinstance(step, int):
                self._team.run(step, self._table_address, self._counters)
            else:
                self._host_step(step, inputs, outputs)
        self._strings.clear()

    def execute_timed(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> tuple[float, ...]:
        """As `run_timed`, for such a caller."""
        if not self._single:
            self._load_single()
        self._prepare(inputs, outputs)
        seconds = [0.0] * len(self.program.layers)
        for loop, numbers in self.program.rounds():
            for turn in range(loop.count):
                self._table[TURN] = turn
                for number in numbers:
                    step = self.program.steps[number]
                    started = time.perf_counter()
                    if isinstance(step, LaunchStep):
                        self._team.run(self._single[number], self._table_address, self._counters)
                    else:
                        self._host_step(step, inputs, outputs)
                    if isinstance(step, LaunchStep | NumpyStep):
                        seconds[step.layer] += time.perf_counter() - started
        self._strings.clear()
        return tuple(seconds)

    def _load_single(self) -> None:
        objects, calls = self._single_calls()
        code = MachineCode(objects, [call.symbol for call in calls])
        self._single_code = code  # held for as long as it may run
        self._single = {call.first: code.address(call.symbol) for call in calls}

    def _prepare(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Before a run: threads, which do not outlive a fork, and where the inputs and outputs are."""
        if self._team.process != os.getpid():
            self._team = _Team(self._machine_code, self.program.threads, self._team_bytes)
        for arrays, strings, addresses in (
            (inputs, self._string_inputs, self._inputs), (outputs, self._string_outputs, self._outputs)
        ):  # fmt: skip
            for number, array in enumerate(arrays):
                addresses[number] = None if number in strings else _address(array)
        self._strings.clear()

    def _host_step(
        self, step: NumpyStep | CopyStep | CheckStep, inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> None:
        def array(place: Place) -> Array:
            return self._array(place, inputs, outputs)

        def write(place: Place, value: Array) -> None:
            if place.dtype == STRING:
                self._strings.put(place, value, outputs)
            else:
                array(place)[...] = value

        match step:
            case NumpyStep():
                for place, part in zip(step.outputs, results_of(step, [*map(array, step.inputs)]), strict=True):
                    write(place, part)
            case CheckStep():
                check_indices(array(step.indices), step)
            case CopyStep(source, target):
                write(target, array(source))

    def _array(self, place: Place, inputs: Sequence[Array], outputs: Sequence[Array]) -> Array:
        """The tensor at a place, as a view."""
        if place.dtype == STRING:
            return self._strings.get(place, inputs, outputs)
        match place.kind:
            case "input":
                memory = inputs[place.number].reshape(-1).view(np.uint8)
            case "output":
                memory = outputs[place.number].reshape(-1).view(np.uint8)
            case "arena":
                memory = self._arena
            case "constant":
                memory = self._constants
            case "strings":
                raise AssertionError("strings were handled before")
        view: Array = memory[place.offset : place.offset + place.nbytes].view(numpy_dtype(place.dtype))
        return view.reshape(place.shape)


class _Team:
    """The threads of an executor: the caller's, and workers that wait for jobs in compiled code."""

    def __init__(self, code: MachineCode, threads: int, nbytes: int) -> None:
        self.process = os.getpid()
        self._memory = _aligned(nbytes)
        self._run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64)(code.address("weft_run"))
        self._job = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
        self._single = threads == 1
        self._jobs: dict[int, Any] = {}
        if self._single:
            return
        work = self._job(code.address("weft_work"))
        stop = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address("weft_stop"))
        memory = self._memory

        def serve(thread: int) -> None:
            work(memory.ctypes.data, thread)

        workers = [threading.Thread(target=serve, args=(number,), daemon=True) for number in range(1, threads)]
        for worker in workers:
            worker.start()
        weakref.finalize(self, _finish, self.process, stop, memory, workers, code)

    def run(self, function: int, argument: int, counters: Array) -> None:
        """Run compiled code on all threads."""
        if not self._single:
            self._run(self._memory.ctypes.data, function, argument, counters.ctypes.data, counters.nbytes)
            return
        if function not in self._jobs:
            self._jobs[function] = self._job(function)
        self._jobs[function](argument, 0)


def _finish(process: int, stop: Any, memory: Array, workers: list[threading.Thread], code: MachineCode) -> None:
    """End the workers. ``code`` is held until then, since they run its code. Not in a child that was forked: it has
    none of them, and what one of them had locked then stays locked."""
    if os.getpid() != process:
        return
    stop(memory.ctypes.data)
    for worker in workers:
        worker.join()


def _check_processor(code: HostCode) -> None:
    """InputError unless this machine's processor can run the code."""
    triple, name, features = (*code.processor.split(), "")[:3]
    here = llvm.get_process_triple()
    if triple.split("-")[0] != here.split("-")[0]:
        raise InputError(f"the model is compiled for {triple} ({name}), but this machine is {here}",
                         hint="compile for processor 'host'")  # fmt: skip
    present = llvm.get_host_cpu_features()
    missing = [word[1:] for word in features.split(",") if word.startswith("+") and not present.get(word[1:], True)]
    if missing:
        raise InputError(f"the model is compiled for {name}, but this processor has no {', '.join(missing)}",
                         hint="compile on this machine")  # fmt: skip


def _address(array: Array) -> int:
    """Where an array begins: for most in a third of the time that its ``ctypes`` takes, of which a small model feels
    each part."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):  # it is empty, not to be written, or of a type that buffers have not
        return array.ctypes.data


def _aligned(nbytes: int) -> Array:
    """Zeroed bytes that start at a multiple of ``ALIGNMENT``."""
    memory = np.zeros(nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes]
