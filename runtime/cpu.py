"""Running a model that is compiled for this machine's processor: NumPy arrays in, NumPy arrays out."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Mapping
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt

from ..compiler.compiled_cpu import TEAM_BYTES, CheckStep, CompiledStep, CopyStep, CpuModel, NumpyStep, Place
from ..compiler.graph.dtypes import numpy_dtype
from ..compiler.graph.evaluate import evaluate_function
from .errors import InputError
from .inputs import named_inputs
from .run_lock import RunLock

Array = npt.NDArray[Any]
ALIGNMENT = 64
MATH_LIBRARY = "libm.so.6"

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()


class CpuModule:
    """A compiled model in memory, ready to run as often as wanted, from any thread and in forked processes.

    One run at a time, others wait; runs of several modules overlap.
    """

    def __init__(self, model: CpuModel) -> None:
        _check_processor(model)
        self.model = model
        self._engine = _loaded(model)
        self._arena = _aligned(model.arena_bytes)
        self._constants = _aligned(model.constants.size)
        self._constants[:] = model.constants
        self._input_names = [tensor.name for tensor in model.inputs]
        self._input_dtypes = [numpy_dtype(tensor.dtype) for tensor in model.inputs]
        self._output_dtypes = [numpy_dtype(tensor.dtype) for tensor in model.outputs]
        self._inputs = (ctypes.c_void_p * max(1, len(model.inputs)))()
        self._outputs = (ctypes.c_void_p * max(1, len(model.outputs)))()
        self._team = _Team(self._engine, model.threads)
        counters = max((step.counter_bytes for step in model.steps if isinstance(step, CompiledStep)), default=0)
        self._counters = _aligned(counters)
        memories = (self._constants, self._arena, self._counters)
        addresses = [ctypes.addressof(self._inputs), ctypes.addressof(self._outputs),
                     *(memory.ctypes.data for memory in memories)]  # fmt: skip
        self._table = (ctypes.c_void_p * len(addresses))(*addresses)
        self._table_address = ctypes.addressof(self._table)
        self._steps = [
            self._engine.get_function_address(step.symbol) if isinstance(step, CompiledStep) else step
            for step in model.steps
        ]
        self._lock = RunLock()

    @property
    def arena_bytes(self) -> int:
        """Memory that is allocated for tensors between kernels."""
        return self._arena.nbytes

    def run(self, inputs: Mapping[str, Array] | Array, outputs: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """Run the model once.

        inputs
            Arrays by name, or the one array of a model with one input. They are read where they are if they are
            contiguous.
        outputs
            Contiguous arrays to write to, by name; others are made. None may share memory with an input.

        Raises :class:`InputError` for data that does not fit.
        """
        given = self._checked(inputs)
        results = self._results(outputs or {})
        with self._lock:
            if self._team.process != os.getpid():
                self._team = _Team(self._engine, self.model.threads)  # threads do not outlive a fork
            for place, array in enumerate(given):
                self._inputs[place] = array.ctypes.data
            for place, array in enumerate(results):
                self._outputs[place] = array.ctypes.data
            for step in self._steps:
                match step:
                    case int():
                        self._team.run(step, self._table_address, self._counters)
                    case NumpyStep():
                        self._numpy(step, given, results)
                    case CheckStep():
                        _check_indices(self._array(step.indices, given, results), step)
                    case CopyStep(source, target):
                        self._array(target, given, results)[...] = self._array(source, given, results)
        return {tensor.name: array for tensor, array in zip(self.model.outputs, results, strict=True)}

    def _checked(self, inputs: Mapping[str, Array] | Array) -> list[Array]:
        values = named_inputs(inputs, self._input_names)
        found: list[Array] = []
        for tensor, dtype in zip(self.model.inputs, self._input_dtypes, strict=True):
            value = values[tensor.name]
            if value.shape != tensor.shape or value.dtype != dtype:
                raise InputError(
                    f"input {tensor.name!r} must be {tensor.dtype}{list(tensor.shape)}, "
                    f"not {value.dtype.name}{list(value.shape)}"
                )
            found.append(np.ascontiguousarray(value).reshape(tensor.shape))
        return found

    def _results(self, outputs: Mapping[str, Array]) -> list[Array]:
        names = [tensor.name for tensor in self.model.outputs]
        for name in outputs:
            if name not in names:
                raise InputError(f"the model has no output {name!r}", hint=f"its outputs: {', '.join(sorted(names))}")
        found: list[Array] = []
        for tensor, dtype in zip(self.model.outputs, self._output_dtypes, strict=True):
            array = outputs.get(tensor.name)
            if array is None:
                array = np.empty(tensor.shape, dtype)
            elif array.shape != tensor.shape or array.dtype != dtype or not array.flags.c_contiguous:
                raise InputError(
                    f"output {tensor.name!r} must be contiguous {tensor.dtype}{list(tensor.shape)}, "
                    f"not {array.dtype.name}{list(array.shape)}"
                )
            found.append(array)
        return found

    def _numpy(self, step: NumpyStep, given: list[Array], results: list[Array]) -> None:
        value = evaluate_function(step.function, [self._array(place, given, results) for place in step.inputs])
        for place, part in zip(step.outputs, value if isinstance(value, tuple) else (value,), strict=True):
            self._array(place, given, results)[...] = part

    def _array(self, place: Place, given: list[Array], results: list[Array]) -> Array:
        """The tensor at a place, as a view."""
        if place.kind == "input":
            return given[place.where].reshape(place.shape)
        if place.kind == "output":
            return results[place.where].reshape(place.shape)
        memory = self._arena if place.kind == "arena" else self._constants
        view: Array = memory[place.where : place.where + place.nbytes].view(numpy_dtype(place.dtype))
        return view.reshape(place.shape)


def _check_indices(indices: Array, step: CheckStep) -> None:
    """InputError for the first index that is not inside its axis."""
    sizes = np.broadcast_to(np.array(step.sizes), indices.shape or (1,))
    values = indices.reshape(sizes.shape)
    outside = (values < -sizes) | (values >= sizes)
    if outside.any():
        index, size = int(values[outside][0]), int(sizes[outside][0])
        raise InputError(f"{step.node}: index {index} is outside of an axis of {size} elements",
                         hint=f"it must be in -{size}..{size - 1}")  # fmt: skip


class _Team:
    """The threads of a module: the caller's, and workers that wait for jobs in compiled code."""

    def __init__(self, engine: llvm.ExecutionEngine, threads: int) -> None:
        self.process = os.getpid()
        self._memory = _aligned(TEAM_BYTES)
        self._run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64)(
            engine.get_function_address("weft_run")
        )
        self._job = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
        self._single = threads == 1
        self._jobs: dict[int, Any] = {}
        if self._single:
            return
        work = self._job(engine.get_function_address("weft_work"))
        stop = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.get_function_address("weft_stop"))
        memory = self._memory

        def serve(thread: int) -> None:
            work(memory.ctypes.data, thread)

        workers = [threading.Thread(target=serve, args=(number,), daemon=True) for number in range(1, threads)]
        for worker in workers:
            worker.start()
        weakref.finalize(self, _finish, stop, memory, workers, engine)

    def run(self, function: int, argument: int, counters: Array) -> None:
        """Run compiled code on all threads."""
        if not self._single:
            self._run(self._memory.ctypes.data, function, argument, counters.ctypes.data, counters.nbytes)
            return
        if function not in self._jobs:
            self._jobs[function] = self._job(function)
        self._jobs[function](argument, 0)


def _finish(stop: Any, memory: Array, workers: list[threading.Thread], engine: llvm.ExecutionEngine) -> None:
    """End the workers. ``engine`` is held until then, since they run its code."""
    stop(memory.ctypes.data)
    for worker in workers:
        worker.join()


def _check_processor(model: CpuModel) -> None:
    """InputError unless this machine's processor can run the model's code."""
    triple, name, features, *_ = model.processor.split()
    here = llvm.get_process_triple()
    if triple.split("-")[0] != here.split("-")[0]:
        raise InputError(f"the model is compiled for {triple} ({name}), but this machine is {here}",
                         hint="compile for processor 'host'")  # fmt: skip
    present = llvm.get_host_cpu_features()
    missing = [word[1:] for word in features.split(",") if word.startswith("+") and not present.get(word[1:], True)]
    if missing:
        raise InputError(f"the model is compiled for {name}, but this processor has no {', '.join(missing)}",
                         hint="compile on this machine")  # fmt: skip


def _loaded(model: CpuModel) -> llvm.ExecutionEngine:
    llvm.load_library_permanently(MATH_LIBRARY)
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    for code in (model.pool, *model.objects):
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


def _aligned(nbytes: int) -> Array:
    """Zeroed bytes that start at a multiple of ``ALIGNMENT``."""
    memory = np.zeros(nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes]
